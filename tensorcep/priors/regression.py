"""Priors whose means depend linearly on the rows' features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from tensorcep.priors.base import Coupled
from tensorcep.priors.features import Design
from tensorcep.priors.laws import ModePrior, Slopes
from tensorcep.priors.normal_wishart import (
    MEAN_ROWS,
    LearnedPrior,
    NormalWishart,
    PosteriorOfModes,
    divergence_of_wisharts,
    draw_root,
    expected_log_det,
    inverse,
)

# The linear map from features to prior means: its posterior given rows, and draws of it.
#
# The rows U (n, D) of a mode have the prior N(mu + B'x_i, Lam^-1) with mu ~ N(centre, (m Lam)^-1), B matrix normal with
# precisions strength (features) and Lam (columns), Lam Wishart, and strength ~ Gamma. Given the strength all of this is
# conjugate, and with H = sum x x' - s s' / (m + n), s = sum x, once decomposed, cheap at any strength:
#
#     B | Lam ~ N((H + strength)^-1 Y, (H + strength)^-1 x Lam^-1),   Y = sum x (u - centre)', less s times the mean,
#     Lam     ~ Wishart(df + n, (square - Y' (H + strength)^-1 Y)^-1).
#
# With many features systems are solved by conjugate gradients instead, and draws come from noise that is injected.
#
# Source: Simm et al. 2017, "Macau: Scalable Bayesian factorization with high-dimensional side information using MCMC",
# sec. 3. Where we differ: with few features (mu, Lam, B) are one draw, and the strength one with all three integrated
# out, by a slice sampler of its log; so draws do not depend on B before, which would move slowly where B is small.

# Up to so many features the matrix is decomposed, at the cost of their number to the third, once.
MOST_DIRECT = 2000
# Prior shape and rate of the strength, in units of the features' mean square length.
STRENGTH = (1e-3, 1e-3)
# Steps of the slice sampler, and how far from its unit the log of the strength may go.
STEPS, RANGE = 20, 30.0
# Conjugate gradients: the relative residual at which they end, and the most steps.
RESIDUAL, MOST_STEPS = 1e-6, 1000


class PreparedFeatures(NamedTuple):
    """What is needed of the features of rows with entries, made once.

    Attributes
    ----------
    design : Design
        Of these rows.
    total : (F,) float64
        Their sum.
    rows : float
        Rows, and as how many the prior mean counts.
    values, vectors : (F,), (F, F) float64, or None
        Eigenvalues and eigenvectors of H; None where features are many.
    prior : tuple of float
        Shape and rate of the strength.
    """

    design: Design
    total: np.ndarray
    rows: float
    values: Any
    vectors: Any
    prior: tuple[float, float]


def ready(design: Design, prior_rows: float, strength: tuple[float, float] = STRENGTH) -> PreparedFeatures:
    """Prepare the features of the rows with entries; the prior mean counts as `prior_rows` of them."""
    n = design.matrix.shape[0]
    total, count = design.transposed(np.ones((n, 1)))[:, 0], n + prior_rows
    values = vectors = None
    if design.n_features <= MOST_DIRECT:
        values, vectors = decomposed(design.gram(), total, count)
    return PreparedFeatures(design, total, count, values, vectors, (strength[0], strength[1] / design.size))


def decomposed(gram: np.ndarray, total: np.ndarray, count: float) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and eigenvectors of H."""
    values, vectors = np.linalg.eigh(gram - np.outer(total, total) / count)
    return np.maximum(values, 0.0), vectors


class Sums(NamedTuple):
    """Sums over the rows of a mode about the centre of their mean's prior, in the free columns.

    Attributes
    ----------
    total : (D,) float64
    square : (D, D) float64
        With mu integrated out, and the prior's scatter.
    cross : (F, D) float64
        Y; in the eigenvectors where there are some.
    df : float
        Degrees of freedom of Lam.
    """

    total: np.ndarray
    square: np.ndarray
    cross: np.ndarray
    df: float


def sums(have: PreparedFeatures, apart: np.ndarray, scatter: np.ndarray, df: float) -> Sums:
    """The sums of rows (n, D) less the centre; `scatter` and `df` are the prior's, with the rows' covariances."""
    total = apart.sum(axis=0)
    square = scatter + apart.T @ apart - np.outer(total, total) / have.rows
    cross = have.design.transposed(apart) - np.outer(have.total, total) / have.rows
    return Sums(total, square, cross if have.vectors is None else have.vectors.T @ cross, df + len(apart))


def scatter_at(have: PreparedFeatures, known: Sums, strength: float) -> np.ndarray:
    """The scatter of Lam given the strength."""
    found = known.square - known.cross.T @ (known.cross / (have.values + strength)[:, None])
    return np.asarray(0.5 * (found + found.T))


def leverage(have: PreparedFeatures, rows: Design, strength: float) -> np.ndarray:
    """Variance of mu + B'x of rows given the others, in units of the rows' own covariance, (n,)."""
    apart = rows.times(have.vectors) - (have.total @ have.vectors) / have.rows
    return np.asarray(1.0 / have.rows + (apart**2 / (have.values + strength)).sum(axis=1))


def log_density(have: PreparedFeatures, known: Sums, log_strength: float) -> float:
    """Log posterior density of the log of the strength, all else integrated out, but for a constant."""
    strength, (a, b) = np.exp(log_strength), have.prior
    sign, log_det = np.linalg.slogdet(scatter_at(have, known, strength))
    if sign <= 0.0:
        return -np.inf
    shares = 0.5 * known.cross.shape[1] * -np.log1p(have.values / strength).sum()
    return float(shares - 0.5 * known.df * log_det + a * log_strength - b * strength)


def draw(
    have: PreparedFeatures, known: Sums, now: Slopes, precision: np.ndarray, apart: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, Slopes]:
    """Draw mu less its centre (D,), Lam (D, D), and B with its strength, given the rows less the centre (n, D).

    `now` and `precision` are B, its strength, and Lam as they are at present.
    """
    if have.values is not None:
        log_strength = _slice(have, known, float(np.log(now.strength)), rng)
        strength = float(np.exp(log_strength))
        root = draw_root(known.df, scatter_at(have, known, strength), rng)
        weight = (have.values + strength)[:, None]
        noise = np.linalg.solve(root.T, rng.standard_normal(known.cross.shape).T).T
        coef = have.vectors @ (known.cross / weight + noise / np.sqrt(weight))
    else:
        strength, root, coef = _draw_many(have, known, now, precision, apart, rng)
    mean = (known.total - have.total @ coef) / have.rows
    mean = mean + np.linalg.solve(root.T, rng.standard_normal(len(mean))) / np.sqrt(have.rows)
    return mean, root @ root.T, Slopes(coef, strength)


def _slice(have: PreparedFeatures, known: Sums, at: float, rng: np.random.Generator) -> float:
    """The next value of a slice sampler of the log of the strength (Neal 2003, figs 3 and 5)."""
    unit = float(np.log(have.design.size))
    level = log_density(have, known, at) - rng.exponential()
    low = at - rng.random()
    high, left = low + 1.0, int(STEPS * rng.random())
    for _ in range(left):
        if low < unit - RANGE or log_density(have, known, low) <= level:
            break
        low -= 1.0
    for _ in range(STEPS - 1 - left):
        if high > unit + RANGE or log_density(have, known, high) <= level:
            break
        high += 1.0
    low, high = max(low, unit - RANGE), min(high, unit + RANGE)
    while high - low > 1e-9:
        new = low + rng.random() * (high - low)
        if log_density(have, known, new) > level:
            return new
        low, high = (new, high) if new < at else (low, new)
    return at


def _draw_many(
    have: PreparedFeatures, known: Sums, now: Slopes, precision: np.ndarray, apart: np.ndarray, rng: np.random.Generator
) -> tuple[float, np.ndarray, np.ndarray]:
    """Draw the strength given B and Lam, Lam given B, and B by injected noise: Lam = root root'."""
    (a, b), (F, D), n = have.prior, now.coef.shape, len(apart)
    square = float(np.einsum("fd,de,fe->", now.coef, precision, now.coef))
    strength = float(rng.gamma(a + 0.5 * F * D) / (b + 0.5 * square))
    rest = apart - have.design.times(now.coef)
    total = rest.sum(axis=0)
    of_rows = apart.T @ apart - np.outer(known.total, known.total) / have.rows
    scatter = known.square - of_rows + rest.T @ rest - np.outer(total, total) / have.rows
    root = draw_root(known.df + F, scatter + strength * now.coef.T @ now.coef, rng)
    noise = rng.standard_normal((n + F, D))
    # the square root of I - 11' / count takes a share of the mean off
    share = (1.0 - np.sqrt(1.0 - n / have.rows)) / max(1, n)
    of_data = have.design.transposed(noise[:n] - share * noise[:n].sum(axis=0))
    injected = np.linalg.solve(root.T, (of_data + np.sqrt(strength) * noise[n:]).T).T
    return strength, root, solve(have, known.cross + injected, strength, now.coef)


def solve(have: PreparedFeatures, right: np.ndarray, strength: float, start: np.ndarray) -> np.ndarray:
    """(H + strength)^-1 right by conjugate gradients, each of the columns by itself."""

    def times(x: np.ndarray) -> np.ndarray:
        product = have.design.transposed(have.design.times(x)) - np.outer(have.total, have.total @ x) / have.rows
        return product + strength * x

    x = start.copy()
    rest = right - times(x)
    step, square = rest.copy(), np.einsum("fd,fd->d", rest, rest)
    least = RESIDUAL**2 * np.einsum("fd,fd->d", right, right)
    for _ in range(MOST_STEPS):
        if (square <= least).all():
            break
        product = times(step)
        curve = np.einsum("fd,fd->d", step, product)
        length = np.divide(square, curve, out=np.zeros_like(square), where=curve > 0.0)
        x += length * step
        rest -= length * product
        new = np.einsum("fd,fd->d", rest, rest)
        step = rest + np.divide(new, square, out=np.zeros_like(new), where=square > 0.0) * step
        square = new
    return x


# A learned prior whose row means depend on features of the rows: N(mu_k + B_k'x_i, Lam_k^-1) in modes that have some.
#
# Samplers draw (mu_k, Lam_k, B_k) and its strength given the rows (above). Mean-field methods have the posterior of
# (mu_k, Lam_k, B_k) as a factor, and of the strength the value at which the lower bound is highest. Modes without
# features have the prior of `normal_wishart`.

# Values of the log of the strength among which the best one is sought first.
GRID = 31


class PosteriorOfSlopes(NamedTuple):
    """Posterior of (mu, Lam, B) of a mode given the strength, in its free columns.

    Attributes
    ----------
    mean : (D,) float64
        Of mu.
    slopes : Slopes
        Mean of B, and the strength.
    wishart : NormalWishart
        The law of Lam; its other fields are not used.
    before : NormalWishart
        The same before any row.
    known : Sums
    """

    mean: np.ndarray
    slopes: Slopes
    wishart: NormalWishart
    before: NormalWishart
    known: Sums


class Posteriors(NamedTuple):
    """Of the modes without features, and per mode of those with some."""

    plain: PosteriorOfModes
    slopes: tuple[PosteriorOfSlopes | None, ...]


class FeaturesPrior(NamedTuple):
    """Rows whose mean, precision and dependence on features are learned (see `base.RowPrior`).

    Attributes
    ----------
    Lam, eta, plain
        The learned prior, and what it begins with.
    designs : tuple of Design or None
        The features of the rows of each mode.
    have : tuple of PreparedFeatures or None
        What is made of the features of the rows with entries; none before `for_rows`.
    strength : tuple of float
        Prior shape and rate of the strength, in units of the features' mean square length.
    """

    Lam: np.ndarray
    eta: np.ndarray
    plain: LearnedPrior
    designs: tuple[Design | None, ...]
    have: tuple[PreparedFeatures | None, ...] = ()
    strength: tuple[float, float] = STRENGTH
    learned: bool = True

    @property
    def _others(self) -> LearnedPrior:
        """The prior of the modes without features."""
        none = np.array([design is None for design in self.designs])
        return self.plain._replace(free=self.plain.free & none[:, None])

    def for_rows(self, seen: Sequence[np.ndarray]) -> FeaturesPrior:
        """The prior that learns from those rows of each mode that have entries, (n_k,) bool."""
        rows = self.plain.strength * MEAN_ROWS
        parts = zip(self.designs, seen, strict=True)
        return self._replace(
            have=tuple(None if d is None else ready(d.some(own), rows, self.strength) for d, own in parts)
        )

    def shift(self, k: int, modes: ModePrior, natural: bool = False) -> np.ndarray | None:
        """How far the prior means of the rows of mode k are from that of their mode, (n_k, R), or natural ones."""
        design, slopes = self.designs[k], modes.slopes[k] if modes.slopes else None
        if design is None or slopes is None:
            return None
        return design.times(slopes.coef @ modes.precision[k] if natural else slopes.coef)

    def unsure(self, k: int, modes: ModePrior, rows: np.ndarray) -> np.ndarray | None:
        """What the prior means of some rows (n_k,) bool of mode k vary by, beside the rows' own covariance."""
        design, have, slopes = self.designs[k], self.have[k], modes.slopes[k] if modes.slopes else None
        if design is None or have is None or slopes is None:
            return None
        return leverage(have, design.some(rows), slopes.strength)

    def learn(
        self, means: list[np.ndarray], covs: list[np.ndarray], coupled: Sequence[Coupled | None] = ()
    ) -> Posteriors:
        """Posteriors of (mu_k, Lam_k, B_k) given the moments of the rows that have entries."""
        parts = zip(self.have, means, covs, strict=True)
        slopes = (None if have is None else self._posterior(k, have, *own) for k, (have, *own) in enumerate(parts))
        return Posteriors(self._others.learn(means, covs), tuple(slopes))

    def expectation(self, now: ModePrior, posterior: Posteriors) -> ModePrior:
        """E[Lam_k], and the means of mu_k and B_k, in the free columns."""
        modes = self._others.expectation(now, posterior.plain)
        slopes: list[Slopes | None] = []
        for k, q in enumerate(posterior.slopes):
            if q is not None:
                expected = q.wishart.df * inverse(q.wishart.scatter)
                self._set(k, modes, q.mean, expected)
            slopes.append(None if q is None else self._in_row(k, q.slopes))
        return modes._replace(slopes=tuple(slopes))

    def draw(self, now: ModePrior, rows: list[np.ndarray], rng: np.random.Generator) -> ModePrior:
        """Draw (mu_k, Lam_k, B_k) of the free columns, and the strengths, given draws of the rows."""
        modes = self._others.draw(now, rows, rng)
        slopes: list[Slopes | None] = [None] * len(self.designs)
        for k, (have, free) in enumerate(zip(self.have, self.plain.free, strict=True)):
            if have is None or not free.any():
                continue
            centre, (scatter, df) = self.plain.mean[k, free], self._before(k)
            apart = (rows[k] if free.all() else rows[k][:, free]) - centre
            old = now.slopes[k] if now.slopes else None
            if old is None:
                old = Slopes(np.zeros((have.design.n_features, len(free))), have.design.size)
            known = sums(have, apart, scatter, df)
            precision = now.precision[k][np.ix_(free, free)]
            mean, precision, new = draw(have, known, old._replace(coef=old.coef[:, free]), precision, apart, rng)
            self._set(k, modes, centre + mean, precision)
            slopes[k] = self._in_row(k, new)
        return modes._replace(slopes=tuple(slopes))

    def bound(self, posterior: Posteriors) -> float:
        """What learning adds to a lower bound that takes the expectation for the rows' prior."""
        total = self._others.bound(posterior.plain)
        for q, have in zip(posterior.slopes, self.have, strict=True):
            if q is not None and have is not None:
                total += _bound(q, have)
        return total

    def axis(self, k: int) -> None:
        """Rows do not depend on each other."""

    def links(self, k: int, modes: ModePrior) -> None:
        """Rows do not depend on each other."""

    def in_columns(self, Lam: np.ndarray, eta: np.ndarray, index: np.ndarray) -> FeaturesPrior:
        """The prior of the columns index (K, Q) of each mode; padding (-1) is not free."""
        return self._replace(Lam=Lam, eta=eta, plain=self.plain.in_columns(Lam, eta, index))

    def _before(self, k: int) -> tuple[np.ndarray, float]:
        """Scatter and degrees of freedom of Lam_k before any row."""
        width = self.plain.scale[k, self.plain.free[k]]
        return self.plain.strength * np.diag(width**2), self.plain.strength * len(width)

    def _posterior(self, k: int, have: PreparedFeatures, mean: np.ndarray, cov: np.ndarray) -> PosteriorOfSlopes | None:
        """The best posterior of mode k, and the strength that goes with it."""
        free = self.plain.free[k]
        if not free.any():
            return None
        centre, (scatter, df) = self.plain.mean[k, free], self._before(k)
        known = sums(have, mean[:, free] - centre, scatter + cov[np.ix_(free, free)], df)
        strength = best_strength(have, known)
        coef, level = solution(have, known, strength)
        at = centre + level
        wishart = NormalWishart(at, have.rows, known.df, scatter_at(have, known, strength))
        before = NormalWishart(centre, have.rows - len(mean), df, scatter)
        return PosteriorOfSlopes(at, Slopes(coef, strength), wishart, before, known)

    def _set(self, k: int, modes: ModePrior, mean: np.ndarray, precision: np.ndarray) -> None:
        """Put what was learned of the free columns of mode k in its place."""
        free = self.plain.free[k]
        modes.mean[k, free] = mean
        modes.precision[k][np.ix_(free, free)] = precision

    def _in_row(self, k: int, slopes: Slopes) -> Slopes:
        """Slopes of the free columns as slopes of all columns."""
        free = self.plain.free[k]
        coef = np.zeros((len(slopes.coef), len(free)))
        coef[:, free] = slopes.coef
        return slopes._replace(coef=coef)


def with_features(
    plain: LearnedPrior, designs: Sequence[Design | None], strength: tuple[float, float] = STRENGTH
) -> FeaturesPrior:
    """The learned prior whose means depend on the features of each mode's rows, None where a mode has none."""
    return FeaturesPrior(plain.Lam, plain.eta, plain, tuple(designs), strength=strength)


def solution(have: PreparedFeatures, known: Sums, strength: float) -> tuple[np.ndarray, np.ndarray]:
    """Means of B (F, D) and of mu less its centre (D,), given the strength."""
    coef = have.vectors @ (known.cross / (have.values + strength)[:, None])
    return coef, (known.total - have.total @ coef) / have.rows


def best_strength(have: PreparedFeatures, known: Sums) -> float:
    """The strength at which the lower bound is highest."""
    unit = np.log(have.design.size)
    grid = unit + np.linspace(-RANGE / 2.0, RANGE / 2.0, GRID)
    best = int(np.argmax([log_density(have, known, at) for at in grid]))
    around = grid[max(0, best - 1)], grid[min(GRID - 1, best + 1)]
    found = minimize_scalar(lambda at: -log_density(have, known, at), bounds=around, method="bounded")
    return float(np.exp(found.x))


def _bound(q: PosteriorOfSlopes, have: PreparedFeatures) -> float:
    """What a mode with features adds to the bound.

    With the precision V of (mu, B) about Lam, and V0 before: half of n (E log|Lam| - log|E Lam|) - D tr(V^-1 (V - V0)),
    less the divergence of q from what was before, and the log prior of the strength.
    """
    values = have.values
    (a, b), strength, D, F = have.prior, q.slopes.strength, len(q.mean), len(values)
    n, before = have.design.matrix.shape[0], q.before
    expected = q.wishart.df * inverse(q.wishart.scatter)
    shares = strength / (values + strength)
    projected = (have.vectors.T @ have.total) ** 2 / (values + strength)
    of_mean = before.rows * (1.0 / have.rows + float(projected.sum()) / have.rows**2)
    inside = of_mean + float(shares.sum())  # tr(V0 V^-1)
    apart = q.mean - before.mean
    square = before.rows * apart @ expected @ apart
    square += strength * float(np.einsum("fd,de,fe->", q.slopes.coef, expected, q.slopes.coef))
    log_det = np.log(have.rows / before.rows) - float(np.log(shares).sum())
    gaussians = 0.5 * (D * (inside - (F + 1) + log_det) + square)
    dispersed = expected_log_det(q.wishart) - np.linalg.slogdet(expected)[1]
    rows = 0.5 * (n * dispersed - D * (F + 1 - inside))
    return float(rows - gaussians - divergence_of_wisharts(q.wishart, before) + a * np.log(strength) - b * strength)
