"""The problem of some relations, and where its methods start: near the singular vectors of a matrix, or at random."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.extmath import randomized_svd

from tensorcep.factor_models.layout import Layout, Link, layouts, relation_of
from tensorcep.factor_models.relations import Entity, Priors, RelationProblem

START_SCALE = 0.3  # sd of random starts: small, so that components grow apart before they fill up
STARTS = ("svd", "random")
EXACT_SVD = 1000  # the shorter side up to which a Gram matrix is taken apart


def build_problem(
    links: list[Link],
    sizes: list[int],
    rank: int,
    learned: list[bool],
    priors: Priors,
    rng: np.random.Generator,
    init: str,
    start_variance: float = 1.0,
) -> tuple[RelationProblem, list[Layout]]:
    """The problem of some relations; `learned` says for each entity whether its components' precisions are learned."""
    where = layouts(links, len(sizes), rank)
    entities = []
    for n, layout, learn in zip(sizes, where, learned, strict=True):
        automatic = np.zeros(layout.size, dtype=bool)
        automatic[:rank] = learn
        automatic[list(layout.bias.values())] = True
        entities.append(Entity(n, np.ones(layout.size), automatic, layout.one))
    start = _start(links, sizes, rank, where, rng, init)
    relations = tuple(relation_of(link, m, where) for m, link in enumerate(links))
    seed = int(rng.integers(2**63))
    frozen = (None,) * len(sizes)
    problem = RelationProblem(tuple(entities), relations, tuple(start), frozen, priors)
    return problem._replace(start_variance=start_variance, seed=seed, rank=rank), where


def _start(
    links: list[Link], sizes: list[int], rank: int, where: list[Layout], rng: np.random.Generator, init: str
) -> list[np.ndarray]:
    """Means of the rows of every entity; biases at the column means, or at 0."""
    start = [START_SCALE * rng.standard_normal((n, layout.size)) for n, layout in zip(sizes, where, strict=True)]
    if init == "svd":
        start[links[0].row][:, :rank], start[links[0].col][:, :rank] = _svd_start(links[0], rank, rng)
    for m, link in enumerate(links):
        start[link.row][:, list(where[link.row].bias.values())] = 0.0
        if m in where[link.col].bias:
            r = 1.0 if link.known_r is None else float(np.mean(link.known_r))
            start[link.col][:, where[link.col].bias[m]] = link.kind.latent(link.modelled.column_means(), r)
    for mean, layout in zip(start, where, strict=True):
        if layout.one >= 0:
            mean[:, layout.one] = 1.0
    return start


def _svd_start(link: Link, rank: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Components of the matrix less its column means, scaled so that those of the rows have unit variance.

    Loadings are divided by the observed part of the cells, as the others count as zeros. Components beyond the
    matrix's rank start at random. Counts are taken by their logarithms, labels are scaled to logits.
    """
    N, D = link.matrix.cells.shape
    U = START_SCALE * rng.standard_normal((N, rank))
    V = START_SCALE * rng.standard_normal((D, rank))
    seen = link.modelled
    matrix = seen._replace(x=link.kind.sketch(seen.x))
    K = min(rank, N, D)
    u, s, vt = _leading_vectors(matrix.sketchable(), K)
    U[:, :K] = np.sqrt(N) * u
    V[:, :K] = link.kind.scale / np.sqrt(N) * N * D / matrix.cells.n_observed * (s[:, None] * vt).T
    return U, V


def _leading_vectors(X: Any, K: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Leading singular vectors and values, the same in every run: exact where one side is short."""
    if min(X.shape) > EXACT_SVD:
        u, s, vt = randomized_svd(X, K, random_state=0)
        return u, s, vt
    if X.shape[0] < X.shape[1]:
        u, s, vt = _leading_vectors(X.T, K)
        return vt.T, s, u.T
    gram = X.T @ X
    squares, v = np.linalg.eigh(gram.toarray() if sparse.issparse(gram) else gram)
    s, v = np.sqrt(np.maximum(squares[::-1][:K], 0.0)), v[:, ::-1][:, :K]
    u = np.divide(X @ v, s, out=np.zeros((X.shape[0], K)), where=s > 1e-7 * s[0])
    return u, s, v.T
