"""Gibbs sampling by Polya-Gamma augmentation: labels with the logit link, negative-binomial counts.

In every sweep of every chain: for counts the dispersion r given the latent values with omega integrated out (through
the numbers of tables of a Chinese restaurant), then omega ~ PG(count, f) of every entry, then the rows of one mode
after the other. The order matters: r drawn given an old omega, whose law depends on r, would change the stationary law.

Source: Klami (2014), "Polya-Gamma augmentations for factor models" (PG) sec. 3-4 and 6, for order 2; Zhou, Li, Dunson
and Carin (2012) for r. Where we differ: any order; the partially collapsed order above; r ~ Gamma(a + sum of tables,
rate b + sum log(1 + e^f)).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.core.belief import Draws
from tensorcep.core.executor import Executor
from tensorcep.core.loop import Method, Sweep
from tensorcep.cp.dispersion import (
    DISPERSION_START,
    Groups,
    check_dispersion_mode,
    groups_of,
    has_dispersion,
)
from tensorcep.cp.gibbs.chains import (
    AUGMENTATION,
    TABLES,
    Chains,
    collect,
    draw_factors,
    draw_priors,
    keep,
    latent_of_chain,
    start_chains,
    stream_key,
)
from tensorcep.cp.gibbs.sweep import draw_omega, draw_tables
from tensorcep.cp.problem import Problem
from tensorcep.cp.rows import relative_change, train_score
from tensorcep.cp.settings import sampling
from tensorcep.kernels.streams import new_stream

PGGibbsOptions = sampling.PGGibbs


class PGGibbsState(NamedTuple):
    """Chains, latent values (C, n_blocks, LANES) of the entries at their rows, and which entries share a dispersion."""

    chains: Chains
    f: np.ndarray
    groups: Groups


def init(problem: Problem, options: PGGibbsOptions, executor: Executor) -> PGGibbsState:
    """Every chain at its start, the dispersion at DISPERSION_START."""
    check_dispersion_mode(options.dispersion_mode, problem)
    groups = groups_of(problem, options.dispersion_mode if has_dispersion(problem) else None)
    start = DISPERSION_START if has_dispersion(problem) else problem.likelihood.default_theta
    chains = start_chains(problem, options, np.full((options.n_chains, groups.size), start))
    f = np.stack([latent_of_chain(chains, c, problem, executor) for c in range(options.n_chains)])
    return PGGibbsState(chains, f, groups)


def step(
    state: PGGibbsState, problem: Problem, options: PGGibbsOptions, executor: Executor
) -> tuple[PGGibbsState, Sweep]:
    """One sweep of every chain; the figures are means over the chains, at their present draws."""
    chains, old = draw_priors(state.chains), state.chains.factors.copy()
    state = state._replace(chains=chains)
    score = np.empty(options.n_chains)
    for c in range(options.n_chains):
        if has_dispersion(problem):
            _draw_dispersion(state, c, problem, options, executor)
        _draw_omega(state, c, problem, executor)
        draw_factors(chains, c, problem, 1.0, True, executor)
        state.f[c] = latent_of_chain(chains, c, problem, executor)
        score[c] = train_score(problem, state.f[c], chains.theta[c][state.groups.of_entry])
    sweep = Sweep(relative_change(chains.factors, old), np.nan, 0, 0, float(score.mean()))
    return state._replace(chains=keep(chains, problem, options)), sweep


def _draw_dispersion(
    state: PGGibbsState, c: int, problem: Problem, options: PGGibbsOptions, executor: Executor
) -> None:
    """Draw the dispersions of chain c given its latent values, omega integrated out."""
    chains, entries, groups, f = state.chains, problem.entries, state.groups, state.f[c]
    r = chains.theta[c][groups.of_entry]
    key = stream_key(problem, c, chains.sweeps, TABLES)
    tables = np.empty(f.shape)
    executor.over(len(f), lambda a, b: draw_tables(a, b, entries.y, r, entries.weight, key, tables, new_stream()))
    a, b = options.dispersion_prior
    shape = a + groups.totals(tables)
    rate = b + groups.totals(entries.weight * np.logaddexp(0.0, f))
    rng = np.random.default_rng([problem.seed, 3, chains.sweeps, c])
    chains.theta[c] = np.maximum(rng.gamma(shape), np.finfo(float).tiny) / rate


def _draw_omega(state: PGGibbsState, c: int, problem: Problem, executor: Executor) -> None:
    """Set the weights omega of chain c and the targets kappa."""
    chains, entries, f, pg = state.chains, problem.entries, state.f[c], problem.likelihood.pg
    r = chains.theta[c][state.groups.of_entry]
    count = pg.trials(entries.y, r) * entries.weight  # type: ignore[union-attr]
    chains.target[:] = (pg.kappa(entries.y, r) * entries.weight).ravel()  # type: ignore[union-attr]
    weight = chains.weight.reshape(f.shape)
    key = stream_key(problem, c, chains.sweeps, AUGMENTATION)
    executor.over(len(f), lambda a, b: draw_omega(a, b, count, f, key, weight, new_stream()))


def finish(state: PGGibbsState, problem: Problem) -> Draws:
    """The draws kept, and those of the dispersion."""
    return collect(state.chains, problem, state.groups.mode, has_dispersion(problem))


PG_GIBBS = Method(
    name="pg-gibbs",
    needs=("pg",),
    options=PGGibbsOptions,
    init=init,
    step=step,
    finish=finish,
    source="Klami, Polya-Gamma augmentations for factor models, sec. 3-4 and 6",
    sampler=True,
    learns_prior=True,
)
