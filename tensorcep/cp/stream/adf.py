"""Assumed-density filtering (ADF): a stream of batches, the posterior after each one being the prior of the next.

Inside a batch any method with Gaussian rows serves (`attempts`): CEP gives ADF-CEP, mean field streaming VB (POST).
Only the rows that a batch touches are read and written, so its cost is not that of the tensor; rows can be added.

Source: Wang and Zhe, Conditional Expectation Propagation, sec. 4.2 (ADF-CEP); Du et al., Probabilistic streaming tensor
decomposition (POST). Where we differ: fresh messages, sweeps to a tolerance, and the guards of `attempts`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from tensorcep.core.belief import GammaNoise, Posterior
from tensorcep.core.packing import offsets, row_dims
from tensorcep.core.records import Sized
from tensorcep.core.uneven import Dispersion
from tensorcep.cp.fitted.new_rows import Natural
from tensorcep.cp.model.entries import pack_entries
from tensorcep.cp.model.parameters import likelihood_after
from tensorcep.cp.model.problem import Problem, with_powers
from tensorcep.cp.model.subsets import with_extents
from tensorcep.cp.stream.chained import chain_of, smoothed
from tensorcep.cp.stream.deviating import (
    Lines,
    PairRows,
    deviations_of,
    in_modes,
    pairs_after,
    pairs_of_batch,
    with_pairs,
)
from tensorcep.cp.stream.drifting import Chain
from tensorcep.cp.stream.featured import map_after, prior_now, rows_at
from tensorcep.cp.stream.reservoir import Reservoir
from tensorcep.cp.stream.slopes import MapOfFeatures
from tensorcep.cp.stream.standing import Kept, Standing
from tensorcep.likelihoods.record import Likelihood
from tensorcep.priors.design import Design
from tensorcep.priors.fixed import FixedPrior

# Room for rows is made in steps of this factor, so that growing costs no more than the rows themselves.
GROWTH = 1.5


class ModeRows(NamedTuple):
    """Rows of one mode, with room for more; those in use come first.

    Attributes
    ----------
    Lam, eta : (room, P), (room, R)
        Natural parameters of the posterior at the time it was last updated.
    prior_Lam, prior_eta : (room, P), (room, R)
        Natural parameters of the prior that forgetting returns to.
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
    designs: tuple[Design | None, ...] = ()
    chains: tuple[Chain | None, ...] = ()
    clocks: tuple[Any, ...] = ()
    pairs: PairRows | None = None

    def dims(self) -> dict[str, int]:
        """The sizes of its arrays, which must have room for the rows in use."""
        if any(len(mode.seen) < n for mode, n in zip(self.modes, self.sizes, strict=True)):
            raise ValueError("the arrays of the stream do not fit its shape")
        return {name: size for name, size in row_dims(self.sizes, self.rank).items() if name in "KRP"}


class Stream(NamedTuple):
    """What a model that learns from a stream keeps beside its parameters.

    Attributes
    ----------
    keys : tuple of dict or None
        Per mode with labels, the row of each label.
    names : tuple
        The names of the modes, None where they have none.
    seed : int
        Of the prior means of new rows.
    uniform : bool
        Whether prior means are drawn (prior_mean="uniform"); otherwise new rows get the mode's average prior.
    reservoir : Reservoir or None
        Past entries that are learned again, where that was asked for.
    standing, kept : Standing, Kept or None
        How well the stream predicts, and its entries while it is beginning.
    watched : Kept or None
        Entries by which the stream is held against a fit.
    """

    state: StreamState
    keys: tuple[dict[Any, int] | None, ...]
    names: tuple[Any, ...]
    seed: int
    uniform: bool
    reservoir: Reservoir | None = None
    standing: Standing = Standing()
    kept: Kept | None = None
    watched: Kept | None = None


class BatchProblem(NamedTuple):
    """One batch as a problem of its own: the rows it touches, numbered from 0, with the posterior so far as prior.

    `used[k]` holds the rows of mode k that the batch touches, in ascending order; `rows` the packed rows (n, K) of its
    entries in the problem; `time` is the batch's. Where rows deviate pairs are one more mode of the problem, which has
    one more column (`deviating`), and `used` has these pairs too.
    """

    problem: Problem
    used: tuple[np.ndarray, ...]
    rows: np.ndarray
    time: float


def begin(
    posterior: Posterior, prior_Lam: np.ndarray, prior_eta: np.ndarray, noise_prior: GammaNoise | None, time: float
) -> StreamState:
    """The state after a first batch, of which the packed posterior and prior are given."""
    packed = (posterior.Lam, posterior.eta, prior_Lam, prior_eta, posterior.seen, np.full(len(prior_eta), time))
    first = offsets(posterior.shape)
    modes = tuple(ModeRows(*(array[a:b].copy() for array in packed)) for a, b in itertools.pairwise(first))
    return StreamState(posterior.rank, posterior.shape, modes, posterior.noise, noise_prior, time, posterior.dispersion)


def grown(
    state: StreamState, sizes: Sequence[int], prior_of: Callable[[int, int, int], tuple[np.ndarray, np.ndarray]]
) -> StreamState:
    """The state with at least `sizes[k]` rows of mode k; ``prior_of(k, first, last)`` is the prior of new rows."""
    modes, sizes = list(state.modes), tuple(max(int(n), old) for n, old in zip(sizes, state.sizes, strict=True))
    for k, (old, new) in enumerate(zip(state.sizes, sizes, strict=True)):
        if new == old:
            continue
        if new > len(modes[k].seen):
            modes[k] = ModeRows(*(_with_room(array, old, max(new, int(GROWTH * old))) for array in modes[k]))
        Lam, eta = prior_of(k, old, new)
        for array, value in zip(modes[k], (Lam, eta, Lam, eta, False, state.time), strict=True):
            array[old:new] = value
    return state._replace(modes=tuple(modes), sizes=sizes)


def _with_room(array: np.ndarray, used: int, room: int) -> np.ndarray:
    larger = np.zeros((room, *array.shape[1:]), dtype=array.dtype)
    larger[:used] = array[:used]
    return larger


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
    columns = list(coords.T) if state.pairs is None else [*coords.T, pairs_of_batch(state, coords)]
    used, local = zip(*(np.unique(column, return_inverse=True) for column in columns), strict=True)
    shape = tuple(len(rows) for rows in used)
    parts: Lines = [rows_at(state, k, rows, keep, time) for k, rows in enumerate(used[: len(state.modes)])]
    parts = parts if state.pairs is None else with_pairs(parts, state.pairs, used[-1])
    noise = state.noise
    if noise is not None and state.noise_prior is not None and keep < 1.0:
        weight = keep ** max(0.0, time - state.time)
        noise = GammaNoise(*(p + weight * (q - p) for p, q in zip(state.noise_prior, noise, strict=True)))
    local_coords = np.stack(local, axis=1)
    problem = Problem(
        entries=with_extents(pack_entries(local_coords, y, shape), likelihood, extent),
        shape=shape,
        rank=state.rank + (state.pairs is not None),
        likelihood=likelihood_after(likelihood, state.dispersion, keep ** max(0.0, time - state.time)),
        prior=FixedPrior(np.concatenate([Lam for Lam, _ in parts]), np.concatenate([eta for _, eta in parts])),
        start=None,
        noise_prior=noise,
        seed=seed,
    )
    problem = problem if power is None else with_powers(problem, power)
    return BatchProblem(problem, used, local_coords + offsets(shape)[:-1], time)


def absorbed(state: StreamState, batch: BatchProblem, posterior: Posterior) -> StreamState:
    """The state after a batch with this posterior. The rows it touches are changed in place."""
    pairs = None if state.pairs is None else pairs_after(state, batch, posterior)
    batch, posterior = (batch, posterior) if pairs is None else in_modes(batch, posterior)
    first, maps, chains = offsets(batch.problem.shape), list(state.maps), list(state.chains)
    for k, (mode, rows, a, b) in enumerate(zip(state.modes, batch.used, first[:-1], first[1:], strict=True)):
        new = Natural(posterior.Lam[a:b], posterior.eta[a:b])
        if chain_of(state, k) is not None:
            chains[k] = smoothed(state, k, batch, posterior)
            mode.seen[rows], mode.time[rows] = True, batch.time
            continue
        prior = prior_now(state, k, rows)
        if prior is not None:
            mode.prior_Lam[rows], mode.prior_eta[rows] = prior
            maps[k] = map_after(state, k, rows, new)
        mode.Lam[rows], mode.eta[rows] = new
        mode.seen[rows] = True
        mode.time[rows] = batch.time
    state = state._replace(noise=posterior.noise, dispersion=posterior.dispersion)
    return state._replace(time=batch.time, maps=tuple(maps), chains=tuple(chains), pairs=pairs)


def posterior_of(state: StreamState, keep: float) -> Posterior:
    """The posterior of all rows at the time of the last batch, packed."""
    parts = [rows_at(state, k, np.arange(n), keep, state.time) for k, n in enumerate(state.sizes)]
    return Posterior(
        shape=state.sizes,
        rank=state.rank,
        Lam=np.concatenate([Lam for Lam, _ in parts]),
        eta=np.concatenate([eta for _, eta in parts]),
        noise=state.noise,
        seen=np.concatenate([mode.seen[:n] for mode, n in zip(state.modes, state.sizes, strict=True)]),
        dispersion=state.dispersion,
        deviations=deviations_of(state),
    )


def uniform_means(seed: int, mode: int, first: int, last: int, rank: int) -> np.ndarray:
    """Draws from U(0, 1) for the rows first:last of a mode, (last - first, rank): the same however rows arrive."""
    generator = np.random.PCG64(np.random.SeedSequence([seed, mode]))
    generator.advance(first * rank)
    return np.random.Generator(generator).random((last - first, rank))


def keys_of(labels: Sequence[Any]) -> tuple[tuple[dict[Any, int] | None, ...], tuple[Any, ...]]:
    """Per mode the row of each label, and the names of the modes; None where there are no labels."""
    keys = tuple(None if found is None else {key: i for i, key in enumerate(found)} for found in labels)
    return keys, tuple(None if found is None else found.name for found in labels)
