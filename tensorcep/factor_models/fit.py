"""From matrices and named relations to a fitted posterior: what the factor-model estimators share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logit
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.extmath import randomized_svd
from threadpoolctl import threadpool_limits

from tensorcep.core.checks import check_choice, check_int, check_range, fail_value, warn_user
from tensorcep.core.executor import n_threads
from tensorcep.core.loop import Method, Run, run
from tensorcep.factor_models.factorised import PCA_FACTORIZED
from tensorcep.factor_models.gibbs import PCA_GIBBS
from tensorcep.factor_models.model import Entity, Relation
from tensorcep.factor_models.read import Matrix
from tensorcep.factor_models.sites import Priors
from tensorcep.factor_models.updates import RelationProblem
from tensorcep.factor_models.vb import PCA_VB

RELATION_METHODS: dict[str, Method] = {method.name: method for method in (PCA_FACTORIZED, PCA_VB, PCA_GIBBS)}
START_SCALE = 0.3  # sd of random starts: small, so that components grow apart before they fill up
BIASES = ("column", "row", "both", "none")
LIKELIHOODS = ("gaussian", "bernoulli", "negbinomial", "poisson")
AUGMENTATIONS = ("direct", "noise", "boehning")


class Link(NamedTuple):
    """One matrix and how it is modelled; `row` and `col` are the positions of its entities."""

    matrix: Matrix
    row: int
    col: int
    likelihood: str
    augmentation: str = "direct"
    bias: str = "column"
    groups: str = "all"
    known_r: np.ndarray | None = None


class Layout(NamedTuple):
    """Where an entity's coordinates are: the components first, then the one that is 1, then its biases by relation."""

    rank: int
    one: int
    bias: dict[int, int]

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self.rank + (self.one >= 0) + len(self.bias)


def layouts(links: list[Link], n_entities: int, rank: int) -> list[Layout]:
    """The coordinates of every entity."""
    result = []
    for e in range(n_entities):
        opposite_bias = any(
            (link.row == e and link.bias in ("column", "both")) or (link.col == e and link.bias in ("row", "both"))
            for link in links
        )
        own = [
            m
            for m, link in enumerate(links)
            if (link.row == e and link.bias in ("row", "both")) or (link.col == e and link.bias in ("column", "both"))
        ]
        first = rank + opposite_bias
        result.append(Layout(rank, rank if opposite_bias else -1, {m: first + q for q, m in enumerate(own)}))
    return result


def relation_of(link: Link, m: int, where: list[Layout]) -> Relation:
    """The relation of a link: the components, and each bias opposite to a one."""
    row, col = where[link.row], where[link.col]
    rows, cols = list(range(row.rank)), list(range(col.rank))
    if link.bias in ("column", "both"):
        rows.append(row.one)
        cols.append(col.bias[m])
    if link.bias in ("row", "both"):
        rows.append(row.bias[m])
        cols.append(col.one)
    return Relation(
        link.row,
        link.col,
        np.array(rows),
        np.array(cols),
        link.matrix.cells,
        link.matrix.x,
        link.likelihood,
        link.augmentation,
        link.groups,
        known_r=link.known_r,
    )


def build_problem(
    links: list[Link],
    sizes: list[int],
    rank: int,
    learned: list[bool],
    priors: Priors,
    rng: np.random.Generator,
    init: str,
) -> tuple[RelationProblem, list[Layout]]:
    """The problem of some relations; `learned` says for each entity whether its components' precisions are learned."""
    where = layouts(links, len(sizes), rank)
    entities = []
    for n, layout, learn in zip(sizes, where, learned, strict=True):
        automatic = np.zeros(layout.size, dtype=bool)
        automatic[:rank] = learn
        automatic[list(layout.bias.values())] = True
        entities.append(Entity(n, np.ones(layout.size), automatic, layout.one))
    start = [START_SCALE * rng.standard_normal((n, layout.size)) for n, layout in zip(sizes, where, strict=True)]
    if init == "svd":
        start[links[0].row][:, :rank], start[links[0].col][:, :rank] = _svd_start(links[0], rank, rng)
    for m, link in enumerate(links):
        start[link.row][:, list(where[link.row].bias.values())] = 0.0
        if m in where[link.col].bias:
            start[link.col][:, where[link.col].bias[m]] = _bias_start(link)
    for mean, layout in zip(start, where, strict=True):
        if layout.one >= 0:
            mean[:, layout.one] = 1.0
    relations = tuple(relation_of(link, m, where) for m, link in enumerate(links))
    seed = int(rng.integers(2**63))
    frozen = (None,) * len(sizes)
    return RelationProblem(tuple(entities), relations, tuple(start), frozen, priors, seed=seed, rank=rank), where


def _bias_start(link: Link) -> np.ndarray:
    means = link.matrix.column_means()
    if link.likelihood == "bernoulli":
        return np.asarray(logit(0.01 + 0.98 * means))
    if link.likelihood == "negbinomial":
        r = 1.0 if link.known_r is None else float(np.mean(link.known_r))
        return np.asarray(np.log(means + 0.01) - np.log(r))
    return means


def _svd_start(link: Link, rank: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Components of the matrix less its column means, scaled so that those of the rows have unit variance.

    Columns beyond the matrix's rank start at random. Counts are taken by their logarithms, labels are scaled to logits.
    """
    N, D = link.matrix.cells.shape
    U = START_SCALE * rng.standard_normal((N, rank))
    V = START_SCALE * rng.standard_normal((D, rank))
    matrix = link.matrix
    if link.likelihood in ("negbinomial", "poisson"):
        matrix = matrix._replace(x=np.log1p(matrix.x))
    seed = int(rng.integers(2**31))
    found = min(rank, N, D)
    u, s, vt = randomized_svd(matrix.sketchable(), found, random_state=seed)
    scale = 4.0 if link.likelihood == "bernoulli" else 1.0
    U[:, :found] = np.sqrt(N) * u
    V[:, :found] = scale / np.sqrt(N) * (s[:, None] * vt).T
    return U, V


def checked_method(estimator: Any) -> tuple[Method, Any, dict[str, Any]]:
    """An estimator's method, the settings of the method, and those of the run; errors name what exists."""
    method = RELATION_METHODS[check_choice("method", estimator.method, RELATION_METHODS)]
    own = {} if estimator.method_options is None else estimator.method_options
    if not isinstance(own, dict):
        raise TypeError(f"method_options must be a dict or None; got {type(own).__name__}.")
    names = [field.name for field in dataclasses.fields(method.options)]  # type: ignore[arg-type]
    for name in own:
        if name not in names:
            fail_value(f"method_options of method {method.name!r} may hold {names}; got {name!r}.")
    options = method.options(**own)
    max_iter = check_int("max_iter", estimator.max_iter)
    if method.sampler and max_iter <= options.burn_in:
        fail_value(f"max_iter must be above the burn-in of {options.burn_in} sweeps; got {max_iter}.")
    how = {
        "max_iter": max_iter,
        "tol": check_range("tol", estimator.tol, 0.0),
        "n_threads": n_threads(estimator.n_jobs),
        "verbose": bool(estimator.verbose),
    }
    return method, options, how


def fit_problem(
    method: Method,
    problem: RelationProblem,
    options: Any,
    *,
    max_iter: int,
    tol: float,
    n_threads: int = 1,
    callbacks: tuple[Callable[..., Any], ...] = (),
    verbose: bool = False,
    warn: bool = True,
) -> Run:
    """Run a method, BLAS on one thread so that its sums have one order; warn of a run that did not converge."""
    with threadpool_limits(limits=1, user_api="blas"):
        result = run(
            method,
            problem,
            options,
            max_iter=max_iter,
            tol=tol,
            n_threads=n_threads,
            callbacks=callbacks,
            verbose=verbose,
        )
    if warn and not method.sampler and not result.converged and not result.stopped:
        last = result.trace["change"][-1]
        warn_user(
            f"{method.name} stopped after max_iter={max_iter} sweeps with a relative change of {last:.2g} > "
            f"tol={tol:g}; increase max_iter or raise tol.",
            ConvergenceWarning,
        )
    return result
