"""How many components, and the fit with them: a number that is given, or what automatic relevance leaves of many."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from tensorcep.core.checks import check_int, warn_user
from tensorcep.core.loop import Run
from tensorcep.factor_models.empty import empty_columns, warn_of_empty, with_wide_columns
from tensorcep.factor_models.fit import RunPlan, fit_problem
from tensorcep.factor_models.known_rows import KnownRows
from tensorcep.factor_models.layout import Layout, Link, layouts, relation_of
from tensorcep.factor_models.relations import Priors, RelationPosterior, RelationProblem
from tensorcep.factor_models.settings import VB
from tensorcep.factor_models.starts import build_problem
from tensorcep.factor_models.summary import alive, chosen
from tensorcep.factor_models.units import FLOOR
from tensorcep.factor_models.vb import VB_ENGINE

LEAST, MOST = 10, 40  # components that a fit starts from
WORK = 1e9  # cells times squared components of a sweep, about a second
TRIAL_SWEEPS = 20  # after which those that say nothing are left out
START_VARIANCE = 1e-2  # below what data of unit variance say: larger, and the noise starts large and switches all off
NOISE_PRIOR = (0.5, 0.5 * FLOOR)  # one more cell in every group: the floor of the noise


class Fitted(NamedTuple):
    """A run, its posterior with the components that are kept, and where these lie."""

    run: Run
    posterior: RelationPosterior
    where: list[Layout]
    rank: int


def check_components(n_components: Any) -> int | None:
    """The number of components; None where the fit has to find it."""
    automatic = n_components is None or (isinstance(n_components, str) and n_components == "auto")
    return None if automatic else check_int("n_components", n_components)


def fit_components(
    plan: RunPlan,
    links: list[Link],
    sizes: list[int],
    rank: int | None,
    learned: list[bool],
    rng: Any,
    init: str,
    known: tuple[KnownRows | None, ...] = (),
) -> Fitted:
    """Fit with a number of components; or with many, and then with those that say something.

    `known` says what is known of the rows of each entity beside their cells; nothing where that is nothing.
    """
    priors = Priors(noise=NOISE_PRIOR) if any(link.units is not None for link in links) else Priors()
    first = _largest(links) if rank is None else rank
    problem, where = build_problem(links, sizes, first, learned, priors, rng, init, START_VARIANCE)
    problem = problem._replace(known=known)
    if rank is None:
        problem = _pruned(plan, problem, links, learned)
        where = layouts(links, len(sizes), problem.rank)
    result = plan.fit(problem)
    columns = empty_columns(links)
    warn_of_empty(columns)
    if plan.method.capabilities.sampler:
        return Fitted(result, result.posterior, where, problem.rank)
    result = result._replace(posterior=with_wide_columns(result.posterior, links, where, columns))
    kept = np.flatnonzero(alive(result.posterior, learned, problem.rank))
    if len(kept) == 0:
        warn_user(
            "no component explains more than its own uncertainty: the fit predicts no better than the means; the data "
            "hold no such structure, or too few cells to see it.",
            ConvergenceWarning,
        )
    if rank is not None or len(kept) == problem.rank:
        return Fitted(result, result.posterior, where, problem.rank)
    kept = kept if len(kept) else np.zeros(1, dtype=np.int64)
    posterior = chosen(result.posterior, kept, problem.rank)
    return Fitted(result, posterior, layouts(links, len(sizes), len(kept)), len(kept))


def _pruned(plan: RunPlan, problem: RelationProblem, links: list[Link], learned: list[bool]) -> RelationProblem:
    """The problem with the components that a few sweeps of a variational method leave, started from these."""
    method, settings = (VB_ENGINE, VB()) if plan.method.capabilities.sampler else (plan.method, plan.settings)
    trial = fit_problem(
        method, problem, settings, max_iter=TRIAL_SWEEPS, tol=plan.tol, n_threads=plan.n_threads, warn=False
    )
    kept = np.flatnonzero(alive(trial.posterior, learned, problem.rank))
    kept = kept if len(kept) else np.zeros(1, dtype=np.int64)
    posterior = chosen(trial.posterior, kept, problem.rank)
    entities, dropped = [], np.setdiff1d(np.arange(problem.rank), kept)
    where = layouts(links, len(problem.entities), len(kept))
    for entity, precision, layout in zip(problem.entities, posterior.precisions, where, strict=True):
        left = np.delete(entity.learned, dropped)
        entities.append(entity._replace(precision=precision.mean, learned=left, one=layout.one))
    return problem._replace(
        entities=tuple(entities),
        relations=tuple(relation_of(link, m, where) for m, link in enumerate(links)),
        start=tuple(moments.mean for moments in posterior.moments),
        rank=len(kept),
    )


def _largest(links: list[Link]) -> int:
    """Components to start from: what covariances of this size tell from noise (Ledermann 1937), within `MOST`.

    Large matrices start from fewer, so that a sweep stays within `WORK`, but from `LEAST` where the shape allows it.
    """
    shapes = [link.matrix.cells.shape for link in links]
    cells = sum(link.matrix.x.size for link in links)
    affordable = np.clip(np.sqrt(WORK / cells), LEAST, MOST)
    return max(1, min(int(affordable), sum(min(_identified(n) for n in shape) for shape in shapes)))


def _identified(n: int) -> int:
    return int((2 * n + 1 - np.sqrt(8 * n + 1)) / 2)
