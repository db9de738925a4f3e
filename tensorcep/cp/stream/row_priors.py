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

from tensorcep.core.packing import pack, unpack
from tensorcep.core.persist.records import Sized
from tensorcep.cp.fitted.new_rows import Natural, in_all
from tensorcep.priors.base import Drift, Learned, ModePrior, RowSites, moments_of
from tensorcep.priors.coupled import Chain, Known
from tensorcep.priors.features import Design
from tensorcep.priors.graph import Net
from tensorcep.priors.normal_wishart import Expected
from tensorcep.priors.regression import MapOfFeatures, map_of_fit
from tensorcep.priors.series import Clock

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


def sound_prior(new: Natural, before: Natural, rows: Natural) -> Natural:
    """The new prior of rows whose prior was `before`; that where a row would be no Gaussian with the other one."""
    moved = Natural(rows.Lam + (new.Lam - before.Lam), rows.eta + (new.eta - before.eta))
    keep = (moments_of(*moved)[2] > 0.0)[:, None]
    return Natural(*(np.where(keep, one, old) for one, old in zip(new, before, strict=True)))


def prior_of_features(known: MapOfFeatures, design: Design, rows: np.ndarray, seen: np.ndarray) -> Natural:
    """The prior, in all columns, of rows (m,), of which some have entries, `seen` (m,) bool."""
    return in_all(Natural(*known.prior_of(design.at(rows), seen)), known.free)


def prior_now(known: MapOfFeatures, design: Design, mode: ModeRows, rows: np.ndarray) -> Natural:
    """The prior that features give some rows of a mode by now."""
    before, own = Natural(mode.prior_Lam[rows], mode.prior_eta[rows]), Natural(mode.Lam[rows], mode.eta[rows])
    return sound_prior(prior_of_features(known, design, rows, mode.seen[rows]), before, own)


def map_after(known: MapOfFeatures, design: Design, mode: ModeRows, rows: np.ndarray, new: Natural) -> MapOfFeatures:
    """The map after some rows of a mode, which holds what they were, got new natural parameters."""
    seen = mode.seen[rows]
    for some, is_seen in ((rows[seen], True), (rows[~seen], False)):
        own = new.Lam[seen == is_seen], new.eta[seen == is_seen]
        old = (mode.Lam[some], mode.eta[some]) if is_seen else None
        known = known.with_rows(design.at(some), own, old) if len(some) else known
    return known.learned(design)


def first_map(
    design: Design, expected: Expected, k: int, free: np.ndarray, prior: ModePrior, mode: ModeRows, n: int
) -> MapOfFeatures:
    """The map of mode k that a fit has found, whose free columns are `free` (R,) bool.

    The first n rows of the mode are changed in place: each gets the prior that its features give it.
    """
    rows, seen = np.arange(n), mode.seen[:n]
    before = expected.mean[k], expected.scale[k], expected.strength
    found = Learned(prior.mean[k], prior.precision[k], prior.slopes[k])
    known = map_of_fit(free, before, found, design.n_features)
    known = known.with_rows(design.at(rows[seen]), (mode.Lam[:n][seen], mode.eta[:n][seen]), None).with_root()
    mode.prior_Lam[:n], mode.prior_eta[:n] = prior_of_features(known, design, rows, seen)
    mode.Lam[:n][~seen], mode.eta[:n][~seen] = mode.prior_Lam[:n][~seen], mode.prior_eta[:n][~seen]
    return known


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


def rows_together(known: Chain, clock: Known, sites: Natural) -> Natural:
    """The posterior (n, P), (n, R) of all rows of a mode, of which the entries say `sites`, row by row."""
    return in_all(Natural(*known.rows(clock, *sites)), known.free)


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
        later = known.after(clock, seen, *told)
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
        clock = clock.with_times(np.arange(first, last) / clock.step, range(first, last), f"Series of mode {name!r}")
    else:
        times = clock.times_of(pd.Index(labels, tupleize_cols=False))
        clock = clock.with_times(times, labels, f"Series of mode {name!r}")
    more = len(clock.phases) - len(known.season) if isinstance(clock, Clock) and clock.seasonal else 0
    known = known._replace(season=np.append(known.season, np.zeros((more, len(known.mean))), 0)) if more else known
    sites = mode.sites(last)
    for part in sites:
        part[first:] = 0.0
    forecast = Natural(*(part[first:] for part in rows_together(known, clock, sites)))
    mode.put(slice(first, last), forecast, forecast)
    return known, clock


def modes_of(chains: Sequence[Chain | None], mean: np.ndarray, cov: np.ndarray) -> ModePrior:
    """The laws of chains as those of a fit; `mean` (K, R), `cov` (K, R, R) are those of a row that is not known."""
    drifts: list[Drift | None] = [None] * len(chains)
    for k, known in enumerate(chains):
        if known is not None:
            drifts[k] = drift = Drift(np.zeros(len(known.free)), np.zeros((len(known.season), len(known.free))))
            drift.length[known.free], drift.season[:, known.free] = known.length, known.season
    return ModePrior(mean, np.linalg.inv(cov), (), tuple(drifts))
