"""Dialogs of `hetctl top`: a choice, and a text to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Label, OptionList, Static
from textual.widgets.option_list import Option

from libtask.plaintext import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult
    from textual.binding import BindingType


class Choice(ModalScreen[str | None]):
    """Asks the user to select a word; Escape selects none.

    Args:
        question: the question.
        choices: pairs of a word and its description.

    """

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "dismiss(None)", "Back")]
    CSS = """
    Choice { align: center middle; }
    Choice > Vertical {
        width: auto; max-width: 76; height: auto; max-height: 20;
        border: round $accent; padding: 0 1; background: $surface;
    }
    Choice OptionList { width: 70; height: auto; max-height: 15; border: none; }
    """

    def __init__(self, question: str, choices: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._question = question
        self._choices = choices

    def compose(self) -> ComposeResult:
        width = max(len(word) for word, _ in self._choices)
        with Vertical():
            yield Label(self._question, markup=False)
            yield OptionList(
                *(
                    Option(f"{word:{width}}  {text}", id=word)
                    for word, text in self._choices
                )
            )

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id)


class Reading(ModalScreen[None]):
    """Shows a text until a key is pressed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "dismiss(None)", "Back"),
        ("enter", "dismiss(None)", "Back"),
        ("q", "dismiss(None)", "Back"),
    ]
    CSS = """
    Reading { align: center middle; }
    Reading > VerticalScroll {
        width: 96%; max-width: 110; height: auto; max-height: 90%;
        border: round $accent; padding: 0 1; background: $surface;
    }
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(visible(self._text), markup=False)
