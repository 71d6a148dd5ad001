"""The child that reads NVML: prints a line of JSON ten times a second.

`{"joules": [12.5, …]}`: energy of each card since some moment, or `{"problem": …}` and
the end. It ends when its standard input is closed, that is with its parent.
"""

from __future__ import annotations

import json
import select
import sys
import time
from typing import Any

INTERVAL_S = 0.1
MILLI = 1e-3


class Card:
    """A card; where it counts no energy (before Volta), its power is integrated."""

    def __init__(self, nvml: Any, number: int) -> None:
        self._nvml = nvml
        self._handle = nvml.nvmlDeviceGetHandleByIndex(number)
        self._counts = self._can_count()
        self._joules = 0.0
        self._at = time.monotonic()

    def joules(self) -> float:
        if self._counts:
            counted = self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)
            return MILLI * float(counted)
        now = time.monotonic()
        watts = MILLI * self._nvml.nvmlDeviceGetPowerUsage(self._handle)
        self._joules += watts * (now - self._at)
        self._at = now
        return self._joules

    def _can_count(self) -> bool:
        try:
            self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)
        except self._nvml.NVMLError:
            return False
        return True


def main() -> None:
    """Read until the parent is gone."""
    try:
        import pynvml

        pynvml.nvmlInit()
        cards = [Card(pynvml, n) for n in range(pynvml.nvmlDeviceGetCount())]
        if not cards:
            _say({"problem": "no card"})
            return
        _report(cards)
    except ImportError:
        _say({"problem": "nvidia-ml-py is not installed"})
    except Exception as error:  # noqa: BLE001  the error of a driver is printed verbatim
        _say({"problem": " ".join(str(error).split())})


def _report(cards: list[Card]) -> None:
    while True:
        _say({"joules": [card.joules() for card in cards]})
        closed, _, _ = select.select([sys.stdin], [], [], INTERVAL_S)
        if closed:
            return


def _say(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
