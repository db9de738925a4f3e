"""Draws of what makes entries Gaussian in their latent values, of dispersions and of thresholds, given these values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tensorcep.core.executor import Executor
from tensorcep.cp.gibbs.metropolis import Judge, judge_of, match_sites
from tensorcep.cp.gibbs.streams import Stream, generator, stream_key
from tensorcep.cp.model.parameters import Learned
from tensorcep.cp.model.problem import Problem
from tensorcep.kernels.streams import new_stream
from tensorcep.likelihoods.augmentation import Augmentation
from tensorcep.likelihoods.parameter import Gamma
from tensorcep.likelihoods.pooling import told
from tensorcep.likelihoods.thresholds import LevelEntries, Levels, draw_thresholds
from tensorcep.likelihoods.zeros import Zeros, presence

if TYPE_CHECKING:
    from tensorcep.cp.gibbs.state import GibbsState


def draw_presence(c: int, state: GibbsState, zeros: Zeros, problem: Problem) -> np.ndarray:
    """Draw which zeros of chain c are structural given its latent values, and then their share.

    Gives how often every entry counts among the others, (n_blocks, LANES): 0 or 1.
    """
    chains, entries, f = state.chains, problem.entries, state.f[c]
    rng = generator(problem.seed, Stream.ZEROS, chains.sweeps, c)
    at = (entries.y == 0.0) & (entries.weight > 0.0)
    y, theta = entries.y[at], state.theta(c, f.shape)[at]
    log_mass = np.empty_like(y)
    problem.likelihood.loglik(y, f[at], theta, log_mass, np.empty_like(y), np.empty_like(y))
    present = entries.weight.copy()
    present[at] = rng.random(len(y)) < presence(y, log_mass, float(chains.theta[c, -1]))
    n, n_present = float(entries.weight.sum()), float(present.sum())
    chains.theta[c, -1] = zeros.law_of(n - n_present, n_present).draw(rng)
    return present


def draw_dispersion(
    c: int, state: GibbsState, learned: Learned, problem: Problem, executor: Executor, used: np.ndarray
) -> None:
    """Draw the dispersions of chain c given its latent values, auxiliary variables integrated out.

    `used` (n_blocks, LANES) is 0 where an entry tells nothing of them.
    """
    chains, entries, f = state.chains, problem.entries, state.f[c]
    (a, b), groups, counting = learned.prior, learned.groups, learned.parameter.counting
    key, tables = stream_key(problem.seed, c, chains.sweeps, Stream.TABLES), np.empty(f.shape)
    record = (entries.y, used, state.theta(c, f.shape), key, tables)
    executor.run(counting.draw_tables, 0, len(f), *record, scratch=room_for_stream)  # type: ignore[union-attr]
    softplus = counting.softplus(f)  # type: ignore[union-attr]
    shape, rate = groups.totals(lambda at: tables[at]), groups.totals(lambda at: used[at] * softplus[at])
    rng = generator(problem.seed, Stream.DISPERSION, chains.sweeps, c)
    if state.pooled is not None and learned.pool is not None:
        known = told(shape, rate), learned.pool.of, rng
        chains.theta[c], chains.uneven[c] = state.pooled.draw_dispersions(c, *known)  # type: ignore[index]
        return
    chains.theta[c, : groups.size] = Gamma(a + shape, b + rate).draw(rng)


def draw_cuts(c: int, state: GibbsState, levels: Levels, problem: Problem, executor: Executor) -> None:
    """Draw the thresholds of chain c given its latent values, latent normals integrated out."""
    chains, entries = state.chains, problem.entries
    rng = generator(problem.seed, Stream.THRESHOLDS, chains.sweeps, c)
    known = LevelEntries(entries.y, entries.weight, state.f[c])
    chains.theta[c] = draw_thresholds(levels, chains.theta[c], known, rng, executor)


def draw_sites(
    c: int,
    state: GibbsState,
    augmentation: Augmentation,
    problem: Problem,
    executor: Executor,
    used: np.ndarray | None = None,
) -> Judge | None:
    """Draw the auxiliary variables of chain c: the weight and the target of every entry.

    `used` (n_blocks, LANES), if given, is 0 where an entry says nothing of its latent value. Where there are no such
    variables weight and target are of a Gaussian that stands for the entry, and rows drawn by it need the judge.
    """
    chains, f = state.chains, state.f[c]
    key = stream_key(problem.seed, c, chains.sweeps, Stream.AUGMENTATION)
    room: Any = chains.sites
    sites = room.weight.reshape(f.shape), room.target.reshape(f.shape)
    y, theta = state.given(c, problem)
    theta = theta * state.uneven.of_entry[c] if state.uneven is not None and state.uneven.of_entry.size else theta
    if used is not None:  # what was drawn in the sweep before is no more
        for part in sites:
            part *= used
    if state.around is not None:
        state.around.look(c, f, chains.sweeps)
        around = state.around.mean[c], state.around.variance[c]
        match_sites(around, augmentation, (y, theta), problem, sites, executor)
    else:
        record = (y, problem.weights if used is None else used, f, theta, key, *sites)
        executor.run(augmentation.drawn, 0, len(f), *record, scratch=room_for_stream)
    if len(problem.entries.known):
        np.subtract(sites[1], sites[0] * problem.entries.known, out=sites[1])
    if state.around is None:
        return None
    return judge_of((y, theta), chains.by_row.entry, sites, problem, state.around.climbs(chains.sweeps))


def room_for_stream() -> tuple[np.ndarray]:
    """Room for the stream of one thread."""
    return (new_stream(),)
