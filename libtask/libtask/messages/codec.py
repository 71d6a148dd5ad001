"""The codec of messages: one message per frame, validated by `decode_*`."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING, Any, get_args

import msgpack
import msgspec

from libtask.errors import InputError
from libtask.messages.base import MAX_ANSWER, MAX_FRAME, Message
from libtask.messages.client import (
    Estimate,
    FromClient,
    Policies,
    Request,
    Submit,
    ToClient,
)
from libtask.messages.handshake import Register, Registered
from libtask.messages.limits import check
from libtask.messages.worker import (
    Finished,
    FromWorker,
    Progress,
    Reports,
    Resumed,
    SnapshotTaken,
    ToWorker,
    Yielded,
)

if TYPE_CHECKING:
    from collections.abc import Callable

ToDaemon = Register | FromClient | FromWorker
FromDaemon = Registered | ToClient | ToWorker


def unencodable(name: str, error: OverflowError | RecursionError) -> InputError:
    """Return the refusal of what no message can hold."""
    if isinstance(error, OverflowError):
        return InputError(f"{name}: a whole number has more than 64 bits")
    return InputError(f"{name}: nested too deeply")


def encode(message: Message) -> bytes:
    """Encode a message into one frame.

    Raises:
        InputError: the frame would exceed `MAX_FRAME` (`MAX_ANSWER` from hetd), or the
            message contains a value that cannot be encoded.

    """
    try:
        frame = msgspec.msgpack.encode(message)
    except (OverflowError, RecursionError) as error:
        raise unencodable(type(message).__name__, error) from error
    if len(frame) > MAX_FRAME:
        kind = type(message).__name__
        limit = MAX_ANSWER if kind in _FROM_DAEMON else MAX_FRAME
        if len(frame) > limit:
            text = f"{kind} of {len(frame)} bytes exceeds the limit of {limit}"
            raise InputError(text)
    return frame


_TO_DAEMON = {kind.__name__: kind for kind in get_args(ToDaemon)}
_FROM_DAEMON = {kind.__name__: kind for kind in get_args(FromDaemon)}


class MalformedError(InputError):
    """The frame is not a known message; `request` is its number if that can be read."""

    def __init__(self, text: str, request: int) -> None:
        super().__init__(text)
        self.request = request


LIMITS = {
    "max_str_len": MAX_FRAME,
    "max_bin_len": MAX_FRAME,
    "max_array_len": 65_536,
    "max_map_len": 32_768,
    "max_ext_len": 0,
}
UNCOUNTED = 16 * 1024
"""Bytes of a frame that is too small to hold many values, which are not counted then."""
MOST_VALUES = 100_000
"""Maximum number of values in a peer's message. A megabyte could hold a million lists,
which take a quarter of a second to build; this number takes about ten milliseconds."""
HEAD = 64
"""Bytes of a frame that contain the type of the message and its request number."""
CONTAINER = 4
"""Number of values that an array or a map counts for, in addition to its content."""
KEYED = 3
"""Number of values that an entry of a map counts for: its key, its value, its slot."""


class _Count:
    """Counts decoded values and stops the decoder at the limit."""

    def __init__(self) -> None:
        self._left = MOST_VALUES

    def __call__(self, built: Any) -> Any:
        weight = KEYED if isinstance(built, dict) else 1
        self._left -= CONTAINER + weight * len(built)
        if self._left < 0:
            raise ValueError(f"more than {MOST_VALUES} values")
        return built


def _unpack(frame: bytes) -> Any:
    """Unpack a peer's frame in bounded time."""
    if len(frame) <= UNCOUNTED:
        return msgpack.unpackb(frame, **LIMITS)
    count = _Count()
    return msgpack.unpackb(frame, list_hook=count, object_hook=count, **LIMITS)


def _unpack_trusted(frame: bytes) -> Any:
    return msgpack.unpackb(frame, **LIMITS)


def _decode(frame: bytes, kinds: dict[str, Any], unpack: Callable[[bytes], Any]) -> Any:
    plain: Any = None
    try:
        plain = unpack(frame)
        # Converting to a single class is 20 times faster than to the union of all.
        return msgspec.convert(plain, kinds[plain["t"]])
    except (
        ValueError,
        TypeError,
        KeyError,
        RecursionError,
        msgspec.MsgspecError,
    ) as error:
        request = plain.get("request") if isinstance(plain, dict) else 0
        raise MalformedError(
            f"malformed message: {type(error).__name__}: {error}",
            request if isinstance(request, int) else 0,
        ) from error


class _Decoder:
    """A decoder that is made at its first use: it takes a tenth of a client's start.

    Args:
        messages: union of the messages.

    """

    _making = threading.Lock()
    """Two threads that let msgspec examine a type at the same time crash the process."""

    def __init__(self, messages: Any) -> None:
        self._messages = messages
        self._made: msgspec.msgpack.Decoder[Any] | None = None

    def decode(self, frame: bytes) -> Any:
        """Decode a frame.

        Raises:
            ValueError: it is none of the messages.

        """
        made = self._made
        return (self._make() if made is None else made).decode(frame)

    def _make(self) -> msgspec.msgpack.Decoder[Any]:
        with self._making:
            if self._made is None:
                self._made = msgspec.msgpack.Decoder(self._messages)
            return self._made


_TO_DAEMON_DIRECTLY = _Decoder(ToDaemon)
_FROM_DAEMON_DIRECTLY = _Decoder(FromDaemon)
_UNREADABLE = (ValueError, RecursionError, msgspec.MsgspecError)
"""Exceptions of a decoder; decoding by way of plain values then locates the error."""
_ANY_VALUES: dict[type, Callable[[Any], object]] = {
    Finished: lambda message: message.result is not None,
    Reports: lambda message: any(r.result is not None for r in message.reports),
    Submit: lambda message: any(task.params for task in message.tasks),
    Estimate: lambda message: message.spec.params,
    Policies: lambda message: message.parameters,
    **dict.fromkeys(
        (Progress, Yielded, SnapshotTaken, Resumed),
        lambda message: message.checkpoint.extra,
    ),
}
"""Messages to hetd with fields of type `Any`: whether these hold anything."""


def _straight(frame: bytes) -> ToDaemon | None:
    """Decode a small frame directly into a message, five times faster.

    Returns:
        None if the frame must be decoded by way of plain values: it is large,
        malformed, or has fields of type `Any`, for which msgspec accepts values that
        msgpack rejects.

    """
    if len(frame) > UNCOUNTED:
        return None
    try:
        message: ToDaemon = _TO_DAEMON_DIRECTLY.decode(frame)
    except _UNREADABLE:
        return None
    holds_any = _ANY_VALUES.get(type(message))
    return None if holds_any is not None and holds_any(message) else message


def decode_to_daemon(frame: bytes) -> ToDaemon:
    """Decode and validate a peer's message to hetd.

    Raises:
        MalformedError: the frame is malformed, unknown, or exceeds a limit.

    """
    message = _straight(frame)
    if message is None:
        message = _decode(frame, _TO_DAEMON, _unpack)
    try:
        check(message, len(frame))
    except InputError as error:
        number = message.request if isinstance(message, Request) else 0
        raise MalformedError(str(error), number) from error
    return message


def request_in(frame: bytes | memoryview) -> int | None:
    """Read the request number from the beginning of a frame.

    Returns:
        The number; None: the frame is not a request, or does not begin with its number.

    """
    head = msgpack.Unpacker(max_buffer_size=HEAD)
    head.feed(frame[:HEAD])
    try:
        head.read_map_header()
        fields = [head.unpack() for _ in range(4)]
    except (ValueError, msgpack.UnpackException):
        return None
    kind = _TO_DAEMON.get(fields[1]) if isinstance(fields[1], str) else None
    if fields[::2] != ["t", "request"] or not issubclass(kind or Message, Request):
        return None
    return fields[3] if isinstance(fields[3], int) else None


def decode_from_daemon(frame: bytes) -> FromDaemon:
    """Decode and validate a message from hetd.

    Raises:
        MalformedError: the frame is malformed or unknown.

    """
    collects = len(frame) > UNCOUNTED and gc.isenabled()
    if collects:
        # Until Python 3.12, garbage is collected in the midst of decoding, a score of times
        # for a page of tasks: that takes longer than decoding, and none is garbage yet. No
        # other thread runs meanwhile.
        gc.disable()
    try:
        message: FromDaemon = _FROM_DAEMON_DIRECTLY.decode(frame)
    except _UNREADABLE:
        message = _decode(frame, _FROM_DAEMON, _unpack_trusted)
    finally:
        if collects:
            gc.enable()
    return message
