"""Idempotency keys: a repeated change gets the stored answer and is not made twice.

A client without an answer cannot know whether hetd received its request, so it repeats the
request with the same key. Keys are separate for each user. A key that is reused for another
request is refused.
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
    from hetd.clock import Clock
    from hetd.store import Store
    from hetd.tasks.journal import Journal
    from hetd.workers.pool import WorkerPool

KEYS = 20_000
"""Keys kept in memory. Older keys of durable changes are read from the store."""
KEY_BYTES = 16 << 20
"""Upper bound on the bytes of their answers."""
FEW = 1000
"""Lasting keys of ended tasks that may stay in memory."""
TRANSIENT = (m.Stop,)
"""Changes that a restart undoes. Their keys are not stored, so that a repetition after a
restart takes effect."""


class IdempotencyKeys:
    """Stores the answers to changes by idempotency key."""

    def __init__(
        self,
        journal: Journal,
        pool: WorkerPool,
        store: Store,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._pool = pool
        self._store = store
        self._clock = clock
        self._born = clock.wall() - clock.now() / SECOND
        """Time of day at the zero of the monotonic clock, computed once at the start."""
        self._answers: OrderedDict[tuple[int, str], tuple[bytes, bytes]] = OrderedDict()
        """(uid, key) -> (digest of the request, encoded answer)."""
        self._bytes = 0
        self._lasting: dict[tuple[int, str], int] | None = None
        """(uid, key) -> the task of a lasting submit; None: not looked up yet."""

    def recall(self, uid: int, request: m.Change) -> m.Request | None:
        """Return the stored answer to this request, or None for a new request.

        Raises:
            ConflictError: the key was used with another request.
            ExpiredError: the request is new, but its deadline has passed.
            InputError: the key is too long.

        """
        if len(request.key) > m.LONGEST_KEY:
            raise InputError(f"key: expected at most {m.LONGEST_KEY} characters")
        known = self._find(uid, request) if request.key else None
        if known is None:
            self._refuse_stale(request)
            return None
        digest, answer = known
        if digest and digest not in _digests(request):
            raise ConflictError(
                f"key {request.key!r} was already used for another request; nothing "
                "was changed: give each request a key of its own"
            )
        reply = m.decode_from_daemon(answer)
        assert isinstance(reply, m.Request)  # noqa: S101  we encoded it ourselves
        if isinstance(reply, m.Submitted):  # the launcher may have changed since
            here = self._pool.has_launcher(uid)
            reply = msgspec.structs.replace(reply, launcher=here, known=True)
        return msgspec.structs.replace(reply, request=request.request)

    def remember(self, uid: int, request: m.Change, reply: m.Request) -> None:
        """Store the answer, in the same commit as the change if that is durable."""
        if not request.key:
            return
        digest = _digest(request)
        answer = m.encode(msgspec.structs.replace(reply, request=0))
        if isinstance(request, m.Submit) and request.lasting:
            assert isinstance(reply, m.Submitted)  # noqa: S101  errors are not remembered
            self._keep_with_task(uid, request, reply)
        self._answers[uid, request.key] = digest, answer
        self._bytes += len(answer)
        if _is_durable(request):
            # monotonic: the time of day may jump, and keys expire by age
            at = int(self._born + self._clock.now() / SECOND)
            row = (uid, request.key, digest, answer, at)
            self._journal.batch.keys.append(row)
            self._journal.usage.answers[uid] += len(answer)
        # an answer that is not committed yet cannot be read from the store
        while self._has_too_many and self._store.idle:
            _, (_, old) = self._answers.popitem(last=False)
            self._bytes -= len(old)

    @property
    def _has_too_many(self) -> bool:
        return len(self._answers) > KEYS or self._bytes > KEY_BYTES

    def forget(self, uid: int, key: str) -> None:
        """Remove a key whose change was rolled back."""
        known = self._answers.pop((uid, key), None)
        self._known_lasting().pop((uid, key), None)
        if known is not None:
            self._bytes -= len(known[1])
            self._journal.usage.answers[uid] -= len(known[1])

    def _find(self, uid: int, request: m.Change) -> tuple[bytes, bytes] | None:
        key = request.key
        found = self._answers.get((uid, key)) or self._store.key(uid, key)
        if found is None and isinstance(request, m.Submit) and request.lasting:
            found = self._find_unfinished(uid, key)
        return found

    # ------------------------------------------------------------ lasting keys

    def _find_unfinished(self, uid: int, key: str) -> tuple[bytes, bytes] | None:
        """Return the answer to a lasting submit whose row is removed, by its task."""
        live, known = self._journal.live, self._known_lasting()
        task = known.get((uid, key), 0)
        if task not in live:
            known.pop((uid, key), None)
            return None
        return live[task].submit_digest, m.encode(m.Submitted(0, [task]))

    def _known_lasting(self) -> dict[tuple[int, str], int]:
        """Return the lasting keys, read again from the pages where most may have ended."""
        known, live = self._lasting, self._journal.live
        if known is None or len(known) > 2 * len(live) + FEW:
            pages = (page for page in live.values() if page.submit_key)
            known = {(page.owner, page.submit_key): page.id for page in pages}
            self._lasting = known
        return known

    def _keep_with_task(self, uid: int, request: m.Submit, reply: m.Submitted) -> None:
        """Keep the key of a lasting submit in the page of its task, until that ends."""
        page = self._journal.live.get(reply.ids[0]) if len(reply.ids) == 1 else None
        if page is not None:
            page.submit_key, page.submit_digest = request.key, _digest(request)
            self._journal.save(page)
            self._known_lasting()[uid, request.key] = page.id

    def _refuse_stale(self, request: m.Change) -> None:
        """Refuse a request that arrived after its deadline: its sender has given up."""
        if request.expires is None:
            return
        late = self._clock.now() / SECOND - request.expires
        if late > 0:
            raise ExpiredError(f"the request arrived {late:.1f} s after its deadline")


def _is_durable(request: m.Change) -> bool:
    """Whether a change survives a restart; `Policies` without changes only reads."""
    if isinstance(request, m.Policies):
        return request.set is not None or request.configured
    return not isinstance(request, TRANSIENT)


def _digest(request: m.Change) -> bytes:
    """Digest a request without the fields that differ between repetitions."""
    bare = msgspec.structs.replace(request, request=0, key="", expires=None)
    if isinstance(bare, m.Submit):
        tasks = [_without_origin(spec) for spec in bare.tasks]
        bare = msgspec.structs.replace(bare, tasks=tasks)
    return _digest_of(bare)


def _digests(request: m.Change) -> tuple[bytes, bytes]:
    """Return what may be stored of a request: hetd used to digest the origin, too."""
    whole = msgspec.structs.replace(request, request=0, key="", expires=None)
    return _digest(request), _digest_of(whole)


def _digest_of(bare: m.Change) -> bytes:
    return hashlib.blake2b(m.encode(bare), digest_size=16).digest()


def _without_origin(spec: m.TaskSpec) -> m.TaskSpec:
    """Leave out what differs if another process of the user repeats a submit.

    That is the environment, and the name that a client draws for an array.
    """
    attachments = spec.attachments
    if spec.from_origin:
        attachments = attachments[:-1]
    elif not spec.array:
        return spec
    return msgspec.structs.replace(
        spec, attachments=attachments, from_origin=False, array=""
    )
