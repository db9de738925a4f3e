"""Series in a stream: rows that follow each other forget as their drift says, and later rows are forecast.

What all entries so far say of a row is kept, as natural parameters beside those of its prior (`ModeRows`): the row's
posterior less its prior. With the law of the drift they give the moments of all rows of the mode at once, by Kalman
smoothing (`priors.blocks`), linear in their number. A batch begins with these moments as the prior of its rows, those
that it brings being forecast; what its entries say is added, the law is learned on from the moments of all rows with
entries, and rows are smoothed again. Where a batch touches several rows of a mode, it is learned a second time with
what the others of its rows were told, since in between they count as independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd

from tensorcep.core.belief import ModePrior
from tensorcep.core.checks import fail_value
from tensorcep.core.mode_laws import Drift
from tensorcep.core.records import Sized
from tensorcep.cp.fitted.new_rows import Natural, in_all
from tensorcep.cp.model.rows import diagonal
from tensorcep.cp.stream.neighbouring import all_of_field, natural_rows, some_of_field
from tensorcep.priors.axis import Links, ends, weights
from tensorcep.priors.blocks import Marginals, marginals
from tensorcep.priors.coupled import Known
from tensorcep.priors.drifting import SeriesPrior
from tensorcep.priors.graph import Net
from tensorcep.priors.learned import Expected, LearnedPrior
from tensorcep.priors.record import Coupled
from tensorcep.priors.series import MOST_PHASES, SAME_PHASE, Clock


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
        Of the process (see `core.mode_laws.Drift`).
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

    @property
    def law(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean, precision and length of its columns."""
        return self.mean, self.precision, self.length


class Line(NamedTuple):
    """Rows (n,) of a mode in the order of their times, and whether the last is a neighbour of the first."""

    place: np.ndarray
    closed: bool


class Together(NamedTuple):
    """Moments of rows in the order of `place`."""

    place: np.ndarray
    found: Marginals


def first_chain(expected: Expected, k: int, free: np.ndarray, prior: ModePrior, clock: Known) -> Chain:
    """What a fit has found of mode k, whose free columns are `free` (R,) bool."""
    drift = prior.drifts[k] if prior.drifts else None
    D, phases = int(free.sum()), len(clock.phases) if isinstance(clock, Clock) and clock.seasonal else 0
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
    """The prior of some rows (n,) of the mode together: an Ornstein-Uhlenbeck process (see `priors.axis`)."""
    group = clock.groups[rows] if len(clock.groups) else np.zeros(len(rows), dtype=np.int64)
    order = np.lexsort((clock.times[rows], group))
    place, group = rows[order], group[order]
    times, n = clock.times[place], len(place)
    closed, apart = clock.circle > 0.0 and n > 2, np.where(group[1:] == group[:-1], np.diff(times), np.inf)
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


def together(known: Chain, clock: Clock, rows: np.ndarray, sites: Natural) -> Together:
    """The moments of some rows (m,) of a mode, of all of which the entries say `sites` (n, P), (n, R).

    Raises
    ------
    FloatingPointError
        If the joint precision is not positive definite.
    """
    prior = links_of(known, clock, rows)
    place = prior.of.place
    return Together(place, marginals(prior, *(part[place] for part in in_free(known, sites))))


def in_free(known: Chain, sites: Natural) -> Natural:
    """What entries say, `sites` (n, P), (n, R), in the D free columns alone."""
    f = np.flatnonzero(known.free)
    i, j = np.tril_indices(len(f))
    return Natural(sites.Lam[:, f[i] * (f[i] + 1) // 2 + f[j]], sites.eta[:, f])


def rows_together(known: Chain, clock: Known, sites: Natural) -> Natural:
    """The posterior (n, P), (n, R) of all rows of a mode, of which the entries say `sites`, row by row."""
    own = in_free(known, sites)
    if isinstance(clock, Net):
        found = all_of_field(known.law, clock, own)
    else:
        place, found = together(known, clock, np.arange(len(sites.eta)), sites)
        mean, cov = np.empty_like(found.mean), np.empty_like(found.cov)
        mean[place], cov[place] = found.mean, found.cov
        found = found._replace(mean=mean, cov=cov)
    return in_all(natural_rows(found, own), known.free)


def learned_on(known: Chain, clock: Known, seen: np.ndarray, sites: Natural) -> Chain:
    """The chain with the law that the moments of its rows with entries, `seen` (n,) bool, make most probable.

    It is that of a fit by mean field (`priors.drifting`), at the most probable length.
    """
    D = len(known.mean)
    lines = np.zeros((1, D * (D + 1) // 2)), np.zeros((1, D))
    plain = LearnedPrior(*lines, known.centre[None], known.width[None], np.ones((1, D), dtype=bool), known.weight)
    prior = SeriesPrior(*lines, plain, (clock,)).for_rows([seen])
    of: Any = prior.axis(0)
    if of is None:
        return known
    if isinstance(clock, Net):
        found = some_of_field(known.law, of, in_free(known, sites))
    else:
        found = together(known, clock, np.flatnonzero(seen), sites).found
    mean = np.empty_like(found.mean)
    mean[of.order] = found.mean
    moments = Coupled(found.cov[:, diagonal(D)], found.cross)
    posterior = prior.learn([mean], [np.zeros((D, D))], [moments])
    modes = prior.expectation(ModePrior(np.zeros((1, D)), np.eye(D)[None]), posterior)
    drift: Any = modes.drifts[0]
    return known._replace(
        mean=modes.mean[0], precision=np.diagonal(modes.precision[0]).copy(), length=drift.length, season=drift.season
    )


def with_rows(clock: Known, first: int, last: int, labels: Sequence[Any] | None, name: Any) -> Known:
    """The axis, or the graph, with new rows first:last of the mode `name`; `labels` are theirs, None without any.

    Raises
    ------
    ValueError
        If a new row has no place on the axis.
    """
    if isinstance(clock, Net):
        return clock._replace(n=last)
    times, said = times_of(clock, first, last, labels)
    return with_times(clock, times, said, f"Series of mode {name!r}")


def with_times(clock: Clock, times: np.ndarray, labels: Sequence[Any], what: str) -> Clock:
    """The axis with the times (q,) of new rows, which errors call by these labels.

    Raises
    ------
    ValueError
        If one has no time, or that of another row, or lies beyond a circle.
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


def with_phases(known: Chain, clock: Known) -> Chain:
    """The chain with room for the phases of its clock; of those that are new the season is not known."""
    more = len(clock.phases) - len(known.season) if isinstance(clock, Clock) and clock.seasonal else 0
    return known if not more else known._replace(season=np.append(known.season, np.zeros((more, len(known.mean))), 0))


def times_of(clock: Clock, first: int, last: int, labels: Sequence[Any] | None) -> tuple[np.ndarray, Sequence[Any]]:
    """The times of new rows first:last, and what errors call them: their labels, or numbers where there are none."""
    if labels is None:
        return np.arange(first, last) / clock.step, range(first, last)
    return clock.times_of(pd.Index(labels, tupleize_cols=False)), labels


def modes_of(chains: Sequence[Chain | None], mean: np.ndarray, cov: np.ndarray) -> ModePrior:
    """The laws of chains as those of a fit; `mean` (K, R), `cov` (K, R, R) are those of a row that is not known."""
    drifts: list[Drift | None] = []
    for known in chains:
        if known is None:
            drifts.append(None)
            continue
        drift = Drift(np.zeros(len(known.free)), np.zeros((len(known.season), len(known.free))))
        drift.length[known.free], drift.season[:, known.free] = known.length, known.season
        drifts.append(drift)
    return ModePrior(mean, np.linalg.inv(cov), (), tuple(drifts))
