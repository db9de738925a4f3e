"""Small problems of one relation, for the tests of the methods of factor models."""

from __future__ import annotations

import numpy as np

from tensorcep.factor_models.cells import DenseCells, ListedCells
from tensorcep.factor_models.problem import Entity, Priors, Relation, RelationProblem, coded, count_table
from tensorcep.factor_models.sites import LIMITED, kind_of

# oracles: evidence, lower bounds and posterior means on 2 x 2 matrices, by quadrature and independent code
GAUSS = np.array([[1.2, -0.7], [-0.4, 0.9]])
GAUSS_ALPHA, GAUSS_TAU = np.array([1.0, 1.5]), 2.0
GAUSS_MEAN = [[0.657660, -0.435996], [-0.275827, 0.463526]]
GAUSS_BOUND, GAUSS_BOUND_AT_Q0 = -7.312191098139, -8.1267824639022
BINARY = np.array([[1.0, 0.0], [1.0, 1.0]])
BINARY_P = [[0.558513, 0.441487], [0.558513, 0.558513]]
BINARY_BOUND = -3.1225676157204116
COUNTS, COUNTS_R = np.array([[3.0, 0.0], [1.0, 5.0]]), 2.0
COUNTS_PSI = [[0.16359, -0.46010], [-0.16669, 0.38391]]
COUNTS_BOUND = -8.81999057

AUGMENTED = [("gaussian", "direct"), *((k, a) for k in ("bernoulli", "negbinomial") for a in ("direct", "noise"))]
AUGMENTED += [("probit", "direct"), ("limited", "direct")]
LIMIT = -0.3  # of real data that are "limited"


def problem(
    x,
    K,
    likelihood,
    augmentation="direct",
    *,
    alpha=1.0,
    learned=False,
    seed=0,
    scale=1.0,
    listed=False,
    groups="all",
    noise=None,
    r=None,
    precision_prior=(1e-3, 1e-3),
    priors=None,
):
    """One relation without biases; NaN in x are missing."""
    N, D = x.shape
    rng = np.random.default_rng(seed)
    k = np.arange(K)
    entities = (
        Entity(N, np.ones(K), np.zeros(K, dtype=bool)),
        Entity(D, np.broadcast_to(np.asarray(alpha, dtype=float), (K,)).copy(), np.full(K, learned)),
    )
    start = (scale * rng.standard_normal((N, K)), scale * rng.standard_normal((D, K)))
    seen = ~np.isnan(x)
    if listed:
        rows, cols = np.nonzero(seen)
        cells, x = ListedCells(x.shape, rows, cols), x[rows, cols]
    else:
        cells, x = DenseCells(x.shape, None if seen.all() else seen.astype(float)), np.where(seen, x, 0.0)
    limited = likelihood == "limited"
    kind = LIMITED if limited else kind_of(likelihood, augmentation)
    x = cells.only_observed(np.maximum(x, LIMIT)) if limited else x
    relation = Relation(
        0,
        1,
        k,
        k,
        cells,
        coded(kind, cells, x),
        kind,
        groups,
        None if noise is None else np.atleast_1d(noise),
        None if r is None else np.atleast_1d(r),
        limit=np.full(D, LIMIT) if limited else None,
    )
    relation = relation._replace(table=count_table(relation))
    return RelationProblem(
        entities, (relation,), start, (None, None), priors or Priors(), precision_prior, seed=seed, rank=K
    )


def data(rng, likelihood, shape=(14, 6), missing=0.0):
    """A matrix of the likelihood, some of it missing."""
    if likelihood in ("gaussian", "limited"):
        x = rng.standard_normal(shape)
    elif likelihood in ("bernoulli", "probit"):
        x = (rng.random(shape) < 0.4).astype(float)
    else:
        x = rng.poisson(3.0, shape).astype(float)
    x[rng.random(shape) < missing] = np.nan
    return x
