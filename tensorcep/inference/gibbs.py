"""Gibbs sampling of the CP model, for real values with Gaussian noise and for labels with the probit link.

In every sweep of every chain: for labels a latent normal per entry (Albert and Chib 1993, JASA 88), then the rows of
one mode after the other, then the noise precision; each given everything else, so that the posterior is the stationary
law.

Source: Klami (2014), "Polya-Gamma augmentations for factor models" (PG) sec. 2.1 for order 2; the same conditionals
hold for any order. Where we differ: the prior is fixed, as in the other methods (no ARD).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tensorcep._checks import check_choice
from tensorcep.inference._chains import (
    AUGMENTATION,
    Chains,
    SamplerOptions,
    collect,
    draw_factors,
    draw_priors,
    keep,
    start_chains,
    stream_key,
)
from tensorcep.inference._gibbs_sweep import draw_probit
from tensorcep.inference._held_out import HeldOut, hold_out, law_of_noise, update_noise
from tensorcep.inference._rows import latent_of_entries, relative_change, train_score
from tensorcep.inference._run import Method, Problem, Sweep, Threads
from tensorcep.kernels.special import LOG_SQRT_2PI
from tensorcep.kernels.streams import new_stream
from tensorcep.models.cp import Entries
from tensorcep.posterior import Draws, GammaNoise


@dataclass(frozen=True)
class GibbsOptions(SamplerOptions):
    """Settings of `SamplerOptions`, and for real values that of the noise.

    Attributes
    ----------
    noise : {"held-out", "sampled"}
        "sampled" draws the noise precision given the rows, which is exact, and at ranks that can follow every entry
        ends at no noise. "held-out" takes it, in the burn-in, from a tenth of the entries that all chains leave out
        until then (see `tensorcep.inference._held_out`); with fewer than 500 entries or no burn-in it is "sampled".
    """

    noise: str = "held-out"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("noise", self.noise, ("held-out", "sampled"))


class GibbsState(NamedTuple):
    """Chains; latent values (C, n_blocks, LANES) of the entries, no blocks for real values; entries for the noise."""

    chains: Chains
    f: np.ndarray
    held: HeldOut | None


def init(problem: Problem, options: GibbsOptions, threads: Threads) -> GibbsState:
    """Every chain at its start, the noise at the variance of the data."""
    entries, C = problem.entries, options.n_chains
    chains = start_chains(problem, options, np.full((C, 1), 1.0 / _spread(entries)))
    if problem.noise_prior is not None:
        leaves_out = options.noise == "held-out" and options.first_kept > 0
        held = hold_out(problem, C, _spread(entries)) if leaves_out else None
        return GibbsState(chains, np.zeros((C, 0, 0)), held)
    f = np.stack([latent_of_entries(entries, chains.factors[c], threads) for c in range(C)])
    return GibbsState(chains, f, None)


def _spread(entries: Entries) -> float:
    """Variance of the data; of data that do not vary a thousandth of their mean square, or 1."""
    y = entries.y[entries.weight > 0]
    return max(float(y.var()), 1e-3 * float((y * y).mean())) or 1.0 if y.size else 1.0


def step(state: GibbsState, problem: Problem, options: GibbsOptions, threads: Threads) -> tuple[GibbsState, Sweep]:
    """One sweep of every chain; the figures are means over the chains, at their present draws."""
    chains, old = draw_priors(state.chains), state.chains.factors.copy()
    state = state._replace(chains=chains)
    score = np.empty(options.n_chains)
    for c in range(options.n_chains):
        if problem.noise_prior is not None:
            score[c] = _real_values(state, c, problem, options, threads)
        else:
            score[c] = _labels(state, c, problem, threads)
    if state.held is not None and chains.sweeps < options.first_kept:
        state = state._replace(held=update_noise(state.held, chains.sweeps, chains.factors, problem.entries.y))
    noise = float(chains.theta.mean()) if problem.noise_prior is not None else np.nan
    sweep = Sweep(relative_change(chains.factors, old), noise, 0, 0, float(score.mean()))
    return state._replace(chains=keep(chains, problem, options)), sweep


def _real_values(state: GibbsState, c: int, problem: Problem, options: GibbsOptions, threads: Threads) -> float:
    """Draw the rows and the noise precision of chain c; gives the mean log likelihood of what it fits."""
    chains, prior, y, held = state.chains, problem.noise_prior, problem.entries.y, state.held
    leaves_out = held is not None and chains.sweeps < options.first_kept
    chains.weight[:] = 1.0
    if leaves_out:
        chains.weight[held.place] = 0.0  # type: ignore[union-attr]
    chains.target[:-1] = y.ravel() * chains.weight[:-1]
    n = len(problem.entries.permutation) - (len(held.place) if leaves_out else 0)  # type: ignore[union-attr]
    squares = max(0.0, draw_factors(chains, c, problem, float(chains.theta[c, 0]), leaves_out, threads))
    if held is None:
        law = GammaNoise(prior.a + 0.5 * n, prior.b + 0.5 * squares)  # type: ignore[union-attr]
    else:
        law = law_of_noise(held, prior)  # type: ignore[arg-type]
    rng = np.random.default_rng([problem.seed, 2, chains.sweeps, c])
    chains.theta[c, 0] = rng.gamma(law.a) / law.b
    tau = float(chains.theta[c, 0])
    return 0.5 * np.log(tau) - LOG_SQRT_2PI - 0.5 * tau * squares / n if n else np.nan


def _labels(state: GibbsState, c: int, problem: Problem, threads: Threads) -> float:
    """Draw the latent normals and the rows of chain c; gives the mean log likelihood."""
    chains, entries, f = state.chains, problem.entries, state.f
    key = stream_key(problem, c, chains.sweeps, AUGMENTATION)
    target = chains.target[:-1].reshape(entries.y.shape)
    threads.over(len(f[c]), lambda a, b: draw_probit(a, b, entries.y, f[c], key, target, new_stream()))
    draw_factors(chains, c, problem, 1.0, False, threads)
    f[c] = latent_of_entries(entries, chains.factors[c], threads)
    return train_score(problem, f[c], problem.likelihood.default_theta)


def finish(state: GibbsState, problem: Problem) -> Draws:
    """The draws kept, and those of the noise precision."""
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
    likelihoods=("gaussian", "probit"),
    sampler=True,
    learns_prior=True,
    clamps_columns=True,
)
