"""The code that `hetctl completion` prints for fish and zsh: click's, with two defects mended.

click's code for fish cuts descriptions, and values such as `1,@study`, at their first comma.
In both shells it takes a value for the whole word in `--state=completed`. Registered before
click answers a shell, and before the code is printed.
"""

from __future__ import annotations

from click.shell_completion import (
    CompletionItem,
    FishComplete,
    ZshComplete,
    add_completion_class,
)

FISH = r"""function %(complete_func)s
    set -l response (env %(complete_var)s=fish_complete COMP_WORDS=(commandline -cp) \
        COMP_CWORD=(commandline -t) %(prog_name)s)
    for completion in $response
        set -l metadata (string split -m 1 "," -- $completion)
        if test $metadata[1] = "plain"
            echo $metadata[2]
        else
            set -l option (string match -r -- '^--[^=]+=' $metadata[2]; or echo "")
            set -l path (string replace -r -- '^--[^=]+=' "" $metadata[2])
            for found in (%(complete_func)s_paths $metadata[1] $path)
                echo $option$found
            end
        end
    end
end

function %(complete_func)s_paths
    if test $argv[1] = "dir"
        __fish_complete_directories "$argv[2]"
    else
        __fish_complete_path "$argv[2]"
    end
end

complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
"""
LOOP = "    for type key descr in ${response}; do"
"""The line of click's code for zsh that takes the answers."""
OPTION = """    if [[ "$PREFIX" == --*=* ]]; then
        compset -P '*='
    fi

"""


class WholeWordFish(FishComplete):
    """Completes whole words: fish replaces `--state=co`, and not only what follows `=`."""

    source_template = FISH

    def get_completions(
        self, args: list[str], incomplete: str
    ) -> list[CompletionItem[str]]:
        found = super().get_completions(args, incomplete)
        option, equals, _ = incomplete.partition("=")
        if not (equals and option.startswith("--")):
            return found
        return [
            CompletionItem(f"{option}={item.value}", item.type, item.help)
            for item in found
        ]


class ValueZsh(ZshComplete):
    """Completes what follows the `=` of an option."""

    source_template = ZshComplete.source_template.replace(LOOP, OPTION + LOOP)


def register() -> None:
    """Let click use these."""
    add_completion_class(WholeWordFish)
    add_completion_class(ValueZsh)
