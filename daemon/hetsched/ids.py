"""What names a task, and how instants are counted."""

from __future__ import annotations

from typing import NewType, TypeAlias

TaskId = NewType("TaskId", int)
Nanoseconds: TypeAlias = int
