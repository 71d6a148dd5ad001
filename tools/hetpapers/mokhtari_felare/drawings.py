"""The pictures of mokhtari-felare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetpapers.pictures import open_canvas, save_canvas

if TYPE_CHECKING:
    from pathlib import Path

    from hetpapers.figures import Figure, Row

COLOURS = {
    "mm": "#8c8c8c",
    "msd": "#bbbbbb",
    "mmu": "#55a868",
    "elare": "#4c72b0",
    "felare": "#c44e52",
    "fair-deadline": "#dd8452",
    "fair-deadline, preemptive": "#937860",
}
OURS = {"on time %": "completed in time, %", "energy J": "energy, J"}
TYPE_COLOURS = ("#4c72b0", "#dd8452", "#55a868", "#c44e52")


def draw_trade_off(figure: Figure, path: Path) -> None:
    """Draw Fig. 3: energy against misses; along a curve the rate grows to the left."""
    canvas, [axes] = open_canvas(figure, 6, 4.4)
    for policy, rows in _by_policy(figure.rows).items():
        axes.plot(
            [row["energy J"] for row in rows], [row["miss %"] for row in rows],
            "o-", markersize=3, color=COLOURS[policy], label=policy,
        )  # fmt: skip
    axes.set_xlabel("energy, J")
    axes.set_ylabel("tasks that miss their deadline, %")
    save_canvas(canvas, path)


def draw_waste(figure: Figure, path: Path) -> None:
    """Draw Figs 4 and 5: wasted energy over the arrival rate."""
    canvas, [axes] = open_canvas(figure, 6, 4)
    for policy, rows in _by_policy(figure.rows).items():
        axes.errorbar(
            [row["rate"] for row in rows], [row["wasted %"] for row in rows],
            [row["±"] or 0.0 for row in rows],
            fmt="o-", markersize=3, capsize=2, color=COLOURS[policy], label=policy,
        )  # fmt: skip
    rates = sorted({row["rate"] for row in figure.rows})
    axes.set_xscale("log")
    axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
    axes.minorticks_off()
    axes.set_xlabel("tasks a second")
    axes.set_ylabel("wasted energy, % of initial")
    save_canvas(canvas, path)


def draw_unsuccessful(figure: Figure, path: Path) -> None:
    """Draw Fig. 6: cancelled and missed tasks of two policies, side by side."""
    canvas, [axes] = open_canvas(figure, 7, 4)
    grouped = _by_policy(figure.rows)
    for number, (policy, rows) in enumerate(grouped.items()):
        places = [index + 0.4 * (number - 0.5) for index in range(len(rows))]
        missed = [row["missed %"] for row in rows]
        cancelled = [row["cancelled %"] for row in rows]
        colour = COLOURS[policy]
        axes.bar(places, missed, 0.38, color=colour, label=f"{policy}: missed")
        axes.bar(
            places, cancelled, 0.38, bottom=missed, color=colour, alpha=0.4,
            label=f"{policy}: cancelled",
        )  # fmt: skip
    rates = [f"{row['rate']:g}" for row in next(iter(grouped.values()))]
    axes.set_xticks(range(len(rates)), rates)
    axes.set_xlabel("tasks a second")
    axes.set_ylabel("unsuccessful tasks, %")
    save_canvas(canvas, path)


def draw_types(figure: Figure, path: Path) -> None:
    """Draw Figs 7 and 8: completion by type, and of all tasks."""
    canvas, [axes] = open_canvas(figure, 7, 4)
    names = [key[:-2] for key in figure.rows[0] if key.endswith(" ±")][:-1]
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        places = [
            index + width * (number - (len(names) - 1) / 2)
            for index in range(len(figure.rows))
        ]
        axes.bar(
            places, [row[name] for row in figure.rows], width,
            yerr=[row[f"{name} ±"] or 0.0 for row in figure.rows],
            color=TYPE_COLOURS[number], capsize=2, label=name,
        )  # fmt: skip
    axes.plot(
        range(len(figure.rows)), [row["all"] for row in figure.rows], "rD", label="all"
    )
    labels = [row["policy"].replace(", ", ",\n") for row in figure.rows]
    axes.set_xticks(range(len(figure.rows)), labels)
    axes.set_ylabel("completed in time, %")
    axes.set_ylim(0, 100)
    save_canvas(canvas, path)


def draw_ours(figure: Figure, path: Path) -> None:
    """Draw what fair-deadline completes more than felare, and at which energy."""
    canvas, both = open_canvas(figure, 9, 4, panels=2)
    for policy, rows in _by_policy(figure.rows).items():
        rates = [row["rate"] for row in rows]
        for axes, (what, label) in zip(both, OURS.items(), strict=True):
            values = [row[what] for row in rows]
            axes.plot(
                rates, values, "o-", markersize=3, color=COLOURS[policy], label=policy
            )
            axes.set_xlabel("tasks a second")
            axes.set_ylabel(label)
    save_canvas(canvas, path)


def _by_policy(rows: list[Row]) -> dict[str, list[Row]]:
    grouped: dict[str, list[Row]] = {}
    for row in rows:
        grouped.setdefault(row["policy"], []).append(row)
    return grouped
