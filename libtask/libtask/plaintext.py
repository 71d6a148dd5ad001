"""Plain text: escapes the control characters in text that comes from other users.

Users choose names, types, reasons and parameters, and other users read them. A control
character could move the cursor, rename the window or overwrite earlier output; a change
of writing direction could alter the apparent meaning; a newline could forge a line of a
log.
"""

from __future__ import annotations

CONTROLS = (
    *range(0x20),
    *range(0x7F, 0xA0),
    *(0x061C, 0x200E, 0x200F, 0x2028, 0x2029),  # marks of direction, ends of lines
    *range(0x202A, 0x202F),  # embedded and overridden directions
    *range(0x2066, 0x206A),  # isolated ones
    *range(0xD800, 0xE000),  # bytes that are not UTF-8, which no output can encode
)
_ALL = {code: ascii(chr(code))[1:-1] for code in CONTROLS}
_BUT_LINES = {code: shown for code, shown in _ALL.items() if chr(code) not in "\n\t"}


def visible(text: str) -> str:
    """Escape control characters except newlines and tabs."""
    return text.translate(_BUT_LINES)


def one_line(text: str) -> str:
    """Escape all control characters, so that the text stays on one line."""
    return text.translate(_ALL)
