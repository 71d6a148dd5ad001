"""The code that `hetctl completion` prints: click's, with three defects mended.

click's code for fish cuts descriptions, and values such as `1,@study`, at their first comma.
In fish and zsh it takes a value for the whole word in `--state=completed`. In bash it takes the
parts into which bash splits `--state=co`, `@study` and `job:night` for words. Registered before
click answers a shell, and before the code is printed.
"""

from __future__ import annotations

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ZshComplete,
    add_completion_class,
)

BASH = r"""%(complete_func)s() {
    local IFS=$'\n' rest=$COMP_LINE words=() kept="" word gap breaks response completion type value

    # join again the parts that are not split at spaces
    for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
        gap=${rest%%%%[![:space:]]*}
        rest=${rest#"$gap"}
        rest=${rest#"$word"}
        if [[ -n $gap || ${#words[@]} -eq 0 ]]; then
            words+=("$word")
        else
            words[-1]+=$word
        fi
    done

    # of the last word, bash replaces only the part after the last of these characters
    breaks=${COMP_WORDBREAKS//[!:=]}
    if [[ -n $breaks ]]; then
        kept=${words[-1]%%"${words[-1]##*[$breaks]}"}
    fi

    response=$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((${#words[@]} - 1)) \
        %(complete_var)s=bash_complete $1)

    for completion in $response; do
        IFS=',' read type value <<< "$completion"

        if [[ $type == 'dir' ]]; then
            COMPREPLY=()
            compopt -o dirnames
        elif [[ $type == 'file' ]]; then
            COMPREPLY=()
            compopt -o default
        elif [[ $type == 'plain' ]]; then
            COMPREPLY+=("${value#"$kept"}")
        fi
    done

    return 0
}

%(complete_func)s_setup() {
    complete -o nosort -F %(complete_func)s %(prog_name)s
}

%(complete_func)s_setup;
"""
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


class WholeWordBash(BashComplete):
    """Completes words as the shell will see them."""

    source_template = BASH


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
    add_completion_class(WholeWordBash)
    add_completion_class(WholeWordFish)
    add_completion_class(ValueZsh)
