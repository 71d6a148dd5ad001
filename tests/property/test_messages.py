"""Every message survives the wire, and bytes that are no message raise only our error."""

from __future__ import annotations

from functools import cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    get_args,
    get_origin,
    get_type_hints,
)

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libtask import messages as m
from libtask.errors import InputError
from libtask.messages import codec

if TYPE_CHECKING:
    from collections.abc import Callable

TO_DAEMON = get_args(m.ToDaemon)
FROM_DAEMON = get_args(m.FromDaemon)

TEXTS = st.text(max_size=8)
WHOLE = st.integers(-(2**63), 2**63 - 1)
NUMBERS = st.floats(allow_nan=False)
PLAIN = st.recursive(
    st.none() | st.booleans() | WHOLE | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner),
    max_leaves=5,
)


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Make values of an annotated type, as the messages use them."""
    arguments = get_args(kind)
    if get_origin(kind) is Annotated:
        return bounded(*arguments)
    return combined(kind, arguments)


def combined(kind: Any, arguments: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    match get_origin(kind):
        case None:
            return plain_values(kind)
        case origin if origin is Literal:
            return st.sampled_from(arguments)
        case origin if origin is list:
            return st.lists(values(arguments[0]), max_size=3)
        case origin if origin is dict:
            return st.dictionaries(TEXTS, values(arguments[1]), max_size=3)
    return st.one_of([values(one) for one in arguments])


def bounded(kind: Any, limits: msgspec.Meta) -> st.SearchStrategy[Any]:
    if limits.extra is not None:  # bytes and entries, more than are drawn here
        return values(kind)
    if kind is str:
        return st.text(max_size=limits.max_length)
    if get_origin(kind) is list:
        return st.lists(values(get_args(kind)[0]), max_size=3)
    made = st.integers if kind is int else st.floats
    return made(min_value=limits.ge, max_value=limits.le)  # type: ignore[arg-type]  # one type at a time


def plain_values(kind: Any) -> st.SearchStrategy[Any]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return structures(kind)
    plain = {int: WHOLE, float: NUMBERS, str: TEXTS, bool: st.booleans(), Any: PLAIN}
    return {**plain, type(None): st.none()}[kind]


@cache  # to make a strategy takes longer than to draw from it
def structures(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind, include_extras=True)
    fields = [field.name for field in msgspec.structs.fields(kind)]
    return st.builds(kind, **{name: values(hints[name]) for name in fields})


@pytest.mark.parametrize("kind", TO_DAEMON)
@given(data=st.data())
def test_what_peers_send_arrives_as_it_was(
    kind: type[m.Message], data: st.DataObject
) -> None:
    message = data.draw(structures(kind))

    assert m.decode_to_daemon(m.encode(message)) == message


@pytest.mark.parametrize("kind", FROM_DAEMON)
@given(data=st.data())
def test_what_hetd_sends_arrives_as_it_was(
    kind: type[m.Message], data: st.DataObject
) -> None:
    message = data.draw(structures(kind))

    assert m.decode_from_daemon(m.encode(message)) == message


def decodes_or_raises_our_error(frame: bytes) -> None:
    for decode in (m.decode_to_daemon, m.decode_from_daemon):
        try:
            message = decode(frame)
        except InputError as error:
            assert "\n" not in str(error)  # noqa: PT017  either outcome is right
        else:
            assert isinstance(message, m.Message)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_message_raise_only_our_error(frame: bytes) -> None:
    decodes_or_raises_our_error(frame)


KINDS = st.sampled_from([kind.__name__ for kind in (*TO_DAEMON, *FROM_DAEMON)])


@given(KINDS, st.dictionaries(TEXTS, PLAIN, max_size=4))
def test_maps_with_wrong_fields_raise_only_our_error(
    kind: str, fields: dict[str, Any]
) -> None:
    decodes_or_raises_our_error(msgpack.packb({**fields, "t": kind}))


@given(st.data())
def test_mutilated_messages_raise_only_our_error(data: st.DataObject) -> None:
    long: list[type[m.Message]] = [m.Submit, m.Control, m.TaskList, m.Progress]
    kind = data.draw(st.sampled_from(long))
    frame = bytearray(m.encode(data.draw(structures(kind))))
    place = data.draw(st.integers(0, len(frame) - 1))

    frame[place] = data.draw(st.integers(0, 255))

    decodes_or_raises_our_error(bytes(frame))
    decodes_or_raises_our_error(bytes(frame[:place]))


def test_a_message_for_one_side_is_refused_by_the_other() -> None:
    with pytest.raises(InputError, match="malformed message"):
        m.decode_from_daemon(m.encode(m.Stop(request=1)))


def test_a_message_beyond_the_limit_is_not_sent() -> None:
    with pytest.raises(InputError, match=r"Error of .* bytes exceeds the limit"):
        m.encode(m.Error(request=1, code="x", text="x" * m.MAX_ANSWER))


def _large(value: bytes) -> bytes:
    """Make a frame of the largest size that is full of one value."""
    many = (m.MAX_FRAME - 1024) // len(value)
    array = b"\xdd" + (60_000).to_bytes(4, "big") + value * 60_000
    arrays = b"\xdd" + (many // 60_000).to_bytes(4, "big") + array * (many // 60_000)
    head = {"t": "Submit", "request": 7, "tasks": []}
    packed: bytes = msgpack.packb(head)
    # one more entry of the map than `head` has
    return b"\x84" + packed[1:] + b"\xa1x" + arrays


@pytest.mark.parametrize(
    "value",
    [b"\x01", b"\x90", b"\x80", b"\x91\x90", b"\xa2\xc3\xa9", b"\x81\xa1a\x80"],
    ids=["numbers", "lists", "maps", "nested", "texts", "entries"],
)
def test_a_message_of_too_many_values_is_refused_before_they_are_built(
    value: bytes,
) -> None:
    with pytest.raises(m.MalformedError, match="more than 100000 values") as refusal:
        m.decode_to_daemon(_large(value))

    # what was not built cannot be asked which request it is
    assert refusal.value.request == 0


def test_what_hetd_itself_sends_may_be_larger() -> None:
    tasks = [m.TaskInfo(1, "a", "t", "queued", "uid:0", after=list(range(200)))] * 1000
    listed = m.TaskList(1, tasks)

    assert m.decode_from_daemon(m.encode(listed)) == listed


@pytest.mark.parametrize(
    "frame",
    [
        msgpack.packb({"t": "Stop", "request": msgpack.ExtType(5, b"x")}),
        msgpack.packb({"t": "Stop", "request": msgpack.Timestamp(1)}),
        b"\x91" * 2000,
        msgpack.packb({"t": "Stop", "request": 1, "key": b"\xed\xa0\x80"}),
        b"\x82\xa1t\xa4Stop\xa7request\xcb\x7f\xf8\0\0\0\0\0\0",
        b"\x82\xa1t\xa4Stop\x07\x01",
        b"\x82\xa1t\xa4Stop\xa3\xed\xa0\x80\x01",
    ],
    ids=["extension", "time", "deep", "surrogate", "nan", "number as key", "bad text"],
)
def test_strange_values_raise_only_our_error(frame: bytes) -> None:
    with pytest.raises(m.MalformedError):
        m.decode_to_daemon(frame)


STRANGE = [msgpack.ExtType(5, b"x"), msgpack.Timestamp(1), {1: 2}, {"deep": {3: 4}}]


@pytest.mark.parametrize("value", STRANGE, ids=repr)
@pytest.mark.parametrize(
    "fields",
    [
        lambda value: {"t": "Finished", "task": 1, "epoch": 1, "result": value},
        lambda value: {
            "t": "Submit",
            "request": 1,
            "tasks": [{"app": "a"}, {"app": "a", "params": {"p": value}}],
        },
        lambda value: {
            "t": "Estimate",
            "request": 1,
            "spec": {"app": "a", "params": {"p": value}},
        },
        lambda value: {
            "t": "Progress",
            "task": 1,
            "epoch": 1,
            "checkpoint": {"extra": {"e": value}},
            "seconds": 1.0,
            "iterations": 1,
        },
        lambda value: {"t": "Policies", "request": 1, "parameters": {"p": value}},
    ],
    ids=["result", "params", "estimated", "extra", "parameters"],
)
def test_values_of_any_type_are_still_plain_ones(
    fields: Callable[[Any], dict[str, Any]], value: object
) -> None:
    m.decode_to_daemon(msgpack.packb(fields({"plain": [1, 2.5, "x", None]})))

    with pytest.raises(m.MalformedError):
        m.decode_to_daemon(msgpack.packb(fields(value)))


def _by_plain_values(frame: bytes) -> m.Message | None:
    """Decode as large frames are; None: refused."""
    try:
        message: m.Message = codec._decode(frame, codec._TO_DAEMON, codec._unpack)
    except m.MalformedError:
        return None
    return message


@pytest.mark.parametrize("kind", TO_DAEMON)
@given(data=st.data())
def test_small_frames_are_decoded_as_large_ones_are(
    kind: type[m.Message], data: st.DataObject
) -> None:
    fields = msgspec.to_builtins(data.draw(structures(kind)))
    name = data.draw(st.sampled_from([*fields, "other"]))
    frame = msgpack.packb({**fields, name: data.draw(PLAIN)})

    straight = codec._straight(frame)

    assert straight is None or straight == _by_plain_values(frame)


def _has_any(kind: msgspec.inspect.Type) -> bool:
    match kind:
        case msgspec.inspect.StructType():
            return any(_has_any(field.type) for field in kind.fields)
        case msgspec.inspect.UnionType():
            return any(map(_has_any, kind.types))
        case (
            msgspec.inspect.Metadata(type=inner)
            | msgspec.inspect.DictType(value_type=inner)
            | msgspec.inspect.ListType(item_type=inner)
        ):
            return _has_any(inner)
        case _:
            return isinstance(kind, msgspec.inspect.AnyType)


def test_each_message_with_values_of_any_type_is_known() -> None:
    with_any = {
        kind.__name__ for kind in TO_DAEMON if _has_any(msgspec.inspect.type_info(kind))
    }

    assert with_any == {kind.__name__ for kind in codec._ANY_VALUES}
