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
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.loop import AnyMethod, Run, Sweep, run
from tensorcep.core.packing import offsets, row_dims
from tensorcep.cp.fitted.new_rows import Natural
from tensorcep.cp.fitted.predict import latent
from tensorcep.cp.messages.engine import Messages
from tensorcep.cp.model.entries import pack_entries, rows_of
from tensorcep.cp.model.parameters import likelihood_after
from tensorcep.cp.model.problem import Problem, with_powers
from tensorcep.cp.model.subsets import with_extents
from tensorcep.cp.posterior.belief import Dispersion, GammaNoise, Posterior
from tensorcep.cp.settings.messages import CEP
from tensorcep.cp.stream import row_priors
from tensorcep.cp.stream.row_priors import (
    ModeRows,
    PairRows,
    first_pairs,
    messages_to,
    messages_to_pairs,
    prior_by_others,
    smooth,
    with_pairs,
    without_pairs,
)
from tensorcep.likelihoods.base import Likelihood
from tensorcep.priors.coupled import Chain
from tensorcep.priors.features import Design
from tensorcep.priors.fixed import FixedPrior
from tensorcep.priors.normal_wishart import Expected
from tensorcep.priors.regression import MapOfFeatures

# Room for rows is made in steps of this factor, so that growing costs no more than the rows themselves.
GROWTH = 1.5
# A sweep that is not damped must bring the change down to such a share of the one before: damped ones halve it.
LEAST_FALL = 0.5


class StreamState(NamedTuple):
    """What is known after the batches so far.

    Attributes
    ----------
    sizes : tuple of int
        Rows in use of each mode.
    noise, noise_prior : GammaNoise or None
        Posterior and first prior of the Gaussian noise precision.
    time : float
        Time of the last batch.
    dispersion : Dispersion or None
        Posterior of the dispersion of negative-binomial counts.
    maps : tuple of MapOfFeatures or None
        Per mode what is known of the map from its features to prior means.
    designs : tuple of Design or None
        Per mode its features; files hold them with the model.
    chains : tuple of Chain or None
        Per mode what is known of it as a series: of such modes `ModeRows` have as prior what the other rows say.
    clocks : tuple of Clock or None
        Per mode its axis; files hold them with the model.
    pairs : PairRows or None
        Of rows that deviate along the axis of another mode.
    """

    rank: int
    sizes: tuple[int, ...]
    modes: tuple[ModeRows, ...]
    noise: GammaNoise | None
    noise_prior: GammaNoise | None
    time: float
    dispersion: Dispersion | None = None
    maps: tuple[MapOfFeatures | None, ...] = ()
    designs: tuple[Any, ...] = ()
    chains: tuple[Chain | None, ...] = ()
    clocks: tuple[Any, ...] = ()
    pairs: PairRows | None = None

    def dims(self) -> dict[str, int]:
        """The sizes of its arrays, which must have room for the rows in use."""
        if any(len(mode.seen) < n for mode, n in zip(self.modes, self.sizes, strict=True)):
            raise ValueError("the arrays of the stream do not fit its shape")
        return {name: size for name, size in row_dims(self.sizes, self.rank).items() if name in "KRP"}

    def chain_of(self, k: int) -> Chain | None:
        """What is known of mode k as a series; None where it is none."""
        return self.chains[k] if self.chains else None

    @property
    def clock_of_pairs(self) -> Any:
        """The axis along which rows deviate; None where they do not."""
        return None if self.pairs is None else self.clocks[self.pairs.modes[1]]

    def rows_at(self, k: int, rows: np.ndarray, keep: float, time: float) -> Natural:
        """Some rows of mode k at a time, with the prior that their features give them by now."""
        known, mode = self.maps[k] if self.maps else None, self.modes[k]
        return mode.at(
            rows, keep, time, None if known is None else row_priors.prior_now(known, self.designs[k], mode, rows)
        )


class BatchProblem(NamedTuple):
    """One batch as a problem of its own: the rows it touches, numbered from 0, with the posterior so far as prior.

    Attributes
    ----------
    used : tuple of (m,) int64
        The rows of each mode that the batch touches, in ascending order. Where rows deviate pairs are one more mode of
        the problem, which has one more column (`deviations`), and these pairs are the last of `used`.
    rows : (N, K) int64
        The packed rows of its entries in the problem.
    time : float
        Of the batch.
    coords, y, extent : (N, K) int64, (N,) float64, (N,) float64 or None
        The rows of its entries in the stream, values as the likelihood has them, and exposures or numbers of trials.
    dispersion : Dispersion or None
        Of the counts before the batch.
    """

    problem: Problem
    used: tuple[np.ndarray, ...]
    rows: np.ndarray
    time: float
    coords: np.ndarray
    y: np.ndarray
    extent: np.ndarray | None = None
    dispersion: Dispersion | None = None


def begin(
    posterior: Posterior, prior_Lam: np.ndarray, prior_eta: np.ndarray, noise_prior: GammaNoise | None, time: float
) -> StreamState:
    """The state after a first batch, of which the packed posterior and prior are given."""
    packed = (posterior.Lam, posterior.eta, prior_Lam, prior_eta, posterior.seen, np.full(len(prior_eta), time))
    first = offsets(posterior.shape)
    modes = tuple(ModeRows(*(array[a:b].copy() for array in packed)) for a, b in itertools.pairwise(first))
    return StreamState(posterior.rank, posterior.shape, modes, posterior.noise, noise_prior, time, posterior.dispersion)


def with_laws(
    state: StreamState,
    posterior: Posterior,
    expected: Expected | None,
    free: np.ndarray,
    designs: tuple[Design | None, ...],
    clocks: Sequence[Any],
) -> StreamState:
    """The state that goes on with the laws of a fit's rows: of features, of series and graphs, and of deviations.

    `free` (K, R) bool are its free columns. The rows of such modes are changed in place.
    """
    prior, of = posterior.mode_prior, posterior.deviations
    of_modes = list(enumerate(zip(state.modes, state.sizes, free, strict=True)))
    if prior is not None and expected is not None and any(prior.slopes):
        maps: list[MapOfFeatures | None] = [None] * len(designs)
        for k, (mode, n, own) in of_modes:
            if (design := designs[k]) is not None and own.any():
                maps[k] = row_priors.first_map(design, expected, k, own, prior, mode, n)
        state = state._replace(maps=tuple(maps), designs=designs)
    if prior is not None and expected is not None and any(clock is not None for clock in clocks):
        chains: list[Chain | None] = [None] * len(clocks)
        for k, (mode, n, own) in of_modes:
            if clocks[k] is not None and own.any():
                sites = posterior.sites[k] if posterior.sites else None
                chains[k] = row_priors.first_chain(clocks[k], expected, k, own, prior, mode, n, sites)
        state = state._replace(chains=tuple(chains), clocks=tuple(clocks))
    return state if of is None else state._replace(pairs=first_pairs(of, state.clocks[of.modes[1]], expected, free))


def with_rows(
    state: StreamState, sizes: Sequence[int], prior_of: Callable[[int, int, int], tuple[np.ndarray, np.ndarray]]
) -> StreamState:
    """The state with at least `sizes[k]` rows of mode k; ``prior_of(k, first, last)`` is the prior of new rows."""
    modes, sizes = list(state.modes), tuple(max(int(n), old) for n, old in zip(sizes, state.sizes, strict=True))
    for k, (old, new) in enumerate(zip(state.sizes, sizes, strict=True)):
        if new == old:
            continue
        if new > len(modes[k].seen):
            room = max(new, int(GROWTH * old))
            larger = ModeRows(*(np.zeros((room, *array.shape[1:]), dtype=array.dtype) for array in modes[k]))
            for array, before in zip(larger, modes[k], strict=True):
                array[:old] = before[:old]
            modes[k] = larger
        Lam, eta = prior_of(k, old, new)
        for array, value in zip(modes[k], (Lam, eta, Lam, eta, False, state.time), strict=True):
            array[old:new] = value
    return state._replace(modes=tuple(modes), sizes=sizes)


def forecast(
    state: StreamState,
    before: Sequence[int],
    coords: np.ndarray,
    labels: Sequence[Sequence[Any] | None],
    names: Sequence[Any],
) -> StreamState:
    """The state whose new rows of series, from `before` on, and pairs of entries (n, K) are forecast from others.

    Only their lines are changed in place. `labels` are those of the new rows of each mode, None where it has none;
    errors call the modes by `names`.

    A new row without a place on the axis of its mode is refused.
    """
    clocks, chains = list(state.clocks), list(state.chains)
    for k, known in enumerate(state.chains):
        first, n = before[k], state.sizes[k]
        if known is not None and n > first:
            new = known, clocks[k], state.modes[k], first, n, labels[k], names[k]
            chains[k], clocks[k] = row_priors.with_new_rows(*new)
    state = state._replace(clocks=tuple(clocks), chains=tuple(chains))
    return state if state.pairs is None else state._replace(pairs=state.pairs.with_new(state.clock_of_pairs, coords))


def batch_of(
    state: StreamState,
    coords: np.ndarray,
    y: np.ndarray,
    likelihood: Likelihood,
    *,
    keep: float,
    time: float,
    seed: int,
    power: np.ndarray | None = None,
    extent: np.ndarray | None = None,
) -> BatchProblem:
    """Make a batch, coords (n, K) within the sizes and y (n,), a problem of its own.

    `keep` is what remains of the rows' information after one unit of time: 1 forgets nothing. `power` (n,) is the
    power that each entry's likelihood is taken to, None where it is 1, `extent` (n,) its exposure or number of trials.
    """
    columns, pairs, weight = list(coords.T), state.pairs, keep ** max(0.0, time - state.time)
    columns += [] if pairs is None else [pairs.places(len(state.clock_of_pairs.times), coords)]
    used, local = zip(*(np.unique(column, return_inverse=True) for column in columns), strict=True)
    shape = tuple(len(rows) for rows in used)
    parts = [state.rows_at(k, rows, keep, time) for k, rows in enumerate(used[: len(state.modes)])]
    lines = Natural(*(np.concatenate(part) for part in zip(*parts, strict=True)))
    if pairs is not None:
        lines = with_pairs(lines, Natural(pairs.Lam[used[-1], None], pairs.eta[used[-1], None]))
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
    rows = local_coords + offsets(shape)[:-1]
    return BatchProblem(problem, used, rows, time, coords, y, extent, state.dispersion)


def in_modes(batch: BatchProblem, posterior: Posterior) -> tuple[BatchProblem, Posterior]:
    """A batch of rows that deviate and its posterior in the modes and columns that there are, without pairs."""
    problem, shape, R = batch.problem, batch.problem.shape[:-1], batch.problem.rank - 1
    prior, rows = (without_pairs(Natural(lines.Lam, lines.eta), sum(shape)) for lines in (problem.prior, posterior))
    posterior = posterior._replace(shape=shape, rank=R, Lam=rows.Lam, eta=rows.eta, seen=posterior.seen[: sum(shape)])
    problem = problem._replace(shape=shape, rank=R, prior=FixedPrior(*prior))
    return batch._replace(problem=problem, used=batch.used[:-1]), posterior


def prior_by_other_rows(state: StreamState, batch: BatchProblem, posterior: Posterior) -> BatchProblem | None:
    """The batch whose rows of series, and pairs, have the prior that its other rows' entries make.

    None where no two are of one series. `posterior` is what the batch led to with rows that were independent before.
    """
    pairs, problem = state.pairs, batch.problem
    inner, found = (batch, posterior) if pairs is None else in_modes(batch, posterior)
    lines, again = Natural(inner.problem.prior.Lam.copy(), inner.problem.prior.eta.copy()), False
    for k, (rows, own) in enumerate(_lines_of_modes(inner)):
        known = state.chain_of(k)
        if known is None or len(rows) < 2:
            continue
        before, sites = Natural(lines.Lam[own], lines.eta[own]), state.modes[k].sites(state.sizes[k])
        new, again = messages_to(Natural(found.Lam[own], found.eta[own]), before, known.free), True
        lines.Lam[own], lines.eta[own] = prior_by_others(known, state.clocks[k], sites, rows, new, before)
    if pairs is not None:
        new, n = messages_to_pairs(batch.problem, posterior), len(lines.eta)
        before = Natural(problem.prior.Lam[n:, -1:], problem.prior.eta[n:, -1:])
        of_pairs = pairs.prior_by_other_rows(state.clock_of_pairs, batch.used[-1], new, before)
        lines, again = with_pairs(lines, of_pairs or before), again or of_pairs is not None
    return batch._replace(problem=problem._replace(prior=FixedPrior(*lines))) if again else None


def _lines_of_modes(batch: BatchProblem) -> list[tuple[np.ndarray, slice]]:
    """The rows of each mode that a batch touches, and where they lie among the packed ones of its problem."""
    ends = itertools.pairwise(offsets(batch.problem.shape).tolist())
    return [(rows, slice(a, b)) for rows, (a, b) in zip(batch.used, ends, strict=True)]


def absorb(state: StreamState, batch: BatchProblem, posterior: Posterior) -> StreamState:
    """The state after a batch with this posterior. The rows it touches are changed in place."""
    pairs = state.pairs
    if pairs is not None:
        pairs = pairs.after(state.clock_of_pairs, batch.used[-1], messages_to_pairs(batch.problem, posterior))
        batch, posterior = in_modes(batch, posterior)
    maps, chains, prior = list(state.maps), list(state.chains), batch.problem.prior
    for k, (rows, own) in enumerate(_lines_of_modes(batch)):
        mode, n, new = state.modes[k], state.sizes[k], Natural(posterior.Lam[own], posterior.eta[own])
        known, chain = maps[k] if maps else None, state.chain_of(k)
        if chain is not None:
            seen = mode.seen[:n].copy()
            seen[rows] = True
            more = messages_to(new, Natural(prior.Lam[own], prior.eta[own]), chain.free)
            chains[k], sites, whole = smooth(chain, state.clocks[k], mode.sites(n), rows, more, seen)
            mode.put(slice(n), whole, Natural(whole.Lam - sites.Lam, whole.eta - sites.eta))
        else:
            if known is not None:
                mode.prior_Lam[rows], mode.prior_eta[rows] = row_priors.prior_now(known, state.designs[k], mode, rows)
                maps[k] = row_priors.map_after(known, state.designs[k], mode, rows, new)
            mode.Lam[rows], mode.eta[rows] = new
        mode.seen[rows], mode.time[rows] = True, batch.time
    laws: dict[str, Any] = {"maps": tuple(maps), "chains": tuple(chains), "pairs": pairs}
    return state._replace(noise=posterior.noise, dispersion=posterior.dispersion, time=batch.time, **laws)


def posterior_of(state: StreamState, keep: float) -> Posterior:
    """The posterior of all rows at the time of the last batch, packed."""
    parts = [state.rows_at(k, np.arange(n), keep, state.time) for k, n in enumerate(state.sizes)]
    Lam, eta = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Posterior(
        shape=state.sizes,
        rank=state.rank,
        Lam=Lam,
        eta=eta,
        noise=state.noise,
        seen=np.concatenate([mode.seen[:n] for mode, n in zip(state.modes, state.sizes, strict=True)]),
        dispersion=state.dispersion,
        deviations=None if state.pairs is None else state.pairs.deviations(state.clock_of_pairs, state.sizes),
    )


def may_be_bold(settings: Any) -> bool:
    """Whether settings leave the damping open, of sweeps that do not need it from the first on."""
    if not isinstance(settings, CEP) or settings.damping != "auto":
        return False
    return settings.schedule == "modewise" and settings.order == 1


def learn(
    method: AnyMethod, problem: Problem, settings: Any, *, bold: bool = False, callbacks: Sequence[Any] = (), **how: Any
) -> Run:
    """Run a method on one batch; of CEP with safeguards for labels and counts.

    With `bold` the first attempt is without damping; it ends where a sweep does not bring the change down. Then the
    batch is learned by the formula, damped as the settings say, and if an update had to be skipped or a row shrunk on
    the way, all of it is learned again with positive messages.
    """
    if not isinstance(settings, CEP):
        return run(method, problem, dataclasses.replace(settings, anneal=0), callbacks=callbacks, **how)
    if problem.noise_prior is not None:
        a, b = problem.noise_prior
        # one more entry as the posterior so far expects it, so that the noise starts where it was
        settings = dataclasses.replace(settings, anneal=0, message_noise=(0.5, 0.5 * b / a))
        return run(method, problem, settings, callbacks=callbacks, **how)
    attempts: list[tuple[dict[str, Any], _Trouble]] = [({"positive": False}, _Trouble())]
    if bold:
        attempts.insert(0, ({"positive": False, "damping": 0.0}, _Trouble(how["tol"])))
    for changes, trouble in attempts:
        attempt = dataclasses.replace(settings, anneal=0, **changes)
        result = run(method, problem, attempt, callbacks=(*callbacks, trouble), **how)
        if not trouble.found:
            return result
    settings = dataclasses.replace(settings, anneal=0, positive=True)
    return run(method, problem, settings, callbacks=callbacks, **how)


class _Trouble:
    """A callback that ends a run in trouble, and remembers it.

    With a tolerance, trouble is a sweep, too, that changed more than that and a share of what the one before did.
    """

    def __init__(self, tol: float = np.inf) -> None:
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
    """The posterior with the noise as sure as the entries make it.

    And what the message of each entry, in the order of the lanes, says too much in the shape of the noise's law (N,).
    """
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
    lanes = np.zeros(sent.a.size)
    lanes[: len(too_much)] = too_much
    a = lanes.reshape(sent.a.shape)
    return sent._replace(a=sent.a - a, b=sent.b - a / noise.precision)
