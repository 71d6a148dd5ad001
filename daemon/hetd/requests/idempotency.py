"""IdempotencyKeys: a change that is asked for again is answered as it was at first, not made again.

A client that gets no answer cannot know whether it was heard, so it asks again with
the same key. Keys belong to their users. A key that comes with another request is the
client's mistake, and is said to be one.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from hetsched.system import SECOND
from libtask import messages as m
from libtask.errors import ConflictError, ExpiredError, InputError

if TYPE_CHECKING:
    from hetd.runtime import Runtime
    from hetd.store import Store

KEYS = 20_000
"""Keys kept in memory. Of lasting changes, older ones are read from the store."""
KEY_BYTES = 16 << 20
"""Bytes of their answers at most."""
LONGEST_KEY = 128
PASSING = (m.Stop,)
"""What a restart of hetd undoes: it is to be made again after one, so that its key is
forgotten with it."""


class IdempotencyKeys:
    """Remembers the answers to changes by their idempotency keys."""

    def __init__(self, runtime: Runtime, store: Store) -> None:
        self._runtime = runtime
        self._store = store
        clock = runtime.clock
        self._born = clock.wall() - clock.now() / SECOND
        """The time of day at the zero of the monotonic clock, as it was at the start."""
        self._answers: OrderedDict[tuple[int, str], tuple[bytes, bytes]] = OrderedDict()
        """(uid, key) -> (digest of the request, encoded answer)."""
        self._bytes = 0

    def recall(self, uid: int, request: m.Change) -> m.Request | None:
        """Return the answer that this request got before; None: it is new.

        Raises:
            ConflictError: the key came before with another request.
            ExpiredError: it is new, but its sender does not wait for it any more.
            InputError: the key is too long.

        """
        if len(request.key) > LONGEST_KEY:
            raise InputError(f"key: expected at most {LONGEST_KEY} characters")
        known = self._find(uid, request.key) if request.key else None
        if known is None:
            self._refuse_stale(request)
            return None
        digest, answer = known
        if digest and digest != _digest(request):
            raise ConflictError(f"key {request.key!r} came before with other content")
        reply = m.decode_from_daemon(answer)
        assert isinstance(reply, m.Request)  # noqa: S101  we encoded it ourselves
        if isinstance(reply, m.Submitted):  # that may have changed meanwhile
            here = self._runtime.pool.has_launcher(uid)
            reply = msgspec.structs.replace(reply, launcher=here)
        return msgspec.structs.replace(reply, request=request.request)

    def remember(self, uid: int, request: m.Change, reply: m.Request) -> None:
        """Keep the answer; together with the change, where that lasts."""
        if not request.key:
            return
        digest = _digest(request)
        answer = m.encode(msgspec.structs.replace(reply, request=0))
        self._answers[uid, request.key] = digest, answer
        self._bytes += len(answer)
        if _lasts(request):
            # not by a time of day that jumps: a key's age says when it is forgotten
            at = int(self._born + self._runtime.clock.now() / SECOND)
            row = (uid, request.key, digest, answer, at)
            self._runtime.journal.batch.keys.append(row)
            self._runtime.journal.usage.answers[uid] += len(answer)
        # what is not committed yet cannot be read from the store
        while self._has_too_many and self._store.idle:
            _, (_, old) = self._answers.popitem(last=False)
            self._bytes -= len(old)

    @property
    def _has_too_many(self) -> bool:
        return len(self._answers) > KEYS or self._bytes > KEY_BYTES

    def forget(self, uid: int, key: str) -> None:
        """Let a key be new again: its change was taken back."""
        known = self._answers.pop((uid, key), None)
        if known is not None:
            self._bytes -= len(known[1])
            self._runtime.journal.usage.answers[uid] -= len(known[1])

    def _find(self, uid: int, key: str) -> tuple[bytes, bytes] | None:
        return self._answers.get((uid, key)) or self._store.key(uid, key)

    def _refuse_stale(self, request: m.Change) -> None:
        """Refuse what was held up on its way for too long: its sender gave it up."""
        if request.expires is None:
            return
        late = self._runtime.clock.now() / SECOND - request.expires
        if late > 0:
            raise ExpiredError(f"the request came {late:.1f} s after its deadline")


def _lasts(request: m.Change) -> bool:
    """Whether a change outlives a restart; to ask which policy there is is none."""
    if isinstance(request, m.Policies):
        return request.set is not None or request.configured
    return not isinstance(request, PASSING)


def _digest(request: m.Change) -> bytes:
    """Digest what is asked for, without what differs each time that it is asked."""
    bare = msgspec.structs.replace(request, request=0, key="", expires=None)
    return hashlib.blake2b(m.encode(bare), digest_size=16).digest()
