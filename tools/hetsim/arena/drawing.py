"""The picture of an arena: how the speed-ups of each policy are distributed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsim.arena.standing import speed_up

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hetsim.arena.contest import Contest


def draw_arena(contests: Sequence[Contest], path: Path) -> None:
    """Draw, for each policy, the share of scenarios with at most a certain value."""
    # slow to import, and only needed here
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(10, 3.8), layout="constrained")
    left, right = canvas.subplots(1, 2, sharey=True)
    shares = [(number + 1) / len(contests) for number in range(len(contests))]
    for policy in contests[0].scores:
        gains = sorted(speed_up(contest, policy) for contest in contests)
        over = sorted(c.scores[policy].makespan / c.lower_bound for c in contests)
        left.step(gains, shares, where="post", label=policy)
        right.step(over, shares, where="post", label=policy)
    left.set_xscale("log", base=2)
    left.xaxis.set_major_formatter("{x:g}")
    left.set_xlabel("speed-up over affinity")
    left.set_ylabel("share of scenarios")
    right.set_xlim(1.0, 2.0)
    right.set_xlabel("makespan over the lower bound")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    right.legend(loc="lower right")
    canvas.savefig(path, dpi=150)
