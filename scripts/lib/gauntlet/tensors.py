"""Tensors of every kind that a newcomer may bring, drawn from a truth that is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, gammaln, ndtr

from scripts.lib.gauntlet.record import Problem
from tensorcep import SparseTensor

LEAST_TEST, MOST_TEST = 1000, 5000
LABEL_SD, COUNT_SD = 2.0, 0.7  # of the latent value of labels (log odds) and counts (log rates)
FULLEST = 0.8  # share of all cells that may be drawn
# The mean over normal noise is this weighted sum.
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(32)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


@dataclass(frozen=True)
class TensorSpec:
    """How a tensor is drawn; the latent value f has variance 1 before labels and counts scale it.

    Attributes
    ----------
    n : int
        Training entries.
    rank, order : int
        Of the CP component.
    positive : bool
        Factors |N(0, 1)| + 0.2 in place of N(0, 1).
    noise : float
        Standard deviation of the noise of values, that of f being 1.
    per_row : float
        Training entries of a row, on average over modes; mode sizes are as 1.5 : 1 : 0.5 and the like.
    shape : tuple, optional
        In place of `per_row`.
    offset : float
        Added to values.
    main, pairs : float
        Shares of the variance of f that are main effects and pairwise terms.
    constant : int
        Components that are the same in all rows of the first mode.
    tails : float, optional
        Degrees of freedom of Student's t noise of the same standard deviation.
    outliers : float
        Share of the values whose noise is 15 times as large.
    floor : float
        Share of the values piled up at the least one.
    logs : float
        Values are e to the power of so many times what they else are; 0: they are not.
    percent : bool
        Values are 100 times the logistic function of 1.5 times what they else are, less 2: most small, none above 100.
    zipf : bool
        Row i of a mode is drawn in proportion to 1 / (i + 1).
    share : float
        Of ones among labels.
    sampled : bool
        All ones of the tensor and as many zeros, in place of cells drawn at random.
    count : float
        Mean of counts.
    dispersion : float, optional
        r of negative-binomial counts; without it they are Poisson.
    """

    n: int = 2000
    rank: int = 3
    order: int = 3
    positive: bool = False
    noise: float = 0.5
    per_row: float = 20.0
    shape: tuple[int, ...] | None = None
    offset: float = 0.0
    main: float = 0.0
    pairs: float = 0.0
    constant: int = 0
    tails: float | None = None
    outliers: float = 0.0
    floor: float = 0.0
    logs: float = 0.0
    percent: bool = False
    zipf: bool = False
    share: float = 0.5
    sampled: bool = False
    count: float = 3.0
    dispersion: float | None = None

    def sizes(self) -> tuple[int, ...]:
        """Rows of each mode."""
        if self.shape is not None:
            return self.shape
        if self.sampled:  # so many cells that their ones are half of the training and test entries
            cells = 0.5 * (self.n + self.n_test()) / self.share
            return (round(cells ** (1.0 / self.order)),) * self.order
        unlike = np.linspace(1.5, 0.5, self.order)
        return tuple(int(n) for n in np.ceil(unlike * self.n / self.per_row))

    def n_test(self) -> int:
        return int(np.clip(self.n // 2, LEAST_TEST, MOST_TEST))


def draw_cells(spec: TensorSpec, rng: np.random.Generator) -> np.ndarray:
    """Distinct cells (n + tests, K) in random order."""
    shape, n = spec.sizes(), spec.n + spec.n_test()
    total = int(np.prod([float(size) for size in shape]))
    if n > FULLEST * total:
        raise ValueError(f"{n} entries do not leave {1 - FULLEST:.0%} of the {total} cells of {shape} free")
    if total <= 4 * n and not spec.zipf:
        flat = rng.choice(total, n, replace=False)
    else:
        flat = np.empty(0, dtype=np.int64)
        while len(flat) < n:  # the first draws of each cell, in the order in which they came
            drawn = [_rows(size, 2 * n, spec.zipf, rng) for size in shape]
            flat = np.concatenate([flat, np.ravel_multi_index(drawn, shape)])
            flat = flat[np.sort(np.unique(flat, return_index=True)[1])]
    return np.stack(np.unravel_index(flat[:n], shape), axis=1).astype(np.int64)


def _rows(size: int, n: int, zipf: bool, rng: np.random.Generator) -> np.ndarray:
    if not zipf:
        return rng.integers(0, size, n)
    weight = 1.0 / np.arange(1.0, size + 1.0)
    return rng.choice(size, n, p=weight / weight.sum())


def draw_latent(spec: TensorSpec, coords: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Latent values of the cells, of variance 1."""
    shape, order = spec.sizes(), spec.order
    parts = [(1.0 - spec.main - spec.pairs, tuple(range(order)), spec.rank)]
    parts += [(spec.main / order, (k,), 1) for k in range(order)]
    pairs = [(j, k) for j in range(order) for k in range(j)]
    parts += [(spec.pairs / len(pairs), pair, 2) for pair in pairs]
    f = np.zeros(len(coords))
    for share, modes, rank in parts:
        if share <= 0.0:
            continue
        product = np.ones((len(coords), rank))
        for k in modes:
            rows = rng.standard_normal((shape[k], rank))
            rows = np.abs(rows) + 0.2 if spec.positive else rows
            if k == 0 and len(modes) == order:
                rows[:, : spec.constant] = 1.0
            product *= rows[coords[:, k]]
        part = product.sum(axis=1)
        f += np.sqrt(share) * part / part.std()
    return f / f.std()


def values(spec: TensorSpec, seed: int) -> Problem:
    """Real values."""
    rng = np.random.default_rng(seed)
    coords = draw_cells(spec, rng)
    f = spec.offset + draw_latent(spec, coords, rng)
    noise = rng.standard_normal(len(f))
    if spec.tails is not None:
        noise = rng.standard_t(spec.tails, len(f)) * np.sqrt((spec.tails - 2.0) / spec.tails)
    noise *= np.where(rng.random(len(f)) < spec.outliers, 15.0, 1.0)
    y = f + spec.noise * noise
    if spec.floor > 0.0:
        limit = np.quantile(y, spec.floor)
        y, z = np.maximum(y, limit), (f - limit) / spec.noise
        f = limit + spec.noise * (z * ndtr(z) + np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi))
    if spec.logs > 0.0:
        y, f = np.exp(spec.logs * y), np.exp(spec.logs * f + 0.5 * (spec.logs * spec.noise) ** 2)
    if spec.percent:
        y, f = _percent(y), sum(w * _percent(f + spec.noise * z) for z, w in zip(NODES, WEIGHTS, strict=True))
    return split(spec, coords, y, f)


def _percent(y: np.ndarray) -> np.ndarray:
    return np.asarray(100.0 * expit(1.5 * y - 2.0))


def labels(spec: TensorSpec, seed: int) -> Problem:
    """Labels 0 and 1, logistic in f."""
    rng = np.random.default_rng(seed)
    if spec.sampled:
        shape = spec.sizes()
        coords = np.stack(np.unravel_index(np.arange(np.prod(shape)), shape), axis=1)
    else:
        coords = draw_cells(spec, rng)
    f = LABEL_SD * draw_latent(spec, coords, rng)
    p = expit(f + brentq(lambda shift: expit(f + shift).mean() - spec.share, -60.0, 60.0))
    y = (rng.random(len(p)) < p).astype(float)
    if spec.sampled:
        ones, zeros = np.flatnonzero(y > 0.0), np.flatnonzero(y == 0.0)
        chosen = rng.permutation(np.concatenate([ones, rng.choice(zeros, len(ones), replace=False)]))
        p = p / (p + (1.0 - p) * len(ones) / len(zeros))
        coords, y, p = coords[chosen], y[chosen], p[chosen]
    return split(spec, coords, y, p)


def counts(spec: TensorSpec, seed: int) -> Problem:
    """Counts, log-linear in f."""
    rng = np.random.default_rng(seed)
    coords = draw_cells(spec, rng)
    rate = np.exp(COUNT_SD * draw_latent(spec, coords, rng))
    rate *= spec.count / rate.mean()
    r = spec.dispersion
    y = rng.poisson(rate if r is None else rate * rng.gamma(r, 1.0 / r, len(rate))).astype(float)
    return split(spec, coords, y, count_log_mass(y, rate, r))


def count_log_mass(y: np.ndarray, rate: np.ndarray | float, r: float | None) -> np.ndarray:
    """Log mass of Poisson counts, or of negative-binomial ones of variance rate + rate^2 / r."""
    if r is None:
        return y * np.log(rate) - rate - gammaln(y + 1.0)
    chance = rate / (rate + r)
    return gammaln(y + r) - gammaln(r) - gammaln(y + 1.0) + y * np.log(chance) + r * np.log1p(-chance)


def split(spec: TensorSpec, coords: np.ndarray, y: np.ndarray, truth: np.ndarray) -> Problem:
    """The last entries are the test entries."""
    n = len(y) - spec.n_test()
    train = SparseTensor.from_coo(coords[:n], y[:n], shape=spec.sizes())
    return Problem(train, coords[n:], y[n:], truth[n:])
