"""Documents about the task store: `daemon check`, `daemon backup`, `daemon restore`."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from msgspec import Meta

from hetctl.documents.parts import Count


class Store(TypedDict):
    """The state of a task store, or of a backup or restore of it."""

    format: Literal["hetctl/store-1"]
    action: Literal["check", "backup", "restore"]
    path: str
    running: Annotated[bool, Meta(description="a daemon has it open")]
    problems: Annotated[list[str], Meta(description="empty: no damage")]
    schema: Count | None
    size_bytes: Count
    log_bytes: Count
    unended: Count | None
    ended: Count | None
    keys: Count | None
    samples: Count | None
    settings: Annotated[Count | None, Meta(description="settings of operators")]
    last_id: Count | None
    file: Annotated[str | None, Meta(description="the backup written or read")]
    aside: Annotated[
        list[str], Meta(description="files of the former store, after a restore")
    ]
