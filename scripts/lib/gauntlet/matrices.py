"""Matrices with holes, for the factor models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from scripts.lib.gauntlet.record import Problem

RECOMMENDER = (
    ("users", "items", "gaussian"),
    ("users", "user features", "gaussian"),
    ("items", "item features", "gaussian"),
)


@dataclass(frozen=True)
class MatrixSpec:
    """How matrices are drawn; the latent value of a cell has variance 1 in units of its column.

    Attributes
    ----------
    shape : (rows, columns)
    rank : int
    noise : float
    hidden : float
        Share of the cells that are hidden.
    scales : float
        Columns are multiplied by 10^u, u uniform within as many decades.
    offset : float
        Added to all columns, in units of each.
    constant : int
        Columns that hold one value.
    tails : float, optional
        Degrees of freedom of Student's t noise.
    labels : bool
    views : int
        Matrices of the same rows, each with factors of its own and shared ones.
    """

    shape: tuple[int, int] = (300, 30)
    rank: int = 4
    noise: float = 0.5
    hidden: float = 0.3
    scales: float = 0.0
    offset: float = 0.0
    constant: int = 0
    tails: float | None = None
    labels: bool = False
    views: int = 1


def matrix(spec: MatrixSpec, seed: int) -> Problem:
    """One matrix, or views of the same rows; errors are in units of a column's standard deviation."""
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal((spec.shape[0], spec.rank))
    found = [_columns(spec, scores, rng) for _ in range(spec.views)]
    return hide([x for x, _ in found], spec.hidden, rng, [truth for _, truth in found])


def _columns(spec: MatrixSpec, scores: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    loadings = rng.standard_normal((spec.rank, spec.shape[1])) / np.sqrt(spec.rank)
    f = scores @ loadings
    if spec.views > 1:
        own = rng.standard_normal((len(scores), 1)) @ rng.standard_normal((1, spec.shape[1]))
        f = np.sqrt(0.5) * (f + own)
    if spec.labels:
        p = expit(2.0 * f)
        return (rng.random(p.shape) < p).astype(float), p
    noise = rng.standard_normal(f.shape)
    if spec.tails is not None:
        noise = rng.standard_t(spec.tails, f.shape) * np.sqrt((spec.tails - 2.0) / spec.tails)
    scale = 10.0 ** rng.uniform(-0.5 * spec.scales, 0.5 * spec.scales, spec.shape[1])
    truth, x = scale * (f + spec.offset), scale * (f + spec.offset + spec.noise * noise)
    truth[:, : spec.constant] = x[:, : spec.constant] = 3.0
    return x, truth


def recommender(seed: int) -> Problem:
    """Ratings of items by users, few of them observed, with features of both."""
    rng = np.random.default_rng(seed)
    u, v = rng.standard_normal((150, 3)), rng.standard_normal((80, 3))
    a, b = rng.standard_normal((12, 3)), rng.standard_normal((10, 3))
    truths = [u @ v.T / np.sqrt(3.0), u @ a.T / np.sqrt(3.0), v @ b.T / np.sqrt(3.0)]
    full = [f + 0.5 * rng.standard_normal(f.shape) for f in truths]
    holes = hide(full[:1], 0.9, rng, truths[:1])
    return holes._replace(train=[holes.train[0], *full[1:]])


def hide(
    full: list[np.ndarray],
    share: float,
    rng: np.random.Generator,
    truths: list[np.ndarray] | None = None,
    raw: bool = False,
) -> Problem:
    """Hide a share of the observed cells of each matrix; `raw`: errors in the data's own units."""
    train, coords, y, truth, unit = [], [], [], [], []
    for m, x in enumerate(full):
        hidden = ~np.isnan(x) & (rng.random(x.shape) < share)
        hidden[:, (~np.isnan(x) & ~hidden).sum(axis=0) == 0] = False  # keep something of every column
        train.append(np.where(hidden, np.nan, x))
        rows, columns = np.nonzero(hidden)
        coords.append(np.stack([np.full(len(rows), m), rows, columns], axis=1))
        y.append(x[hidden])
        sd = np.nanstd(x, axis=0)
        unit.append(np.where(raw | (sd == 0.0), 1.0, sd)[columns])
        if truths is not None:
            truth.append(truths[m][hidden])
    known = np.concatenate(truth) if truths is not None else None
    return Problem(train, np.concatenate(coords), np.concatenate(y), known, unit=np.concatenate(unit))
