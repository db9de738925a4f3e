"""The prior of the rows in methods whose rows are Gaussians: fixed, or a factor of q; and the rows' part of a bound.

A learned prior enters the update of a row by its expectation alone, and the bound by one more number. It is updated
before the rows of a sweep, from those of the sweep before: coordinate ascent, so that no update lowers the bound.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.executor import Executor
from tensorcep.core.packing import offsets, pack, unpack
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.rows import RowState, diagonal, initial_prior
from tensorcep.kernels.rows import row_divergences, row_moments
from tensorcep.kernels.slots import LANES
from tensorcep.priors.base import (
    Conditional,
    Coupled,
    conditional_of_modes,
    for_kernel,
    in_modes,
    moments_per_mode,
    of_rows,
)
from tensorcep.priors.coupled import Joint, in_place, marginals
from tensorcep.priors.gmrf import Field, gap_moments
from tensorcep.priors.laws import RowSites
from tensorcep.priors.ou_process import LOG_2PI, Chained, laws_of_mode, moments_at
from tensorcep.priors.solvers.chain import Marginals


class PriorFactor(NamedTuple):
    """The rows' prior and what the bound needs of it.

    Attributes
    ----------
    now : Conditional
        The prior, or its expectation where it is learned.
    mean : (n, R)
        Means of `now`, a line for each row or for each mode.
    half_log_det : (n_rows,)
        log|Lam| / 2 of `now`.
    bound : float
        What uncertainty of the prior adds to the bound (0 for a fixed one).
    marginals : tuple of Marginals or None
        Of the rows of each mode that are one Gaussian (a series), as of their last update.
    chained : tuple of Chained or None
        The prior of the rows of each mode that is a series, where it is learned.
    """

    now: Conditional
    mean: np.ndarray
    half_log_det: np.ndarray
    bound: float
    marginals: tuple[Marginals | None, ...]
    chained: tuple[Chained | None, ...] = ()

    def of_series(self, k: int) -> Chained | None:
        """The prior of the rows of mode k, where they are coupled."""
        return self.chained[k] if self.chained else None

    def with_rows(self, k: int, marginals: Marginals) -> PriorFactor:
        """The same after an update of the coupled rows of mode k."""
        return self._replace(marginals=(*self.marginals[:k], marginals, *self.marginals[k + 1 :]))


def first_prior(problem: Problem, rows: RowState) -> PriorFactor:
    """The prior to begin with; `rows` hold it, with its moments."""
    shape, given = problem.shape, problem.prior
    shared = len(given.Lam) == len(given.eta) == len(shape)
    mean = rows.mean[offsets(shape)[:-1]] if shared else rows.mean.copy()
    half_log_det = np.empty(len(rows.mean))
    for k, (a, b) in enumerate(itertools.pairwise(offsets(shape).tolist())):
        row_divergences(a, b, rows, *(for_kernel(part, k, shape) for part in (given.Lam, mean)), half_log_det)
    return PriorFactor(initial_prior(problem), mean, half_log_det, 0.0, (None,) * len(shape))


def learned_from_rows(prior: PriorFactor, problem: Problem, rows: RowState) -> PriorFactor:
    """The optimal factor of the prior given the rows; a fixed one as it is."""
    now = prior.now
    if now.modes is None:
        return prior
    coupled = [coupled_moments(k, problem, rows, marginals) for k, marginals in enumerate(prior.marginals)]
    posterior = problem.prior.learn(*moments_per_mode(rows.mean, rows.cov, now.seen, problem.shape), coupled)
    modes = problem.prior.expectation(now.modes, posterior)
    half_log_det = np.repeat(0.5 * np.linalg.slogdet(modes.precision)[1], problem.shape)
    new, mean = conditional_of_modes(modes, now.seen), of_rows(modes.mean, problem.prior, modes, problem.shape)
    if mean is not modes.mean:
        bounds = itertools.pairwise(offsets(problem.shape).tolist())
        eta = [mean[a:b] @ precision for (a, b), precision in zip(bounds, modes.precision, strict=True)]
        new = new._replace(eta=np.concatenate(eta))
    chained = chained_of(posterior, len(problem.shape))
    return PriorFactor(new, mean, half_log_det, problem.prior.bound(posterior), prior.marginals, chained)


def chained_of(posterior: Any, K: int) -> tuple[Chained | None, ...]:
    """The expected prior of the rows of each of K modes that are coupled, under the posterior of its parameters."""
    drifts = getattr(posterior, "drifts", (None,) * K)
    return tuple(None if q is None else q.chained for q in drifts)


def coupled_moments(k: int, problem: Problem, rows: RowState, found: Marginals | None) -> Coupled | None:
    """Variances and covariances of the rows of a series, in order; None of other modes."""
    of = problem.prior.axis(k)
    if of is None:
        return None
    variance = rows.cov[offsets(problem.shape)[k] :][in_place(of)][:, diagonal(rows.mean.shape[1])]
    cross = np.zeros((len(of.pairs[0]), variance.shape[1]))
    if found is not None:
        cross[:, : found.cross.shape[1]] = found.cross
    return Coupled(variance, cross)


def rows_together(
    prior: Joint, Lam: np.ndarray, eta: np.ndarray, first: int, rows: RowState, precision: float = 1.0
) -> Marginals:
    """The joint posterior of the coupled rows of a mode, of which the entries say `precision` times Lam and eta.

    These have a line for each row of the mode, whose first packed row is `first`. Rows that the prior couples get its
    moments; `natural_again` gives them natural parameters.
    """
    own = in_place(prior.of)
    found = marginals(prior, Lam[own], eta[own], precision)
    if found.told is None:
        D = prior.own.shape[1]
        told = precision * Lam[own][:, : D * (D + 1) // 2], precision * eta[own][:, :D]
        found = found._replace(told=told)
    rows.mean[first:][own, : found.mean.shape[1]] = found.mean
    rows.cov[first:][own, : found.cov.shape[1]] = found.cov
    return found


def sites_by_mode(axes: Sequence[Any], found: Sequence[Marginals | None]) -> tuple[RowSites | None, ...]:
    """What entries say of the rows of each mode that were found together on their axis; nothing where none were."""
    sites = tuple(
        None if of is None or own is None or own.told is None else RowSites(of.place, *own.told)
        for of, own in zip(axes, found, strict=True)
    )
    return sites if any(own is not None for own in sites) else ()


def natural_by_mode(problem: Problem, rows: RowState, found: Sequence[Marginals | None]) -> tuple[RowSites | None, ...]:
    """Give rows that were found together the natural parameters of their moments; what entries say of them."""
    axes = [None if own is None else problem.prior.axis(k) for k, own in enumerate(found)]
    for of, first in zip(axes, offsets(problem.shape).tolist(), strict=False):
        if of is not None:
            natural_again(of, first, rows)
    return sites_by_mode(axes, found)


def natural_again(of: Any, first: int, rows: RowState) -> None:
    """Give the coupled rows of a mode, whose first packed row is `first`, the natural parameters of their moments."""
    own = first + of.place
    mean, cov = rows.mean[own], rows.cov[own]
    natural, precision, good = np.empty_like(mean), np.empty_like(cov), np.empty(len(own))
    row_moments(0, len(own), cov, mean, natural, precision, good)  # of a covariance the "covariance" is the precision
    rows.Lam[own], rows.eta[own] = precision, natural


def rows_bound(prior: PriorFactor, rows: RowState, shape: tuple[int, ...], executor: Executor) -> float:
    """The rows' and their prior's part of the bound: minus their divergences."""
    divergence, coupled = np.empty(len(rows.mean)), 0.0
    for k, (a, b) in enumerate(itertools.pairwise(offsets(shape).tolist())):
        series = prior.of_series(k)
        if series is not None:
            divergence[a:b], coupled = (
                prior.half_log_det[a:b],
                coupled + _of_series(series, a, rows, prior.marginals[k]),
            )
            continue
        lines = (for_kernel(part, k, shape) for part in (prior.now.Lam, prior.mean))
        executor.run(row_divergences, a, b, rows, *lines, divergence, align=LANES)
    return prior.bound - float((divergence - prior.half_log_det).sum()) + coupled


def _of_series(series: Chained, first: int, rows: RowState, found: Marginals | None) -> float:
    """Minus the divergence of the rows of a series whose first packed row is `first`; independent if not `found`."""
    D, R, own = series.mean.shape[1], rows.mean.shape[1], in_place(series.links.of)
    mean, cov = rows.mean[first:][own, :D], rows.cov[first:][own]
    n, variance = len(mean), cov[:, diagonal(R)[:D]]
    if found is None:
        log_det = np.linalg.slogdet(unpack(cov, R)[:, :D, :D])[1].sum()
        return series.expected(mean, variance) + 0.5 * float(log_det + n * D * (1.0 + LOG_2PI))
    entropy = 0.5 * (n * D * (1.0 + LOG_2PI) - found.log_det)
    return series.expected(mean, variance, found.cross) + entropy


def with_unseen_rows(
    rows: RowState, problem: Problem, now: Conditional, found: tuple[Marginals | None, ...]
) -> RowState:
    """The rows as a result: without entries they are as unsure as what was learned of their features, too.

    In q such a row has the expected prior. New data would see it through the law of that prior.
    """
    if now.modes is None:
        return rows
    Lam, eta = rows.Lam, rows.eta
    for k, (first, seen) in enumerate(zip(offsets(problem.shape), in_modes(now.seen, problem.shape), strict=False)):
        drift = now.modes.drifts[k] if now.modes.drifts else None
        if drift is not None and not seen.all():
            Lam, eta = (part.copy() if part is old else part for part, old in ((Lam, rows.Lam), (eta, rows.eta)))
            own = slice(first, first + len(seen))
            Lam[own][~seen], eta[own][~seen] = _in_gaps(k, problem, now, rows, own, seen, found[k])
            continue
        more = None if seen.all() else problem.prior.unsure(k, now.modes, ~seen)
        if more is not None:
            Lam, eta = (part.copy() if part is old else part for part, old in ((Lam, rows.Lam), (eta, rows.eta)))
            unseen = first + np.flatnonzero(~seen)
            Lam[unseen] /= 1.0 + more[:, None]
            eta[unseen] /= 1.0 + more[:, None]
    return rows._replace(Lam=Lam, eta=eta)


def _in_gaps(
    k: int,
    problem: Problem,
    now: Conditional,
    rows: RowState,
    own: slice,
    seen: np.ndarray,
    found: Marginals | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Natural parameters of the rows of a series or a graph that have no entries, given those that have some."""
    modes: Any = now.modes
    of, R = problem.prior.axis(k), rows.mean.shape[1]
    if isinstance(of, Field):
        mean, cov = gap_moments(of, modes, k, None if found is None else found.told)
    else:
        known = (of.clock.at(seen), rows.mean[own][seen], rows.cov[own][seen])
        mean, cov = moments_at(of.clock, *known, laws_of_mode(modes, k), of.clock.at(~seen))
    precision = np.linalg.inv(unpack(cov, R))
    return pack(precision), np.einsum("nij,nj->ni", precision, mean)
