"""The pictures: Figs 2a, 2b and 3, `finish-time`, and the live runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hetpapers.pictures import open_canvas, save_canvas

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from hetpapers.figures import Figure

COLOURS = {"cpu": "#4c72b0", "gpu0": "#55a868", "fpga0": "#c44e52"}
NAMES = {"cpu": "CPU", "gpu0": "GPU", "fpga0": "FPGA"}
POLICY_COLOURS = {
    "affinity": "#bbbbbb",
    "migration": "#4c72b0",
    "finish-time": "#dd8452",
}
HEIGHT = 0.8
LEAST_LABELLED_S = 1.2


def draw_characterisation(figure: Figure, path: Path) -> None:
    """Draw Fig. 2a: seconds by input size, both axes logarithmic."""
    canvas, [axes] = open_canvas(figure, 6, 4)
    for resource, colour in COLOURS.items():
        points = [(r["n"], r[resource]) for r in figure.rows if r[resource] is not None]
        axes.loglog(
            *zip(*points, strict=True), "o-", color=colour, label=NAMES[resource]
        )
    sizes = [row["n"] for row in figure.rows]
    axes.set_xticks(sizes, map(str, sizes), fontsize=8)
    axes.set_xticks([], minor=True)
    axes.set_xlabel("input size n")
    axes.set_ylabel("seconds")
    save_canvas(canvas, path)


def draw_gantt(figure: Figure, path: Path) -> None:
    """Draw Fig. 2b: what ran where; the colour is the resource that a task fits best."""
    canvas, [axes] = open_canvas(figure, 11, 3.6)
    lanes = ["fpga0", "gpu0", "cpu"]
    for row, lane, height in _blocks(figure, lanes):
        width = row["finish"] - row["start"]
        axes.barh(
            lane, width, height, row["start"],
            color=COLOURS[row["fits"]], edgecolor="white", linewidth=0.4,
        )  # fmt: skip
        if width >= LEAST_LABELLED_S:
            axes.text(
                row["start"] + width / 2, lane, row["task"],
                ha="center", va="center", fontsize=6, color="white",
            )  # fmt: skip
    axes.set_yticks(range(len(lanes)), [NAMES[lane] for lane in lanes])
    axes.set_xlabel("seconds; colour: resource that fits the task best")
    save_canvas(canvas, path, legend=_patches())


def _blocks(
    figure: Figure, lanes: list[str]
) -> Iterator[tuple[dict[str, Any], float, float]]:
    """Give each block its height: CPU tasks that overlap lie above each other."""
    free = [0.0, 0.0]
    for row in figure.rows:
        centre = float(lanes.index(row["resource"]))
        if row["resource"] != "cpu":
            yield row, centre, HEIGHT
            continue
        track = 0 if free[0] <= row["start"] else 1
        free[track] = row["finish"]
        yield row, centre + (track - 0.5) * HEIGHT / 2, HEIGHT / 2


def draw_energy(figure: Figure, path: Path) -> None:
    """Draw Fig. 3: makespan and energy, error bars from least to most."""
    canvas, both = open_canvas(figure, 8, 4, panels=2)
    for axes, what, unit in zip(
        both, ("makespan", "energy"), ("seconds", "kilojoules"), strict=True
    ):
        _bars(axes, figure, what)
        axes.set_ylabel(unit)
        axes.set_title(what)
    save_canvas(canvas, path)


def _bars(axes: Any, figure: Figure, what: str) -> None:
    delays = list(dict.fromkeys(row["delay"] for row in figure.rows))
    for number, (policy, colour) in enumerate(POLICY_COLOURS.items()):
        rows = [row for row in figure.rows if row["policy"] == policy]
        means = [row[f"{what} mean"] for row in rows]
        below = [row[f"{what} mean"] - row[f"{what} min"] for row in rows]
        above = [row[f"{what} max"] - row[f"{what} mean"] for row in rows]
        places = [index + 0.27 * (number - 1) for index in range(len(delays))]
        axes.bar(
            places, means, 0.25, yerr=[below, above],
            color=colour, label=policy, capsize=3,
        )  # fmt: skip
    axes.set_xticks(range(len(delays)), [f"delay {delay:g} s" for delay in delays])


def draw_comparison(figure: Figure, path: Path) -> None:
    """Draw our policy beside the paper's: speed-up over affinity, up to the bound."""
    canvas, [axes] = open_canvas(figure, 8, 4)
    labels = [f"{row['set']}\n{row['delay']:g} s" for row in figure.rows]
    for number, policy in enumerate(("migration", "finish-time")):
        places = [index + 0.4 * (number - 0.5) for index in range(len(labels))]
        values = [row[policy] for row in figure.rows]
        axes.bar(places, values, 0.4, color=POLICY_COLOURS[policy], label=policy)
    best = [row["at best"] for row in figure.rows]
    axes.plot(range(len(labels)), best, "k_", markersize=18, label="at the lower bound")
    drawn = [row[name] for row in figure.rows for name in ("migration", "finish-time")]
    axes.set_ylim(bottom_of(drawn, 0.95))
    axes.set_xticks(range(len(labels)), labels, fontsize=7)
    axes.set_ylabel("speed-up over affinity")
    axes.axhline(1.0, color="#888888", linewidth=0.8)
    save_canvas(canvas, path)


def draw_live(figure: Figure, path: Path) -> None:
    """Draw the speed-ups of `migration`: printed, simulated and live."""
    canvas, both = open_canvas(figure, 8, 3.8, panels=2)
    for axes, policy in zip(both, ("affinity", "work-conserving"), strict=True):
        rows = [row for row in figure.rows if row["policy"] == policy]
        for number, (column, (colour, label)) in enumerate(_LIVE_COLUMNS.items()):
            places = [index + 0.27 * (number - 1) for index in range(len(rows))]
            values = [row[column] for row in rows]
            axes.bar(places, values, 0.25, color=colour, label=label)
        labels = [f"delay {row['delay']:g} s" for row in rows]
        axes.set_xticks(range(len(rows)), labels, fontsize=8)
        axes.set_ylabel("speed-up of migration")
        axes.set_title(f"over {policy}", fontsize=10)
        axes.axhline(1.0, color="#888888", linewidth=0.8)
    beside = [row for row in figure.rows if row["policy"] == "affinity"]
    drawn = [row[column] for row in beside for column in _LIVE_COLUMNS]
    both[0].set_ylim(bottom_of(drawn, 0.8))
    save_canvas(canvas, path)


def bottom_of(drawn: Sequence[float], bottom: float) -> float:
    """Return where the axis of bars begins: at `bottom`, or below a bar that would not show."""
    least = min(drawn)
    return bottom if least > bottom else 0.9 * least


_LIVE_COLUMNS = {
    "paper x": ("#bbbbbb", "paper"),
    "sim x": ("#4c72b0", "simulated"),
    "live x": ("#55a868", "real daemon"),
}


def _patches() -> list[Any]:
    from matplotlib.patches import Patch

    return [Patch(color=colour, label=NAMES[name]) for name, colour in COLOURS.items()]
