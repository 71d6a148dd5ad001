"""Reading documents: JSON files turned into checked types, or a line that names the place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from libtask.complaints import OBJECT, complaint_of
from libtask.documents import check_numbers, decoded
from libtask.errors import InputError
from libtask.whole_files import LARGEST_DATA, read_whole

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Document = TypeVar("Document")


def read_document(path: Path, decode: Callable[[bytes], Document]) -> Document:
    """Read a file.

    Args:
        decode: turns its text into a document.

    Raises:
        InputError: unreadable or malformed; names the file and the place.

    """
    try:
        return decode(read_whole(path, LARGEST_DATA))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def decode_json(text: bytes | str) -> Any:
    """Decode JSON text.

    Raises:
        InputError: it is none.

    """
    try:
        document = decoded(msgspec.json.decode, text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(str(error)) from error
    check_numbers(document)
    return document


def convert(raw: Any, kind: type[Document], shown: Any = None) -> Document:
    """Turn what was decoded into a type.

    Args:
        shown: what complaints quote; None: `raw`.

    Raises:
        InputError: malformed; names the place.

    """
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        quoted = raw if shown is None else shown
        complaint = complaint_of(error, quoted, kind, table=OBJECT)
        raise InputError(complaint) from error
