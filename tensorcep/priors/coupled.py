"""Priors of rows that depend on each other, along an axis or on a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorcep.priors import gmrf
from tensorcep.priors.base import Coupled
from tensorcep.priors.gmrf import Bonds, Field, field
from tensorcep.priors.graph import Net
from tensorcep.priors.laws import Drift, ModePrior
from tensorcep.priors.normal_wishart import LearnedPrior
from tensorcep.priors.ou_process import (
    Axis,
    Chained,
    Links,
    SeriesTable,
    Sums,
    axis,
    chained,
    levels,
    links,
    sums,
    table,
)
from tensorcep.priors.regression import FeaturesPrior
from tensorcep.priors.series import Clock
from tensorcep.priors.solvers import chain
from tensorcep.priors.solvers.chain import Marginals

# A learned prior whose rows are coupled in some modes: a series drifts, a graph has a field, in every column.
#
# Samplers draw length, scale, level and season of each column given the rows with entries, and then these rows jointly.
# Mean-field methods have the posterior of all four as a factor, and the rows with entries of such a mode as one
# Gaussian. Other modes have the prior of `normal_wishart`, or of `regression`.


class PosteriorOfDrift(NamedTuple):
    """Posterior of the parameters of a mode, in its free columns.

    Attributes
    ----------
    table : Table
    chained : Chained
        The expected prior of the rows.
    bound : float
        What the parameters add to a lower bound that takes it.
    """

    table: SeriesTable
    chained: Chained
    bound: float


class Posteriors(NamedTuple):
    """Of the modes that are no series, and per mode of those that are one."""

    others: Any
    drifts: tuple[PosteriorOfDrift | None, ...]


class SeriesPrior(NamedTuple):
    """Rows that drift in some modes (see `base.RowPrior`).

    Attributes
    ----------
    Lam, eta
        What rows begin with.
    inner : LearnedPrior or FeaturesPrior
        The prior of the other modes.
    clocks : tuple of Clock, Net or None
        The axis of each mode that is a series, and the graph of each that is one.
    have : tuple of Axis, Field or None
        What is made of the rows with entries; none before `for_rows`.
    """

    Lam: np.ndarray
    eta: np.ndarray
    inner: LearnedPrior | FeaturesPrior
    clocks: tuple[Known | None, ...]
    have: tuple[Prepared | None, ...] = ()
    learned: bool = True

    @property
    def plain(self) -> LearnedPrior:
        """What all columns are expected to be."""
        return self.inner.plain if isinstance(self.inner, FeaturesPrior) else self.inner

    @property
    def _others(self) -> LearnedPrior | FeaturesPrior:
        """The prior of the modes that are no series."""
        none = np.array([self.axis(k) is None for k in range(len(self.clocks))])
        masked = self.plain._replace(free=self.plain.free & none[:, None])
        return self.inner._replace(plain=masked) if isinstance(self.inner, FeaturesPrior) else masked

    def for_rows(self, seen: Sequence[np.ndarray]) -> SeriesPrior:
        """The prior that learns from those rows of each mode that have entries, (n_k,) bool."""
        strength, parts = self.plain.strength, zip(self.clocks, seen, strict=True)
        have = tuple(None if clock is None else prepared(clock, own, strength) for clock, own in parts)
        return self._replace(inner=self.inner.for_rows(seen), have=have)

    def axis(self, k: int) -> Prepared | None:
        """The rows with entries of mode k on their axis, if they are a series with some free column."""
        return self.have[k] if self.have and self.plain.free[k].any() else None

    def shift(self, k: int, modes: ModePrior, natural: bool = False) -> np.ndarray | None:
        """As of the prior of the other modes."""
        return self._others.shift(k, modes, natural)

    def unsure(self, k: int, modes: ModePrior, rows: np.ndarray) -> np.ndarray | None:
        """As of the prior of the other modes."""
        return self._others.unsure(k, modes, rows)

    def learn(
        self, means: list[np.ndarray], covs: list[np.ndarray], coupled: Sequence[Coupled | None] = ()
    ) -> Posteriors:
        """Posteriors given the moments of the rows with entries, of a series with those of neighbours."""
        drifts: list[PosteriorOfDrift | None] = []
        for k, mean in enumerate(means):
            of, own = self.axis(k), coupled[k] if coupled else None
            drifts.append(None if of is None or own is None else self._posterior(k, of, in_order(of, mean), own))
        return Posteriors(self._others.learn(means, covs), tuple(drifts))

    def _posterior(self, k: int, of: Prepared, rows: np.ndarray, moments: Coupled) -> PosteriorOfDrift:
        """The posterior of mode k given the means of its rows, in order."""
        free, centre, rate = self._expected(k, of)
        variance, cross = moments.variance[:, free], moments.cross[:, free]
        known = table(of, sums_of(of, rows[:, free] - centre, variance, cross), rate)
        weight = known.shares * known.a / known.b
        prior = expected(joint(of, weight.sum(axis=1), levels(of, known, weight), centre))
        bound = float(known.log_sum.sum()) - prior.expected(rows[:, free], variance, cross)
        return PosteriorOfDrift(known, prior, bound)

    def _expected(self, k: int, of: Prepared) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Free columns of mode k, the centres of their levels, and the prior rates of their precisions."""
        free = self.plain.free[k]
        return free, self.plain.mean[k, free], of.shape * self.plain.scale[k, free] ** 2

    def expectation(self, now: ModePrior, posterior: Posteriors) -> ModePrior:
        """The prior of each mode; of a series its parameters at the most probable length and strength."""
        modes = self._others.expectation(now, posterior.others)
        drifts: list[Drift | None] = [None] * len(self.clocks)
        for k, q in enumerate(posterior.drifts):
            of = self.axis(k)
            if q is None or of is None:
                continue
            known, D = q.table, len(q.table.log_sum)
            best = known.log_z.reshape(-1, D).argmax(axis=0)
            drifts[k] = self._set(k, of, modes, best, known.a / known.b.reshape(-1, D)[best, np.arange(D)], known)
        return modes._replace(drifts=tuple(drifts))

    def draw(self, now: ModePrior, rows: list[np.ndarray], rng: np.random.Generator) -> ModePrior:
        """Draw the parameters of every mode given draws of its rows with entries."""
        modes = self._others.draw(now, rows, rng)
        drifts: list[Drift | None] = [None] * len(self.clocks)
        for k, own in enumerate(rows):
            of = self.axis(k)
            if of is None:
                continue
            free, centre, rate = self._expected(k, of)
            known, D = table(of, sums_of(of, in_order(of, own)[:, free] - centre), rate), len(centre)
            total = np.cumsum(known.shares.reshape(-1, D), axis=0)
            best = (total < rng.random(D) * total[-1]).sum(axis=0)
            scale = rng.gamma(known.a, size=D) / known.b.reshape(-1, D)[best, np.arange(D)]
            noise = rng.standard_normal((1 + of.values.shape[1], D)) / np.sqrt(scale)
            drifts[k] = self._set(k, of, modes, best, scale, known, noise)
        return modes._replace(drifts=tuple(drifts))

    def _set(
        self,
        k: int,
        of: Prepared,
        modes: ModePrior,
        best: np.ndarray,
        scale: np.ndarray,
        known: SeriesTable,
        noise: np.ndarray | None = None,
    ) -> Drift:
        """Put the parameters at these places (D,) of the grid in `modes`; gives those that have no place there."""
        free, centre, _ = self._expected(k, of)
        L, S, D = known.log_z.shape
        at = np.zeros((L * S, D))
        at[best, np.arange(D)] = 1.0
        one = None if noise is None else (np.repeat(noise[:1], L, axis=0), np.repeat(noise[None, 1:], L, axis=0))
        found = levels(of, known, at.reshape(L, S, D), one).sum(axis=0)
        modes.mean[k, free] = centre + found[0]
        modes.precision[k][np.ix_(free, free)] = np.diag(scale)
        drift = Drift(np.zeros(len(free)), np.zeros((len(found) - 1, len(free))))
        drift.length[free], drift.season[:, free] = of.lengths[best // S], found[1:]
        return drift

    def links(self, k: int, modes: ModePrior) -> Joint | None:
        """The prior of the rows of mode k at these parameters, where they are coupled."""
        of, drift = self.axis(k), modes.drifts[k] if modes.drifts else None
        if of is None or drift is None:
            return None
        free = self.plain.free[k]
        own, D = np.diagonal(modes.precision[k])[free], int(free.sum())
        scale = (of.lengths[:, None] == drift.length[free]) * own
        level = np.concatenate([modes.mean[k, free][None], drift.season[:, free]])
        return joint(of, scale, scale[:, None] * level, np.zeros(D))

    def bound(self, posterior: Posteriors) -> float:
        """What learning adds to a lower bound that takes the expected prior of the rows."""
        return self._others.bound(posterior.others) + sum(q.bound for q in posterior.drifts if q is not None)

    def in_columns(self, Lam: np.ndarray, eta: np.ndarray, index: np.ndarray) -> SeriesPrior:
        """The prior of the columns index (K, Q) of each mode; padding (-1) is not free."""
        return self._replace(Lam=Lam, eta=eta, inner=self.inner.in_columns(Lam, eta, index))


def with_series(inner: LearnedPrior | FeaturesPrior, clocks: Sequence[Known | None]) -> SeriesPrior:
    """The learned prior whose rows drift in the modes that have a clock, None where a mode has none."""
    return SeriesPrior(inner.Lam, inner.eta, inner, tuple(clocks))


# What modes whose rows are coupled have in common: a series, whose rows follow each other, and a graph.

Known = Clock | Net
Prepared = Axis | Field
Joint = Links | Bonds


def prepared(known: Known, seen: np.ndarray, strength: float) -> Prepared | None:
    """What is made once of the rows with entries, `seen` (n,); None where there are less than two."""
    return field(known, seen, strength) if isinstance(known, Net) else axis(known, seen, strength)


def sums_of(of: Prepared, rows: np.ndarray, variance: Any = 0.0, cross: Any = 0.0) -> Sums:
    """The sums of rows (n, D), with their variances (n, D) and covariances of neighbours (E, D)."""
    if isinstance(of, Axis):
        return sums(of, rows, variance, cross)
    near = rows[of.left] * rows[of.right] + cross
    squares = of.own @ (rows * rows + variance) - 2.0 * (of.between @ near)
    return Sums(np.asarray(squares), np.asarray(of.total @ rows)[:, None])


def joint(of: Prepared, scale: np.ndarray, level: np.ndarray, centre: np.ndarray) -> Joint:
    """The prior of the rows together: see `axis.links`."""
    return links(of, scale, level, centre) if isinstance(of, Axis) else gmrf.bonds(of, scale, level, centre)


def expected(prior: Joint) -> Chained:
    """The prior with its means and determinants; of a graph without these, of which a bound needs none."""
    if isinstance(prior, Links):
        return chained(prior)
    return Chained(prior, np.zeros(prior.own.shape[1]), np.zeros_like(prior.own))


def draw(
    prior: Joint,
    Lam: np.ndarray,
    eta: np.ndarray,
    key: tuple[int, int, int],
    precision: float = 1.0,
    overwrite: bool = False,
) -> np.ndarray:
    """A draw (n, D) of the rows given `precision` times what their entries say (see `chain.draw`)."""
    if isinstance(prior, Links):
        return chain.draw(prior, Lam, eta, key, precision, overwrite)
    return gmrf.draw(prior, precision * Lam, precision * eta, key)


def marginals(prior: Joint, Lam: np.ndarray, eta: np.ndarray, precision: float = 1.0) -> Marginals:
    """The moments of the rows given `precision` times what their entries say (see `chain.marginals`)."""
    if isinstance(prior, Links):
        return chain.marginals(prior, Lam, eta, precision)
    return gmrf.marginals(prior, precision * Lam, precision * eta)


def in_place(of: Prepared) -> slice | np.ndarray:
    """Where the rows that depend on each other are among those of the mode, in order."""
    return as_slice(of.place)


def in_order(of: Prepared, rows: np.ndarray) -> np.ndarray:
    """The rows with entries, in order."""
    found: np.ndarray = rows[as_slice(of.order)]
    return found


def as_slice(places: np.ndarray) -> slice | np.ndarray:
    """The places; a slice, by which nothing is copied, where they follow each other."""
    first, last = int(places[0]), int(places[-1]) + 1
    follow = last - first == len(places) and bool((np.diff(places) == 1).all())
    return slice(first, last) if follow else places


def damped_joint(old: Joint | None, new: Joint, step: float) -> Joint:
    """The fraction `step` of the way from the old prior to the new one in natural parameters; all of it at first."""
    if old is None or step == 1.0:
        return new
    names = ("own", "field", "between") if isinstance(new, Links) else ("own", "field", "between", "rest")
    parts = {name: getattr(old, name) + step * (getattr(new, name) - getattr(old, name)) for name in names}
    return new._replace(**parts)
