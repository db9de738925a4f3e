"""What the methods for the CP model share: the rows' natural parameters and moments, and figures about the fit."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.arrays import LEAF, RunningSum
from tensorcep.core.executor import Executor, Pass
from tensorcep.core.packing import diagonal, offsets, pack, unpack
from tensorcep.cp.model.entries import OfEach
from tensorcep.cp.model.problem import Problem
from tensorcep.kernels.rows import arrange, row_divergences, row_moments
from tensorcep.kernels.slots import LANES, lane_zeros
from tensorcep.likelihoods.base import Augmentation, Triple
from tensorcep.priors import base
from tensorcep.priors.coupled import Joint, in_place
from tensorcep.priors.ou_process import LOG_2PI, Chained
from tensorcep.priors.solvers.chain import Marginals

Theta = float | np.ndarray  # of all entries, or of each
Mixed = Callable[[np.ndarray, np.ndarray], np.ndarray] | None
# Blocks of lanes that one thread takes at a time, so that a vectorised loop over them leaves no remainder.
ALIGNED_BLOCKS = 8
# Blocks of lanes whose rows are copied at a time.
BLOCKS_AT_A_TIME = 4096
# Entries whose log likelihoods are computed at a time, so many that a vectorised loop over them leaves no remainder.
ENTRIES_AT_A_TIME = 1 << 15


class RowState(NamedTuple):
    """Natural parameters and moments of every row: Lam, eta, mean, cov, and good (n_rows,) from `row_moments`."""

    Lam: np.ndarray
    eta: np.ndarray
    mean: np.ndarray
    cov: np.ndarray
    good: np.ndarray


class RowSource(NamedTuple):
    """Rows of all modes as the kernel of a pass reads them (`tensorcep.core.executor.Pass`)."""

    kind: str  # what they are called
    here: np.ndarray  # (n_rows, W)
    of: dict[str, np.ndarray]  # what they follow from, a line for each row, by the arguments of passes that give it
    by: Any = None  # ``by(first, last, *of, here)``: how they follow; None: they are the same
    # places in the rows of the numbers that are read, -1 for 0, or a tuple of such or None for every mode; None for all
    # numbers, or of a mode that is not read
    order: Any = None
    first: np.ndarray = np.zeros(1)

    def made(self, executor: Executor) -> np.ndarray:
        """The rows, (n_rows, W), in their order."""
        if self.order is None:
            return self.here
        if isinstance(self.order, np.ndarray):
            out = lane_zeros((len(self.here), len(self.order)))
            executor.run(arrange, 0, len(out), self.here, self.order, out)
            return out
        out = np.empty((len(self.here), max(len(own) for own in self.order if own is not None)))
        for (a, b), own in zip(itertools.pairwise(self.first.tolist()), self.order, strict=True):
            if own is not None:
                executor.run(arrange, a, b, self.here, own, out)
        return out


def rows_at_prior(problem: Problem) -> RowState:
    """Rows with the prior's natural parameters; their moments are not set yet (see `refresh_rows`)."""
    Lam, eta = (np.array(base.per_row(part, problem.shape)) for part in (problem.prior.Lam, problem.prior.eta))
    return RowState(Lam, eta, np.empty_like(eta), np.empty_like(Lam), np.empty(len(eta)))


def fix_rows(rows: RowState, problem: Problem) -> None:
    """Give the rows that are not learned the natural parameters that they keep."""
    if problem.fixed is not None:
        own = problem.rows_of_fixed
        rows.Lam[own], rows.eta[own] = problem.fixed.Lam[own], problem.fixed.eta[own]


def initial_prior(problem: Problem) -> base.Conditional:
    """The prior to begin with."""
    prior, shape = problem.prior, problem.shape
    if not prior.learned:
        return base.Conditional(prior.Lam, prior.eta, None, np.zeros(0, dtype=bool))
    first, seen = offsets(shape)[:-1], seen_rows(problem).copy()  # all rows of a mode begin with the same prior
    Lam, eta = (lines if len(lines) == len(shape) else lines[first] for lines in (prior.Lam, prior.eta))
    precision = unpack(Lam, eta.shape[1])
    mean = np.linalg.solve(precision, eta[..., None])[..., 0]
    for k, start in enumerate(first):  # rows of a graph without entries may be among those that it learns from
        of = prior.axis(k)
        if of is not None:
            seen[start + of.place] = True
    return base.Conditional(Lam, eta, base.ModePrior(mean, precision), seen)


def with_seen_rows(problem: Problem) -> Problem:
    """The problem with a prior that knows which rows it is going to learn from."""
    if not problem.prior.learned:
        return problem
    return problem._replace(prior=problem.prior.for_rows(base.in_modes(seen_rows(problem), problem.shape)))


def refresh_rows(rows: RowState, first: int, last: int, executor: Executor) -> None:
    """Moments of the packed rows first:last from their natural parameters."""
    executor.run(row_moments, first, last, rows.Lam, rows.eta, rows.mean, rows.cov, rows.good, align=LANES)


def times_in_sum(R: int) -> np.ndarray:
    """How often an element of a packed symmetric matrix counts in a sum over the whole one: twice off the diagonal."""
    twice = np.full(R * (R + 1) // 2, 2.0)
    twice[diagonal(R)] = 1.0
    return twice


def log_likelihoods(problem: Problem, f: np.ndarray, theta: float, executor: Executor) -> Triple:
    """log p(y | f) of every entry and its first two derivatives in f, (n_blocks, LANES) each, 0 in padding lanes."""
    result = np.empty_like(f), np.empty_like(f), np.empty_like(f)
    each = problem.entries.theta if len(problem.entries.theta) else np.full_like(f, theta)
    per_entry((problem.entries.y, f, each), result, problem.likelihood.loglik, problem, executor)
    return result


def per_entry(
    given: tuple[np.ndarray, ...], results: tuple[np.ndarray, ...], kernel: Any, problem: Problem, executor: Executor
) -> None:
    """Call a kernel of flat arrays for all entries, all arrays (n_blocks, LANES); results are 0 in padding lanes."""

    def on_blocks(first: int, last: int) -> None:
        kernel(*(array[first:last].ravel() for array in (*given, *results)))

    executor.run(on_blocks, 0, len(results[0]), align=ALIGNED_BLOCKS)
    for array in results:
        array[-1:][problem.entries.weight[-1:] == 0.0] = 0.0  # only the last block may have padding lanes; y is 0 there


def augmentation_in_use(augmentation: Augmentation, problem: Problem) -> Augmentation | None:
    """The augmentation; None where entries are Gaussian in f as they are."""
    if augmentation.expected is None:
        return None
    y = problem.entries.y.ravel()[: len(problem.entries.permutation)]
    some = any(augmentation.hides(y[first : first + LEAF]).any() for first in range(0, len(y), LEAF))
    return augmentation if some or not len(y) else None


def train_score(problem: Problem, f: np.ndarray, theta: Theta, y: OfEach = None, mixed: Mixed = None) -> float:
    """Mean log likelihood of the training entries, by their weights, at latent values f (n_blocks, LANES)."""
    # theta is a number or like f; y are the entries' values, unless kernels take others; ``mixed(y, log_density)``
    # makes of the log densities of kernels those of all kinds of entries
    n, each = len(problem.entries.permutation), problem.entries.y if y is None else y
    theta = problem.entries.theta if len(problem.entries.theta) else theta
    score = RunningSum(n)
    for first in range(0, n, ENTRIES_AT_A_TIME):
        at = slice(first, min(n, first + ENTRIES_AT_A_TIME))
        values, latent = (np.require(array.ravel()[at], requirements=["C", "W"]) for array in (each, f))
        own = np.full_like(latent, theta.ravel()[at] if isinstance(theta, np.ndarray) else theta)
        value, d1, d2 = np.empty_like(latent), np.empty_like(latent), np.empty_like(latent)
        problem.likelihood.loglik(values, latent, own, value, d1, d2)
        with np.errstate(over="ignore"):  # rates far beyond the counts: a mean of -inf
            value = value if mixed is None else mixed(values, value)
            score.add(value if problem.power is None else problem.power.ravel()[at] * value)
    return score.sum / problem.total_weight if n else np.nan


def seen_rows(problem: Problem) -> np.ndarray:
    """Whether a training entry touches the row, (n_rows,) bool; of a row that is not learned, whether one did."""
    seen, entries = np.zeros(sum(problem.shape), dtype=bool), problem.entries
    for first in range(0, len(entries.rows), BLOCKS_AT_A_TIME):
        part = slice(first, first + BLOCKS_AT_A_TIME)
        used = entries.weight[part] > 0.0
        for k in range(entries.rows.shape[1]):
            rows = entries.rows[part, k]
            seen[rows if used.all() else rows[used]] = True
    return seen if problem.fixed is None else np.where(problem.rows_of_fixed, problem.fixed.seen, seen)


# The prior of the rows in methods whose rows are Gaussians: fixed, or a factor of q; and the rows' part of a bound.
#
# A learned prior enters the update of a row by its expectation alone, and the bound by one more number. It is updated
# before the rows of a sweep, from those of the sweep before: coordinate ascent, so that no update lowers the bound.


class PriorFactor(NamedTuple):
    """The rows' prior and what the bound needs of it."""

    now: base.Conditional  # the prior, or its expectation where it is learned
    mean: np.ndarray  # (n, R), means of `now`, a line for each row or for each mode
    half_log_det: np.ndarray  # (n_rows,), log|Lam| / 2 of `now`
    bound: float  # what uncertainty of the prior adds to the bound (0 for a fixed one)
    marginals: tuple[Marginals | None, ...]  # of each mode whose rows are one Gaussian (a series), of their last update
    chained: tuple[Chained | None, ...] = ()  # the prior of the rows of each mode that is a series, where it is learned

    def of_series(self, k: int) -> Chained | None:
        """The prior of the rows of mode k, where they are coupled."""
        return self.chained[k] if self.chained else None


def first_prior(problem: Problem, rows: RowState) -> PriorFactor:
    """The prior to begin with; `rows` hold it, with its moments."""
    shape, given = problem.shape, problem.prior
    shared = len(given.Lam) == len(given.eta) == len(shape)
    mean = rows.mean[offsets(shape)[:-1]] if shared else rows.mean.copy()
    half_log_det = np.empty(len(rows.mean))
    for k, (a, b) in enumerate(itertools.pairwise(offsets(shape).tolist())):
        row_divergences(a, b, rows, *(base.for_kernel(part, k, shape) for part in (given.Lam, mean)), half_log_det)
    return PriorFactor(initial_prior(problem), mean, half_log_det, 0.0, (None,) * len(shape))


def update_prior(prior: PriorFactor, problem: Problem, rows: RowState) -> PriorFactor:
    """The optimal factor of the prior given the rows; a fixed one as it is."""
    now, shape, law = prior.now, problem.shape, problem.prior
    if now.modes is None or not isinstance(law, base.LearnedPrior):
        return prior
    coupled = [coupled_moments(k, problem, rows, marginals) for k, marginals in enumerate(prior.marginals)]
    posterior = law.learn(*base.moments_per_mode(rows.mean, rows.cov, now.seen, shape), coupled)
    modes = law.expectation(now.modes, posterior)
    half_log_det = np.repeat(0.5 * np.linalg.slogdet(modes.precision)[1], shape)
    new, mean = base.conditional_of_modes(modes, now.seen), base.of_rows(modes.mean, law, modes, shape)
    if mean is not modes.mean:
        bounds = itertools.pairwise(offsets(shape).tolist())
        eta = [mean[a:b] @ precision for (a, b), precision in zip(bounds, modes.precision, strict=True)]
        new = new._replace(eta=np.concatenate(eta))
    chained = tuple(law.chained(k, posterior) for k in range(len(shape)))
    return PriorFactor(new, mean, half_log_det, law.bound(posterior), prior.marginals, chained)


def coupled_moments(k: int, problem: Problem, rows: RowState, found: Marginals | None) -> base.Coupled | None:
    """Variances and covariances of the rows of a series, in order; None of other modes."""
    of = problem.prior.axis(k)
    if of is None:
        return None
    variance = rows.cov[offsets(problem.shape)[k] :][in_place(of)][:, diagonal(rows.mean.shape[1])]
    cross = np.zeros((len(of.pairs[0]), variance.shape[1]))
    if found is not None:
        cross[:, : found.cross.shape[1]] = found.cross
    return base.Coupled(variance, cross)


def rows_together(
    prior: Joint, Lam: np.ndarray, eta: np.ndarray, first: int, rows: RowState, precision: float = 1.0
) -> Marginals:
    """The joint posterior of the coupled rows of a mode, of which the entries say `precision` times Lam and eta."""
    # a line for each row of the mode, whose first packed row is `first`; rows that the prior couples get its moments,
    # and by `natural_again` natural parameters
    own = in_place(prior.of)
    found = prior.marginals(Lam[own], eta[own], precision)
    if found.told is None:
        D = prior.own.shape[1]
        found = found._replace(told=(precision * Lam[own][:, : D * (D + 1) // 2], precision * eta[own][:, :D]))
    rows.mean[first:][own, : found.mean.shape[1]] = found.mean
    rows.cov[first:][own, : found.cov.shape[1]] = found.cov
    return found


def sites_by_mode(axes: Sequence[Any], found: Sequence[Marginals | None]) -> tuple[base.RowSites | None, ...]:
    """What entries say of the rows of each mode that were found together on their axis; nothing where none were."""
    sites = tuple(
        None if of is None or own is None or own.told is None else base.RowSites(of.place, *own.told)
        for of, own in zip(axes, found, strict=True)
    )
    return sites if any(own is not None for own in sites) else ()


def natural_again(of: Any, first: int, rows: RowState) -> None:
    """Give the coupled rows of a mode, whose first packed row is `first`, the natural parameters of their moments."""
    own = first + of.place
    rows.eta[own], rows.Lam[own], _ = base.moments_of(rows.cov[own], rows.mean[own])


DIVERGENCES = Pass(row_divergences, "rows", reads=("rows.mean",), lines=("prior_Lam", "prior_mean"), gives=("out",))


def rows_bound(prior: PriorFactor, rows: RowState, shape: tuple[int, ...], executor: Executor) -> float:
    """The rows' and their prior's part of the bound: minus their divergences."""
    divergence, coupled, R = np.empty(len(rows.mean)), 0.0, rows.mean.shape[1]
    for k, (a, b) in enumerate(itertools.pairwise(offsets(shape).tolist())):
        series = prior.of_series(k)
        if series is not None:
            divergence[a:b] = prior.half_log_det[a:b]
            D, own, found = series.mean.shape[1], in_place(series.links.of), prior.marginals[k]
            mean, cov = rows.mean[a:][own, :D], rows.cov[a:][own]
            variance, entropy = cov[:, diagonal(R)[:D]], len(mean) * D * (1.0 + LOG_2PI)
            if found is not None:
                coupled += series.expected(mean, variance, found.cross) + 0.5 * (entropy - found.log_det)
                continue
            log_det = np.linalg.slogdet(unpack(cov, R)[:, :D, :D])[1].sum()  # independent
            coupled += series.expected(mean, variance) + 0.5 * float(log_det + entropy)
            continue
        lines = (base.for_kernel(part, k, shape) for part in (prior.now.Lam, prior.mean))
        executor.run(DIVERGENCES, a, b, rows, *lines, divergence, align=LANES)
    return prior.bound - float((divergence - prior.half_log_det).sum()) + coupled


def with_unseen_rows(
    rows: RowState, problem: Problem, now: base.Conditional, found: tuple[Marginals | None, ...]
) -> RowState:
    """The rows as a result: without entries they are as unsure as what was learned of their features, too."""
    # in q such a row has the expected prior; new data would see it through the law of that prior
    if now.modes is None:
        return rows
    Lam, eta = rows.Lam.copy(), rows.eta.copy()
    modes = zip(offsets(problem.shape), base.in_modes(now.seen, problem.shape), strict=False)
    for k, (first, seen) in enumerate(modes):
        if seen.all():
            continue
        drift, own = now.modes.drifts[k] if now.modes.drifts else None, slice(first, first + len(seen))
        if drift is not None:
            marginals = found[k]  # of a series or a graph, given the rows that have entries
            told = None if marginals is None else marginals.told
            mean, cov = problem.prior.axis(k).unseen(now.modes, k, seen, rows.mean[own], rows.cov[own], told)
            precision = np.linalg.inv(unpack(cov, rows.mean.shape[1]))
            Lam[own][~seen], eta[own][~seen] = pack(precision), np.einsum("nij,nj->ni", precision, mean)
            continue
        more = problem.prior.unsure(k, now.modes, ~seen)
        if more is not None:
            Lam[own][~seen] /= 1.0 + more[:, None]
            eta[own][~seen] /= 1.0 + more[:, None]
    return rows._replace(Lam=Lam, eta=eta)
