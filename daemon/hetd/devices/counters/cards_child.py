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
    from collections.abc import Callable

    from hetd.devices.counters.child import Opener

    Read = Callable[[Any, Any], float]

PERCENT = 0.01
KILOBYTE = 1e3
"""The library gives kilobytes per second, measured over 20 ms."""


class CardValue:
    """A value of a card.

    Args:
        nvml: the library.
        name: of the value; `number`: of the card.
        read: returns the value of an open card.

    """

    def __init__(self, nvml: Any, name: str, number: int, read: Read) -> None:
        self._nvml = nvml
        self._name = f"{name}{number}"
        self._read = read
        self._card = nvml.nvmlDeviceGetHandleByIndex(number)
        self.values(0.0)

    def values(self, now: float) -> dict[str, float]:
        return {self._name: self._read(self._nvml, self._card)}


def slices(nvml: Any, card: Any) -> float:
    """Return the share of time in which a kernel ran on a card."""
    return PERCENT * float(nvml.nvmlDeviceGetUtilizationRates(card).gpu)


def link(nvml: Any, card: Any) -> float:
    """Return the bytes per second over a card's link, of the busier direction."""
    sent = nvml.nvmlDeviceGetPcieThroughput(card, nvml.NVML_PCIE_UTIL_TX_BYTES)
    received = nvml.nvmlDeviceGetPcieThroughput(card, nvml.NVML_PCIE_UTIL_RX_BYTES)
    return KILOBYTE * float(max(sent, received))


READS: dict[str, Read] = {"slices": slices, "link": link}


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
    for name, read in READS.items():
        for number in range(cards):
            opener = partial(CardValue, pynvml, name, number, read)
            openers[f"{name}{number}",] = opener
    return Readers(openers)


def _none(cards: int, reason: str) -> Readers:
    def refuse() -> CardValue:
        raise RuntimeError(reason)

    names = [f"{name}{number}" for name in READS for number in range(cards)]
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
