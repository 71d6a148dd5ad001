"""Corrections of stated times by the error of earlier ones, by user.

A task of a program that was never measured is expected to take the time that its user
states, or a fixed guess. The first measurement gives the error of that expectation, which
corrects the next ones of the same user's programs: a user gains nothing by stating too
little, or by giving each task another name.
"""

from __future__ import annotations

import math

REMEMBERED = 16
"""Errors kept of each user, the latest."""
RANK = 0.75
"""Quantile of the errors that counts: false statements gain nothing unless three times as many
are true."""
USERS = 10_000
"""Users of whom errors are kept; the one without news for longest is forgotten."""
WORTH_PUBLISHING = 0.25
"""Relative change of a correction that counts."""
LARGEST = math.log(1e12)


class StatedTimes:
    """Factors for expected times of programs that were never measured."""

    def __init__(self) -> None:
        self._errors: dict[int, list[float]] = {}
        """User -> logarithms of measured over expected times."""
        self._corrections: dict[int, float] = {}

    def correction(self, owner: int | None) -> float:
        """Return the factor for times of a user's programs; None: of installed ones."""
        return 1.0 if owner is None else self._corrections.get(owner, 1.0)

    def compare(self, owner: int | None, expected: float, measured: float) -> bool:
        """Enter a first measurement; return whether the user's correction changes.

        Args:
            owner: the user; None: an installed program, whose times are not compared.
            expected: seconds that were stated or guessed, without any correction.
            measured: seconds.

        """
        if owner is None:
            return False
        error = math.log(measured) - math.log(expected)  # the quotient may be 0
        errors = self._errors.pop(owner, [])[1 - REMEMBERED :]
        errors.append(min(max(error, -LARGEST), LARGEST))
        self._errors[owner] = errors
        before = self.correction(owner)
        factor = math.exp(sorted(errors)[int(RANK * len(errors))])
        if abs(factor - before) <= WORTH_PUBLISHING * before:
            return False
        self._corrections[owner] = factor
        if len(self._errors) > USERS:
            longest = next(iter(self._errors))
            del self._errors[longest]
            self._corrections.pop(longest, None)
        return True
