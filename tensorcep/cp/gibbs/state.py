"""What chains know beside the rows: scale mixtures of uneven noise, the state, and draws of auxiliary variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from tensorcep.core.arrays import room_of
from tensorcep.core.executor import Executor, Pass
from tensorcep.core.random import RandomStream, generator, new_stream, stream_key
from tensorcep.cp.calibration.holdout import HeldNoise, HeldOut, law_of_noise
from tensorcep.cp.calibration.predictive_noise import NoiseLaw
from tensorcep.cp.gibbs.chains import Chains, some_chains
from tensorcep.cp.gibbs.metropolis import Around, Judge, judge_of, match_sites
from tensorcep.cp.model.entries import EntriesByRow
from tensorcep.cp.model.parameters import Learned, groups_of, in_places_of, learned_levels, with_parameter
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.posterior.components import EntryTheta
from tensorcep.kernels.special import LOG_SQRT_2PI
from tensorcep.likelihoods.augmentation import Augmentation
from tensorcep.likelihoods.base import Likelihood
from tensorcep.likelihoods.parameters.base import Gamma
from tensorcep.likelihoods.parameters.base import Groups as Sharing
from tensorcep.likelihoods.parameters.dispersion import draw_tables, softplus, told
from tensorcep.likelihoods.parameters.scale_mixture import (
    ALPHAS,
    GroupSums,
    best_tau,
    draw_factors,
    law_of_factors,
    log_evidence,
    log_evidences,
    sums_of_squares,
)
from tensorcep.likelihoods.parameters.thresholds import LevelEntries, Levels, draw_thresholds
from tensorcep.likelihoods.parameters.zero_inflation import ZeroInflation, presence

# Noise that differs, in chains: draws of the factors of the noise precision, of that precision, and of their shape.
#
# Dispersions that differ between rows are drawn as the noise of rows is
# (`tensorcep.likelihoods.parameters.dispersion`).
#
# Given the squared residuals, shape and factors are drawn as one: the shape with the factors integrated out, then these
# (a shape given many factors would hardly move). Those of entries come before the rows and weigh the entries; a
# Metropolis step takes their shape to a neighbour in `ALPHAS`. Those of rows come after, their shape is drawn from all
# of `ALPHAS`, and the precision that they multiply by an independence Metropolis step, with the factors integrated out
# too: given them it would hardly move either.
#
# Where entries left out tell the noise (`tensorcep.cp.calibration.holdout`), they tell how large the precisions of rows
# are on average; what rows are beside each other their own residuals tell, with a precision of their own. Of Student
# noise they tell precision and shape both (`tensorcep.cp.gibbs.method`).

if TYPE_CHECKING:
    pass

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
        self, c: int, told: GroupSums, prior: tuple[float, float], rng: np.random.Generator
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
        key = stream_key(problem.seed, c, state.chains.sweeps, RandomStream.FACTORS)
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
    groups = GroupSums(np.array(1.0), (values[used] - state.f[c][used]) ** 2)
    rng = generator(problem.seed, RandomStream.EVENNESS, state.chains.sweeps, c)
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
    _draw_noise(c, state, (total, float(theta @ squares) / float(uneven.base[c])), GroupSums(n, squares), even)
    height = 0.5 * float(n @ np.log(theta)) - 0.5 * float(theta @ squares)
    return height / total - LOG_SQRT_2PI if total else np.nan


def _draw_noise(c: int, state: GibbsState, sums: tuple[float, float], groups: GroupSums | None, even: bool) -> None:
    """Draw them given the number of entries, the sum of weight times squared residual, and those of each row."""
    uneven: Any = state.uneven
    learned: Any = state.learned
    rng = generator(state.chains.small.seed, RandomStream.PRECISION, state.chains.sweeps, c)
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


def _row_groups(uneven: UnevenDraws, some: np.ndarray, squares: np.ndarray) -> GroupSums:
    """The entries that take part, of every row."""
    row, size = uneven.sharing.of_entry[some], uneven.sharing.size
    n = np.bincount(row, minlength=size).astype(float)
    return GroupSums(n, np.bincount(row, weights=squares, minlength=size))


def _draw_factors_of_rows(
    c: int, uneven: UnevenDraws, groups: GroupSums, prior: tuple[float, float], rng: np.random.Generator
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


# The state of a Gibbs sampler of the CP model, and what it gives to kernels.

NO_ENTRIES = EntriesByRow(
    start=np.zeros(1, dtype=np.int64),
    end=np.zeros(0, dtype=np.int64),
    entry=np.zeros(0, dtype=np.int32),
    value=np.zeros(0),
    others=np.zeros((0, 0), dtype=np.int32),
    chunks=(),
)


class GibbsState(NamedTuple):
    """The state of a sampler.

    Attributes
    ----------
    chains : Chains
    f : (C, n_blocks, LANES)
        Latent values of the entries; no blocks where no entry has an auxiliary variable.
    augmentation : Augmentation or None
        None where no entry has an auxiliary variable.
    learned : Learned or None
        What is learned of the likelihood.
    held : HeldOut or None
        Entries that the burn-in leaves out.
    noise_held : bool
        Whether these tell the noise.
    uneven, pooled : UnevenDraws or None
        Of noise that differs; of a dispersion that does.
    leaves_out : bool
        Whether the entries that the burn-in leaves out are left out at present.
    noise_law : NoiseLaw or None
        After the burn-in, how new observations differ from normal ones; None where these are normal.
    around : Around or None
        Of likelihoods that no variable makes Gaussian, the past of the latent values.
    """

    chains: Chains
    f: np.ndarray
    augmentation: Augmentation | None
    learned: Learned | None
    held: HeldOut | None
    noise_held: bool
    uneven: UnevenDraws | None = None
    leaves_out: bool = False
    noise_law: NoiseLaw | None = None
    pooled: UnevenDraws | None = None
    around: Around | None = None

    @property
    def learns_precision(self) -> bool:
        """Whether the entries have a precision that is learned."""
        return self.learned is not None and self.learned.parameter.is_precision

    def of_chains(self, which: np.ndarray) -> GibbsState:
        """That of these chains alone, before any draw is kept."""
        f = self.f
        if f.size and len(which) < len(f):
            f = room_of(self.f).empty((len(which), *self.f.shape[1:]))
            for own, c in zip(f, which, strict=True):
                own[:] = self.f[c]
        uneven, pooled = (None if own is None else own.of_chains(which) for own in (self.uneven, self.pooled))
        around = None if self.around is None else self.around.of_chains(which)
        chains = some_chains(self.chains, which)
        return self._replace(chains=chains, f=f, uneven=uneven, pooled=pooled, around=around)

    def left_out_of(self, problem: Problem) -> float:
        """How much the entries that are left out at present count."""
        if not self.leaves_out or self.held is None:
            return 0.0
        place = self.held.place
        return float(len(place) if problem.power is None else problem.power.ravel()[place].sum())

    def theta_at(self, place: np.ndarray) -> np.ndarray:
        """The likelihood's parameter of the entries at these places in every chain, (C, n)."""
        theta = self.chains.theta
        if self.learned is None or self.learned.groups.mode is None:
            return np.broadcast_to(theta[:, :1], (len(theta), len(place)))
        return theta[:, self.learned.groups.of_entry.ravel()[place]]

    def theta(self, c: int, shape: tuple[int, ...]) -> np.ndarray:
        """The likelihood's parameter of every entry in chain c, (n_blocks, LANES)."""
        theta = self.chains.theta[c]
        if self.learned is None or self.learned.groups.mode is None:
            of_all = room_of(self.f).empty(shape)
            of_all[:] = theta[0]
            return of_all
        return self.learned.groups.per_entry(theta)

    def given(self, c: int, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
        """What kernels take as y and theta of every entry in chain c, (n_blocks, LANES) each."""
        if problem.likelihood.levels is not None:
            return in_places_of(problem, problem.entries.y, self.chains.theta[c])
        entries = problem.entries
        return entries.y, entries.theta if len(entries.theta) else self.theta(c, entries.y.shape)

    def given_at(
        self, place: np.ndarray, problem: Problem, y: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same of the entries at these places, whose values are `y` (n,), in every chain, (C, n) each."""
        y, levels = problem.entries.y.ravel()[place] if y is None else y, problem.likelihood.levels
        if levels is None:
            theta, own = self.theta_at(place), problem.entries.theta
            theta = np.broadcast_to(own.ravel()[place], theta.shape) if len(own) else theta
            return np.broadcast_to(y, theta.shape), theta
        low, high = zip(*(levels.between(y, theta) for theta in self.chains.theta), strict=True)
        return np.stack(low), np.stack(high)

    def told_of(self, held: HeldOut, problem: Problem) -> tuple[tuple[np.ndarray, np.ndarray], Likelihood]:
        """The same of the entries that are left out, and the likelihood whose kernels take them.

        Of counts with structural zeros it is that of both kinds.
        """
        given, likelihood = self.given_at(held.place, problem, held.y), problem.likelihood
        if likelihood.zeros is None:
            return given, likelihood
        likelihood, theta = self.predictive_at(held.place, likelihood)
        return (given[0], theta), likelihood

    def predictive_at(self, place: np.ndarray, likelihood: Likelihood) -> tuple[Likelihood, np.ndarray]:
        """The likelihood of new observations at these places, and its parameter in every chain, (C, n)."""
        if learned_levels(likelihood) is None and likelihood.zeros is None:
            return likelihood, self.theta_at(place)
        found, theta = with_parameter(likelihood, EntryTheta(self.chains.theta))
        return found, np.broadcast_to(theta.values, (len(theta.values), len(place)))


def without_lists(state: GibbsState | None) -> GibbsState | None:
    """The state, if there is one, without the lists of the entries."""
    return state if state is None else state._replace(chains=state.chains._replace(by_row=NO_ENTRIES))


# Draws of what makes entries Gaussian in their latent values, of dispersions and of thresholds, given these values.

if TYPE_CHECKING:
    pass


def draw_presence(c: int, state: GibbsState, zeros: ZeroInflation, problem: Problem) -> np.ndarray:
    """Draw which zeros of chain c are structural given its latent values, and then their share.

    Gives how often every entry counts among the others, (n_blocks, LANES): 0 or 1.
    """
    chains, entries, f = state.chains, problem.entries, state.f[c]
    rng = generator(problem.seed, RandomStream.ZEROS, chains.sweeps, c)
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
    (a, b), groups = learned.prior, learned.groups
    key, tables = stream_key(problem.seed, c, chains.sweeps, RandomStream.TABLES), np.empty(f.shape)
    record = (entries.y, used, state.theta(c, f.shape), key, tables)
    executor.run(draw_tables, 0, len(f), *record, scratch=room_for_stream)
    soft = softplus(f)
    shape, rate = groups.totals(lambda at: tables[at]), groups.totals(lambda at: used[at] * soft[at])
    rng = generator(problem.seed, RandomStream.DISPERSION, chains.sweeps, c)
    if state.pooled is not None and learned.pool is not None:
        known = told(shape, rate), learned.pool.of, rng
        chains.theta[c], chains.uneven[c] = state.pooled.draw_dispersions(c, *known)  # type: ignore[index]
        return
    chains.theta[c, : groups.size] = Gamma(a + shape, b + rate).draw(rng)


def draw_cuts(c: int, state: GibbsState, levels: Levels, problem: Problem, executor: Executor) -> None:
    """Draw the thresholds of chain c given its latent values, latent normals integrated out."""
    chains, entries = state.chains, problem.entries
    rng = generator(problem.seed, RandomStream.THRESHOLDS, chains.sweeps, c)
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
    key = stream_key(problem.seed, c, chains.sweeps, RandomStream.AUGMENTATION)
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
        draw = Pass(augmentation.drawn, over="entries", entries=("y", "used", "theta"), changing=("f",))
        if augmentation.weighted:
            draw = draw._replace(changes=("target", "weight"))
        else:
            draw = draw._replace(changes=("target",), entries=(*draw.entries, "weight"))
        executor.run(draw, 0, len(f), *record, scratch=room_for_stream)
    if len(problem.entries.known):
        np.subtract(sites[1], sites[0] * problem.entries.known, out=sites[1])
    if state.around is None:
        return None
    return judge_of((y, theta), chains.by_row.entry, sites, problem, state.around.climbs(chains.sweeps))


def room_for_stream() -> tuple[np.ndarray]:
    """Room for the stream of one thread."""
    return (new_stream(),)
