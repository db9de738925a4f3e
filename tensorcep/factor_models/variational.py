"""Mean field for factor models: the sweep and its bound, for full and for factorised rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorcep.core.executor import Executor
from tensorcep.core.loop import Method, Sweep
from tensorcep.factor_models import side_information
from tensorcep.factor_models.problem import Entity, Latent, Products, RelationPosterior, RelationProblem, State
from tensorcep.factor_models.settings import VB, FactorisedVB
from tensorcep.factor_models.side_information import Moments, packed_index, row_gaussians, variances, with_one
from tensorcep.factor_models.sites import bound
from tensorcep.kernels.rows import row_log_dets
from tensorcep.likelihoods.parameters.base import Gammas, gammas, gammas_at


def init(problem: RelationProblem, settings: VB | FactorisedVB, executor: Executor) -> State:
    """The state before the first sweep: means as given, independent coordinates, sites that fit."""
    moments = list[Moments]()
    for e, entity in enumerate(problem.entities):
        told = problem.told[e] if problem.told else None
        given = problem.frozen[e] if told is None else told.moments
        if given is not None:
            moments.append(given)
            continue
        C, diagonal = len(entity.precision), isinstance(settings, FactorisedVB)
        variance = np.where(np.arange(C) == entity.one, 0.0, np.minimum(problem.start_variance, 1.0 / entity.precision))
        cov = variance if diagonal else (variance[:, None] * np.eye(C))[np.tril_indices(C)]
        moments.append(Moments(problem.start[e].copy(), cov[None, :], diagonal))
    precisions = tuple(gammas_at(entity.precision) for entity in problem.entities)
    laws = tuple(None if known is None else side_information.first_law(known, problem.rank) for known in problem.known)
    none: Any = (None,) * len(problem.relations)
    state = State(tuple(moments), precisions, none, none, laws)
    for m in range(len(none)):
        state = state.with_sites(problem, m, executor)
    return state


def step(
    state: State, problem: RelationProblem, settings: VB | FactorisedVB, executor: Executor
) -> tuple[State, Sweep]:
    """Update every entity, its precisions, and the relations that it is in; each given the newest of the others."""
    old = state.latent
    for e, frozen in enumerate(problem.frozen):
        if frozen is not None:
            continue
        entity, law = problem.entities[e], state.law(e)
        if law is not None:
            (Lam, eta), free = state.natural_parameters(problem, e, executor), entity.free
            k = np.arange(len(free))
            Lam[:, k * (k + 3) // 2] -= state.precisions[e].mean[free]  # the prior that these rows do not have
            rows, packed, law = law.updated(state.moments[e], Lam, eta, executor)
            moments = with_one(free, len(entity.precision), rows, packed)
        elif isinstance(settings, FactorisedVB):
            moments = update_factorised(settings.step, state, problem, e, executor)
        else:
            moments = update_rows(state, problem, e, executor)
        state = state.with_entity(e, moments, precisions_of(entity, problem.precision_prior, moments), law)
        for m, relation in enumerate(problem.relations):
            if e in (relation.row, relation.col):
                state = state.with_sites(problem, m, executor)
    change = max(_change(new, before) for new, before in zip(state.latent, old, strict=True))
    return state, Sweep(change, state.first_noise(), lower_bound=lower_bound(state, problem))


def precisions_of(entity: Entity, prior: tuple[float, float], moments: Moments) -> Gammas:
    """q(alpha) where the precisions are learned (Klami section 2.2); the shape and rate of their prior are given."""
    (a0, b0), learned, fixed = prior, entity.learned, gammas_at(entity.precision)
    if not learned.any():
        return fixed
    a, b = a0 + 0.5 * entity.n_rows, b0 + 0.5 * _squares(entity, moments)
    found = gammas(np.full(len(b), a), b, a0, b0)
    mean, log_mean = (np.where(learned, new, old) for new, old in zip(found[:2], fixed[:2], strict=True))
    return Gammas(mean, log_mean, gammas(np.full(learned.sum(), a), b[learned], a0, b0).divergence)


def _squares(entity: Entity, moments: Moments) -> np.ndarray:
    """Sums over rows of E[u^2], (C,)."""
    return np.asarray((moments.mean**2).sum(axis=0) + entity.n_rows / len(moments.cov) * variances(moments).sum(axis=0))


def _change(new: Latent, old: Latent) -> float:
    """Root mean square change of the latent means, relative to the root mean square of the latent values."""
    if isinstance(new, Products):
        return new.change(old)  # type: ignore[arg-type]
    moved = new[0] - old[0]
    size = float(np.vdot(new[0], new[0])) + float(new[1].sum()) * (new[0].size / new[1].size)
    return float(np.sqrt(np.vdot(moved, moved) / size)) if size > 0.0 else 0.0


def lower_bound(state: State, problem: RelationProblem) -> float:
    """Lower bound of the log evidence at the state's parameters; nan beside what earlier data told."""
    if problem.told:
        return np.nan
    total = 0.0
    for relation, sites, latent in zip(problem.relations, state.sites, state.latent, strict=True):
        total += bound(relation, sites, latent)
    for e, frozen in enumerate(problem.frozen):
        law = state.law(e)
        if law is not None:
            total -= law.divergence(state.moments[e])
        elif frozen is None:  # the divergence of q(rows) q(precisions) from their prior
            entity, moments, precisions = problem.entities[e], state.moments[e], state.precisions[e]
            free, n = entity.free, entity.n_rows
            expected = float((precisions.mean * _squares(entity, moments) - n * precisions.log_mean)[free].sum())
            log_dets = np.empty(len(moments.cov))  # of the covariances of the free coordinates
            if moments.diagonal:
                log_dets = np.log(moments.cov[:, free]).sum(axis=1)
            else:
                row_log_dets(0, len(log_dets), np.ascontiguousarray(moments.cov[:, packed_index(free)]), log_dets)
            log_det = float(np.broadcast_to(log_dets, len(moments.mean)).sum())
            total -= 0.5 * (expected - n * len(free) - log_det) + precisions.divergence
    return total


def finish(state: State, problem: RelationProblem) -> RelationPosterior:
    """What the estimators keep."""
    each = [(own, state.law(e)) for e, own in enumerate(state.moments)]
    moments = tuple(own if law is None else law.with_unsure_rows(own) for own, law in each)
    laws = tuple(None if law is None else law.learned() for law in state.laws)
    return RelationPosterior(moments, state.precisions, state.sites, laws=laws)


# Variational inference for relations with a joint Gaussian for every row: q = prod_i q(u_i) prod_j q(v_j).
#
# Source: Klami (2014), sections 2.2, 4.1.2 and 4.2.2 ("naive"), after Ilin and Raiko (2010). Where every cell has the
# same weight, one matrix is inverted per entity and sweep; otherwise one per row.


def update_rows(state: State, problem: RelationProblem, e: int, executor: Executor) -> Moments:
    """q(u_i) of all rows of an entity."""
    entity = problem.entities[e]
    Lam, eta = state.natural_parameters(problem, e, executor)
    told = problem.told[e] if problem.told else None
    if told is not None:
        Lam, eta = Lam + told.Lam, eta + told.eta
    return with_one(entity.free, len(entity.precision), *row_gaussians(Lam, eta, executor))


VB_ENGINE = Method(VB.name, (), VB, init, step, finish, "Klami (2014), naive approximation")


# Fully factorised variational inference for relations: q = prod_ik q(u_ik) prod_jk q(v_jk), no matrix to invert.
#
# The means of an entity move together along the gradient divided by the diagonal of the Hessian; variances are exact.
#
# Source: Klami (2014), sections 2.2 and 4.1.2, after Ilin and Raiko (2010). In the gradient of 4.1.2 the paper prints
# minus before the sum and plus before the variance term; it is the other way round.


def update_factorised(length: Any, state: State, problem: RelationProblem, e: int, executor: Executor) -> Moments:
    """One step of an entity's means, of this length or the best, and its variances."""
    entity, old = problem.entities[e], state.moments[e]
    slope, curvature = gradient(state, problem, e, executor)
    variance = 1.0 / curvature
    if entity.one >= 0:
        variance[:, entity.one] = 0.0
    direction = slope * variance
    if isinstance(length, str):  # of every row (n, 1) that at which the lower bound, given the sites, is highest
        bend = (state.precisions[e].mean * direction**2).sum(axis=1)
        for side in state.sides(problem, e):
            other, sites, cells, d = side.other, side.sites, side.relation.cells, direction[:, side.coords]
            along = cells.products(d, other.mean, executor) if side.rows else cells.products(other.mean, d, executor)
            along *= along
            along *= sites.weight
            bend += cells.observed_sums(along, "row" if side.rows else "column")
            noise = side.sums(sites.weight, np.broadcast_to(other.cov, other.mean.shape), executor)
            bend += (noise * d**2).sum(axis=1)
        rise = (slope * direction).sum(axis=1)
        length = np.divide(rise, bend, out=np.zeros_like(rise), where=bend > 0.0)[:, None]
    return Moments(old.mean + length * direction, variance, True)


def gradient(state: State, problem: RelationProblem, e: int, executor: Executor) -> tuple[np.ndarray, np.ndarray]:
    """Gradient of the lower bound in an entity's means (n, C), and minus the diagonal of its Hessian (n or 1, C)."""
    entity, mean = problem.entities[e], state.moments[e].mean
    precision = state.precisions[e].mean
    slope, curvature = -precision * mean, precision[None, :]
    for side in state.sides(problem, e):
        other, sites, k, f = side.other, side.sites, side.coords, side.latent[0]
        noise = side.sums(sites.weight, np.broadcast_to(other.cov, other.mean.shape), executor)
        rest = (sites.weight * side.relation.x if sites.target is None else sites.target) - sites.weight * f
        rest = side.relation.cells.only_observed(rest)
        slope[:, k] += side.sums(rest, other.mean, executor) - noise * mean[:, k]
        own = noise + side.sums(sites.weight, other.mean**2, executor)
        curvature = np.repeat(curvature, max(1, len(own) // len(curvature)), axis=0)
        curvature[:, k] += own
    if entity.one >= 0:
        slope[:, entity.one] = 0.0
    return slope, curvature


FACTORISED_ENGINE = Method(
    FactorisedVB.name, (), FactorisedVB, init, step, finish, "Klami (2014), fully factorised approximation"
)
