"""Cost profiles in the store: in the table of settings, under a name of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hetsched.estimates.profile import BINS, CostProfile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hetd.tasks.journal import Journal
    from hetsched.estimates.profile import CostProfiles

STORED = "profile"
"""Under this name the table of settings has the profiles, by type."""


class StoredProfile(msgspec.Struct, frozen=True):
    """A profile in the store; see `CostProfile`."""

    shares: list[float]
    runs: float


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(StoredProfile).decode


def store_profile(
    journal: Journal, task_type: str, profile: CostProfile | None
) -> None:
    """Store the profile of a type; None: delete it."""
    stored = None
    if profile is not None:
        stored = _encode(StoredProfile(profile.shares, profile.runs))
    journal.batch.settings[STORED, task_type] = stored


def restore_profiles(
    profiles: CostProfiles, settings: Mapping[tuple[str, str], bytes]
) -> None:
    """Enter the stored profiles; leave out what is none."""
    for (what, task_type), stored in settings.items():
        if what == STORED:
            try:
                found = _decode(stored)
            except msgspec.MsgspecError:
                continue
            if len(found.shares) == BINS and all(each >= 0 for each in found.shares):
                profiles.put(task_type, CostProfile(found.shares, found.runs))


def forget_profiles(
    profiles: CostProfiles, task_types: Iterable[str], journal: Journal
) -> None:
    """Forget the profiles of these types, in the store, too."""
    for task_type in task_types:
        if profiles.drop(task_type):
            store_profile(journal, task_type, None)
