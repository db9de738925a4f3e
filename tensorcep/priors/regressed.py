"""A learned prior whose row means depend on features of the rows: N(mu_k + B_k'x_i, Lam_k^-1) in modes that have some.

Samplers draw (mu_k, Lam_k, B_k) and its strength given the rows (`slopes`). Mean-field methods have the posterior of
(mu_k, Lam_k, B_k) as a factor, and of the strength the value at which the lower bound is highest. Modes without
features have the prior of `learned`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from tensorcep.core.belief import ModePrior
from tensorcep.core.mode_laws import Slopes
from tensorcep.priors.design import Design
from tensorcep.priors.learned import (
    MEAN_ROWS,
    LearnedPrior,
    NormalWishart,
    PosteriorOfModes,
    divergence_of_wisharts,
    expected_log_det,
    inverse,
)
from tensorcep.priors.record import Coupled
from tensorcep.priors.slopes import (
    RANGE,
    STRENGTH,
    Ready,
    Sums,
    draw,
    leverage,
    log_density,
    ready,
    scatter_at,
    sums,
)

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
    """Rows whose mean, precision and dependence on features are learned (see `record.RowPrior`).

    Attributes
    ----------
    Lam, eta, plain
        The learned prior, and what it begins with.
    designs : tuple of Design or None
        The features of the rows of each mode.
    have : tuple of Ready or None
        What is made of the features of the rows with entries; none before `for_rows`.
    strength : tuple of float
        Prior shape and rate of the strength, in units of the features' mean square length.
    """

    Lam: np.ndarray
    eta: np.ndarray
    plain: LearnedPrior
    designs: tuple[Design | None, ...]
    have: tuple[Ready | None, ...] = ()
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

    def _posterior(self, k: int, have: Ready, mean: np.ndarray, cov: np.ndarray) -> PosteriorOfSlopes | None:
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


def solution(have: Ready, known: Sums, strength: float) -> tuple[np.ndarray, np.ndarray]:
    """Means of B (F, D) and of mu less its centre (D,), given the strength."""
    coef = have.vectors @ (known.cross / (have.values + strength)[:, None])
    return coef, (known.total - have.total @ coef) / have.rows


def best_strength(have: Ready, known: Sums) -> float:
    """The strength at which the lower bound is highest."""
    unit = np.log(have.design.size)
    grid = unit + np.linspace(-RANGE / 2.0, RANGE / 2.0, GRID)
    best = int(np.argmax([log_density(have, known, at) for at in grid]))
    around = grid[max(0, best - 1)], grid[min(GRID - 1, best + 1)]
    found = minimize_scalar(lambda at: -log_density(have, known, at), bounds=around, method="bounded")
    return float(np.exp(found.x))


def _bound(q: PosteriorOfSlopes, have: Ready) -> float:
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
