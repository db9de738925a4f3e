"""Gibbs sampling of the CP model: every chain draws, in every sweep, each part given everything else.

In the burn-in chains leave some entries out, which then tell how far each chain is to be believed
(`tensorcep.cp.calibration.holdout`).

For likelihoods that are not Gaussian in f an auxiliary variable per entry (`tensorcep.likelihoods.augmentation`), then
the rows of one mode after the other, then the precision of the entries, where there is one. A dispersion comes first,
given the latent values, with the auxiliary variables integrated out: drawn given an old variable, whose law depends on
it, it would change the stationary law. So do the thresholds of ordered levels, and, before all, which zeros of counts
are structural, and their share.

Two samplers differ in the auxiliary variable alone. "gibbs" has normal latent values: real values, censored or not
(Chib 1992), and probit labels (Albert and Chib 1993). "pg-gibbs" has Polya-Gamma variables: labels with the logit link,
negative-binomial counts.

Source: Klami (2014), "Polya-Gamma augmentations for factor models" (PG) sec. 2.1, 3-4 and 6, for order 2; Zhou, Li,
Dunson and Carin (2012) for r. Where we differ: any order; the partially collapsed order above; r ~ Gamma(a + sum of
tables, rate b + sum log(1 + e^f)), of the entries of each row where rows have one each (Zhou and Carin 2015), whose a
and b are drawn with all r integrated out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tensorcep.core.arrays import mean_square, room_of, variance
from tensorcep.core.executor import Executor
from tensorcep.core.loop import Capabilities, Method, Sweep
from tensorcep.core.random import RandomStream, generator
from tensorcep.cp.calibration.holdout import (
    Beside,
    HeldOut,
    hold_out,
    law_of_noise,
    promising,
    ratio_beside_limits,
    some_of,
    update_held,
    weighed,
)
from tensorcep.cp.calibration.predictive_noise import noise_law_of, with_factors
from tensorcep.cp.calibration.shrinkage import is_shrunk, shrunk, with_constant
from tensorcep.cp.gibbs.chains import (
    collect,
    draw_factors,
    draw_priors,
    keep,
    latent_of_chain,
    start_chains,
)
from tensorcep.cp.gibbs.metropolis import first_around
from tensorcep.cp.gibbs.sites import RowNoise
from tensorcep.cp.gibbs.state import (
    EVEN_SHARE,
    GibbsState,
    UnevenDraws,
    draw_cuts,
    draw_dispersion,
    draw_noise,
    draw_noise_of_entries,
    draw_noise_of_sums,
    draw_presence,
    draw_sites,
    draw_weights,
    even_draws,
    neighbour,
    of_held,
    without_lists,
)
from tensorcep.cp.model.latent import relative_change
from tensorcep.cp.model.parameters import Learned, learned_levels, learned_parameter, told_of_theta
from tensorcep.cp.model.problem import Problem, weights_of_entries
from tensorcep.cp.model.rows import augmentation_in_use, train_score
from tensorcep.cp.posterior.belief import Draws
from tensorcep.cp.settings.sampling import Gibbs, PGGibbs
from tensorcep.kernels.special import LOG_SQRT_2PI
from tensorcep.likelihoods.parameters.base import Gamma
from tensorcep.likelihoods.parameters.scale_mixture import ALPHAS, same_size, seen_through
from tensorcep.likelihoods.parameters.thresholds import LevelEntries, law_of_thresholds
from tensorcep.likelihoods.parameters.zero_inflation import with_zeros

# Rows that can follow half of their entries would take the others for outliers: Student noise, its precision and shape,
# is told by entries that the burn-in leaves out: by so many at most; how often, in sweeps; the steps of EM each time,
# and at the end of the burn-in; and the relative change that ends these.
TELLING, EVERY, EM_STEPS, LAST_STEPS, SETTLED = 1000, 4, 3, 200, 1e-4


def init(kind: str, problem: Problem, options: Any, executor: Executor) -> GibbsState:
    """Every chain at its start, a precision at that of the data, any other parameter at its own start.

    `kind` names the augmentation of the likelihood that is used.
    """
    C = options.n_chains
    learned, spread = learned_parameter(problem, options), _spread(problem)
    start = _start(learned, problem, spread)
    augmentation = augmentation_in_use(getattr(problem.likelihood, kind), problem)
    drawn = augmentation is not None
    uneven, pooled = even_draws(problem, C, start, drawn), None
    if uneven is not None and learned is not None and not learned.parameter.is_precision:
        uneven, pooled = None, uneven
    drawn = drawn or (uneven is not None and not uneven.by_sums)
    if learned is not None and uneven is not None:
        learned = learned._replace(groups=uneven.sharing)
    theta = np.full((C, 1 if learned is None else learned.groups.size), start)
    levels, zeros = learned_levels(problem.likelihood), problem.likelihood.zeros
    if levels is not None:
        theta = np.tile(levels.start, (C, 1))
    if zeros is not None:
        theta = np.append(theta, np.full((C, 1), zeros.start), axis=1)
    held = _held_out(problem, options, spread)
    left_out = None if held is None else held.place
    chains = start_chains(problem, options, theta, drawn, left_out, executor)
    f = np.zeros((C, 0, 0))
    if drawn:
        f = room_of(problem.entries.y).empty((C, *problem.entries.y.shape))
        for c in range(C):
            f[c] = latent_of_chain(chains, c, problem, executor)
    if levels is not None:  # where the rows ask for them: rows that meet others lose their components
        for c in range(C):
            known = LevelEntries(problem.entries.y, problem.entries.weight, f[c])
            chains.theta[c] = law_of_thresholds(levels, levels.start, known, executor).thresholds
    for own in (uneven, pooled):
        chains = chains if own is None else chains._replace(uneven=own.both)
    state = GibbsState(chains, f, augmentation, learned, held, False, uneven, pooled=pooled)
    by_held = augmentation is None and state.learns_precision and options.noise == "held-out"
    around = first_around(f, options.burn_in) if augmentation is not None and augmentation.matched else None
    return state._replace(noise_held=by_held and held is not None and held.tells_noise, around=around)


def _held_out(problem: Problem, options: Any, noise: float) -> HeldOut | None:
    """The entries that the burn-in leaves out, if it is to leave some out, and the noise to start with."""
    stacked = options.n_chains > 1 and options.weights == "stacked"
    wanted = stacked or getattr(options, "noise", "sampled") == "held-out"
    return hold_out(problem, options.n_chains, noise) if wanted and options.burn_in > 0 else None


def _start(learned: Learned | None, problem: Problem, spread: float) -> float:
    """Where the parameter of the likelihood starts, given the variance of the data."""
    if learned is None:
        return problem.likelihood.default_theta
    start = learned.parameter.start
    return 1.0 / spread if start is None else start


def _spread(problem: Problem) -> float:
    """Variance of the data; of data that do not vary a thousandth of their mean square, or 1."""
    y, weight = problem.entries.y.ravel()[: len(problem.entries.permutation)], weights_of_entries(problem)
    return max(variance(y, weight), 1e-3 * mean_square(y, weight)) or 1.0 if y.size else 1.0


def step(state: GibbsState, problem: Problem, options: Any, executor: Executor) -> tuple[GibbsState, Sweep]:
    """One sweep of every chain; the figures are means over the chains, at their present draws."""
    sweeps = state.chains.sweeps
    if state.held is not None and sweeps == options.burn_in and state.held.weights is None:
        state = with_weights(state, problem, options)
    chains, old = draw_priors(state.chains), state.chains.factors.copy()
    left_out = state.held if sweeps < options.burn_in else None
    state = state._replace(chains=chains, leaves_out=left_out is not None)
    even = sweeps < EVEN_SHARE * options.burn_in
    if chains.sites is None:
        score = np.array(executor.apart(_sweep_chain, len(chains.factors), state, problem, even))
    else:  # chains take turns with the room for sites
        score = np.array([_sweep_chain(c, state, problem, even, executor) for c in range(len(chains.factors))])
    change = relative_change(chains.factors, old)
    del old  # a draw may be kept in its place
    if left_out is not None:
        uneven, (given, likelihood) = None if even else of_held(state), state.told_of(left_out, problem)
        held = update_held(left_out, sweeps, options.burn_in, chains.factors, given, likelihood, uneven)
        held = held if even else told_by_held(state, held, sweeps, problem.seed)
        state = state._replace(held=held)
        which = promising(held, sweeps, options.burn_in, problem.likelihood)
        if options.weights == "stacked" and len(which) < len(held.mean):
            state = state.of_chains(which)._replace(held=some_of(held, which))
            chains = state.chains
    noise = float(chains.theta.mean()) if state.learns_precision else np.nan
    sweep = Sweep(change, noise, 0, 0, float(score.mean()))
    return state._replace(chains=keep(chains, problem, options)), sweep


def with_weights(
    state: GibbsState, problem: Problem, options: Any, beside: Sequence[Beside] = (), before: Any = 0.0
) -> GibbsState:
    """At the end of the burn-in: the chains that go on, and how far each, and each fit beside them, is believed.

    `before` is what the fits beside them count unless the entries left out say otherwise.
    """
    held = weighed(state.held, options, beside, before)  # type: ignore[arg-type]
    if state.uneven is not None and state.uneven.mode is None and state.noise_held:
        held = held._replace(noise_ratio=ratio_of_student(held, state, beside))
    if problem.likelihood.censored:
        told = held.beside.any() and state.uneven is None
        ratio = ratio_beside_limits(held.y, problem.likelihood, beside, held.beside) if told else 1.0
        held = held._replace(noise_ratio=ratio)
    if options.weights == "stacked" and is_shrunk(problem.likelihood):
        held = shrunk(held, problem)
    law = noise_law_of(held) if state.noise_held and state.uneven is None else None
    return state.of_chains(held.alive)._replace(held=held, noise_law=law)


def _sweep_chain(c: int, state: GibbsState, problem: Problem, even: bool, executor: Executor) -> float:
    """Draw everything of chain c once; gives the mean log likelihood of the entries in the sweep."""
    chains, augmentation = state.chains, state.augmentation
    zeros, present = problem.likelihood.zeros, None
    if zeros is not None:
        present = draw_presence(c, state, zeros, problem)
    if state.learned is not None and not state.learns_precision:
        used = problem.entries.weight if present is None else present
        draw_dispersion(c, state, state.learned, problem, executor, used)
    levels = learned_levels(problem.likelihood)
    if levels is not None:
        draw_cuts(c, state, levels, problem, executor)
    judge = None if augmentation is None else draw_sites(c, state, augmentation, problem, executor, present)
    if state.uneven is not None:
        return _sweep_uneven(c, state, state.uneven, problem, even, executor)
    n = float(len(problem.entries.permutation) if problem.power is None else problem.power.sum())
    n -= state.left_out_of(problem)
    precision = float(chains.theta[c, 0]) if state.learns_precision else 1.0
    weighted = problem.power is not None or (augmentation is not None and augmentation.weighted)
    how = (executor, weighted, state.leaves_out)
    squares = max(0.0, float(draw_factors(chains, c, problem, precision, *how, judge=judge).sum()))
    if augmentation is not None:
        state.f[c] = latent_of_chain(chains, c, problem, executor)
    if state.learned is not None and state.learns_precision:
        _draw_precision(c, state, state.learned, squares, n, problem.seed)
    if augmentation is not None:
        y, theta = state.given(c, problem)
        mixed = None if present is None else partial(with_zeros, share=float(chains.theta[c, -1]))
        return train_score(problem, state.f[c], theta, y, mixed)
    tau = float(chains.theta[c, 0])
    return 0.5 * np.log(tau) - LOG_SQRT_2PI - 0.5 * tau * squares / n if n else np.nan


def _sweep_uneven(
    c: int, state: GibbsState, uneven: UnevenDraws, problem: Problem, even: bool, executor: Executor
) -> float:
    """The same where noise differs, from the rows on."""
    chains = state.chains
    if uneven.by_sums:
        noise = RowNoise(uneven.sharing.mode, chains.theta[c])  # type: ignore[arg-type]
        sums = draw_factors(chains, c, problem, 1.0, executor, False, state.leaves_out, noise)
        return draw_noise_of_sums(c, state, np.maximum(sums, 0.0), even)
    draw_weights(c, state, problem, even, executor)
    draw_factors(chains, c, problem, float(uneven.base[c]), executor, True, state.leaves_out)
    state.f[c] = latent_of_chain(chains, c, problem, executor)
    if uneven.mode is None and state.augmentation is None:
        return draw_noise_of_entries(c, state, problem, even, executor)
    draw_noise(c, state, problem, even)
    return train_score(problem, state.f[c], state.theta(c, state.f[c].shape))


def _draw_precision(c: int, state: GibbsState, learned: Learned, squares: float, n: float, seed: int) -> None:
    """Draw the precision of chain c given the squares of what its rows leave of the targets of n entries."""
    a, b = learned.prior
    law = Gamma(np.array([a + 0.5 * n]), np.array([b + 0.5 * squares]))
    if state.held is not None and state.noise_held:
        law = law_of_noise(state.held, int(state.held.alive[c]), learned.prior)
    state.chains.theta[c] = law.draw(generator(seed, RandomStream.PRECISION, state.chains.sweeps, c))


def finish(state: GibbsState, problem: Problem) -> Draws:
    """The draws kept, those of the constant unless fits beside the chains have draws, and of what else was learned.

    A noise precision from entries left out is that beside all draws.
    """
    learned, held = state.learned, state.held
    mode = None if learned is None else learned.groups.mode
    shares = None if held is None or held.weights is None else held.weights[held.alive] / held.heaviest
    levels = learned_levels(problem.likelihood)
    has_share = problem.likelihood.zeros is not None
    draws = collect(state.chains, problem, mode, learned is not None or levels is not None or has_share, shares)
    draws = draws._replace(**told_of_theta(problem.likelihood))
    if held is None:
        return draws
    if state.noise_held and draws.theta is not None:
        draws = draws._replace(theta=draws.theta / held.noise_ratio)
        if draws.uneven is not None:
            draws = draws._replace(uneven=draws.uneven / [held.noise_ratio, 1.0])
    draws = draws if held.beside.any() else with_constant(draws, held, problem.free, problem.prior)
    return with_factors(draws, state.noise_law)


def told_by_held(state: GibbsState, held: HeldOut, sweep: int, seed: int) -> HeldOut:
    """Precision and shape of Student noise by the entries left out, every few sweeps: the shape is changed in place."""
    uneven, noise = state.uneven, held.noise.copy()
    if uneven is None or uneven.mode is not None or not state.noise_held or sweep % EVERY:
        return held
    for c in range(len(noise)):
        rng, alpha = generator(seed, RandomStream.EVENNESS, sweep, c), float(ALPHAS[uneven.place[c]])
        telling = _telling(held, held.mean[c], held.spread[c])
        tau = _better(telling, 1.0 / float(noise[c]), alpha, EM_STEPS)
        new = neighbour(int(uneven.place[c]), rng)
        if 0 <= new < len(ALPHAS):
            there = same_size(tau, alpha, float(ALPHAS[new]))
            gain = seen_through(*telling, there, float(ALPHAS[new]))[0] - seen_through(*telling, tau, alpha)[0]
            if np.log(rng.random()) < gain:
                uneven.place[c], tau = new, there
        noise[c] = 1.0 / tau
    return held._replace(noise=noise)


def _telling(held: HeldOut, mean: np.ndarray, spread: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Squared residuals and variances of means of some of the entries left out."""
    some = slice(None, None, -(-len(held.y) // TELLING))
    return (held.y - mean)[some] ** 2, np.maximum(spread[some], 0.0)


def _better(telling: tuple[np.ndarray, np.ndarray], tau: float, alpha: float, steps: int) -> float:
    """tau after steps of EM."""
    for _ in range(steps):
        old, tau = tau, seen_through(*telling, tau, alpha)[1]
        if abs(tau - old) < SETTLED * tau:
            break
    return tau


def ratio_of_student(held: HeldOut, state: GibbsState, beside: Sequence[Beside]) -> float:
    """The noise variance given the draws of all chains and fits, beside that given one."""
    uneven: Any = state.uneven
    weights = np.append(held.weights, held.beside)  # type: ignore[arg-type]
    alphas = np.append(ALPHAS[uneven.place], [one.alpha for one in beside])
    noises = np.append(held.noise, [one.noise for one in beside])
    common = float(np.exp(weights @ np.log(alphas)))
    own = [1.0 / same_size(1.0 / n, a, common) for n, a in zip(noises.tolist(), alphas.tolist(), strict=True)]
    noise = float(weights @ np.array(own))
    telling = _telling(held, held.mean_of_all, held.spread_of_all)
    return 1.0 / (noise * _better(telling, 1.0 / noise, common, LAST_STEPS))


def _takes_powers(problem: Problem) -> bool:
    """Whether entries may count as any number: normals that labels or limits hide have no such power."""
    normal = problem.likelihood.normal
    return problem.likelihood.levels is None and (normal is None or augmentation_in_use(normal, problem) is None)


GIBBS = Method(
    name="gibbs",
    needs=("mean_field",),
    options=Gibbs,
    init=partial(init, "mean_field"),
    step=step,
    finish=finish,
    source="Klami, Polya-Gamma augmentations for factor models, sec. 2.1; Albert and Chib (1993)",
    capabilities=Capabilities(
        sampler=True,
        learns_prior=True,
        side_information=True,
        local=True,
        censors=True,
        censors_spikes=True,
        thresholds=True,
        heteroscedastic=("noise", "dispersion"),
        weights=_takes_powers,
        stores=lambda likelihood: likelihood.normal is not None,
        fixes_rows=True,
        workers=True,
        proposes_rows=lambda likelihood: likelihood.normal is None,
    ),
    ended=without_lists,
)
PG_GIBBS = replace(
    GIBBS,
    name="pg-gibbs",
    needs=("pg",),
    options=PGGibbs,
    capabilities=GIBBS.capabilities._replace(
        structural_zeros=True,
        heteroscedastic=("dispersion",),
        stores=lambda likelihood: likelihood.extent is None,
        proposes_rows=lambda likelihood: False,
    ),
    init=partial(init, "pg"),
    source="Klami, Polya-Gamma augmentations for factor models, sec. 3-4 and 6",
)
