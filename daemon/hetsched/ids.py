"""Types of task ids and of instants."""

from __future__ import annotations

from typing import NewType, TypeAlias

TaskId = NewType("TaskId", int)
Nanoseconds: TypeAlias = int
