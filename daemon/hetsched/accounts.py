"""Accounts of the time that the tasks of each owner used; `fair_shares` charges them."""

from __future__ import annotations


class OwnerAccount:
    """The virtual time that an owner's tasks used.

    Attributes:
        number: place among the accounts, in the order in which they were opened.
        used: virtual seconds, with what is expected of running tasks.
        charged: the part of it that running tasks have been charged.
        running: how many have been charged.
        waiting: how many wait in queues.
        returns: it has had no turn since its first task, or the first after an absence, came.

    """

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.used = 0.0
        self.charged = 0.0
        self.running = 0
        self.waiting = 0
        self.returns = False

    def __lt__(self, other: OwnerAccount) -> bool:
        """Whether this owner's tasks go before another's."""
        return (self.used, self.number) < (other.used, other.number)

    def __hash__(self) -> int:
        # compiled classes that define an order have no hash of their own
        return self.number

    @property
    def settled(self) -> float:
        """Virtual seconds used by tasks that have left their slots."""
        return self.used - self.charged

    def charge(self, seconds: float) -> None:
        """Charge virtual seconds for a running task."""
        self.used += seconds
        self.charged += seconds

    def settle(self, charged: float, used: float) -> None:
        """Replace the charge of a task that leaves its slot by what it used."""
        self.used += used - charged
        self.running -= 1
        # no rounding errors are kept
        self.charged = self.charged - charged if self.running else 0.0


NOBODY = OwnerAccount()
"""The account of rows that belong to no owner."""
