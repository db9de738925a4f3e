"""Gibbs sampling for relations: Gaussian, Bernoulli and negative-binomial, with and without an explicit noise.

Source: Klami (2014), sections 2.1, 4.1.1, 4.2.1 and 4.3. The precisions are drawn given the loadings; the paper's
variant with their posterior variances added is no Gibbs step and is not here.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tensorcep.core.executor import Executor
from tensorcep.core.loop import Capabilities, Method, Sweep
from tensorcep.core.packing import pack
from tensorcep.factor_models.problem import RelationDraws, RelationPosterior, RelationProblem, SiteInputs, Sites, State
from tensorcep.factor_models.settings import Gibbs
from tensorcep.factor_models.side_information import Moments
from tensorcep.kernels.rows import draw_rows
from tensorcep.kernels.slots import LANES
from tensorcep.likelihoods.parameters.base import gammas_at

NO_SITES = Sites(np.zeros((1, 1)), np.zeros((1, 1)))
# What is kept of a sweep: rows and precisions of every entity, noise and dispersion of every relation.
Draw: TypeAlias = "tuple[tuple[np.ndarray | None, ...], ...]"


class Chain(NamedTuple):
    """The values of one sweep, and those kept."""

    state: State  # rows as moments without covariance; latent values with psi where there is explicit noise
    rng: np.random.Generator  # of the few numbers that are not drawn in compiled code
    sweep: int
    kept: tuple[Draw, ...]


def init(problem: RelationProblem, settings: Gibbs, executor: Executor) -> Chain:
    """The given means as the first draw, unit noise, the prior mean of r."""
    moments = tuple(_as_moments(mean) for mean in problem.start)
    precisions = tuple(gammas_at(entity.precision) for entity in problem.entities)
    values = [relation.products(moments, executor) for relation in problem.relations]
    state = State(moments, precisions, (NO_SITES,) * len(values), tuple((f, f) for f in values))
    return Chain(state, np.random.default_rng(problem.seed), 0, ())


def _as_moments(rows: np.ndarray) -> Moments:
    C = rows.shape[1]
    return Moments(rows, np.zeros((1, C * (C + 1) // 2)), False)


def step(chain: Chain, problem: RelationProblem, settings: Gibbs, executor: Executor) -> tuple[Chain, Sweep]:
    """One sweep: auxiliary variables, then rows and precisions, entity by entity."""
    state, skipped = chain.state, 0
    for index, relation in enumerate(problem.relations):  # its parameters and auxiliary variables given the rows
        # streams of relations are seed + 2 index and + 1; those of entities count down from seed - 1
        f, psi = state.latent[index]
        old, streams = state.sites[index], (chain.rng, problem.seed + 2 * index, chain.sweep)
        draw: Any = relation.kind.form.drawn
        sites, psi = draw(SiteInputs(relation, problem.priors, f, psi, old, *streams, executor))
        state = state.with_relation(index, (f, psi), sites)
    for e, entity in enumerate(problem.entities):
        if problem.frozen[e] is not None or not any(e in (own.row, own.col) for own in problem.relations):
            continue
        n, free, (a0, b0) = entity.n_rows, entity.free, problem.precision_prior
        Lam, eta = state.natural_parameters(problem, e, executor)
        free_rows, good = np.empty((n, len(free))), np.empty(n)
        seed, line = (problem.seed - 1 - e) % 2**63, np.minimum(np.arange(n), len(Lam) - 1)
        key = seed, chain.sweep
        executor.run(draw_rows, 0, -(-n // LANES), line, Lam, np.ascontiguousarray(eta), *key, free_rows, good)
        rows = state.moments[e].mean.copy()
        rows[:, free] = np.where(good[:, None] > 0.0, free_rows, rows[:, free])
        skipped += int(np.count_nonzero(good == 0.0))  # without a positive definite precision
        precision = chain.rng.gamma(a0 + 0.5 * n, size=rows.shape[1]) / (b0 + 0.5 * (rows**2).sum(axis=0))
        precisions = gammas_at(np.where(entity.learned, precision, entity.precision))
        state = state.with_entity(e, _as_moments(rows), precisions)
    values = [relation.products(state.moments, executor) for relation in problem.relations]
    latent = tuple((f, psi) for f, (_, psi) in zip(values, state.latent, strict=True))
    changes = [  # root mean square change, relative to the root mean square
        float(np.sqrt(np.mean((new - old) ** 2)) / (np.sqrt(np.mean(new**2)) + 1e-300))
        for (new, _), (old, _) in zip(latent, chain.state.latent, strict=True)
    ]
    state, sweep = state._replace(latent=latent), chain.sweep + 1
    due = sweep > settings.burn_in and (sweep - settings.burn_in) % settings.thin == 0
    kept = (*chain.kept, _draw_of(state)) if due else chain.kept
    return Chain(state, chain.rng, sweep, kept), Sweep(max(changes), state.first_noise(), skipped)


def _draw_of(state: State) -> Draw:
    return (
        tuple(moments.mean for moments in state.moments),
        tuple(precision.mean for precision in state.precisions),
        tuple(None if sites.noise is None else sites.noise.mean for sites in state.sites),
        tuple(None if sites.r is None else sites.r.mean for sites in state.sites),
    )


def finish(chain: Chain, problem: RelationProblem) -> RelationPosterior:
    """The kept draws, and their moments after each was turned towards the last one."""
    kept = chain.kept or (_draw_of(chain.state),)
    each: Any = [  # of every entity or relation its draws
        tuple(None if draws[0] is None else np.stack(draws) for draws in zip(*parts, strict=True))
        for parts in zip(*kept, strict=True)
    ]
    rows, precisions, noise, r = each
    means = ([None if draws is None else gammas_at(draws.mean(axis=0)) for draws in parts] for parts in (noise, r))
    sites = [NO_SITES._replace(noise=tau, r=own) for tau, own in zip(*means, strict=True)]
    moments = []
    for draws in aligned(rows, problem.rank):
        mean = draws.mean(axis=0)
        away = draws - mean
        moments.append(Moments(mean, pack(np.einsum("sni,snj->nij", away, away) / len(draws)), False))
    learned = tuple(gammas_at(draws.mean(axis=0)) for draws in precisions)
    return RelationPosterior(tuple(moments), learned, tuple(sites), RelationDraws(rows, noise, r))


def aligned(rows: tuple[np.ndarray, ...], rank: int) -> list[np.ndarray]:
    """The draws with the components of each turned by the orthogonal matrix that brings them nearest to the last."""
    # draws that differ by a rotation have the same latent values; without this their mean means little
    turned = [draws.copy() for draws in rows]
    for s in range(len(rows[0]) - 1):
        u, _, vt = np.linalg.svd(sum(draws[s, :, :rank].T @ draws[-1, :, :rank] for draws in rows))
        for draws, target in zip(rows, turned, strict=True):
            target[s, :, :rank] = draws[s, :, :rank] @ (u @ vt)
    return turned


GIBBS_ENGINE = Method(
    Gibbs.name, (), Gibbs, init, step, finish, "Klami (2014), Gibbs sampling", capabilities=Capabilities(sampler=True)
)
