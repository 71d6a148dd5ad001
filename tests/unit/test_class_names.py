"""Class names: one concept, one name in the whole repository.

Names that occur more than once are listed here with a reason. A new one fails; so does
one that is listed and occurs once only.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ("daemon", "libtask", "apps", "kernels", "tools")

WIRE = "Abort Preempt Prospect Recall Run SnapshotTaken Split Stage StripsGiven"
"""A message that carries an action or an event has the name of what it carries."""
DOCUMENTS = (
    "Control Devices Explanation ModelList Page Policies Policy Progress Report "
    "ResourceState Result Scenario Store Submitted Task Top"
)
"""A JSON document of hetctl has the name of what it shows; its schema is titled so."""
STUDIES = "Case Errors Outcome Pair Piece Plan Picture Point Reading Selection Size"
"""Studies of papers, kernels and measurements, each read by itself."""
PACKAGES_APART = (
    "Bar Batch Energy Header Job Loop Node Order Program Record Segment Signal State "
    "Step Submit Trial Verdict WorkConserving Worker"
)
"""Private words of packages that never meet in one file; to become fewer."""


def test_a_class_name_occurs_once_or_has_a_reason() -> None:
    listed = f"{WIRE} {DOCUMENTS} {STUDIES} {PACKAGES_APART}".split()

    assert sorted(listed) == sorted(_repeated())


def _repeated() -> list[str]:
    places: dict[str, list[Path]] = defaultdict(list)
    for source in SOURCES:
        for path in (ROOT / source).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            classes = (each for each in tree.body if isinstance(each, ast.ClassDef))
            for each in classes:
                if not each.name.startswith("_"):
                    places[each.name].append(path)
    return [name for name, paths in places.items() if len(paths) > 1]
