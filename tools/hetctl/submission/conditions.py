"""Conditions of `--after`: `12` or `ok:12`, `any:12,13`, `notok:@train`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from hetctl.selectors import selected, split

if TYPE_CHECKING:
    from collections.abc import Iterable

    from libtask.client.client import Client

CONDITIONS = ("ok", "any", "notok")
"""The others must complete; may end in any way; must not all complete."""


class Dependencies(TypedDict):
    """Options of a submission: the tasks that it depends on, by condition."""

    after: tuple[int, ...]
    after_any: tuple[int, ...]
    after_notok: tuple[int, ...]


def conditions(texts: Iterable[str]) -> dict[str, list[str]]:
    """Sort selectors by condition, which holds for the rest of a comma list.

    Raises:
        InputError: a word is not a selector.

    """
    sorted_words: dict[str, list[str]] = {each: [] for each in CONDITIONS}
    for text in texts:
        condition = CONDITIONS[0]
        for word in text.split(","):
            prefix, colon, rest = word.strip().partition(":")
            given = bool(colon) and prefix in CONDITIONS
            condition = prefix if given else condition
            sorted_words[condition] += split([rest if given else word])
    return sorted_words


def dependencies(client: Client, texts: Iterable[str]) -> Dependencies:
    """Return the options of a submission for `--after`.

    Words and names mean unfinished tasks; after `notok` also ended ones, which may have
    failed.
    """
    words = conditions(texts)
    return {
        "after": tuple(selected(client, words["ok"], live=True)),
        "after_any": tuple(selected(client, words["any"], live=True)),
        "after_notok": tuple(selected(client, words["notok"])),
    }
