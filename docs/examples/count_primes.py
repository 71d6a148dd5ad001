"""Count the primes below 100,000 with ten tasks and one that adds."""

from __future__ import annotations

import primes

from libtask import Client

with Client() as client:
    parts = [
        client.submit(primes.count, first, first + 10_000)
        for first in range(0, 100_000, 10_000)
    ]
    total = client.submit(sum, parts)  # starts when all of them have completed
    print(total.result())
