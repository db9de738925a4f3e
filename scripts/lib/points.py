"""Points of published data as Gaussian processes take them."""

from __future__ import annotations

from tensorcep.datasets import Points

# Of so many points one is held out.
HELD_OUT = 10


def standardised(points: Points) -> Points:
    """Columns of mean 0 and standard deviation 1, without those that are constant."""
    X = points.X[:, points.X.std(axis=0) > 0.0]
    return Points((X - X.mean(axis=0)) / X.std(axis=0), points.y)
