"""Several matrices: CCA, group factor analysis and collective matrix factorisation."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from scipy import sparse
from scipy.special import expit

import tensorcep
from tensorcep import (
    BayesianCCA,
    BayesianFactorAnalysis,
    BayesianPCA,
    CollectiveMatrixFactorization,
    GroupFactorAnalysis,
)
from tensorcep.factor_models.settings import Gibbs

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def two_views(rng, N=200):
    """Two factors in both views, one in each alone."""
    U, V, W = (rng.standard_normal((n, 4)) for n in (N, 12, 9))
    V[:, 2] = W[:, 3] = 0.0
    return U @ V.T + 0.5 * rng.standard_normal((N, 12)) + 3.0, U @ W.T + 0.5 * rng.standard_normal((N, 9))


def test_cca_tells_shared_from_own_structure(rng):
    x, y = two_views(rng)
    model = BayesianCCA(8, tol=1e-6, max_iter=3000, random_state=0).fit(x, y)
    assert model.shared_.sum() == 2
    assert (model.active_.sum(axis=1) == 3).all()
    assert model.relevance_["rows"] == pytest.approx(1.0)
    bound = model.trace_["lower_bound"]
    assert np.diff(bound).min() > -1e-9 * np.abs(bound).max()


def test_cca_predicts_one_view_from_the_other(rng):
    x, y = two_views(rng, 400)
    model = BayesianCCA(6, random_state=0).fit(x[:300], y[:300])
    found = model.predict_view([x[300:], None], 1)
    flat = y[:300].mean(axis=0)
    assert np.mean((found - y[300:]) ** 2) < 0.7 * np.mean((flat - y[300:]) ** 2)
    scores, cov = model.transform([x[300:], None], return_cov=True)
    both = model.transform([x[300:], y[300:]])
    assert scores.shape == both.shape
    assert cov.shape == (100, 6, 6)


def test_group_factor_analysis_takes_mixed_views_with_missing_blocks(rng):
    U = rng.standard_normal((150, 2))
    views = [U @ rng.standard_normal((d, 2)).T for d in (10, 12, 8)]
    gauss = views[0] + 0.3 * rng.standard_normal((150, 10))
    gauss[:50] = np.nan
    labels = (rng.random((150, 12)) < expit(2.0 * views[1])).astype(float)
    counts = rng.poisson(np.exp(0.5 * views[2])).astype(float)
    model = GroupFactorAnalysis(4, ["gaussian", "bernoulli", "negbinomial"], random_state=0, max_iter=300)
    model.fit([gauss, labels, counts])
    filled = model.predict_missing(0)
    truth = views[0][:50]
    assert np.mean((filled[:50] - truth) ** 2) < 0.4 * np.mean(truth**2)
    assert [m.shape for m in model.loadings_] == [(10, 4), (12, 4), (8, 4)]


RECOMMENDER = [
    ("users", "items", "bernoulli"),
    ("users", "user features", "gaussian"),
    ("items", "item features", "gaussian"),
    ("users", "places", "negbinomial"),
]


def recommender(rng):
    """Four relations of one truth; few cells of the first are observed."""
    sizes = {"users": 80, "items": 50, "user features": 12, "item features": 10, "places": 9}
    factors = {name: rng.standard_normal((n, 3)) for name, n in sizes.items()}
    psi = [factors[a] @ factors[b].T for a, b, _ in RECOMMENDER]
    p = expit(1.5 * psi[0])
    main = np.where(rng.random(p.shape) < 0.08, (rng.random(p.shape) < p).astype(float), np.nan)
    gauss = [f + 0.5 * rng.standard_normal(f.shape) for f in psi[1:3]]
    return p, [main, *gauss, rng.poisson(np.exp(0.4 * psi[3])).astype(float)]


@pytest.mark.parametrize("method", ["vb", "vb-factorized", "gibbs"])
def test_collective_factorisation_beats_the_main_relation_alone(rng, method):
    p, matrices = recommender(rng)
    how = {"n_components": 5, "method": method, "max_iter": 250, "random_state": 0}
    if method == "gibbs":
        how["method"] = Gibbs(burn_in=100)
    together = CollectiveMatrixFactorization(RECOMMENDER, **how).fit(matrices)
    alone = CollectiveMatrixFactorization(RECOMMENDER[:1], **how).fit(matrices[:1])
    hidden = np.isnan(matrices[0])

    def score(model):
        q = np.clip(model.reconstruct(0)[hidden], 1e-6, 1.0 - 1e-6)
        return np.mean(p[hidden] * np.log(q) + (1.0 - p[hidden]) * np.log1p(-q))

    assert score(together) > score(alone) + 0.1
    assert together.factors_["users"].shape == (80, 5)


def test_collective_factorisation_bound_never_falls(rng):
    _, matrices = recommender(rng)
    matrices[0] = sparse.csr_matrix(np.nan_to_num(matrices[0]))
    for method in ("vb", "vb-factorized"):
        model = CollectiveMatrixFactorization(RECOMMENDER, 3, method, max_iter=30, random_state=0).fit(matrices)
        bound = model.trace_["lower_bound"]
        assert np.diff(bound).min() > -1e-9 * np.abs(bound).max()


def test_collective_factorisation_comes_back_from_a_file(rng, tmp_path):
    _, matrices = recommender(rng)
    model = CollectiveMatrixFactorization(RECOMMENDER, 3, max_iter=10, random_state=0).fit(matrices)
    model.save(tmp_path / "m.npz")
    back = tensorcep.load(tmp_path / "m.npz")
    for m in range(4):
        np.testing.assert_array_equal(back.reconstruct(m), model.reconstruct(m))
    np.testing.assert_array_equal(back.active_, model.active_)
    with pytest.raises(ValueError, match="does not hold its training matrices"):
        back.predict_missing(0)


def test_relations_say_what_is_wrong(rng):
    x = rng.standard_normal((5, 4))
    with pytest.raises(ValueError, match="matrix 1 has 4 rows, an earlier one 5"):
        GroupFactorAnalysis(2).fit([x, x[:4]])
    with pytest.raises(ValueError, match="two different entities"):
        CollectiveMatrixFactorization([("a", "a", "gaussian")]).fit([x])
    with pytest.raises(ValueError, match="one matrix for each of 1 relations"):
        CollectiveMatrixFactorization([("a", "b", "gaussian")]).fit([x, x])
    with pytest.raises(ValueError, match="two views; got 3"):
        BayesianCCA(2).fit([x, x, x])
    with pytest.raises(ValueError, match="likelihood must be one of"):
        GroupFactorAnalysis(2, "logit").fit([x, x])
    model = BayesianCCA(2, random_state=0).fit(x, x)
    with pytest.raises(ValueError, match="view 0 must have 4 columns"):
        model.transform([x[:, :3], None])


def _one(cls):
    def asked(X, new):
        model = cls(2, max_iter=20, random_state=0).fit(X)
        said = [model.reconstruct(), model.transform(new), model.predict_missing(new), model.score_samples(new)]
        return said if cls is BayesianFactorAnalysis else [*said, model.score(new), model.partial_fit(new).components_]

    return asked


def _views(X, new):
    model = GroupFactorAnalysis(2, max_iter=20, random_state=0).fit({"a": X, "b": X[:, ::-1]})
    return [model.reconstruct(0), model.transform([new, None]), model.predict_view([new, None], 1)]


def _two(X, new):
    model = BayesianCCA(2, max_iter=20, random_state=0).fit(X, X[:, ::-1])
    return [model.reconstruct(1), model.transform([new, None]), model.predict_missing(0)]


def _collective(X, new):
    relations = [("a", "b", "gaussian"), ("a", "c", "gaussian")]
    model = CollectiveMatrixFactorization(relations, 2, max_iter=20, random_state=0).fit([X, X[:, ::-1]])
    return [model.reconstruct(1), model.predict_missing(0), model.transform([new, None], entity="a")]


@each("asked", [_one(BayesianPCA), _one(BayesianFactorAnalysis), _views, _two, _collective])
@each("whole", [False, True])
def test_masked_cells_are_missing(asked, whole, rng):
    """To the bit what NaN in their places gives, whatever number is behind the mask; of whole numbers, too."""
    X = rng.integers(0, 9, (30, 6)) if whole else rng.standard_normal((30, 6))
    hidden = rng.random((30, 6)) < 0.2
    masked = np.ma.array(np.where(hidden, 100_000, X), mask=hidden)
    gaps = np.where(hidden, np.nan, X)
    assert masked.dtype.kind == ("i" if whole else "f")
    for found, wanted in zip(asked(masked, masked[:5]), asked(gaps, gaps[:5]), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_new_row_whose_view_is_wholly_missing_is_one_without_it(rng):
    x = rng.normal(size=(40, 1)) @ rng.normal(size=(1, 7)) + 0.1 * rng.normal(size=(40, 7))
    model = GroupFactorAnalysis(1, random_state=0, tol=1e-2).fit([x[:, :4], x[:, 4:]])
    missing, without = [x[:1, :4], np.full((1, 3), np.nan)], [x[:1, :4], None]
    np.testing.assert_array_equal(model.transform(missing), model.transform(without))
    np.testing.assert_array_equal(model.predict_view(missing, 1), model.predict_view(without, 1))
