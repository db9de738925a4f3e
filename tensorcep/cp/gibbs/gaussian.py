"""Gibbs sampling of the CP model, for real values with Gaussian noise, censored or not, and for probit labels.

In every sweep of every chain: for labels (Albert and Chib 1993, JASA 88) and for censored values (Chib 1992, J.
Econometrics 51) a latent normal per entry, then the rows of one mode after the other, then the noise precision; each
given everything else, so that the posterior is the stationary law.

Source: Klami (2014), "Polya-Gamma augmentations for factor models" (PG) sec. 2.1 for order 2; the same conditionals
hold for any order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.core.belief import Draws, GammaNoise
from tensorcep.core.executor import Executor
from tensorcep.core.loop import Method, Sweep
from tensorcep.cp.gibbs.chains import (
    AUGMENTATION,
    Chains,
    collect,
    draw_factors,
    draw_priors,
    keep,
    latent_of_chain,
    start_chains,
    stream_key,
)
from tensorcep.cp.gibbs.held_out import HeldOut, hold_out, law_of_noise, update_noise
from tensorcep.cp.gibbs.sweep import draw_censored, draw_probit
from tensorcep.cp.limits import censored_lanes
from tensorcep.cp.model import Entries
from tensorcep.cp.problem import Problem
from tensorcep.cp.rows import relative_change, train_score
from tensorcep.cp.settings import sampling
from tensorcep.kernels.special import LOG_SQRT_2PI
from tensorcep.kernels.streams import new_stream

GibbsOptions = sampling.Gibbs


class GibbsState(NamedTuple):
    """Chains; latent values (C, n_blocks, LANES) of the entries; entries for the noise.

    There are no blocks of latent values where all values are observed.
    """

    chains: Chains
    f: np.ndarray
    held: HeldOut | None


def init(problem: Problem, options: GibbsOptions, executor: Executor) -> GibbsState:
    """Every chain at its start, the noise at the variance of the data."""
    entries, C = problem.entries, options.n_chains
    chains = start_chains(problem, options, np.full((C, 1), 1.0 / _spread(entries)))
    if problem.noise_prior is not None and not censored_lanes(problem).any():
        chains.target[:] = entries.y.ravel()
        leaves_out = options.noise == "held-out" and options.burn_in > 0
        held = hold_out(problem, C, _spread(entries)) if leaves_out else None
        return GibbsState(chains, np.zeros((C, 0, 0)), held)
    f = np.stack([latent_of_chain(chains, c, problem, executor) for c in range(C)])
    return GibbsState(chains, f, None)


def _spread(entries: Entries) -> float:
    """Variance of the data; of data that do not vary a thousandth of their mean square, or 1."""
    y = entries.y[entries.weight > 0]
    return max(float(y.var()), 1e-3 * float((y * y).mean())) or 1.0 if y.size else 1.0


def step(state: GibbsState, problem: Problem, options: GibbsOptions, executor: Executor) -> tuple[GibbsState, Sweep]:
    """One sweep of every chain; the figures are means over the chains, at their present draws."""
    chains, old = draw_priors(state.chains), state.chains.factors.copy()
    state = state._replace(chains=chains)
    left_out = _leave_out(state, problem, options)
    score = np.empty(options.n_chains)
    for c in range(options.n_chains):
        if problem.noise_prior is not None:
            score[c] = _real_values(state, c, problem, left_out, executor)
        else:
            score[c] = _labels(state, c, problem, executor)
    if state.held is not None and left_out:
        state = state._replace(held=update_noise(state.held, chains.sweeps, chains.factors, problem.entries.y))
    noise = float(chains.theta.mean()) if problem.noise_prior is not None else np.nan
    sweep = Sweep(relative_change(chains.factors, old), noise, 0, 0, float(score.mean()))
    return state._replace(chains=keep(chains, problem, options)), sweep


def _leave_out(state: GibbsState, problem: Problem, options: GibbsOptions) -> int:
    """Give the entries that this sweep leaves out the weight 0; gives their number."""
    chains, held = state.chains, state.held
    if held is None:
        return 0
    chains.weight[:] = 1.0
    left_out = chains.sweeps < options.burn_in
    if left_out:
        chains.weight[held.place] = 0.0
    chains.target[:] = problem.entries.y.ravel() * chains.weight
    return len(held.place) if left_out else 0


def _real_values(state: GibbsState, c: int, problem: Problem, left_out: int, executor: Executor) -> float:
    """Draw the rows and the noise precision of chain c; gives the mean log likelihood of the entries in the sweep."""
    chains, prior, n = state.chains, problem.noise_prior, len(problem.entries.permutation) - left_out
    censored = state.f.size > 0
    if censored:
        _draw_limits(state, c, problem, executor)
    squares = max(0.0, draw_factors(chains, c, problem, float(chains.theta[c, 0]), left_out > 0, executor))
    law = GammaNoise(prior.a + 0.5 * n, prior.b + 0.5 * squares)  # type: ignore[union-attr]
    if state.held is not None:
        law = law_of_noise(state.held, prior)  # type: ignore[arg-type]
    rng = np.random.default_rng([problem.seed, 2, chains.sweeps, c])
    chains.theta[c, 0] = rng.gamma(law.a) / law.b
    tau = float(chains.theta[c, 0])
    if censored:
        state.f[c] = latent_of_chain(chains, c, problem, executor)
        return train_score(problem, state.f[c], tau)
    return 0.5 * np.log(tau) - LOG_SQRT_2PI - 0.5 * tau * squares / n if n else np.nan


def _draw_limits(state: GibbsState, c: int, problem: Problem, executor: Executor) -> None:
    """Draw the latent normals of the censored entries of chain c."""
    chains, entries, f = state.chains, problem.entries, state.f[c]
    key, tau = stream_key(problem, c, chains.sweeps, AUGMENTATION), float(chains.theta[c, 0])
    target = chains.target.reshape(entries.y.shape)
    executor.over(
        len(f), lambda a, b: draw_censored(a, b, entries.y, entries.weight, f, tau, key, target, new_stream())
    )


def _labels(state: GibbsState, c: int, problem: Problem, executor: Executor) -> float:
    """Draw the latent normals and the rows of chain c; gives the mean log likelihood."""
    chains, entries, f = state.chains, problem.entries, state.f
    key = stream_key(problem, c, chains.sweeps, AUGMENTATION)
    target = chains.target.reshape(entries.y.shape)
    executor.over(len(f[c]), lambda a, b: draw_probit(a, b, entries.y, f[c], key, target, new_stream()))
    draw_factors(chains, c, problem, 1.0, False, executor)
    f[c] = latent_of_chain(chains, c, problem, executor)
    return train_score(problem, f[c], problem.likelihood.default_theta)


def finish(state: GibbsState, problem: Problem) -> Draws:
    """The draws kept, and those of the noise precision, which is that beside the draws of all chains."""
    draws, held = collect(state.chains, problem, None, problem.noise_prior is not None), state.held
    if held is None or draws.theta is None:
        return draws
    return draws._replace(theta=draws.theta * (held.noise / held.noise_of_mixture))


GIBBS = Method(
    name="gibbs",
    needs=(),
    options=GibbsOptions,
    init=init,
    step=step,
    finish=finish,
    source="Klami, Polya-Gamma augmentations for factor models, sec. 2.1; Albert and Chib (1993)",
    likelihoods=("gaussian", "tobit", "probit"),
    sampler=True,
    learns_prior=True,
    takes_limits=True,
)
