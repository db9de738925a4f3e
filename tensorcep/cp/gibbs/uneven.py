"""Noise that differs, in chains: draws of the factors of the noise precision, of that precision, and of their shape.

Dispersions that differ between rows are drawn as the noise of rows is (`tensorcep.likelihoods.pooling`).

Given the squared residuals, shape and factors are drawn as one: the shape with the factors integrated out, then these
(a shape given many factors would hardly move). Those of entries come before the rows and weigh the entries; a
Metropolis step takes their shape to a neighbour in `ALPHAS`. Those of rows come after, their shape is drawn from all of
`ALPHAS`, and the precision that they multiply by an independence Metropolis step, with the factors integrated out too:
given them it would hardly move either.

Where entries left out tell the noise (`held_out`), they tell how large the precisions of rows are on average; what rows
are beside each other their own residuals tell, with a precision of their own. Of Student noise they tell precision and
shape both (`tensorcep.cp.gibbs.method`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from tensorcep.core.executor import Executor
from tensorcep.cp.gibbs.auxiliary import room_for_stream
from tensorcep.cp.gibbs.held_out import HeldNoise, HeldOut, law_of_noise
from tensorcep.cp.gibbs.streams import Stream, generator, stream_key
from tensorcep.cp.model.parameters import Groups as Sharing
from tensorcep.cp.model.parameters import groups_of
from tensorcep.cp.model.problem import Problem
from tensorcep.kernels.special import LOG_SQRT_2PI
from tensorcep.likelihoods.parameter import Gamma
from tensorcep.likelihoods.uneven import (
    ALPHAS,
    Groups,
    best_tau,
    draw_factors,
    law_of_factors,
    log_evidence,
    log_evidences,
    sums_of_squares,
)

if TYPE_CHECKING:
    from tensorcep.cp.gibbs.state import GibbsState

# Where the shape starts in `ALPHAS`: noise is then hardly heavier than a normal law.
FIRST = 8
# The share of the burn-in in which noise is the same everywhere: factors of entries that are not explained yet would
# take them for outliers.
EVEN_SHARE = 0.25


class UnevenDraws(NamedTuple):
    """Present draws of every chain, changed in place.

    Attributes
    ----------
    mode : int or None
        The mode whose rows have a factor; None where entries have one.
    sharing : Groups
        Who shares a factor.
    base : (C,) float64
        The precision that factors multiply.
    place : (C,) int64
        The place of their shape in `ALPHAS`.
    own : (C,) float64
        The precision that the residuals of entries that take part tell; of rows alone.
    factor : (C, m) float64
        Those of rows; m = 0 for entries.
    of_entry : (C, n_blocks, LANES) float64
        Those of entries where targets are drawn beside them; else no blocks.
    by_sums : bool
        Whether the sums over the entries of each row say all: of rows that are drawn, of targets that are not.
    """

    mode: int | None
    sharing: Sharing
    base: np.ndarray
    place: np.ndarray
    own: np.ndarray
    factor: np.ndarray
    of_entry: np.ndarray
    by_sums: bool

    @property
    def both(self) -> np.ndarray:
        """Precision and shape of every chain, (C, 2)."""
        return np.stack([self.base, ALPHAS[self.place]], axis=1)

    def draw_dispersions(
        self, c: int, told: Groups, prior: tuple[float, float], rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Dispersions (m,) of chain c given what entries add to their laws, and mean and shape of their common law.

        The latter two are drawn first, the dispersions integrated out.
        """
        _draw_factors_of_rows(c, self, told, prior, rng)
        self.base[c] = self.own[c]
        return self.own[c] * self.factor[c], self.both[c]

    def of_chains(self, which: np.ndarray) -> UnevenDraws:
        """Those of these chains."""
        names = ("base", "place", "own", "factor", "of_entry")
        parts = {name: getattr(self, name) for name in names}
        return self._replace(**{name: part[which] if part.size else part for name, part in parts.items()})


def even_draws(problem: Problem, n_chains: int, tau: float, drawn: bool) -> UnevenDraws | None:
    """All factors at 1, to begin with, of the noise or of a dispersion; `drawn`: targets are."""
    if problem.uneven is None:
        return None
    mode, C = problem.uneven.mode, n_chains
    m = 0 if mode is None else problem.shape[mode]
    place, base = np.full(C, FIRST), np.full(C, tau)
    of_entry = np.ones((C, *problem.entries.y.shape)) if drawn and mode is None else np.zeros((C, 0, 0))
    by_sums = mode is not None and not drawn and not problem.is_fixed(mode)
    return UnevenDraws(mode, groups_of(problem, mode), base, place, base.copy(), np.ones((C, m)), of_entry, by_sums)


def draw_weights(c: int, state: GibbsState, problem: Problem, even: bool, executor: Executor) -> None:
    """The weights of the entries of chain c, those of entries drawn, and with them their targets; `even`: all are 1."""
    uneven: Any = state.uneven
    sites: Any = state.chains.sites
    entries, shape = problem.entries, problem.entries.y.shape
    weight, target = sites.weight.reshape(shape), sites.target.reshape(shape)
    values = entries.y if state.augmentation is None else target
    if even:
        weight[:] = 1.0
    elif uneven.mode is None:
        if not state.noise_held:
            _draw_shape_of_entries(c, state, problem, values)
        law = float(uneven.base[c]), float(ALPHAS[uneven.place[c]])
        key = stream_key(problem.seed, c, state.chains.sweeps, Stream.FACTORS)
        record = (values, entries.weight, state.f[c], law, key, weight)
        executor.run(draw_factors, 0, len(weight), *record, scratch=room_for_stream)
    else:
        weight[:] = (state.chains.theta[c] / uneven.base[c])[uneven.sharing.of_entry]
    np.multiply(weight, values, out=target)
    if uneven.of_entry.size:
        uneven.of_entry[c] = weight


def _draw_shape_of_entries(c: int, state: GibbsState, problem: Problem, values: np.ndarray) -> None:
    """A Metropolis step of the shape, factors integrated out, given the entries that take part."""
    uneven: Any = state.uneven
    used = _taking_part(state, problem) > 0.0
    groups = Groups(np.array(1.0), (values[used] - state.f[c][used]) ** 2)
    rng = generator(problem.seed, Stream.EVENNESS, state.chains.sweeps, c)
    now, tau = int(uneven.place[c]), float(uneven.base[c])
    new = neighbour(now, rng)
    if 0 <= new < len(ALPHAS):
        here, there = (log_evidence(groups, tau, float(ALPHAS[i])) for i in (now, new))
        if np.log(rng.random()) < there - here:
            uneven.place[c] = new


def neighbour(place: int, rng: np.random.Generator) -> int:
    """The place before or after one in `ALPHAS`."""
    return place + (1 if rng.random() < 0.5 else -1)


def _taking_part(state: GibbsState, problem: Problem) -> np.ndarray:
    """1 for the entries that the chains know, (n_blocks, LANES)."""
    if not state.leaves_out:
        return problem.entries.weight
    used = problem.entries.weight.copy()
    used.ravel()[state.held.place] = 0.0  # type: ignore[union-attr]
    return used


def draw_noise(c: int, state: GibbsState, problem: Problem, even: bool) -> None:
    """Draw precision, and the factors of rows and their shape, of chain c given its latent values and weights."""
    uneven: Any = state.uneven
    sites: Any = state.chains.sites
    used, shape = _taking_part(state, problem), state.f[c].shape
    weight, target = sites.weight.reshape(shape), sites.target.reshape(shape)
    some = used > 0.0
    weight, values = weight[some], target[some] / weight[some]
    squares = (values - state.f[c][some]) ** 2
    groups = None if uneven.mode is None else _row_groups(uneven, some, squares)
    _draw_noise(c, state, (len(squares), float(weight @ squares)), groups, even)


def draw_noise_of_entries(c: int, state: GibbsState, problem: Problem, even: bool, executor: Executor) -> float:
    """The same of noise that differs between entries whose values are given; gives their mean log likelihood."""
    sites: Any = state.chains.sites
    entries, shape = problem.entries, state.f[c].shape
    sums = np.empty((len(state.f[c]), 2))
    record = (entries.y, state.f[c], sites.weight.reshape(shape), _taking_part(state, problem), entries.weight, sums)
    executor.run(sums_of_squares, 0, len(sums), *record)
    n, (told, total) = len(entries.permutation), sums.sum(axis=0)
    used = n - (len(state.held.place) if state.leaves_out else 0)  # type: ignore[union-attr]
    _draw_noise(c, state, (used, float(told)), None, even)
    tau = float(state.chains.theta[c, 0])
    return 0.5 * np.log(tau) - LOG_SQRT_2PI - 0.5 * tau * float(total) / n if n else np.nan


def draw_noise_of_sums(c: int, state: GibbsState, squares: np.ndarray, even: bool) -> float:
    """The same from the sums of squared residuals over the entries of each row; gives their mean log likelihood."""
    uneven: Any = state.uneven
    theta, by_row = state.chains.theta[c].copy(), state.chains.by_row
    first = int(state.chains.small.entries.offsets[uneven.mode])
    rows = slice(first, first + len(theta))
    n = ((by_row.end if state.leaves_out else by_row.start[1:])[rows] - by_row.start[:-1][rows]).astype(float)
    total = float(n.sum())
    _draw_noise(c, state, (total, float(theta @ squares) / float(uneven.base[c])), Groups(n, squares), even)
    height = 0.5 * float(n @ np.log(theta)) - 0.5 * float(theta @ squares)
    return height / total - LOG_SQRT_2PI if total else np.nan


def _draw_noise(c: int, state: GibbsState, sums: tuple[float, float], groups: Groups | None, even: bool) -> None:
    """Draw them given the number of entries, the sum of weight times squared residual, and those of each row."""
    uneven: Any = state.uneven
    learned: Any = state.learned
    rng = generator(state.chains.small.seed, Stream.PRECISION, state.chains.sweeps, c)
    if groups is not None and not even:
        _draw_factors_of_rows(c, uneven, groups, learned.prior, rng)
    else:
        (a, b), (n, total) = learned.prior, sums
        uneven.own[c] = Gamma(np.array([a + 0.5 * n]), np.array([b + 0.5 * total])).draw(rng)[0]
    held = state.held if state.noise_held else None
    uneven.base[c] = uneven.own[c]
    if held is not None:
        uneven.base[c] = law_of_noise(held, int(held.alive[c]), learned.prior).draw(rng)[0]
    level = _level(c, uneven, held)
    state.chains.theta[c] = uneven.base[c] * (1.0 if uneven.mode is None else level * uneven.factor[c])
    state.chains.uneven[c] = uneven.both[c] * [level, 1.0]  # type: ignore[index]


def _row_groups(uneven: UnevenDraws, some: np.ndarray, squares: np.ndarray) -> Groups:
    """The entries that take part, of every row."""
    row, size = uneven.sharing.of_entry[some], uneven.sharing.size
    n = np.bincount(row, minlength=size).astype(float)
    return Groups(n, np.bincount(row, weights=squares, minlength=size))


def _draw_factors_of_rows(
    c: int, uneven: UnevenDraws, groups: Groups, prior: tuple[float, float], rng: np.random.Generator
) -> None:
    """Draw the shape given the precision, the precision given the shape, both without the factors, then these."""
    own = float(uneven.own[c])
    log_mass = log_evidences(groups, own)
    mass = np.cumsum(np.exp(log_mass - logsumexp(log_mass)))
    uneven.place[c] = min(int(np.searchsorted(mass, rng.random() * mass[-1])), len(ALPHAS) - 1)
    alpha = float(ALPHAS[uneven.place[c]])
    mode, k = best_tau(groups, prior, own, alpha)
    new = float(rng.gamma(k)) * mode / k

    def height(tau: float) -> float:  # of the density of log tau beside that of the proposal
        log_density = log_evidence(groups, tau, alpha) + prior[0] * np.log(tau) - prior[1] * tau
        return float(log_density - k * np.log(tau) + k * tau / mode)

    if new > 0.0 and np.log(rng.random()) < height(new) - height(own):
        uneven.own[c] = new
    a, b = law_of_factors(groups, float(uneven.own[c]), alpha)
    uneven.factor[c] = np.maximum(rng.gamma(a), np.finfo(float).tiny) / b


def _level(c: int, uneven: UnevenDraws, held: HeldOut | None) -> float:
    """What takes the factors of rows to a geometric mean of 1 over entries left out, where these tell the base."""
    if held is None or uneven.mode is None:
        return 1.0
    of_held = uneven.sharing.of_entry.ravel()[held.place]
    return float(np.exp(-np.log(uneven.factor[c][of_held]).mean()))


def of_held(state: GibbsState) -> HeldNoise | None:
    """What is known of the noise of the entries left out, beside their parameter."""
    uneven, held = state.uneven, state.held
    if uneven is None or held is None:
        return None
    if uneven.mode is not None:
        return HeldNoise(state.theta_at(held.place) / uneven.base[:, None], None)
    return HeldNoise(np.ones(held.mean.shape), ALPHAS[uneven.place][:, None])
