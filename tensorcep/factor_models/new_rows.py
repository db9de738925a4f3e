"""New rows of an entity, given all else as fitted."""

from __future__ import annotations

import numpy as np

from tensorcep.core.packing import unpack
from tensorcep.factor_models.fit import Layout, Link, fit_problem, relation_of
from tensorcep.factor_models.model import Entity, Moments, as_packed, variances
from tensorcep.factor_models.summary import parameters
from tensorcep.factor_models.updates import RelationPosterior, RelationProblem, State
from tensorcep.factor_models.vb import PCA_VB

MAX_SWEEPS = 500
TOLERANCE = 1e-8


def new_rows(
    posterior: RelationPosterior, links: dict[int, Link], where: list[Layout], n_threads: int
) -> tuple[State, RelationProblem]:
    """The conditional posterior of new rows of one entity, the row entity of all the links.

    `links` holds, by the number of the relation, those in which the rows have data; components, noise and dispersion
    are as fitted. A new row's own dispersion is unknown: it gets the mean of those fitted.
    """
    e = next(iter(links.values())).row
    n = next(iter(links.values())).matrix.cells.shape[0]
    entities: list[Entity] = []
    start: list[np.ndarray] = []
    frozen: list[Moments | None] = []
    for number, (moments, layout) in enumerate(zip(posterior.moments, where, strict=True)):
        fixed = np.zeros(layout.size, dtype=bool)
        if number == e:
            mean = np.zeros((n, layout.size))
            if layout.one >= 0:
                mean[:, layout.one] = 1.0
            entities.append(Entity(n, posterior.precisions[e].mean, fixed, layout.one))
            start.append(mean)
            frozen.append(None)
        else:
            entities.append(Entity(len(moments.mean), np.ones(layout.size), fixed, layout.one))
            start.append(moments.mean)
            frozen.append(as_packed(moments))
    relations = []
    for m, link in links.items():
        noise, r = parameters(posterior.sites[m])
        if r is not None and link.groups == "row":
            link, r = link._replace(groups="all"), np.array([r.mean()])
        relations.append(relation_of(link, m, where)._replace(known_noise=noise, known_r=r))
    problem = RelationProblem(tuple(entities), tuple(relations), tuple(start), tuple(frozen))
    result = fit_problem(PCA_VB, problem, PCA_VB.options(), max_iter=MAX_SWEEPS, tol=TOLERANCE, n_threads=n_threads)
    return result.state, problem


def row_divergences(entity: Entity, moments: Moments) -> np.ndarray:
    """Divergence of each row's posterior from its prior, (n,)."""
    free = moments.select(entity.free)
    precision = entity.precision[entity.free]
    R = len(precision)
    log_det = np.linalg.slogdet(unpack(free.cov, R))[1]
    squares = (precision * (free.mean**2 + variances(free))).sum(axis=1)
    return np.asarray(0.5 * (squares - R - log_det - np.log(precision).sum()))
