"""Assumed-density filtering (ADF): a stream of batches, the posterior after each one being the prior of the next.

Inside a batch any method with Gaussian rows serves (`learn`): CEP gives ADF-CEP, mean field streaming VB (POST).
Only the rows that a batch touches are read and written, so its cost is not that of the tensor; rows can be added.

A batch is learned by sweeps as bold as it bears. The posterior so far is a start that hardly any batch moves far, and
from there sweeps that are not damped reach the fixed point that damped ones reach in a third of the sweeps. The
published formula learns most: the messages that CEP.positive would limit are the surprising entries'. But messages may
overshoot, and when many surprising ones meet in one row they can outweigh its prior. So a batch is learned boldly at
first, and if that shows trouble, all of it again.

Source: Wang and Zhe, Conditional Expectation Propagation, sec. 4.2 (ADF-CEP); Du et al., Probabilistic streaming tensor
decomposition (POST). Where we differ: fresh messages, sweeps to a tolerance, and the guards of `learn`.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.loop import AnyMethod, Run, Sweep, run
from tensorcep.core.packing import offsets
from tensorcep.cp.calibration.prequential import Predicted, Standing
from tensorcep.cp.fitted.new_rows import Natural
from tensorcep.cp.fitted.predict import BLOCK_CELLS, given_at, latent
from tensorcep.cp.messages.engine import Messages
from tensorcep.cp.model.entries import pack_entries, rows_of
from tensorcep.cp.model.parameters import likelihood_after, with_parameter
from tensorcep.cp.model.problem import Problem, with_powers
from tensorcep.cp.model.subsets import with_extents
from tensorcep.cp.posterior import Components, GammaNoise, Posterior
from tensorcep.cp.settings import CEP
from tensorcep.cp.stream import modes
from tensorcep.cp.targets.base import ERRORS, outweighing
from tensorcep.likelihoods.base import Likelihood
from tensorcep.priors.fixed import FixedPrior

# A sweep that is not damped must bring the change down to such a share of the one before: damped ones halve it.
LEAST_FALL = 0.5


class BatchProblem(NamedTuple):
    """One batch as a problem of its own: the rows it touches, numbered from 0, with the posterior so far as prior."""

    problem: Problem
    # (m,) int64, the rows of each mode that the batch touches, in ascending order. Where rows deviate, pairs are one
    # more mode of the problem, which has one more column (`deviations`), and these pairs are the last.
    used: tuple[np.ndarray, ...]
    rows: np.ndarray  # (N, K) int64, the packed rows of its entries in the problem
    time: float
    coords: np.ndarray  # (N, K) int64, their rows in the stream
    y: np.ndarray  # (N,) float64, values as the likelihood has them
    extent: np.ndarray | None = None  # (N,) float64, exposures or numbers of trials


def batch_of(
    state: modes.StreamState,
    coords: np.ndarray,
    y: np.ndarray,
    likelihood: Likelihood,
    *,
    keep: float,  # what remains of the rows' information after one unit of time: 1 forgets nothing
    time: float,
    seed: int,
    power: np.ndarray | None = None,  # (n,), that each entry's likelihood is taken to, None where it is 1
    extent: np.ndarray | None = None,  # (n,), exposures or numbers of trials
) -> BatchProblem:
    """Make a batch, coords (n, K) within the sizes and y (n,), a problem of its own."""
    columns, pairs, weight = list(coords.T), state.pairs, keep ** max(0.0, time - state.time)
    if pairs is not None:
        columns.append(pairs.places(len(state.clock_of_pairs.times), coords))
    used, local = zip(*(np.unique(column, return_inverse=True) for column in columns), strict=True)
    shape = tuple(len(rows) for rows in used)
    parts = [state.rows_at(k, rows, keep, time) for k, rows in enumerate(used[: len(state.modes)])]
    lines = Natural(*(np.concatenate(part) for part in zip(*parts, strict=True)))
    if pairs is not None:
        lines = modes.with_pairs(lines, Natural(pairs.Lam[used[-1], None], pairs.eta[used[-1], None]))
    noise = state.noise
    if noise is not None and state.noise_prior is not None and keep < 1.0:
        noise = GammaNoise(*(p + weight * (q - p) for p, q in zip(state.noise_prior, noise, strict=True)))
    local_coords = np.stack(local, axis=1)
    problem = Problem(
        entries=with_extents(pack_entries(local_coords, y, shape), likelihood, extent),
        shape=shape,
        rank=state.rank + (pairs is not None),
        likelihood=likelihood_after(likelihood, state.dispersion, weight),
        prior=FixedPrior(*lines),
        start=None,
        noise_prior=noise,
        seed=seed,
    )
    problem = problem if power is None else with_powers(problem, power)
    return BatchProblem(problem, used, local_coords + offsets(shape)[:-1], time, coords, y, extent)


def predictions(batch: BatchProblem, belief: Components, rows: np.ndarray, y: np.ndarray | None = None) -> Predicted:
    """What a belief, one Gaussian, says of entries of a batch in these rows (n, K), or of these values instead."""
    likelihood, parameter = with_parameter(batch.problem.likelihood, belief.theta)
    y = batch.y if y is None else y
    mean, score, variance = np.empty((3, len(y)))
    for first in range(0, len(score), BLOCK_CELLS):
        part = slice(first, first + BLOCK_CELLS)
        m, v, theta = given_at(likelihood, parameter, belief, rows, batch.extent, part)
        given = (m[0], v[0], theta[0])
        score[part] = likelihood.logpdf(y[part], *given)
        if likelihood.observes == "labels":
            mean[part] = np.where(y[part] > 0.0, np.exp(score[part]), -np.expm1(score[part]))
            variance[part] = mean[part] * (1.0 - mean[part])
        else:
            mean[part], variance[part] = likelihood.predict(*given)
    return Predicted(mean, score, variance)


# Values that what is known makes impossible: left out, unless they go on and are a change.
#
# One such value would decide all rows that it touches and the noise: a Gaussian likelihood follows it wherever it is.
# It is told from what a stream may bring by its surprise: what it costs beside the mean, in nats, z^2 / 2 of a real
# value z standard deviations from it. A sum of squares of any law with a variance outgrows its largest one, so a
# surprise of as much as all n entries so far, of half a nat each, and all smaller ones of its batch together is no
# entry of their law, however long its tails are. The rows' law may be wrong about what is usual, so that a value is
# left out only if it also is so without them: beyond three standard deviations of all values so far, or a count above
# the sum of all before.
#
# Where such values go on they are no errors. Page's cumulative sum of log likelihood ratios tells (Page 1954,
# Continuous inspection schemes): of entries of which half are outliers, against errors in a tenth of all. While it is
# at its limit, all values are learned.

# The least surprise of an outlier, in nats, however few entries there were: 10 standard deviations.
SURPRISING = 50.0
# So many standard deviations about their mean hold 95 % of any law with one peak (Vysochanskij and Petunin, 1980).
OUTSIDE = 3.0
# The share of outliers after a change. A change that is none is found once in about e^CERTAIN entries; five outliers
# in a row are one.
CHANGED, CERTAIN = 0.5, float(np.log(1000.0))


def outliers_of(
    batch: BatchProblem, values: np.ndarray, belief: Components, before: Predicted, n: int, standing: Standing
) -> np.ndarray:
    """Which values (N,) of a batch, of which a belief predicts this, are outliers after n entries, (N,) bool."""
    with np.errstate(all="ignore"):
        if batch.problem.likelihood.observes == "values":
            surprise = 0.5 * (values - before.mean) ** 2 / before.variance
            outside = (values - standing.mean) ** 2 > OUTSIDE**2 * standing.spread
        else:
            surprise, outside = -before.score, values > standing.total
            if surprise.max() > SURPRISING:  # the mean costs something, too
                best = predictions(batch, belief, batch.rows, np.floor(before.mean)).score
                surprise = surprise + np.where(np.isfinite(best), best, 0.0)
    surprise = np.where(np.isnan(surprise), np.inf, surprise)  # what is no number costs all
    found = (surprise > SURPRISING) & (outside | (standing.seen == 0))
    return found & outweighing(surprise, 0.5 * n) if found.any() else found


def change_after(before: float, out: np.ndarray) -> float:
    """The evidence of a change, from 0 to CERTAIN, after entries of which these are outliers."""
    k, n = int(out.sum()), len(out)
    found = before + k * np.log(CHANGED / ERRORS) + (n - k) * np.log((1.0 - CHANGED) / (1.0 - ERRORS))
    return float(np.clip(found, 0.0, CERTAIN))


def may_be_bold(settings: Any) -> bool:
    """Whether settings leave the damping open, of sweeps that do not need it from the first on."""
    open_damping = ("auto", "modewise", 1)
    return isinstance(settings, CEP) and (settings.damping, settings.schedule, settings.order) == open_damping


def learn(
    method: AnyMethod, problem: Problem, settings: Any, *, bold: bool = False, callbacks: Sequence[Any] = (), **how: Any
) -> Run:
    """Run a method on one batch; of CEP with safeguards for labels and counts."""
    settings = dataclasses.replace(settings, anneal=0)
    if isinstance(settings, CEP) and problem.noise_prior is not None:
        a, b = problem.noise_prior
        # one more entry as the posterior so far expects it, so that the noise starts where it was
        settings = dataclasses.replace(settings, message_noise=(0.5, 0.5 * b / a))
    elif isinstance(settings, CEP):
        # boldly without damping, then by the formula damped as the settings say; after trouble with positive messages
        undamped: list[tuple[dict[str, Any], float]] = [({"damping": 0.0}, how["tol"])] if bold else []
        for changes, tol in (*undamped, ({}, np.inf)):
            attempt, trouble = dataclasses.replace(settings, positive=False, **changes), _Trouble(tol)
            result = run(method, problem, attempt, callbacks=(*callbacks, trouble), **how)
            if not trouble.found:
                return result
        settings = dataclasses.replace(settings, positive=True)
    return run(method, problem, settings, callbacks=callbacks, **how)


class _Trouble:
    """A callback that ends a run in trouble: with a tolerance that is a change above it, too, that hardly falls."""

    def __init__(self, tol: float) -> None:
        self.tol, self.change, self.found = tol, np.inf, False

    def __call__(self, n: int, sweep: Sweep, state: Any) -> bool:
        before, self.change = self.change, sweep.change
        falls = sweep.change < self.tol or sweep.change <= LEAST_FALL * before or self.tol == np.inf
        self.found = self.found or sweep.skipped + sweep.shrunk > 0 or not falls
        return self.found


# What a batch tells of the noise of real values: the same noise, known less surely than its messages say.
#
# The messages of a batch, (1/2, E[(y - f)^2] / 2) per entry, lead to the right precision tau, but count every entry as
# if its f were known. Within one fit that is no harm: all of them are sent again while the rows are learned. In a
# stream the first batches, whose rows are hardly known, would hold the noise for ever where they found it. With
# f ~ N(m, v) but for the entry itself, y ~ N(m, v + 1 / tau) has the Fisher information s^2 / 2 in log tau, where
# s = 1 / (1 + v tau), and a Gamma(a, b) law has a. So an entry tells s^2 / 2 in place of 1/2, at the same tau: with the
# entry itself f has the variance s v, and s = 1 - s v tau.


def with_sure_noise(problem: Problem, posterior: Posterior) -> tuple[Posterior, np.ndarray]:
    """The posterior with the noise as sure as entries make it; what each, by lanes, says too much of its shape (N,)."""
    noise, before, entries = posterior.noise, problem.noise_prior, problem.entries
    if noise is None or before is None:
        return posterior, np.zeros(0)
    rows = rows_of(entries, np.arange(len(entries.permutation)))
    share = np.clip(1.0 - noise.precision * latent(posterior.components(), rows)[1], 0.0, 1.0)
    too_much = np.asarray(problem.weights.ravel()[: len(share)] * 0.5 * (1.0 - share**2))
    a = max(before.a, noise.a - float(too_much.sum()))
    return posterior._replace(noise=GammaNoise(a, a / noise.precision)), too_much


def messages_to_noise(sent: Messages, noise: GammaNoise | None, too_much: np.ndarray) -> Messages:
    """The messages to a noise as `with_sure_noise` counts them."""
    if noise is None:
        return sent
    a = np.pad(too_much, (0, sent.a.size - len(too_much))).reshape(sent.a.shape)
    return sent._replace(a=sent.a - a, b=sent.b - a / noise.precision)


def in_modes(batch: BatchProblem, posterior: Posterior) -> tuple[BatchProblem, Posterior]:
    """A batch of rows that deviate and its posterior in the modes and columns that there are, without pairs."""
    problem, shape, R = batch.problem, batch.problem.shape[:-1], batch.problem.rank - 1
    n, P = sum(shape), R * (R + 1) // 2
    each = (problem.prior, posterior)  # the rows are 1 in the last column
    prior, rows = ((one.Lam[:n, :P].copy(), one.eta[:n, :R] - one.Lam[:n, P : P + R]) for one in each)
    posterior = posterior._replace(shape=shape, rank=R, Lam=rows[0], eta=rows[1], seen=posterior.seen[:n])
    problem = problem._replace(shape=shape, rank=R, prior=FixedPrior(*prior))
    return batch._replace(problem=problem, used=batch.used[:-1]), posterior


def prior_by_other_rows(state: modes.StreamState, batch: BatchProblem, posterior: Posterior) -> BatchProblem | None:
    """The batch whose rows of series, and pairs, have as prior what its other rows' entries make; None without such."""
    pairs, problem = state.pairs, batch.problem  # `posterior` is that with rows that were independent before
    inner, found = (batch, posterior) if pairs is None else in_modes(batch, posterior)
    lines, again = Natural(inner.problem.prior.Lam.copy(), inner.problem.prior.eta.copy()), False
    for k, (rows, own) in enumerate(_lines_of_modes(inner)):
        known = state.chains[k] if state.chains else None
        if known is None or len(rows) < 2:
            continue
        before, sites = Natural(lines.Lam[own], lines.eta[own]), state.modes[k].sites(state.sizes[k])
        new, again = modes.messages_to(Natural(found.Lam[own], found.eta[own]), before, known.free), True
        lines.Lam[own], lines.eta[own] = modes.prior_by_others(known, state.clocks[k], sites, rows, new, before)
    if pairs is not None:
        new, moved = pairs.prior_by_other_rows(state.clock_of_pairs, batch.used[-1], problem, posterior)
        lines, again = modes.with_pairs(lines, new), again or moved
    return batch._replace(problem=problem._replace(prior=FixedPrior(*lines))) if again else None


def _lines_of_modes(batch: BatchProblem) -> list[tuple[np.ndarray, slice]]:
    """The rows of each mode that a batch touches, and where they lie among the packed ones of its problem."""
    ends = itertools.pairwise(offsets(batch.problem.shape).tolist())
    return [(rows, slice(a, b)) for rows, (a, b) in zip(batch.used, ends, strict=True)]


def absorb(state: modes.StreamState, batch: BatchProblem, posterior: Posterior) -> modes.StreamState:
    """The state after a batch with this posterior. The rows it touches are changed in place."""
    pairs = state.pairs
    if pairs is not None:
        pairs = pairs.after(state.clock_of_pairs, batch.used[-1], batch.problem, posterior)
        batch, posterior = in_modes(batch, posterior)
    maps, chains, prior = list(state.maps), list(state.chains), batch.problem.prior
    for k, (rows, own) in enumerate(_lines_of_modes(batch)):
        mode, n, new = state.modes[k], state.sizes[k], Natural(posterior.Lam[own], posterior.eta[own])
        known, chain = maps[k] if maps else None, chains[k] if chains else None
        if chain is not None:
            seen = mode.seen[:n].copy()
            seen[rows] = True
            more = modes.messages_to(new, Natural(prior.Lam[own], prior.eta[own]), chain.free)
            chains[k], sites, whole = modes.smooth(chain, state.clocks[k], mode.sites(n), rows, more, seen)
            mode.Lam[:n], mode.eta[:n] = whole
            mode.prior_Lam[:n], mode.prior_eta[:n] = whole.Lam - sites.Lam, whole.eta - sites.eta
        else:
            if known is not None:
                mode.prior_Lam[rows], mode.prior_eta[rows] = modes.prior_now(known, state.designs[k], mode, rows)
                maps[k] = modes.map_after(known, state.designs[k], mode, rows, new)
            mode.Lam[rows], mode.eta[rows] = new
        mode.seen[rows], mode.time[rows] = True, batch.time
    laws: dict[str, Any] = {"maps": tuple(maps), "chains": tuple(chains), "pairs": pairs}
    return state._replace(noise=posterior.noise, dispersion=posterior.dispersion, time=batch.time, **laws)
