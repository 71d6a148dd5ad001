"""Counters: sums since the daemon's start, for whoever watches it over time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counters:
    """What happened since the start; nothing here ever shrinks.

    Attributes:
        records: changes of tasks, by the event that made them.
        decided: events that the scheduler took in; `deciding_ns`: time that it took.
        commits: made by the store; `commit_ns`: time from order to end.
        refused: messages that could not be understood, or were not for their sender
            to send.

    """

    records: Counter[str] = field(default_factory=Counter)
    decided: int = 0
    deciding_ns: int = 0
    commits: int = 0
    commit_ns: int = 0
    refused: int = 0
