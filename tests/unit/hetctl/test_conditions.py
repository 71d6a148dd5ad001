"""`--after` with conditions, as `hetctl submit` sends it."""

from __future__ import annotations

import pytest

from hetctl.submission.conditions import conditions
from libtask.errors import InputError


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["12"], {"ok": ["12"], "any": [], "notok": []}),
        (["any:12,13"], {"ok": [], "any": ["12", "13"], "notok": []}),
        (["notok:@a:all", "3-4"], {"ok": ["3-4"], "any": [], "notok": ["@a:all"]}),
        (["any:1,ok:2,notok:3"], {"ok": ["2"], "any": ["1"], "notok": ["3"]}),
    ],
)
def test_words_are_sorted_by_condition(
    texts: list[str], expected: dict[str, list[str]]
) -> None:
    assert conditions(texts) == expected


@pytest.mark.parametrize("text", ["often:3", "any:", "notok:x"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="expected an id"):
        conditions([text])
