"""The child that reads what NVIDIA cards do: their time slices and their links.

Its values, for card 0: `slices0`, the share of time in which a kernel ran, and `link0`, bytes
per second over PCIe, of the busier direction (`hetd.devices.counters.child`).
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any

from hetd.devices.counters.child import Readers, print_values

if TYPE_CHECKING:
    from hetd.devices.counters.child import Opener

PERCENT = 0.01
KILOBYTE = 1e3
"""The library gives kilobytes per second, measured over 20 ms."""


class CardSlices:
    """The share of time in which a kernel ran on a card."""

    def __init__(self, nvml: Any, number: int) -> None:
        self._nvml = nvml
        self._name = f"slices{number}"
        self._card = nvml.nvmlDeviceGetHandleByIndex(number)
        self.values(0.0)

    def values(self, now: float) -> dict[str, float]:
        rates = self._nvml.nvmlDeviceGetUtilizationRates(self._card)
        return {self._name: PERCENT * float(rates.gpu)}


class CardLink:
    """The traffic of a card's link."""

    def __init__(self, nvml: Any, number: int) -> None:
        self._nvml = nvml
        self._name = f"link{number}"
        self._card = nvml.nvmlDeviceGetHandleByIndex(number)
        self.values(0.0)

    def values(self, now: float) -> dict[str, float]:
        nvml, card = self._nvml, self._card
        sent = nvml.nvmlDeviceGetPcieThroughput(card, nvml.NVML_PCIE_UTIL_TX_BYTES)
        received = nvml.nvmlDeviceGetPcieThroughput(card, nvml.NVML_PCIE_UTIL_RX_BYTES)
        return {self._name: KILOBYTE * float(max(sent, received))}


def readers_of(cards: int) -> Readers:
    """Open the first cards."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except ImportError:
        return _none(cards, "nvidia-ml-py is not installed")
    except Exception as error:  # noqa: BLE001  the error of a driver is shown verbatim
        return _none(cards, str(error))
    openers: dict[tuple[str, ...], Opener] = {}
    for number in range(cards):
        openers[f"slices{number}",] = partial(CardSlices, pynvml, number)
        openers[f"link{number}",] = partial(CardLink, pynvml, number)
    return Readers(openers)


def _none(cards: int, reason: str) -> Readers:
    def refuse() -> CardLink:
        raise RuntimeError(reason)

    names = [
        f"{kind}{number}" for kind in ("slices", "link") for number in range(cards)
    ]
    return Readers({tuple(names): refuse})


def main() -> None:
    """Read until the parent is gone."""
    options = argparse.ArgumentParser()
    options.add_argument("--every", type=float, default=0.25)
    options.add_argument("--cards", type=int, default=1)
    chosen = options.parse_args()
    print_values(readers_of(chosen.cards), chosen.every)


if __name__ == "__main__":
    main()
