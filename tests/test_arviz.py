"""Draws in the container of ArviZ: groups, labels, chains, and the mark of an approximation."""

from __future__ import annotations

import importlib
import sys
import types
import warnings

import numpy as np
import pandas as pd
import pytest
from helpers.data import NAMES, SHAPE, entries, fitted
from helpers.models import paper

import tensorcep as tc
from tensorcep.core.reporting import arviz_container
from tensorcep.cp.posterior import Draws, PointEstimate

# Few sweeps on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
pytest.importorskip("xarray", reason="xarray is not installed: pip install 'tensorcep[arviz]'")


@pytest.fixture(params=["installed", "0.x", "1.x"])
def arviz(request, monkeypatch):
    """ArviZ itself, and stand-ins that only have what each generation offers to `arviz_container`."""
    if request.param == "installed":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its own deprecations, on import
            try:
                return importlib.import_module("arviz")
            except ImportError:
                pytest.skip("arviz is not installed: pip install 'tensorcep[arviz]'")
    fake = types.ModuleType("arviz")
    fake.__version__ = "0.23.4" if request.param == "0.x" else "1.2.0"
    if request.param == "0.x":
        fake.InferenceData = types.SimpleNamespace
    elif not hasattr(importlib.import_module("xarray"), "DataTree"):
        pytest.skip("this xarray has no DataTree")
    monkeypatch.setitem(sys.modules, "arviz", fake)
    return fake


def test_arviz_groups_hold_draws_of_factors_parameter_and_observations(arviz):
    for name in NAMES:
        X, y = entries(name)
        data = fitted(name).to_arviz(X[:20], y[:20], n_samples=30, random_state=0)
        for k, n in enumerate(SHAPE):
            factor = data.posterior[f"factor_{k}"]
            assert factor.shape == (1, 30, n, 2), name
            assert factor.dims == ("chain", "draw", f"mode_{k}", "component"), name
        assert ("noise_precision" in data.posterior) == (name == "regressor")
        assert data.posterior_predictive["y"].shape == (1, 30, 20), name
        np.testing.assert_array_equal(data.observed_data["y"], y[:20], err_msg=name)
        assert data.posterior.attrs["approximate"] == 1, name
        assert "approximate posterior" in data.posterior.attrs["draws"], name
        assert data.posterior.attrs["method"] == "cep", name


def test_arviz_draws_of_factors_and_observations_belong_together(arviz):
    X, _ = entries("regressor")
    data = fitted("regressor").to_arviz(X[:50], n_samples=400, random_state=1)
    factors = [data.posterior[f"factor_{k}"].values[0] for k in range(3)]
    f = np.prod([u[:, i] for u, i in zip(factors, X[:50].T, strict=True)], axis=0).sum(axis=2)
    tau = data.posterior["noise_precision"].values[0]
    z = (data.posterior_predictive["y"].values[0] - f) * np.sqrt(tau)[:, None]
    assert abs(z.mean()) < 6.0 / np.sqrt(z.size)
    assert abs(z.var() - 1.0) < 6.0 * np.sqrt(2.0 / z.size)
    assert not hasattr(data, "observed_data")


def test_arviz_dimensions_have_the_labels_of_the_tensor(arviz):
    X, y = entries("regressor")
    frame = pd.DataFrame({"user": [f"u{i}" for i in X[:, 0]], "item": X[:, 1], "week": X[:, 2], "y": y})
    tensor = tc.SparseTensor.from_pandas(frame, modes=["user", "item", "week"], value="y")
    model = paper(tc.CPRegressor, rank=2, max_iter=3, tol=1e9, anneal=0, random_state=0).fit(tensor)
    data = model.to_arviz(tensor, n_samples=5)
    assert list(data.posterior["factor_0"].coords["user"].values) == list(tensor.labels[0])
    np.testing.assert_array_equal(data.observed_data["y"], tensor.values)


def with_draws(rng, theta):
    """A model whose result is that of a sampler: two chains of seven draws."""
    model = paper(tc.CPRegressor, rank=2, max_iter=3, tol=1e9, anneal=0, random_state=0).fit(*entries("regressor"))
    seen = model.posterior_.seen
    rows = rng.standard_normal((sum(SHAPE), 2)) + 0.1 * rng.standard_normal((2, 7, sum(SHAPE), 2))
    model._set(model._result.with_posterior(Draws(SHAPE, 2, rows, theta, None, seen)))
    return model


def test_arviz_keeps_the_chains_of_a_sampler(arviz, rng):
    theta = rng.random((2, 7, 1)) + 1.0
    model = with_draws(rng, theta)
    data = model.to_arviz(entries("regressor")[0][:4], n_samples=3)
    own = np.split(model.posterior_.rows, [12, 22], axis=2)
    for k, mine in enumerate(own):  # the draws of the chains, but for order, signs and scales
        factor = data.posterior[f"factor_{k}"].values
        cosine = np.einsum("cdnr,cdns->cdrs", factor, mine)
        cosine /= np.linalg.norm(factor, axis=2)[..., None] * np.linalg.norm(mine, axis=2)[:, :, None]
        np.testing.assert_allclose(np.abs(cosine).max(axis=3), 1.0)
    found = np.einsum("cdir,cdjr,cdkr->cdijk", *(data.posterior[f"factor_{k}"].values for k in range(3)))
    np.testing.assert_allclose(found, np.einsum("cdir,cdjr,cdkr->cdijk", *own), atol=1e-12)
    np.testing.assert_array_equal(data.posterior["noise_precision"], theta[..., 0])
    assert data.posterior_predictive["y"].shape == (2, 7, 4)
    assert data.posterior.attrs["approximate"] == 0


def test_arviz_summarises_the_chains(rng):
    az = pytest.importorskip("arviz", reason="arviz is not installed: pip install 'tensorcep[arviz]'")
    data = with_draws(rng, rng.random((2, 7, 1)) + 1.0).to_arviz()
    assert set(az.extract(data).data_vars) == {"factor_0", "factor_1", "factor_2", "noise_precision"}


def test_arviz_refuses_what_it_cannot_do(rng):
    with pytest.raises(ValueError, match="y must be None without X"):
        fitted("regressor").to_arviz(y=[1.0])
    model = with_draws(rng, None)
    model._set(
        model._result.with_posterior(
            PointEstimate(SHAPE, 2, rng.standard_normal((sum(SHAPE), 2)), 1.0, model.posterior_.seen)
        )
    )
    with pytest.raises(ValueError, match="to_arviz needs a posterior"):
        model.to_arviz()


def test_arviz_missing_is_said_with_the_way_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"to_arviz needs arviz, .* pip install 'tensorcep\[arviz\]'"):
        arviz_container({}, {}, "cep", True)
