"""Fits of factor models: their plan, starts, number of components, and rows that are new."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.extmath import randomized_svd

from tensorcep.core.checks import check_int, check_range, fail_value, warn_user
from tensorcep.core.executor import MOST_VERBOSE, ThreadExecutor, n_threads, one_blas_thread
from tensorcep.core.loop import AnyMethod, Run, run
from tensorcep.core.packing import unpack
from tensorcep.factor_models.cells import DenseCells
from tensorcep.factor_models.gibbs import GIBBS_ENGINE
from tensorcep.factor_models.layout import Layout, Link, layouts, relation_of
from tensorcep.factor_models.problem import FLOOR, Entity, Priors, Products, RelationPosterior, RelationProblem, State
from tensorcep.factor_models.results import for_new_rows, shares
from tensorcep.factor_models.settings import VB, Gibbs, settings_of
from tensorcep.factor_models.side_information import FoundLaw, KnownOf, Moments, as_packed, latent_moments, variances
from tensorcep.factor_models.sites import count_factor
from tensorcep.factor_models.variational import FACTORISED_ENGINE, VB_ENGINE
from tensorcep.likelihoods.parameters.base import Gammas


def with_wide_columns(posterior: RelationPosterior, links: list[Link], where: list[Layout]) -> RelationPosterior:
    """The posterior whose offsets of empty columns of real data vary as values about their common mean do."""
    # Empty are columns without values, whose entity has none in another matrix either; a warning says so. A sampler's
    # draws stay as they are.
    seen: dict[int, np.ndarray] = {}
    for link in links:
        for entity, side in ((link.row, "row"), (link.col, "column")):
            seen[entity] = seen.get(entity, False) | (link.matrix.cells.counts(side) > 0.0)
    moments = list(posterior.moments)
    for m, link in enumerate(links):
        empty = ~seen[link.col]
        if not empty.any():
            continue
        which = f"{empty.sum()} of {len(empty)} columns of {'the matrix' if len(links) == 1 else f'matrix {m}'}"
        first = f"the first is column {int(np.argmax(empty))}, from 0"
        unknown = "nothing but the spread of the others says what to expect there"
        warn_user(f"{which} have no values ({first}): {unknown}; leave them out.", UserWarning)
        if posterior.draws is not None or link.kind.theta != "noise" or not link.cols_have_bias:
            continue
        matrix, found, at = link.matrix, moments[link.col], where[link.col].bias[m]
        centre, scale = (0.0, 1.0) if link.units is None else link.units
        n, total = float(matrix.cells.counts("column").sum()), float(matrix.cells.group_sums(matrix.x, "all")[0])
        square = float(matrix.cells.group_sums(matrix.x**2, "all")[0])
        # offsets that the other columns have about their own means tell nothing of it
        about = centre + scale * found.mean[:, at]
        spread = np.maximum(square / n - 2.0 * about * total / n + about**2, 0.0) / scale**2
        cov = np.repeat(found.cov, len(found.mean), axis=0) if len(found.cov) == 1 else found.cov.copy()
        place = at if found.diagonal else at * (at + 3) // 2
        cov[empty, place] = np.maximum(cov[empty, place], spread[empty])
        moments[link.col] = Moments(found.mean, cov, found.diagonal)
    return posterior._replace(moments=tuple(moments))


# How many components, and the fit with them: a number that is given, or what automatic relevance leaves of many.

LEAST, MOST = 10, 40  # components that a fit starts from
WORK = 1e9  # cells times squared components of a sweep, about a second
TRIAL_SWEEPS = 20  # after which those that say nothing are left out
Placed = tuple[RelationProblem, list[Layout]]  # with where components and biases lie
START_VARIANCE = 1e-2  # below what data of unit variance say: larger, and the noise starts large and switches all off
NOISE_PRIOR = (0.5, 0.5 * FLOOR)  # one more cell in every group: the floor of the noise


def fit_components(
    plan: RunPlan, links: list[Link], learned: list[bool], rng: Any, init: str, known: KnownOf = ()
) -> tuple[Run, list[Layout]]:
    """Fit with the components that are asked for; or with many, and then with those that say something."""
    # The posterior has those that are kept, by the variance that they explain, the largest first, as the layouts say.
    if plan.rank is None:
        problem, where = _pruned(plan, links, learned, rng, init, known)
    else:
        problem, where = build_problem(links, plan.rank, learned, rng, init, known)
    result, K = plan.fit(problem), problem.rank
    posterior = with_wide_columns(result.posterior, links, where)
    if not plan.method.capabilities.sampler:
        kept = np.flatnonzero(alive(posterior, learned, K))
        if len(kept) == 0:
            text = "no component explains more than its own uncertainty: the fit predicts no better than the means"
            few = "the data hold no such structure, or too few cells to see it"
            warn_user(f"{text}; {few}.", ConvergenceWarning)
        if plan.rank is None and len(kept) < K:
            kept = kept if len(kept) else np.zeros(1, dtype=np.int64)
            posterior, K = chosen(posterior, kept, K), len(kept)
            where = layouts(links, len(learned), K)
    relations = (relation_of(link.without_data(), m, where) for m, link in enumerate(links))
    energy = sum((shares(posterior, relation, K) for relation in relations), np.zeros(K))
    return result._replace(posterior=chosen(posterior, np.argsort(-energy, kind="stable"), K)), where


def _pruned(plan: RunPlan, links: list[Link], learned: list[bool], *start: Any) -> Placed:
    """The problem with the components that a few sweeps of a variational method leave of many, started from these."""
    # Many are what covariances of this size tell from noise (Ledermann 1937), within `MOST`: large matrices start from
    # fewer, so that a sweep stays within `WORK`, but from `LEAST` where the shape allows it.
    affordable = np.clip(np.sqrt(WORK / sum(link.matrix.x.size for link in links)), LEAST, MOST)
    shortest = [min(link.matrix.cells.shape) for link in links]
    identified = sum(int((2 * n + 1 - np.sqrt(8 * n + 1)) / 2) for n in shortest)
    problem, _ = build_problem(links, max(1, min(int(affordable), identified)), learned, *start)
    method, settings = (VB_ENGINE, VB()) if plan.method.capabilities.sampler else (plan.method, plan.settings)
    trial = RunPlan(method, settings, TRIAL_SWEEPS, plan.tol, plan.n_threads).fit(problem, warn=False)
    kept = np.flatnonzero(alive(trial.posterior, learned, problem.rank))
    kept = kept if len(kept) else np.zeros(1, dtype=np.int64)
    posterior = chosen(trial.posterior, kept, problem.rank)
    entities, dropped = [], np.setdiff1d(np.arange(problem.rank), kept)
    where = layouts(links, len(problem.entities), len(kept))
    for entity, precision, layout in zip(problem.entities, posterior.precisions, where, strict=True):
        left = np.delete(entity.learned, dropped)
        entities.append(entity._replace(precision=precision.mean, learned=left, one=layout.one))
    relations = tuple(relation_of(link, m, where) for m, link in enumerate(links))
    start = tuple(moments.mean for moments in posterior.moments)
    return problem._replace(entities=tuple(entities), relations=relations, start=start, rank=len(kept)), where


def alive(posterior: RelationPosterior, learned: list[bool], rank: int) -> np.ndarray:
    """Which components say something: where their precisions are learned, their means outweigh their variances."""
    result = np.zeros(rank, dtype=bool)
    for moments, learn in zip(posterior.moments, learned, strict=True):
        if learn or not any(learned):
            noise = variances(moments)[:, :rank].mean(axis=0)
            # a component that its precision has switched off has means near 0, and variances that are the prior's
            result |= (moments.mean[:, :rank] ** 2).mean(axis=0) > noise
    return result


def chosen(posterior: RelationPosterior, order: np.ndarray, rank: int) -> RelationPosterior:
    """The posterior with some of its components, in this order; biases stay."""
    indices = [np.concatenate([order, np.arange(rank, own.mean.shape[1])]) for own in posterior.moments]
    moments = tuple(own.select(at) for own, at in zip(posterior.moments, indices, strict=True))
    parts = zip(posterior.precisions, indices, strict=True)
    precisions = tuple(Gammas(own.mean[at], own.log_mean[at], own.divergence) for own, at in parts)
    draws = posterior.draws
    if draws is not None:
        draws = draws._replace(rows=tuple(rows[:, :, at] for rows, at in zip(draws.rows, indices, strict=True)))
    laws = tuple(
        None if law is None else FoundLaw(law.names, law.coef[:, order], law.sd[:, order], law.lengths[:, order])
        for law in posterior.laws
    )
    return posterior._replace(moments=moments, precisions=precisions, draws=draws, laws=laws)


# The problem of some relations, and where its methods start: near the singular vectors of a matrix, or at random.

START_SCALE = 0.3  # sd of random starts: small, so that components grow apart before they fill up
STARTS = ("svd", "random")
EXACT_SVD = 1000  # the shorter side up to which a Gram matrix is taken apart


def build_problem(links: list[Link], rank: int, learned: list[bool], rng: Any, init: str, known: KnownOf) -> Placed:
    """The problem of some relations; `learned` says for each entity whether its components' precisions are learned."""
    where, sizes = layouts(links, len(learned), rank), dict[int, int]()
    for link in links:
        sizes[link.row], sizes[link.col] = link.matrix.cells.shape
    start = [START_SCALE * rng.standard_normal((sizes[e], layout.size)) for e, layout in enumerate(where)]
    if init == "svd":
        start[links[0].row][:, :rank], start[links[0].col][:, :rank] = _svd_start(links[0], rank, rng)
    for m, link in enumerate(links):  # biases at the column means, or at 0
        start[link.row][:, list(where[link.row].bias.values())] = 0.0
        if m in where[link.col].bias:
            r = 1.0 if link.known_r is None else float(np.mean(link.known_r))
            start[link.col][:, where[link.col].bias[m]] = link.kind.latent(link.modelled.column_means(), r)
    for mean, layout in zip(start, where, strict=True):
        if layout.one >= 0:
            mean[:, layout.one] = 1.0
    entities = tuple(layout.entity(sizes[e], learned[e]) for e, layout in enumerate(where))
    relations = tuple(relation_of(link, m, where) for m, link in enumerate(links))
    priors = Priors(noise=NOISE_PRIOR) if any(link.units is not None for link in links) else Priors()
    problem = RelationProblem(entities, relations, tuple(start), (None,) * len(where), priors, rank=rank, known=known)
    return problem._replace(start_variance=START_VARIANCE, seed=int(rng.integers(2**63))), where


def _svd_start(link: Link, rank: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Components of the matrix less its column means, scaled so that those of the rows have unit variance."""
    (N, D), seen, cells = link.matrix.cells.shape, link.modelled, link.matrix.cells
    U, V = (START_SCALE * rng.standard_normal((n, rank)) for n in (N, D))
    matrix, K = seen._replace(x=link.kind.sketch(seen.x)), min(rank, N, D)
    X = matrix.less_columns(matrix.column_means())
    X = X if isinstance(cells, DenseCells) else sparse.csr_matrix((X, (cells.rows, cells.cols)), shape=cells.shape)
    u, s, vt = _leading_vectors(X, K)
    # Loadings are divided by the observed part of the cells, as the others count as zeros. Components beyond the
    # matrix's rank start at random.
    U[:, :K] = np.sqrt(N) * u
    V[:, :K] = link.kind.scale / np.sqrt(N) * N * D / cells.n_observed * (s[:, None] * vt).T
    return U, V


def _leading_vectors(X: Any, K: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Leading singular vectors and values, the same in every run: exact where one side is short."""
    if min(X.shape) > EXACT_SVD:
        return randomized_svd(X, K, random_state=0)
    if X.shape[0] < X.shape[1]:
        u, s, vt = _leading_vectors(X.T, K)
        return vt.T, s, u.T
    gram = X.T @ X
    squares, v = np.linalg.eigh(gram.toarray() if sparse.issparse(gram) else gram)
    s, v = np.sqrt(np.maximum(squares[::-1][:K], 0.0)), v[:, ::-1][:, :K]
    u = np.divide(X @ v, s, out=np.zeros((X.shape[0], K)), where=s > 1e-7 * s[0])
    return u, s, v.T


MAX_SWEEPS, TOLERANCE = 500, 1e-8


def new_rows(
    posterior: RelationPosterior, links: Mapping[int, Link], where: list[Layout], n_threads: int
) -> tuple[State, RelationProblem]:
    """The conditional posterior of new rows of the row entity of all the links, by their number; all else as fitted."""
    first = next(iter(links.values()))
    e, n = first.row, first.matrix.cells.shape[0]
    entities, start, frozen = list[Entity](), list[np.ndarray](), list[Moments | None]()
    for number, (moments, layout) in enumerate(zip(posterior.moments, where, strict=True)):
        new = number == e
        size, fixed = n if new else len(moments.mean), np.zeros(layout.size, dtype=bool)
        entities.append(Entity(size, posterior.precisions[number].mean, fixed, layout.one))
        start.append(layout.rows_at_zero(n) if new else moments.mean)
        frozen.append(None if new else as_packed(moments))
    # a new row's own dispersion is unknown: it gets the mean of those fitted
    relations = [for_new_rows(relation_of(link, m, where), posterior.sites[m]) for m, link in links.items()]
    problem = RelationProblem(tuple(entities), tuple(relations), tuple(start), tuple(frozen))
    return RunPlan(VB_ENGINE, VB(), MAX_SWEEPS, TOLERANCE, n_threads).fit(problem).state, problem


def row_evidence(state: State, problem: RelationProblem) -> np.ndarray:
    """Bound of the log evidence of each of the new rows, (n,): of their cells, less the divergence from their prior."""
    entity, relation, sites = problem.entities[0], problem.relations[0], state.sites[0]
    latent = state.latent[0]
    if isinstance(latent, Products):
        latent = latent_moments(relation.cells, latent.u, latent.v, ThreadExecutor(1))
    value = relation.kind.form.cell_bounds(relation, sites, *latent)
    if sites.r is not None:
        value = value + count_factor(relation.x, relation.cells.spread(np.exp(sites.r.log_mean), relation.groups))
    values = relation.cells.observed_sums(value, "row") - relation.log_units()
    free, precision = state.moments[0].select(entity.free), entity.precision[entity.free]
    R = len(precision)
    log_det = np.linalg.slogdet(unpack(free.cov, R))[1]
    squares = (precision * (free.mean**2 + variances(free))).sum(axis=1)
    return np.asarray(values - 0.5 * (squares - R - log_det - np.log(precision).sum()))


ENGINES: dict[str, AnyMethod] = {method.name: method for method in (FACTORISED_ENGINE, VB_ENGINE, GIBBS_ENGINE)}


class RunPlan(NamedTuple):
    """How a problem is going to be fitted, with so many components; None where the fit has to find their number."""

    method: AnyMethod
    settings: Any
    max_iter: int
    tol: float
    n_threads: int = 1
    verbose: bool = False
    rank: int | None = None

    def check(self, links: list[Link]) -> None:
        """Refuse matrices that the method has no sampler for."""
        if self.method.capabilities.sampler and any(link.kind.form.drawn is None for link in links):
            other = "augmentation 'direct' or 'noise', or for counts likelihood 'negbinomial'"
            fail_value(f"method 'gibbs' has no sampler for Boehning's bound; use {other}.")

    def fit(self, problem: RelationProblem, callbacks: tuple[Callable[..., Any], ...] = (), warn: bool = True) -> Run:
        """Run the method, BLAS on one thread so that its sums have one order; warn of a run that did not converge."""
        method, settings, max_iter, tol, n_threads, verbose, _ = self
        how: dict[str, Any] = {"max_iter": max_iter, "tol": tol, "n_threads": n_threads, "verbose": verbose}
        with one_blas_thread():
            result = run(method, problem, settings, callbacks=callbacks, **how)
        if warn and not method.capabilities.sampler and not result.converged and not result.stopped:
            got = f"with a relative change of {result.trace['change'][-1]:.2g} > tol={tol:g}"
            cure = "increase max_iter or raise tol."
            warn_user(f"{method.name} stopped after max_iter={max_iter} sweeps {got}; {cure}", ConvergenceWarning)
        return result


def plan_run(estimator: Any) -> RunPlan:
    """What an estimator's parameters say of the run; a ValueError if one of them is not allowed."""
    settings = settings_of(estimator.method)
    max_iter = check_int("max_iter", estimator.max_iter)
    if isinstance(settings, Gibbs) and max_iter <= settings.burn_in:
        fail_value(f"max_iter must be above the burn-in of {settings.burn_in} sweeps; got {max_iter}.")
    shows, rank = estimator.verbose, estimator.n_components
    automatic = rank is None or (isinstance(rank, str) and rank == "auto")
    shows = shows if isinstance(shows, bool) else check_int("verbose", shows, 0, MOST_VERBOSE)
    tol, threads = check_range("tol", estimator.tol, 0.0), n_threads(estimator.n_jobs)
    rank = None if automatic else check_int("n_components", rank)
    return RunPlan(ENGINES[settings.name], settings, max_iter, tol, threads, bool(shows), rank)
