"""New rows of an entity, given all else as fitted."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tensorcep.core.packing import unpack
from tensorcep.factor_models.fit import fit_problem
from tensorcep.factor_models.layout import Layout, Link, relation_of
from tensorcep.factor_models.moments import Moments, as_packed, variances
from tensorcep.factor_models.predict import parameters
from tensorcep.factor_models.relations import Entity, Relation, RelationPosterior, RelationProblem, Sites
from tensorcep.factor_models.settings import VB
from tensorcep.factor_models.state import State
from tensorcep.factor_models.vb import VB_ENGINE

MAX_SWEEPS = 500
TOLERANCE = 1e-8


def new_rows(
    posterior: RelationPosterior, links: Mapping[int, Link], where: list[Layout], n_threads: int
) -> tuple[State, RelationProblem]:
    """The conditional posterior of new rows of one entity, the row entity of all the links.

    `links` holds, by the number of the relation, those in which the rows have data; components, noise and dispersion
    are as fitted. A new row's own dispersion is unknown: it gets the mean of those fitted.
    """
    first = next(iter(links.values()))
    e, n = first.row, first.matrix.cells.shape[0]
    entities: list[Entity] = []
    start: list[np.ndarray] = []
    frozen: list[Moments | None] = []
    for number, (moments, layout) in enumerate(zip(posterior.moments, where, strict=True)):
        fixed = np.zeros(layout.size, dtype=bool)
        if number == e:
            entities.append(Entity(n, posterior.precisions[e].mean, fixed, layout.one))
            start.append(rows_at_zero(n, layout))
            frozen.append(None)
        else:
            entities.append(Entity(len(moments.mean), np.ones(layout.size), fixed, layout.one))
            start.append(moments.mean)
            frozen.append(as_packed(moments))
    relations = tuple(_as_fitted(relation_of(link, m, where), posterior.sites[m]) for m, link in links.items())
    problem = RelationProblem(tuple(entities), relations, tuple(start), tuple(frozen))
    result = fit_problem(VB_ENGINE, problem, VB(), max_iter=MAX_SWEEPS, tol=TOLERANCE, n_threads=n_threads)
    return result.state, problem


def rows_at_zero(n: int, layout: Layout) -> np.ndarray:
    """Means of n rows all of whose components and biases are 0."""
    mean = np.zeros((n, layout.size))
    if layout.one >= 0:
        mean[:, layout.one] = 1.0
    return mean


def _as_fitted(relation: Relation, sites: Sites) -> Relation:
    """The relation with noise and dispersion known."""
    relation, r = for_new_rows(relation, sites)
    return relation._replace(known_noise=parameters(sites)[0], known_r=r)


def for_new_rows(relation: Relation, sites: Sites) -> tuple[Relation, np.ndarray | None]:
    """The relation of new rows, and its dispersion: the mean of those fitted where every row has its own."""
    _, r = parameters(sites)
    if r is not None and relation.groups == "row":
        return relation._replace(groups="all"), np.array([r.mean()])
    return relation, r


def row_divergences(entity: Entity, moments: Moments) -> np.ndarray:
    """Divergence of each row's posterior from its prior, (n,)."""
    free = moments.select(entity.free)
    precision = entity.precision[entity.free]
    R = len(precision)
    log_det = np.linalg.slogdet(unpack(free.cov, R))[1]
    squares = (precision * (free.mean**2 + variances(free))).sum(axis=1)
    return np.asarray(0.5 * (squares - R - log_det - np.log(precision).sum()))
