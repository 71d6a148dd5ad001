"""Plain text: words of others that cannot steer a terminal, nor forge a line of a log.

Names, types, reasons and parameters are users' words, and others read them. A control
character among them would move the cursor, rename the window or paint over what stands
there; one that changes the direction of writing would make a line say something else;
an end of a line would begin one that nobody wrote. They are shown as escapes instead.
"""

from __future__ import annotations

CONTROLS = (
    *range(0x20),
    *range(0x7F, 0xA0),
    *(0x061C, 0x200E, 0x200F, 0x2028, 0x2029),  # marks of direction, ends of lines
    *range(0x202A, 0x202F),  # embedded and overridden directions
    *range(0x2066, 0x206A),  # isolated ones
)
_ALL = {code: ascii(chr(code))[1:-1] for code in CONTROLS}
_BUT_LINES = {code: shown for code, shown in _ALL.items() if chr(code) not in "\n\t"}


def visible(text: str) -> str:
    """Write control characters as escapes; ends of lines and tabs stay."""
    return text.translate(_BUT_LINES)


def one_line(text: str) -> str:
    """Write all control characters as escapes: what is shown stays in its line."""
    return text.translate(_ALL)
