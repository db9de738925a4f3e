"""Modes whose rows depend on each other, along an axis or on a graph: the law of their parameters, and all their rows.

Samplers draw length, scale, level and season of each column given the rows with entries, and then these rows jointly.
Mean-field methods have the posterior of all four as a factor, and the rows with entries of such a mode as one Gaussian.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from tensorcep.core.packing import diagonal, offsets, unpack
from tensorcep.core.persist.records import Sized
from tensorcep.core.random import RandomStream, generator
from tensorcep.priors import gmrf, ou_process
from tensorcep.priors.base import Coupled, Drift, ModeParameters, RowPrior, moments_of
from tensorcep.priors.gmrf import Bonds, Field, draw_gaps, field
from tensorcep.priors.graph import Net
from tensorcep.priors.ou_process import Axis, Chained, SeriesTable, laws_of, levels, n_lines, table
from tensorcep.priors.series import Clock
from tensorcep.priors.solvers.chain import Links, Marginals

NUMBERS_AT_A_TIME = 20_000_000  # of rows whose gaps are filled
Known = Clock | Net
Prepared = Axis | Field
Joint = Links | Bonds  # the prior of coupled rows together, in their order
Draws = tuple[np.ndarray, ...]


class PosteriorOfDrift(NamedTuple):
    """Posterior of the parameters of a mode, in its free columns."""

    table: SeriesTable
    chained: Chained  # the expected prior of the rows
    bound: float  # what the parameters add to a lower bound that takes it


class CoupledLaw(NamedTuple):
    """A mode whose rows drift, or have a field, in every column (see `base.ModeLaw`); `of` are those with entries."""

    free: np.ndarray
    centre: np.ndarray
    width: np.ndarray
    weight: float
    of: Prepared

    def table(self, rows: np.ndarray, variance: Any = 0.0, cross: Any = 0.0) -> SeriesTable:
        """The posterior given the free columns of the rows, in their order, with moments as `sums` takes them."""
        return table(self.of, self.of.sums(rows - self.centre, variance, cross), self.of.shape * self.width**2)

    def posterior(self, mean: np.ndarray, cov: Any, coupled: Coupled | None) -> PosteriorOfDrift | None:
        """Given the means of the rows, their variances, and the covariances of neighbours; None without the latter."""
        if coupled is None:
            return None
        of, rows = self.of, mean[as_slice(self.of.order)][:, self.free]
        variance, cross = coupled.variance[:, self.free], coupled.cross[:, self.free]
        known = self.table(rows, variance, cross)
        weight = known.shares * known.a / known.b
        joint: Any = of.joint(weight.sum(axis=1), levels(of, known, weight), self.centre)
        prior = of.chained(joint)
        bound = float(known.log_sum.sum()) - prior.expected(rows, variance, cross)
        return PosteriorOfDrift(known, prior, bound)

    def expectation(self, q: PosteriorOfDrift) -> ModeParameters:
        """The parameters at the most probable length and strength."""
        known, D = q.table, len(self.centre)
        best = known.log_z.reshape(-1, D).argmax(axis=0)
        return self._at(best, known.a / known.b.reshape(-1, D)[best, np.arange(D)], known)

    def draw(self, now: ModeParameters | None, rows: np.ndarray, rng: np.random.Generator) -> ModeParameters:
        of, D = self.of, len(self.centre)
        known = self.table(rows[as_slice(of.order)][:, self.free])
        total = np.cumsum(known.shares.reshape(-1, D), axis=0)
        best = (total < rng.random(D) * total[-1]).sum(axis=0)
        scale = rng.gamma(known.a, size=D) / known.b.reshape(-1, D)[best, np.arange(D)]
        return self._at(best, scale, known, rng.standard_normal((1 + of.values.shape[1], D)) / np.sqrt(scale))

    def bound(self, q: PosteriorOfDrift) -> float:
        return q.bound

    def _at(self, best: np.ndarray, scale: np.ndarray, known: SeriesTable, noise: Any = None) -> ModeParameters:
        """The parameters at these places (D,) of the grid, of these precisions (D,)."""
        L, S, D = known.log_z.shape
        at = np.zeros((L * S, D))
        at[best, np.arange(D)] = 1.0
        one = None if noise is None else (np.repeat(noise[:1], L, axis=0), np.repeat(noise[None, 1:], L, axis=0))
        found = levels(self.of, known, at.reshape(L, S, D), one).sum(axis=0)
        drift = Drift(self.of.lengths[best // S], found[1:])
        return ModeParameters(self.centre + found[0], np.diag(scale), None, drift)

    def links(self, found: ModeParameters) -> Joint:
        """The prior of the rows at these parameters."""
        drift: Any = found.drift
        scale = (self.of.lengths[:, None] == drift.length) * np.diagonal(found.precision)
        level = np.concatenate([found.mean[None], drift.season])
        return self.of.joint(scale, scale[:, None] * level, np.zeros(len(self.centre)))


class Chain(NamedTuple):
    """What a stream knows of how the rows of a mode depend on each other, in its D free columns."""

    free: Annotated[np.ndarray, Sized("R", "b")]
    centre: Annotated[np.ndarray, Sized("D")]  # what was expected of a row before any entry
    width: Annotated[np.ndarray, Sized("D")]  # the deviation from it
    weight: float  # how many times as much as by default that counts
    mean: Annotated[np.ndarray, Sized("D")]  # of the process (see `base.Drift`); `season` is (P, D)
    precision: Annotated[np.ndarray, Sized("D")]
    length: Annotated[np.ndarray, Sized("D")]
    season: Annotated[np.ndarray, Sized("_ D")]

    def in_free(self, Lam: np.ndarray, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What entries say, Lam (n, P) and eta (n, R), in the D free columns alone."""
        f = np.flatnonzero(self.free)
        i, j = np.tril_indices(len(f))
        return Lam[:, f[i] * (f[i] + 1) // 2 + f[j]], eta[:, f]

    def rows(self, clock: Known, Lam: np.ndarray, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Packed precisions and natural means, in the free columns, of all rows of a mode, given what entries say."""
        # Rows of which they say nothing are forecast. Where columns are independent of each other by approximation,
        # what the others say of each column by itself stands beside what entries say: no more of a batch's messages can
        # be taken off. FloatingPointError is raised where the joint precision is not positive definite.
        told, eta = self.in_free(Lam, eta)
        if isinstance(clock, Net):
            found = gmrf.moments_at(clock, self, told, eta)
        else:
            place, found = self._along(clock, np.arange(len(eta)), told, eta)
            back = np.argsort(place)
            found = found._replace(mean=found.mean[back], cov=found.cov[back])
        eta, Lam, _ = moments_of(found.cov, found.mean)  # their roles exchanged
        if found.apart:
            D = eta.shape[1]
            beside, at = told.copy(), diagonal(D)
            beside[:, at] = Lam[:, at]
            Lam, eta = beside, np.einsum("nij,nj->ni", unpack(beside, D), found.mean)
        return Lam, eta

    def _along(self, clock: Clock, rows: np.ndarray, Lam: np.ndarray, eta: np.ndarray) -> tuple[np.ndarray, Marginals]:
        """Some rows (m,) of a series in the order of their times, and their moments; of all entries say this."""
        place, prior = ou_process.links_at(clock, rows, self)
        return place, prior.marginals(Lam[place], eta[place])

    def after(self, clock: Known, seen: np.ndarray, Lam: np.ndarray, eta: np.ndarray) -> Chain:
        """With the law that moments of the rows `seen` (n,) bool make most probable, as a fit by mean field has it."""
        D, (Lam, eta) = len(self.mean), self.in_free(Lam, eta)
        of: Any = prepared(clock, seen, self.weight)
        if of is None:
            return self
        if isinstance(clock, Net):
            at = np.zeros((len(of.lengths), D))  # the rows that the field is not learned from are integrated out
            at[np.argmin(np.abs(of.lengths[:, None] - self.length), axis=0), np.arange(D)] = self.precision
            found = of.joint(at, at[:, None] * self.mean, np.zeros(D)).marginals(Lam[of.place], eta[of.place])
        else:
            _, found = self._along(clock, np.flatnonzero(seen), Lam, eta)
        mean = found.mean[np.argsort(of.order)]
        law = CoupledLaw(np.ones(D, dtype=bool), self.centre, self.width, self.weight, of)
        q: Any = law.posterior(mean, None, Coupled(found.cov[:, diagonal(D)], found.cross))
        new = law.expectation(q)
        drift: Any = new.drift
        return self._replace(mean=new.mean, precision=np.diagonal(new.precision).copy(), **drift._asdict())


def prepared(known: Known, seen: np.ndarray, strength: float) -> Prepared | None:
    """What is made once of the rows with entries, `seen` (n,); None where there are less than two."""
    return field(known, seen, strength) if isinstance(known, Net) else ou_process.axis(known, seen, strength)


def in_place(of: Prepared) -> slice | np.ndarray:
    """Where the rows that depend on each other are among those of the mode, in order."""
    return as_slice(of.place)


def as_slice(places: np.ndarray) -> slice | np.ndarray:
    """The places; a slice, by which nothing is copied, where they follow each other."""
    first, last = int(places[0]), int(places[-1]) + 1
    follow = last - first == len(places) and bool((np.diff(places) == 1).all())
    return slice(first, last) if follow else places


def damped_joint(old: Any, new: Any, step: float) -> Any:
    """The fraction `step` of the way from the old prior to the new one in natural parameters; all of it at first."""
    if old is None or step == 1.0:
        return new
    names = [name for name in new._fields if name not in ("of", "closed", "which")]
    parts = {name: getattr(old, name) + step * (getattr(new, name) - getattr(old, name)) for name in names}
    return new._replace(**parts)


def fill_gaps(prior: RowPrior, shape: tuple[int, ...], seed: int, kept: Draws, drifts: Draws, seen: np.ndarray) -> None:
    """Draw the rows of series and graphs not `seen` (n_rows,), in place in draws (C, n_rows, R) and their `drifts`."""
    first, at = offsets(shape), 0
    for k, clock in enumerate(prior.clocks):
        if clock is None:
            continue
        rng, mode = generator(seed, RandomStream.GAPS, k), slice(*first[k : k + 2])
        own, of, lines = seen[mode], prior.axis(k), slice(at, at + n_lines(clock))
        parts, at = [draw[:, mode] for draw in kept], lines.stop
        if isinstance(clock, Net):
            gaps = [] if of is None else [gap.row for gap in of.gaps]
        else:
            gaps = np.flatnonzero(~own).tolist() if own.any() else []
        some = max(1, NUMBERS_AT_A_TIME // parts[0].size)
        for i in range(0, len(parts) if gaps else 0, some):  # some draws at a time
            part, laws = parts[i : i + some], laws_of(np.concatenate([draw[:, lines] for draw in drifts[i : i + some]]))
            rows = np.concatenate(part).astype(np.float64)
            noise = rng.standard_normal((len(rows), len(gaps), rows.shape[2]))
            if isinstance(clock, Net):
                which = np.abs(of.lengths[:, None, None] - laws.length).argmin(axis=0)
                draw_gaps(of.gaps, rows, which, laws.mean, noise / np.sqrt(laws.precision)[:, None])
            else:
                known = clock.at(own), rows[:, own], laws
                rows[:, gaps] = ou_process.draw_at(clock, *known, clock.at(~own), noise, joint=True)
            for draws, found in zip(part, np.split(rows, len(part)), strict=True):
                draws[:, gaps] = found[:, gaps]
