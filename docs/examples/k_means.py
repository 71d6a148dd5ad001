"""k-means: one implementation for the CPU and for a GPU, by the array API standard."""

from dataclasses import dataclass

import numpy as np

from libtask import Size, Task, main


@dataclass
class KMeans(Task):
    """Sort random points into clusters, by Lloyd's algorithm (1982)."""

    points: int = 100_000
    clusters: int = 16
    iterations: int = 200

    def size(self):
        work = self.points * self.clusters * self.iterations
        return Size(
            f"{self.points}x{self.clusters}", work, state_bytes=16 * self.points
        )

    def load(self):
        self.data = np.random.default_rng(0).random((self.points, 2))
        self.centres = self.data[: self.clusters].copy()

    def total(self):
        return self.iterations

    def save(self, checkpoint):
        return {"centres": self.centres.tolist()}


@KMeans.on("cpu", "gpu")
def lloyd(task, device, checkpoint):
    """Move each centre to the mean of the points that are nearest to it, in each iteration."""
    xp = device.xp
    for strip in checkpoint.strips():
        for _ in strip:
            offsets = task.data[:, None, :] - task.centres[None, :, :]
            nearest = xp.argmin(xp.sum(offsets * offsets, axis=2), axis=1)
            own = nearest[:, None] == xp.arange(task.clusters)[None, :]
            own = xp.astype(own, task.data.dtype)
            counts = xp.sum(own, axis=0)[:, None]
            means = (
                own.T @ task.data / xp.where(counts > 0, counts, xp.ones_like(counts))
            )
            task.centres = xp.where(counts > 0, means, task.centres)
        yield


if __name__ == "__main__":
    main(KMeans)
