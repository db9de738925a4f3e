"""The estimators with the samplers and with negative-binomial counts: predictions, diagnostics, files, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from helpers.models import paper

import tensorcep as tc

X = np.stack(np.unravel_index(np.arange(60), (5, 4, 3)), axis=1)
RNG = np.random.default_rng(7)
Y = RNG.negative_binomial(2.0, 0.4, 60).astype(float)
FEW = {"burn_in": 10, "thin": 1, "n_chains": 2}


def fitted(method, **given):
    own = {} if method == "pg-vb" else {**FEW, "max_iter": 30}
    return paper(
        tc.CPCountRegressor, 2, likelihood="negbinomial", method=method, random_state=0, tol=1e-2, **own, **given
    )


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # few sweeps on purpose
@each("method", ["pg-vb", "pg-gibbs"])
def test_counts_predict_and_come_back_from_a_file(method, tmp_path):
    model = fitted(method).fit(X, Y)
    mean, std = model.predict(X, return_std=True)
    low, high = model.predict_interval(X[:10], 0.8).T
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    assert (low <= high).all()
    assert model.sample_y(X, 3, random_state=0).shape == (3, 60)
    model.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.predict(X), mean)
    np.testing.assert_array_equal(again.log_score(X, Y), model.log_score(X, Y))


def test_chain_diagnostics_have_one_number_per_entry():
    model = paper(tc.CPRegressor, 2, method="gibbs", max_iter=30, random_state=0, **FEW).fit(X, Y)
    r_hat, size = model.chain_diagnostics(X[:7])
    assert r_hat.shape == size.shape == (7,)
    assert (r_hat > 0.9).all()
    assert (size > 1.0).all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # few sweeps on purpose
def test_chains_refuse_what_they_cannot_do():
    model = paper(tc.CPRegressor, 2, random_state=0, tol=1e-1).fit(X, Y)
    with pytest.raises(ValueError, match="method 'cep' draws no chains, as chain_diagnostics needs; use one"):
        model.chain_diagnostics(X)
    with pytest.raises(ValueError, match="dispersion must be 'learned', the name of a mode, or a number > 0; got 0"):
        paper(tc.CPCountRegressor, 2, likelihood="negbinomial", dispersion=0).fit(X, Y)
    with pytest.raises(ValueError, match="method 'pg-vb' needs pg"):
        paper(tc.CPCountRegressor, 2, method="pg-vb", likelihood="poisson").fit(X, Y)
    with pytest.raises(ValueError, match="burn_in must be below max_iter=5; got 10"):
        paper(tc.CPRegressor, 2, method="gibbs", max_iter=5, **FEW).fit(X, Y)
