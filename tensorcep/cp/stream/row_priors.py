"""Rows of a mode in a stream, and their priors that batches teach: by features, along a series, on a graph.

**Features.** The law of the map from features to prior means, given the rows, needs sums over the rows with entries
alone (`priors.regression`). A batch takes what its rows said before out of them and puts what they say now in, so that
it costs no more than its rows and the cube of the number of features. A row's prior is replaced by what its features
say when the row is next looked at: its messages stay. Rows without entries are as unsure as the map, too.

**Series and graphs.** What all entries so far say of a row is kept, as natural parameters beside those of its prior
(`ModeRows`): the row's posterior less its prior. With the law of the drift they give the moments of all rows of the
mode at once, by Kalman smoothing (`priors.solvers.chain`), linear in their number; of a graph from a sparse Cholesky
factor, rows that it does not name being rows without edges. A batch begins with these moments as the prior of its rows,
those that it brings being forecast; what its entries say is added, the law is learned on from the moments of all rows
with entries, and rows are smoothed again. Where a batch touches several rows of a mode, it is learned a second time
with what the others of its rows were told, since in between they count as independent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd

from tensorcep.core.checks import fail_value
from tensorcep.core.packing import pack, unpack
from tensorcep.core.persist.records import Sized
from tensorcep.cp.fitted.new_rows import Natural, in_all
from tensorcep.cp.model.rows import diagonal
from tensorcep.kernels.rows import row_moments
from tensorcep.priors.base import Coupled
from tensorcep.priors.coupled import Known, SeriesPrior, joint, marginals
from tensorcep.priors.features import Design
from tensorcep.priors.gmrf import Law, moments_of_all, scales_of
from tensorcep.priors.graph import Net
from tensorcep.priors.laws import Drift, ModePrior, RowSites
from tensorcep.priors.normal_wishart import MEAN_ROWS, Expected, LearnedPrior, inverse
from tensorcep.priors.ou_process import Links, ends, in_time, weights
from tensorcep.priors.regression import (
    STRENGTH,
    PreparedFeatures,
    Sums,
    best_strength,
    decomposed,
    scatter_at,
    solution,
)
from tensorcep.priors.series import MOST_PHASES, SAME_PHASE, Clock
from tensorcep.priors.solvers.chain import Marginals
from tensorcep.priors.solvers.sparse import ordered

# Shares of messages that are tried, until all rows together are a Gaussian.
SHARES = (1.0, 0.5, 0.25, 0.0)


class ModeRows(NamedTuple):
    """Rows of one mode, with room for more; those in use come first.

    Attributes
    ----------
    Lam, eta : (room, P), (room, R)
        Natural parameters of the posterior at the time it was last updated.
    prior_Lam, prior_eta : (room, P), (room, R)
        Natural parameters of the prior that forgetting returns to; of a series or a graph what the other rows say.
    seen : (room,) bool
        Whether an entry has touched the row.
    time : (room,) float64
        Time of the last update.
    """

    Lam: Annotated[np.ndarray, Sized("room P")]
    eta: Annotated[np.ndarray, Sized("room R")]
    prior_Lam: Annotated[np.ndarray, Sized("room P")]
    prior_eta: Annotated[np.ndarray, Sized("room R")]
    seen: Annotated[np.ndarray, Sized("room", "b")]
    time: Annotated[np.ndarray, Sized("room")]

    def at(self, rows: Any, keep: float, time: float, prior: Natural | None = None) -> Natural:
        """Some rows at a time, w = keep^(time since the last update): posterior^w prior^(1 - w).

        `prior` takes the place of the one that they had.
        """
        if keep == 1.0 and prior is None:
            return Natural(self.Lam.take(rows, axis=0), self.eta.take(rows, axis=0))
        old = Natural(self.prior_Lam[rows], self.prior_eta[rows])
        new, weight = prior or old, keep ** np.maximum(0.0, time - self.time[rows])[:, None]
        return Natural(new.Lam + weight * (self.Lam[rows] - old.Lam), new.eta + weight * (self.eta[rows] - old.eta))

    def sites(self, n: int) -> Natural:
        """What the entries say of the first n rows."""
        return Natural(self.Lam[:n] - self.prior_Lam[:n], self.eta[:n] - self.prior_eta[:n])

    def put(self, where: Any, rows: Natural, prior: Natural) -> None:
        """Write rows and their prior in place."""
        self.Lam[where], self.eta[where] = rows
        self.prior_Lam[where], self.prior_eta[where] = prior


def moments_of(rows: Natural) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means (m, R) and packed covariances (m, P) of rows, and good (m,), 0 where a row is no Gaussian.

    Of a covariance in place of the precision, and a mean, these are natural mean and precision.
    """
    Lam, eta = map(np.ascontiguousarray, rows)
    mean, cov, good = np.empty_like(eta), np.empty_like(Lam), np.empty(len(eta))
    row_moments(0, len(eta), Lam, eta, mean, cov, good)
    return mean, cov, good


def sound_prior(new: Natural, before: Natural, rows: Natural) -> Natural:
    """The new prior of rows whose prior was `before`; that where a row would be no Gaussian with the other one."""
    moved = Natural(rows.Lam + (new.Lam - before.Lam), rows.eta + (new.eta - before.eta))
    keep = (moments_of(moved)[2] > 0.0)[:, None]
    return Natural(*(np.where(keep, one, old) for one, old in zip(new, before, strict=True)))


class MapOfFeatures(NamedTuple):
    """What is known of the map from the F features of a mode to the prior means of its rows, in D free columns.

    Attributes
    ----------
    free : (R,) bool
    centre, width : (D,) float64
        What was expected of a row before any entry, and the deviation from it.
    weight : float
        How many times as much as by default that counts.
    rows : int
        Rows with entries.
    total, gram : (F,), (F, F) float64
        Sums of their features, and of products of these.
    apart, cross, square : (D,), (F, D), (D, D) float64
        Sums of the rows less the centre, of these times features, and of their second moments.
    mean, precision : (D,), (D, D) float64
        The prior of a row without features that has entries.
    coef : (F, D) float64
    strength : float
        Precision of coef beside that of the rows.
    root : (F, F) float64
        Of what coef varies by, in units of the rows' own covariance.
    """

    free: Annotated[np.ndarray, Sized("R", "b")]
    centre: Annotated[np.ndarray, Sized("D")]
    width: Annotated[np.ndarray, Sized("D")]
    weight: float
    rows: int
    total: Annotated[np.ndarray, Sized("F")]
    gram: Annotated[np.ndarray, Sized("F F")]
    apart: Annotated[np.ndarray, Sized("D")]
    cross: Annotated[np.ndarray, Sized("F D")]
    square: Annotated[np.ndarray, Sized("D D")]
    mean: Annotated[np.ndarray, Sized("D")]
    precision: Annotated[np.ndarray, Sized("D D")]
    coef: Annotated[np.ndarray, Sized("F D")]
    strength: float
    root: Annotated[np.ndarray, Sized("F F")]

    @property
    def weight_of_mean(self) -> float:
        """Rows, and as how many the prior mean counts."""
        return self.rows + self.weight * MEAN_ROWS

    def with_rows(self, design: Design, rows: np.ndarray, new: Natural, old: Natural | None) -> MapOfFeatures:
        """The map with sums that hold rows (m,) that are `new` in place of `old`; None: of nothing. Its law stays."""
        some = some_rows(design, rows)
        known = self._summed(some, new, 1.0)
        if old is not None:
            return known._summed(some, old, -1.0)
        total = some.transposed(np.ones((len(rows), 1)))[:, 0]
        return known._replace(rows=known.rows + len(rows), total=known.total + total, gram=known.gram + some.gram())

    def _summed(self, some: Design, rows: Natural, sign: float) -> MapOfFeatures:
        """The map with the sums over rows, times `sign`."""
        mean, cov, _ = moments_of(rows)
        apart, own = mean[:, self.free] - self.centre, np.ix_(self.free, self.free)
        square = apart.T @ apart + unpack(cov.sum(axis=0), mean.shape[1])[own]
        return self._replace(
            apart=self.apart + sign * apart.sum(axis=0),
            cross=self.cross + sign * some.transposed(apart),
            square=self.square + sign * square,
        )

    def learned(self, design: Design) -> MapOfFeatures:
        """The map with its law given the rows that it holds."""
        count, D, (a, b) = self.weight_of_mean, len(self.centre), STRENGTH
        values, vectors = decomposed(self.gram, self.total, count)
        have = PreparedFeatures(design, self.total, count, values, vectors, (a, b / design.size))
        square = self.weight * np.diag(self.width**2) + self.square - np.outer(self.apart, self.apart) / count
        cross = vectors.T @ (self.cross - np.outer(self.total, self.apart) / count)
        sums = Sums(self.apart, square, cross, self.weight * D + self.rows)
        strength = best_strength(have, sums)
        coef, level = solution(have, sums, strength)
        return self._replace(
            mean=self.centre + level,
            precision=sums.df * inverse(scatter_at(have, sums, strength)),
            coef=coef,
            strength=strength,
            root=vectors / np.sqrt(values + strength),
        )

    def prior_of(self, design: Design, rows: np.ndarray, seen: np.ndarray) -> Natural:
        """The prior, in all columns, of rows (m,), of which some have entries, `seen` (m,) bool."""
        some = some_rows(design, rows)
        mean = self.mean + some.times(self.coef)
        apart = some.times(self.root) - (self.total @ self.root) / self.weight_of_mean
        unsure = np.where(seen, 0.0, 1.0 / self.weight_of_mean + (apart**2).sum(axis=1))
        share = 1.0 / (1.0 + unsure)
        Lam = share[:, None] * pack(self.precision)[None]
        return in_all(Natural(Lam, share[:, None] * (mean @ self.precision)), self.free)

    def prior_now(self, design: Design, mode: ModeRows, rows: np.ndarray) -> Natural:
        """The prior that features give some rows of a mode by now."""
        before, own = Natural(mode.prior_Lam[rows], mode.prior_eta[rows]), Natural(mode.Lam[rows], mode.eta[rows])
        return sound_prior(self.prior_of(design, rows, mode.seen[rows]), before, own)

    def after(self, design: Design, mode: ModeRows, rows: np.ndarray, new: Natural) -> MapOfFeatures:
        """The map after some rows of a mode, which holds what they were, got new natural parameters."""
        known, seen = self, mode.seen[rows]
        for some, is_seen in ((rows[seen], True), (rows[~seen], False)):
            own = Natural(*(part[seen == is_seen] for part in new))
            old = Natural(mode.Lam[some], mode.eta[some]) if is_seen else None
            known = known.with_rows(design, some, own, old) if len(some) else known
        return known.learned(design)


def first_map(
    design: Design, expected: Expected, k: int, free: np.ndarray, prior: ModePrior, mode: ModeRows, n: int
) -> MapOfFeatures:
    """The map of mode k that a fit has found, whose free columns are `free` (R,) bool.

    The first n rows of the mode are changed in place: each gets the prior that its features give it.
    """
    F, D, slopes, seen = design.n_features, int(free.sum()), prior.slopes[k], mode.seen[:n]
    if slopes is None:
        raise ValueError(f"the fit found no map of the features of mode {k}")
    known = MapOfFeatures(
        free=free,
        centre=expected.mean[k, free],
        width=expected.scale[k, free],
        weight=expected.strength,
        rows=0,
        total=np.zeros(F),
        gram=np.zeros((F, F)),
        apart=np.zeros(D),
        cross=np.zeros((F, D)),
        square=np.zeros((D, D)),
        mean=prior.mean[k, free],
        precision=prior.precision[k][np.ix_(free, free)],
        coef=slopes.coef[:, free],
        strength=slopes.strength,
        root=np.eye(F) / np.sqrt(slopes.strength),
    )
    rows = np.arange(n)
    known = known.with_rows(design, rows[seen], Natural(mode.Lam[:n][seen], mode.eta[:n][seen]), None)
    values, vectors = decomposed(known.gram, known.total, known.weight_of_mean)
    known = known._replace(root=vectors / np.sqrt(values + known.strength))
    mode.prior_Lam[:n], mode.prior_eta[:n] = known.prior_of(design, rows, seen)
    mode.Lam[:n][~seen], mode.eta[:n][~seen] = mode.prior_Lam[:n][~seen], mode.prior_eta[:n][~seen]
    return known


def some_rows(design: Design, rows: np.ndarray) -> Design:
    """The features of rows (m,), of which those beyond the design have none."""
    inside = rows < len(design.described)
    take = np.where(inside, rows, 0)
    matrix: Any = design.matrix[take]
    if not inside.all() and isinstance(matrix, np.ndarray):
        matrix = matrix * inside[:, None]
    elif not inside.all():
        matrix = matrix.copy()
        matrix.data = matrix.data * np.repeat(inside, np.diff(matrix.indptr))
    return design._replace(matrix=matrix, described=design.described[take] & inside)


class Chain(NamedTuple):
    """What is known of how the rows of a mode depend on each other, in its D free columns.

    Attributes
    ----------
    free : (R,) bool
    centre, width : (D,) float64
        What was expected of a row before any entry, and the deviation from it.
    weight : float
        How many times as much as by default that counts.
    mean, precision, length : (D,) float64
        Of the process (see `priors.laws.Drift`).
    season : (P, D) float64
    """

    free: Annotated[np.ndarray, Sized("R", "b")]
    centre: Annotated[np.ndarray, Sized("D")]
    width: Annotated[np.ndarray, Sized("D")]
    weight: float
    mean: Annotated[np.ndarray, Sized("D")]
    precision: Annotated[np.ndarray, Sized("D")]
    length: Annotated[np.ndarray, Sized("D")]
    season: Annotated[np.ndarray, Sized("_ D")]

    def in_free(self, sites: Natural) -> Natural:
        """What entries say, `sites` (n, P), (n, R), in the D free columns alone."""
        f = np.flatnonzero(self.free)
        i, j = np.tril_indices(len(f))
        return Natural(sites.Lam[:, f[i] * (f[i] + 1) // 2 + f[j]], sites.eta[:, f])


class Line(NamedTuple):
    """Rows (n,) of a mode in the order of their times, and whether the last is a neighbour of the first."""

    place: np.ndarray
    closed: bool


def first_chain(
    clock: Known,
    expected: Expected,
    k: int,
    free: np.ndarray,
    prior: ModePrior,
    mode: ModeRows,
    n: int,
    own: RowSites | None,
) -> Chain:
    """What a fit has found of mode k, whose free columns are `free` (R,) bool; `own` is what its entries say of rows.

    The prior of the first n rows of the mode is changed in place.
    """
    if own is not None:
        mode.prior_Lam[:n], mode.prior_eta[:n] = mode.Lam[:n], mode.eta[:n]
        said = in_all(Natural(own.Lam, own.eta), free, 0.0)
        mode.prior_Lam[own.place] -= said.Lam
        mode.prior_eta[own.place] -= said.eta
    else:  # rows that were not learned together
        unseen = ~mode.seen[:n]
        mode.prior_Lam[:n][unseen], mode.prior_eta[:n][unseen] = mode.Lam[:n][unseen], mode.eta[:n][unseen]
    drift, D = prior.drifts[k] if prior.drifts else None, int(free.sum())
    phases = len(clock.phases) if isinstance(clock, Clock) and clock.seasonal else 0
    return Chain(
        free=free,
        centre=expected.mean[k, free],
        width=expected.scale[k, free],
        weight=expected.strength,
        mean=prior.mean[k, free],
        precision=np.diagonal(prior.precision[k])[free].copy(),
        length=np.zeros(D) if drift is None else drift.length[free],
        season=np.zeros((phases, D)) if drift is None else drift.season[:, free],
    )


def links_of(known: Chain, clock: Clock, rows: np.ndarray) -> Links:
    """The prior of some rows (n,) of the mode together: an Ornstein-Uhlenbeck process (see `priors.ou_process`)."""
    order, apart, closed = in_time(clock, rows)
    place = rows[order]
    times, n = clock.times[place], len(place)
    if closed:
        apart = np.append(apart, clock.circle - times[-1] + times[0])
    v, *others = weights(known.length, apart, clock.circle if closed else 0.0)
    near, between = (part.T * known.precision for part in others)
    own, (left, right) = np.repeat((v * known.precision)[None], n, axis=0), ends(n, closed)
    for side in (left, right):
        own[side] += near
    level = np.repeat(known.mean[None], n, axis=0)
    if len(known.season):
        level += known.season[clock.phase_of(times)]
    field = own * level
    field[left] -= between * level[right]
    field[right] -= between * level[left]
    return Links(Line(place, closed), own, field, between)  # type: ignore[arg-type]


def _along(known: Chain, clock: Clock, rows: np.ndarray, own: Natural) -> tuple[np.ndarray, Marginals]:
    """Some rows (m,) of a series in the order of their times, and their moments; of all entries say `own`.

    FloatingPointError where the joint precision is not positive definite.
    """
    prior = links_of(known, clock, rows)
    place = prior.of.place
    return place, marginals(prior, *(part[place] for part in own))


def rows_together(known: Chain, clock: Known, sites: Natural) -> Natural:
    """The posterior (n, P), (n, R) of all rows of a mode, of which the entries say `sites`, row by row.

    Where columns are independent of each other by approximation, what the others say of each column by itself stands
    beside the sites: no more of a batch's messages can be taken off.

    FloatingPointError where the joint precision is not positive definite.
    """
    own = known.in_free(sites)
    if isinstance(clock, Net):
        whole: Any = ordered(clock.n, clock.left, clock.right)
        distinct, which = np.unique(known.length, return_inverse=True)
        scale = scales_of(clock, whole, distinct)[0][which.ravel()].T
        found = moments_of_all(clock, whole, Law(known.mean, known.precision, known.length, scale), *own)
    else:
        place, found = _along(known, clock, np.arange(len(sites.eta)), own)
        mean, cov = np.empty_like(found.mean), np.empty_like(found.cov)
        mean[place], cov[place] = found.mean, found.cov
        found = found._replace(mean=mean, cov=cov)
    eta, Lam, _ = moments_of(Natural(found.cov, found.mean))  # their roles exchanged
    if found.apart:
        D = eta.shape[1]
        beside, at = own.Lam.copy(), diagonal(D)
        beside[:, at] = Lam[:, at]
        Lam, eta = beside, np.einsum("nij,nj->ni", unpack(beside, D), found.mean)
    return in_all(Natural(Lam, eta), known.free)


def law_after(known: Chain, clock: Known, seen: np.ndarray, sites: Natural) -> Chain:
    """The chain with the law that the moments of its rows with entries, `seen` (n,) bool, make most probable.

    It is that of a fit by mean field (`priors.coupled`), at the most probable length.
    """
    D, own = len(known.mean), known.in_free(sites)
    lines = np.zeros((1, D * (D + 1) // 2)), np.zeros((1, D))
    plain = LearnedPrior(*lines, known.centre[None], known.width[None], np.ones((1, D), dtype=bool), known.weight)
    prior = SeriesPrior(*lines, plain, (clock,)).for_rows([seen])
    of: Any = prior.axis(0)
    if of is None:
        return known
    if isinstance(clock, Net):
        at = np.zeros((len(of.lengths), D))  # the rows that the field is not learned from are integrated out
        at[np.argmin(np.abs(of.lengths[:, None] - known.length), axis=0), np.arange(D)] = known.precision
        field = joint(of, at, at[:, None] * known.mean, np.zeros(D))
        found = marginals(field, own.Lam[of.place], own.eta[of.place])
    else:
        _, found = _along(known, clock, np.flatnonzero(seen), own)
    mean = np.empty_like(found.mean)
    mean[of.order] = found.mean
    posterior = prior.learn([mean], [np.zeros((D, D))], [Coupled(found.cov[:, diagonal(D)], found.cross)])
    modes = prior.expectation(ModePrior(np.zeros((1, D)), np.eye(D)[None]), posterior)
    drift: Any = modes.drifts[0]
    return known._replace(
        mean=modes.mean[0], precision=np.diagonal(modes.precision[0]).copy(), length=drift.length, season=drift.season
    )


def messages_to(rows: Natural, before: Natural, free: np.ndarray) -> Natural:
    """What a batch said of the free columns (R,) bool of its rows, which had a prior `before`; the others are 1."""
    Lam, eta = unpack(rows.Lam - before.Lam, len(free)), rows.eta - before.eta
    return Natural(pack(Lam * np.outer(free, free)), (eta - Lam[:, :, ~free].sum(axis=2)) * free)


def with_messages(
    known: Chain, clock: Known, sites: Natural, rows: np.ndarray, more: Natural
) -> tuple[Natural, Natural]:
    """What entries say of all rows after messages to some, and the rows then; of unsound messages a share counts.

    Messages need not be positive. Each row of a batch is a Gaussian with those to it, but all together may not be.
    """
    for share in SHARES:
        told = Natural(*(part.copy() for part in sites))
        for part, new in zip(told, more, strict=True):
            part[rows] += share * new
        with contextlib.suppress(FloatingPointError):
            return told, rows_together(known, clock, told)
    raise FloatingPointError("the rows of a series are no Gaussian any more; use a tighter prior.")


def prior_by_others(
    known: Chain, clock: Known, sites: Natural, rows: np.ndarray, new: Natural, before: Natural
) -> Natural:
    """The prior of some rows of a series, `before`, with what new messages to these tell of each other.

    `sites` are what entries say of all rows, before these messages.
    """
    told, together = with_messages(known, clock, sites, rows, new)
    said = (site[rows] - old[rows] for site, old in zip(told, sites, strict=True))
    return sound_prior(Natural(*(part[rows] - more for part, more in zip(together, said, strict=True))), before, before)


def smoothed(
    known: Chain, clock: Known, sites: Natural, rows: np.ndarray, new: Natural, seen: np.ndarray
) -> tuple[Chain, Natural, Natural]:
    """What is known of a series after new messages to some rows, what entries say of all rows, and the rows then.

    `sites` are what entries said before, `seen` (n,) bool the rows with entries.
    """
    told, together = with_messages(known, clock, sites, rows, new)
    with contextlib.suppress(FloatingPointError):  # under the law so far they are sound
        later = law_after(known, clock, seen, told)
        known, together = later, rows_together(later, clock, told)
    return known, told, together


def with_new_rows(
    known: Chain, clock: Known, mode: ModeRows, first: int, last: int, labels: Sequence[Any] | None, name: Any
) -> tuple[Chain, Known]:
    """A series with the new rows first:last of the mode `name`, which are forecast in place, and its axis.

    `labels` are theirs, None without any. Of phases that are new the season is not known.

    A new row without a place on the axis is refused.
    """
    if isinstance(clock, Net):
        clock = clock._replace(n=last)
    elif labels is None:
        clock = with_times(clock, np.arange(first, last) / clock.step, range(first, last), f"Series of mode {name!r}")
    else:
        times = clock.times_of(pd.Index(labels, tupleize_cols=False))
        clock = with_times(clock, times, labels, f"Series of mode {name!r}")
    more = len(clock.phases) - len(known.season) if isinstance(clock, Clock) and clock.seasonal else 0
    known = known._replace(season=np.append(known.season, np.zeros((more, len(known.mean))), 0)) if more else known
    sites = mode.sites(last)
    for part in sites:
        part[first:] = 0.0
    forecast = Natural(*(part[first:] for part in rows_together(known, clock, sites)))
    mode.put(slice(first, last), forecast, forecast)
    return known, clock


def with_times(clock: Clock, times: np.ndarray, labels: Sequence[Any], what: str) -> Clock:
    """The axis with the times (q,) of new rows, which errors call by these labels.

    One that has no time, or that of another row, or lies beyond a circle is refused.
    """
    if not np.isfinite(times).all():
        bad = labels[int(np.argmin(np.isfinite(times)))]
        fail_value(f"{what} needs labels that are times as those before them; got {bad!r}.")
    both = np.append(clock.times, times)
    first = np.unique(both, return_index=True)[1]
    if len(first) < len(both):
        bad = labels[int(np.setdiff1d(np.arange(len(both)), first)[0]) - len(clock.times)]
        fail_value(f"{what} needs rows at times of their own; got {bad!r}, at the time of another row.")
    if clock.circle and not clock.circle > float(both.max() - both.min()):
        fail_value(f"{what} is cyclic; its labels must lie within one period, of {clock.circle * clock.step:g}.")
    phases = clock.phases
    for time in times[clock.phase_of(times) < 0].tolist():
        phase = time % clock.period
        apart = np.abs(phases - phase)
        if np.minimum(apart, clock.period - apart).min() > SAME_PHASE:
            phases = np.append(phases, phase)
    if len(phases) > MOST_PHASES:
        fail_value(f"{what} has {len(phases)} phases in its period, at most {MOST_PHASES} can be learned.")
    return clock._replace(times=both, phases=phases)


def modes_of(chains: Sequence[Chain | None], mean: np.ndarray, cov: np.ndarray) -> ModePrior:
    """The laws of chains as those of a fit; `mean` (K, R), `cov` (K, R, R) are those of a row that is not known."""
    drifts: list[Drift | None] = [None] * len(chains)
    for k, known in enumerate(chains):
        if known is not None:
            drifts[k] = drift = Drift(np.zeros(len(known.free)), np.zeros((len(known.season), len(known.free))))
            drift.length[known.free], drift.season[:, known.free] = known.length, known.season
    return ModePrior(mean, np.linalg.inv(cov), (), tuple(drifts))
