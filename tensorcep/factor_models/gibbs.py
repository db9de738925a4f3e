"""Gibbs sampling for relations: Gaussian, Bernoulli and negative-binomial, with and without an explicit noise.

Source: Klami (2014), sections 2.1, 4.1.1, 4.2.1 and 4.3; Zhou and Carin (2012) for the dispersion. It is drawn with
omega integrated out, and omega anew right after it: the order that keeps the posterior. The precisions are drawn given
the loadings; the paper's variant with their posterior variances added is no Gibbs step and is not here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.checks import check_int, fail_value
from tensorcep.core.executor import Executor
from tensorcep.core.gammas import known
from tensorcep.core.loop import Method, Sweep
from tensorcep.core.packing import pack
from tensorcep.factor_models.draws import draw_omegas, draw_tables
from tensorcep.factor_models.model import Moments, Relation
from tensorcep.factor_models.rows import given_one, natural_parameters
from tensorcep.factor_models.sites import Sites, group_sizes, shape_and_kappa
from tensorcep.factor_models.updates import RelationDraws, RelationPosterior, RelationProblem, State, sides
from tensorcep.kernels.row_draws import draw_rows
from tensorcep.kernels.slots import LANES


@dataclass(frozen=True)
class Options:
    """Settings of the sampler.

    Attributes
    ----------
    burn_in : int
        Sweeps before the first draw that is kept.
    thin : int
        Every how many sweeps one is kept.
    """

    burn_in: int = 200
    thin: int = 5

    def __post_init__(self) -> None:
        check_int("burn_in", self.burn_in, 0)
        check_int("thin", self.thin)


class Draw(NamedTuple):
    """What is kept of a sweep."""

    rows: list[np.ndarray]
    precisions: list[np.ndarray]
    noise: list[np.ndarray | None]
    r: list[np.ndarray | None]


def _draw_of(state: State) -> Draw:
    return Draw(
        [moments.mean for moments in state.moments],
        [precision.mean for precision in state.precisions],
        [None if sites.noise is None else sites.noise.mean for sites in state.sites],
        [None if sites.r is None else sites.r.mean for sites in state.sites],
    )


class Chain(NamedTuple):
    """The values of one sweep, and those kept.

    Attributes
    ----------
    state : State
        Rows as moments without covariance, precisions, sites, and latent values (psi where there is explicit noise).
    rng : Generator
        Of the few numbers that are not drawn in compiled code.
    sweep : int
    kept : list
        Rows and precisions of every entity, noise and r of every relation, one `Draw` per kept sweep.
    """

    state: State
    rng: np.random.Generator
    sweep: int
    kept: list[Draw]


def init(problem: RelationProblem, options: Options, executor: Executor) -> Chain:
    """The given means as the first draw, unit noise, the prior mean of r."""
    for relation in problem.relations:
        if relation.augmentation == "boehning":
            fail_value("method 'gibbs' has no sampler for Boehning's bound; use augmentation 'direct' or 'noise'.")
    moments = [_fixed(mean) for mean in problem.start]
    precisions = [known(entity.precision) for entity in problem.entities]
    none: list[Any] = [None] * len(problem.relations)
    state = State(moments, precisions, none, none.copy(), none.copy())
    for index in range(len(problem.relations)):
        f = _latent(state, problem.relations[index], executor)
        state.latent[index] = (f, f)
    return Chain(state, np.random.default_rng(problem.seed), 0, [])


def _fixed(rows: np.ndarray) -> Moments:
    C = rows.shape[1]
    return Moments(rows, np.zeros((1, C * (C + 1) // 2)), False)


def _latent(state: State, relation: Relation, executor: Executor) -> np.ndarray:
    u = state.moments[relation.row].mean[:, relation.row_coords]
    v = state.moments[relation.col].mean[:, relation.col_coords]
    return np.asarray(relation.cells.products(u, v, executor.over))


def _draw_sites(chain: Chain, problem: RelationProblem, index: int, executor: Executor) -> tuple[Sites, np.ndarray]:
    """The relation's parameters and auxiliary variables given the rows; and the cells' latent values."""
    relation, state = problem.relations[index], chain.state
    cells, old, f = relation.cells, state.sites[index], _latent(state, relation, executor)
    if relation.likelihood == "gaussian":
        tau = _draw_noise(relation, problem, chain.rng, (relation.x - f) ** 2)
        weight = cells.only_observed(cells.spread(tau, relation.groups))
        return Sites(weight, weight * relation.x, noise=known(tau)), f
    explicit = relation.augmentation == "noise"
    psi = state.latent[index][1] if explicit else f
    r = _draw_dispersion(relation, problem, chain, index, old, psi, executor)
    b, kappa = shape_and_kappa(relation, r)
    stream = (problem.seed + 2 * index) % 2**63
    omega = draw_omegas(cells.only_observed(b), psi, stream, chain.sweep, executor)
    dispersion = None if r is None else known(r)
    if not explicit:
        return Sites(omega, cells.only_observed(kappa), r=dispersion), f
    tau = _draw_noise(relation, problem, chain.rng, (psi - f) ** 2)
    spread = 1.0 / (omega + tau[0])
    psi = spread * (tau[0] * f + cells.only_observed(kappa)) + np.sqrt(spread) * chain.rng.standard_normal(f.shape)
    weight = cells.only_observed(np.full((1,) * f.ndim, tau[0]))
    return Sites(weight, cells.only_observed(tau[0] * psi), known(tau), dispersion), psi


def _draw_noise(
    relation: Relation, problem: RelationProblem, rng: np.random.Generator, squares: np.ndarray
) -> np.ndarray:
    if relation.known_noise is not None:
        return relation.known_noise
    a0, b0 = problem.priors.noise
    groups = relation.groups if relation.likelihood == "gaussian" else "all"
    a = a0 + 0.5 * group_sizes(relation._replace(groups=groups))
    b = b0 + 0.5 * relation.cells.group_sums(relation.cells.only_observed(squares), groups)
    return np.asarray(rng.gamma(a) / b)


def _draw_dispersion(
    relation: Relation,
    problem: RelationProblem,
    chain: Chain,
    index: int,
    old: Sites | None,
    psi: np.ndarray,
    executor: Executor,
) -> np.ndarray | None:
    """r ~ Gamma(a0 + the tables, b0 - the sum of log(1 - p)), given the latent values and not omega."""
    if relation.likelihood != "negbinomial" or relation.known_r is not None:
        return relation.known_r
    (a0, b0), cells = problem.priors.r, relation.cells
    now = np.full(len(group_sizes(relation)), a0 / b0) if old is None or old.r is None else old.r.mean
    stream = (problem.seed + 2 * index + 1) % 2**63
    tables = draw_tables(relation.x, cells.spread(now, relation.groups), stream, chain.sweep, executor)
    a = a0 + cells.group_sums(cells.only_observed(tables), relation.groups)
    b = b0 + cells.group_sums(cells.only_observed(np.logaddexp(0.0, psi)), relation.groups)
    return np.asarray(chain.rng.gamma(a) / b)


def _draw_entity(chain: Chain, problem: RelationProblem, e: int, executor: Executor) -> tuple[np.ndarray, int]:
    """The rows of an entity given all else, and how many had no positive definite precision."""
    entity = problem.entities[e]
    free = entity.free
    Lam, eta = given_one(*natural_parameters(chain.state, problem, e, executor.over), free, entity.one)
    drawn, good = np.empty((entity.n_rows, len(free))), np.empty(entity.n_rows)
    eta = np.ascontiguousarray(eta)
    # streams of relations are seed + 2 index and + 1; those of entities count down from seed - 1
    seed = (problem.seed - 1 - e) % 2**63
    blocks = -(-entity.n_rows // LANES)
    executor.over(blocks, lambda p, q: draw_rows(p, q, Lam, eta, seed, chain.sweep, drawn, good))
    rows = chain.state.moments[e].mean.copy()
    rows[:, free] = np.where(good[:, None] > 0.0, drawn, rows[:, free])
    return rows, int(np.count_nonzero(good == 0.0))


def step(chain: Chain, problem: RelationProblem, options: Options, executor: Executor) -> tuple[Chain, Sweep]:
    """One sweep: auxiliary variables, then rows and precisions, entity by entity."""
    state, skipped = chain.state, 0
    before = [latent[0] for latent in state.latent]
    for index in range(len(problem.relations)):
        sites, psi = _draw_sites(chain._replace(state=state), problem, index, executor)
        state = state._replace(
            sites=[*state.sites[:index], sites, *state.sites[index + 1 :]],
            latent=[*state.latent[:index], (state.latent[index][0], psi), *state.latent[index + 1 :]],
        )
    a0, b0 = problem.precision_prior
    for e, entity in enumerate(problem.entities):
        if not any(True for _ in sides(problem, e)) or problem.frozen[e] is not None:
            continue
        rows, failed = _draw_entity(chain._replace(state=state), problem, e, executor)
        skipped += failed
        drawn = chain.rng.gamma(a0 + 0.5 * entity.n_rows, size=rows.shape[1]) / (b0 + 0.5 * (rows**2).sum(axis=0))
        precision = np.where(entity.learned, drawn, entity.precision)
        state = state._replace(
            moments=[*state.moments[:e], _fixed(rows), *state.moments[e + 1 :]],
            precisions=[*state.precisions[:e], known(precision), *state.precisions[e + 1 :]],
        )
    latent = [(_latent(state, relation, executor), state.latent[m][1]) for m, relation in enumerate(problem.relations)]
    state = state._replace(latent=latent)
    sweep = chain.sweep + 1
    if sweep > options.burn_in and (sweep - options.burn_in) % options.thin == 0:
        chain.kept.append(_draw_of(state))
    noise = [s.noise.mean[0] for s in state.sites if s.noise is not None]
    size = [np.sqrt(np.mean(new[0] ** 2)) + 1e-300 for new in latent]
    change = max(
        float(np.sqrt(np.mean((new[0] - old) ** 2)) / s) for new, old, s in zip(latent, before, size, strict=True)
    )
    report = Sweep(change, float(noise[0]) if noise else np.nan, skipped, 0, np.nan)
    return Chain(state, chain.rng, sweep, chain.kept), report


def finish(chain: Chain, problem: RelationProblem) -> RelationPosterior:
    """The kept draws, and their moments after each was turned towards the last one."""
    kept = chain.kept or [_draw_of(chain.state)]
    E, M = range(len(problem.entities)), range(len(problem.relations))
    rows = tuple(np.stack([draw.rows[e] for draw in kept]) for e in E)
    noise = tuple(_stacked([draw.noise[m] for draw in kept]) for m in M)
    r = tuple(_stacked([draw.r[m] for draw in kept]) for m in M)
    precisions = tuple(known(np.mean([draw.precisions[e] for draw in kept], axis=0)) for e in E)
    sites = []
    for m in M:
        sites.append(
            Sites(
                np.zeros((1, 1)),
                np.zeros((1, 1)),
                noise=None if noise[m] is None else known(noise[m].mean(axis=0)),
                r=None if r[m] is None else known(r[m].mean(axis=0)),
            )
        )
    moments = tuple(_moments_of(draws) for draws in aligned(rows, problem.rank))
    return RelationPosterior(moments, precisions, tuple(sites), RelationDraws(rows, noise, r))


def _stacked(found: list[Any]) -> Any:
    return None if found[0] is None else np.stack(found)


def aligned(rows: tuple[np.ndarray, ...], rank: int) -> list[np.ndarray]:
    """The draws with the components of each turned by the orthogonal matrix that brings them nearest to the last.

    Draws that differ by a rotation of the components have the same latent values; without this their mean means little.
    """
    turned = [draws.copy() for draws in rows]
    for s in range(len(rows[0]) - 1):
        cross = sum(draws[s, :, :rank].T @ draws[-1, :, :rank] for draws in rows)
        u, _, vt = np.linalg.svd(cross)
        for draws, target in zip(rows, turned, strict=True):
            target[s, :, :rank] = draws[s, :, :rank] @ (u @ vt)
    return turned


def _moments_of(draws: np.ndarray) -> Moments:
    mean = draws.mean(axis=0)
    away = draws - mean
    return Moments(mean, pack(np.einsum("sni,snj->nij", away, away) / len(draws)), False)


PCA_GIBBS = Method(
    name="gibbs",
    needs=(),
    options=Options,
    init=init,
    step=step,
    finish=finish,
    source="Klami (2014), Gibbs sampling",
    sampler=True,
)
