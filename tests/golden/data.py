"""Tiny data of every kind, from fixed seeds."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import tensorcep as tc

SHAPES = {2: (9, 7), 3: (8, 6, 5), 4: (6, 5, 4, 3)}
SIZES = {2: 44, 3: 140, 4: 150}


class Cells(NamedTuple):
    """Entries of one kind: coordinates (n, K), values (n,), the shape, and cells to ask about."""

    X: np.ndarray
    y: np.ndarray
    shape: tuple[int, ...]
    asked: np.ndarray
    answer: np.ndarray
    latent: np.ndarray

    @property
    def tensor(self) -> tc.SparseTensor:
        return tc.SparseTensor(self.X, self.y.astype(float), self.shape)

    def part(self, where: Any) -> Cells:
        """Some of the entries."""
        return self._replace(X=self.X[where], y=self.y[where], latent=self.latent[where])


def cells(kind: str, order: int = 3, shape: tuple[int, ...] | None = None, n: int | None = None) -> Cells:
    """Entries of a kind; those of one order lie in the same cells, whatever the kind."""
    shape = SHAPES[order] if shape is None else shape
    rng = np.random.default_rng(7 * len(shape))
    n = SIZES[len(shape)] if n is None else n
    flat = rng.permutation(int(np.prod(shape)))
    where = np.stack(np.unravel_index(flat, shape), axis=1)
    rows = [1.0 + 0.7 * rng.standard_normal((size, 2)) for size in shape]
    f = np.prod([rows[k][where[:, k]] for k in range(len(shape))], axis=0) @ np.array([0.6, -0.5])
    y = _observed(kind, f, rng)
    asked = np.r_[0:8, n : min(n + 8, len(flat))]
    return Cells(where[:n], y[:n], shape, where[asked], y[asked], f[:n])


def _observed(kind: str, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    noise = 0.4 * rng.standard_normal(len(f))
    if kind == "real":
        return 3.0 + f + noise
    if kind == "positive":
        return np.exp(1.0 + f + noise)
    if kind == "lower":
        return np.maximum(f + noise, -0.2)
    if kind == "upper":
        return np.minimum(f + noise, 0.8)
    if kind == "outliers":
        return f + noise * np.where(rng.random(len(f)) < 0.1, 12.0, 1.0)
    if kind == "labels":
        return (f + 2.0 * noise > 0.0).astype(int)
    if kind == "levels":
        return 1 + np.searchsorted([-0.8, 0.0, 0.9], f + noise)
    rate = np.exp(np.clip(0.8 + 0.5 * f, -3.0, 3.0))
    if kind == "counts":
        return rng.poisson(rate)
    if kind == "wild":
        return rng.poisson(rate * rng.gamma(1.5, 1.0 / 1.5, len(f)))
    if kind == "holes":
        return np.where(rng.random(len(f)) < 0.3, 0, rng.poisson(2.0 * rate))
    if kind == "successes":
        return rng.binomial(trials(len(f)), 1.0 / (1.0 + np.exp(-f)))
    raise ValueError(f"there is no kind of data called {kind!r}")


def trials(n: int) -> np.ndarray:
    """Numbers of trials."""
    return 1 + np.arange(n) % 5


def exposures(n: int) -> np.ndarray:
    """Exposures of counts."""
    return 0.5 + 0.25 * (np.arange(n) % 7)


def weights(n: int) -> np.ndarray:
    """Whole numbers and fractions by which entries count."""
    return np.array([1.0, 2.0, 0.5, 3.0, 1.0])[np.arange(n) % 5]


def table(kind: str = "real") -> Any:
    """Entries of order three by their labels: user, item, and days of 2024 with gaps."""
    import pandas as pd

    data = cells(kind)
    days = pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-04", "2024-01-05", "2024-01-08"])
    return pd.DataFrame(
        {
            "user": [f"u{i}" for i in data.X[:, 0]],
            "item": [f"i{i}" for i in data.X[:, 1]],
            "day": days[data.X[:, 2]],
            "value": data.y,
        }
    )


def points(n: int = 40, d: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Feature vectors, their labels 0 and 1, and vectors to ask about."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n + 6, d))
    y = (X @ np.linspace(1.0, -0.5, d) + 0.5 * rng.standard_normal(n + 6) > 0.1).astype(int)
    return X[:n], y[:n], X[n:]


def matrix(kind: str, n: int = 14, d: int = 6, seed: int = 5) -> np.ndarray:
    """A matrix with gaps."""
    rng = np.random.default_rng(seed)
    f = rng.standard_normal((n, 2)) @ rng.standard_normal((2, d)) + 0.3 * rng.standard_normal((n, d))
    if kind in ("bernoulli", "probit"):
        X = (f > 0.0).astype(float)
    elif kind in ("negbinomial", "poisson"):
        X = rng.poisson(np.exp(np.clip(0.7 + 0.5 * f, -3.0, 3.0))).astype(float)
    else:
        X = f + np.linspace(-1.0, 2.0, d)
    X[rng.random((n, d)) < 0.12] = np.nan
    return X
