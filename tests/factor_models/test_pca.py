"""BayesianPCA and BayesianFactorAnalysis: scikit-learn's contract, exact cases, missing and held-out cells, errors."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.sklearn_checks import check_contract
from scipy import sparse
from scipy.special import expit
from scipy.stats import multivariate_normal

import tensorcep
from tensorcep import BayesianFactorAnalysis, BayesianPCA
from tensorcep.core.packing import unpack
from tensorcep.core.settings import Settings
from tensorcep.factor_models.settings import Gibbs

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


class Other(Settings):
    """Settings of a method of another family."""

    name = "gibbs"


@pytest.mark.parametrize("cls", [BayesianPCA, BayesianFactorAnalysis])
def test_bayesian_pca_keeps_the_contract_of_scikit_learn(cls, subtests):
    check_contract(cls(2, random_state=0, max_iter=100), subtests)


def latent(rng, N=120, D=15, K=3, scale=1.0):
    return scale * rng.standard_normal((N, K)) @ rng.standard_normal((D, K)).T


def binary(rng, **sizes):
    psi = latent(rng, **sizes)
    return (rng.random(psi.shape) < expit(psi)).astype(float), expit(psi)


def counts(rng, **sizes):
    rate = 3.0 * np.exp(latent(rng, **{"scale": 0.4, **sizes}))
    return rng.poisson(rng.gamma(4.0, rate / 4.0)).astype(float), rate


@pytest.mark.parametrize("method", ["vb", "vb-factorized"])
def test_bayesian_pca_finds_the_gaussian_model(rng, method):
    truth = latent(rng, N=300) + 2.0
    x = truth + 0.3 * rng.standard_normal(truth.shape)
    hidden = rng.random(x.shape) < 0.3
    plain = {"noise": "all", "standardize": False}
    model = BayesianPCA(6, method=method, **plain, random_state=0).fit(np.where(hidden, np.nan, x))
    assert model.noise_variance_ == pytest.approx(0.09, rel=0.15)
    assert (model.explained_variance_ > 1e-2 * model.explained_variance_.max()).sum() == 3
    filled, sd = model.predict_missing(return_std=True)
    error = (filled - x)[hidden]
    assert np.sqrt(np.mean(error**2)) < 0.38
    assert np.mean(np.abs(error) < 1.645 * sd[hidden]) == pytest.approx(0.9, abs=0.03)
    np.testing.assert_array_equal(filled[~hidden], x[~hidden])
    assert (sd[~hidden] == 0.0).all()


def test_bayesian_factor_analysis_finds_the_noise_of_each_feature(rng):
    sd = np.linspace(0.2, 1.5, 15)
    x = latent(rng, N=500) + sd * rng.standard_normal((500, 15))
    model = BayesianFactorAnalysis(5, method="vb", tol=1e-4, random_state=0).fit(x)
    np.testing.assert_allclose(np.sqrt(model.noise_variance_), sd, rtol=0.25, atol=0.05)


def test_bayesian_pca_transform_is_the_exact_conditional(rng):
    x = latent(rng) + 0.5 * rng.standard_normal((120, 15)) + 1.0
    model = BayesianPCA(3, method="vb", noise="all", standardize=False, random_state=0).fit(x)
    new = x[:4].copy()
    new[1, 3:9] = np.nan
    scores, cov = model.transform(new, return_cov=True)
    moments, tau = model.posterior_.moments[1], 1.0 / model.noise_variance_
    full = np.einsum("ji,jk->jik", moments.mean, moments.mean) + unpack(moments.cov, moments.mean.shape[1])
    order = [0, 1, 2]
    for i in range(4):
        seen = ~np.isnan(new[i])
        second = full[seen].sum(axis=0)
        bias = 3
        Lam = np.eye(3) + tau * second[np.ix_(order, order)]
        eta = tau * (new[i, seen] @ moments.mean[seen][:, order] - second[order, bias])
        np.testing.assert_allclose(scores[i], np.linalg.solve(Lam, eta), rtol=1e-8)
        np.testing.assert_allclose(cov[i], np.linalg.inv(Lam), rtol=1e-8)


def test_bayesian_pca_score_is_the_gaussian_density_where_components_are_certain(rng):
    x = latent(rng, N=20000, D=6, K=2) + 0.5 * rng.standard_normal((20000, 6))
    model = BayesianPCA(2, method="vb", random_state=0, max_iter=50).fit(x)
    V = model.components_
    cov = V.T @ V + model.noise_variance_ * np.eye(6)
    expected = multivariate_normal(model.mean_, cov).logpdf(x[:50])
    np.testing.assert_allclose(model.score_samples(x[:50]), expected, atol=0.02)
    assert model.score(x) == pytest.approx(model.score_samples(x).mean())


@pytest.mark.parametrize("method", ["vb", "vb-factorized", "gibbs"])
@pytest.mark.parametrize(("likelihood", "make"), [("bernoulli", binary), ("negbinomial", counts)])
def test_bayesian_pca_predicts_hidden_cells(rng, method, likelihood, make):
    x, expected = make(rng, N=200, D=25, scale=1.5 if likelihood == "bernoulli" else 0.5)
    hidden = rng.random(x.shape) < 0.2
    method = Gibbs(burn_in=60) if method == "gibbs" else method
    model = BayesianPCA(4, likelihood, method, max_iter=160, random_state=0).fit(np.where(hidden, np.nan, x))
    found = model.reconstruct()
    flat = np.nanmean(np.where(hidden, np.nan, x), axis=0)
    assert np.abs(found - expected)[hidden].mean() < 0.7 * np.abs(flat - expected)[hidden].mean()
    scores, cov = model.transform(np.where(hidden, np.nan, x)[:5], return_cov=True)
    assert scores.shape == (5, 4)
    assert np.linalg.eigvalsh(cov).min() > 0.0
    assert np.isfinite(model.score_samples(x[:5])).all()
    assert model.inverse_transform(scores).shape == (5, x.shape[1])


@each("augmentation", ["noise", "boehning"])
@each("method", ["vb", "vb-factorized"])
def test_bayesian_pca_other_augmentations(rng, augmentation, method):
    x, p = binary(rng, scale=0.7)
    model = BayesianPCA(3, "bernoulli", method, augmentation, max_iter=200, random_state=0).fit(x)
    assert np.abs(model.reconstruct() - p).mean() < np.abs(x.mean(axis=0) - p).mean()


@each("dispersion", ["all", "row", "column", 4.0])
def test_bayesian_pca_dispersion(rng, dispersion):
    x, _ = counts(rng, N=200)
    model = BayesianPCA(3, "negbinomial", "vb", dispersion=dispersion, max_iter=60, random_state=0).fit(x)
    size = {"row": 200, "column": 15}.get(dispersion, 1)
    assert model.dispersion_.shape == (size,)
    assert model.predict_missing(x[:3]).shape == (3, 15)
    if dispersion == "all":
        assert model.dispersion_[0] == pytest.approx(4.0, rel=0.35)


def test_bayesian_pca_reads_sparse_and_frames(rng):
    x, _ = binary(rng)
    x = x[:, :6]
    hidden = rng.random(x.shape) < 0.85
    gaps = np.where(hidden, np.nan, x)
    how = {"n_components": 2, "likelihood": "bernoulli", "max_iter": 15, "random_state": 0, "init": "random"}
    dense = BayesianPCA(**how).fit(gaps)
    rows, cols = np.nonzero(~hidden)
    listed = sparse.csr_matrix((x[rows, cols] + 1.0, (rows, cols)), shape=x.shape)
    listed.data -= 1.0  # explicit zeros stay stored
    np.testing.assert_allclose(BayesianPCA(**how).fit(listed).components_, dense.components_, rtol=1e-9)
    zeros = BayesianPCA(**how, absent="zero").fit(sparse.csr_matrix(x))
    np.testing.assert_allclose(zeros.components_, BayesianPCA(**how).fit(x).components_, rtol=1e-9)
    frame = pd.DataFrame(gaps, columns=list("abcdef"))
    model = BayesianPCA(**how).fit(frame)
    assert list(model.feature_names_in_) == list("abcdef")
    np.testing.assert_array_equal(model.components_, dense.components_)


@pytest.mark.parametrize("method", ["vb-factorized", "vb", "gibbs"])
def test_bayesian_pca_same_seed_same_bits_on_any_threads(rng, method):
    x, _ = binary(rng)
    x = np.where(rng.random(x.shape) < 0.85, np.nan, x)
    method = Gibbs(burn_in=2) if method == "gibbs" else method
    one, two = (BayesianPCA(2, "bernoulli", method, max_iter=12, random_state=3, n_jobs=n).fit(x) for n in (1, 2))
    np.testing.assert_array_equal(one.components_, two.components_)


@pytest.mark.parametrize("method", ["vb-factorized", "gibbs"])
def test_bayesian_pca_comes_back_from_a_file(rng, tmp_path, method):
    x, _ = counts(rng, N=40)
    method = Gibbs(burn_in=2) if method == "gibbs" else method
    model = BayesianPCA(2, "negbinomial", method, max_iter=20, random_state=0).fit(x)
    model.save(tmp_path / "m.npz")
    back = tensorcep.load(tmp_path / "m.npz")
    assert back.get_params() == model.get_params()
    np.testing.assert_array_equal(back.transform(x), model.transform(x))
    np.testing.assert_array_equal(back.reconstruct(), model.reconstruct())
    with pytest.raises(ValueError, match="does not hold its training matrix"):
        back.predict_missing()


@each(
    ("changes", "message"),
    [
        (
            {"likelihood": "poisson", "augmentation": "noise"},
            "likelihood 'poisson' does not go with augmentation 'noise'",
        ),
        ({"likelihood": "poisson", "method": "gibbs"}, "no sampler for Boehning's bound"),
        ({"likelihood": "logit"}, "likelihood 'logit' is called 'bernoulli' in factor models"),
        ({"likelihood": "counts"}, r"likelihood 'counts' is called 'negbinomial' \(or 'poisson'\)"),
        ({"likelihood": "bernouli"}, "likelihood must be one of 'gaussian', 'bernoulli', 'probit'"),
        ({"likelihood": "bernoulli"}, "X must hold labels 0 and 1; got 2"),
        ({"likelihood": "negbinomial", "dispersion": -1.0}, "dispersion must be a number > 0"),
        ({"method": "em"}, "method must be one of 'vb-factorized', 'vb', 'gibbs'; got 'em'"),
        ({"method": "gibbs", "max_iter": 10}, "max_iter must be above the burn-in of 200 sweeps; got 10"),
        ({"method": Gibbs}, r"got the class; write Gibbs\(\)"),
        ({"method": Other()}, r"must be one of FactorisedVB\(\), VB\(\), Gibbs\(\), from .*; got another Other\(\)"),
        ({"bias": "all"}, "bias must be one of"),
        ({"n_components": 0}, "n_components must be an integer >= 1"),
    ],
)
def test_bayesian_pca_says_what_is_wrong(changes, message):
    x = np.array([[0.0, 2.0, 1.0], [1.0, 0.0, 2.0], [2.0, 1.0, 0.0]])
    with pytest.raises(ValueError, match=message):
        BayesianPCA(**changes).fit(x)


def test_bayesian_pca_refuses_a_matrix_without_cells():
    with pytest.raises(ValueError, match="X holds no entries"):
        BayesianPCA(1).fit(np.full((3, 3), np.nan))


def test_bayesian_pca_of_poisson_counts_takes_the_bound_that_there_is(rng, tmp_path):
    x = rng.poisson(3.0, size=(20, 6))
    one, other = (
        BayesianPCA(1, "poisson", augmentation=word, random_state=0, max_iter=5).fit(x)
        for word in ("direct", "boehning")
    )
    np.testing.assert_array_equal(one.components_, other.components_)
    one.save(tmp_path / "m.npz")
    np.testing.assert_array_equal(tensorcep.load(tmp_path / "m.npz").transform(x), one.transform(x))
