"""Several methods side by side: every number of the table, and what is refused."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from helpers.cases import each
from helpers.data import new, simulated
from helpers.models import paper

import tensorcep as tc
from tensorcep import CPRegressor, compare, metrics
from tensorcep.cp.methods import METHODS
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.model_selection import compare as comparison
from tensorcep.model_selection.compare import WARM_UP_ENTRIES

QUICK = {"max_iter": 100, "tol": 0.02}


def split(name: str) -> tuple[SparseTensor, SparseTensor]:
    return simulated(name).tensor.train_test_split(0.25, 0)


def test_compare_real_values_gives_every_score_of_every_method() -> None:
    train, test = split("regressor")
    estimator = new("regressor", **QUICK)
    table = compare(train, test, ["cep", "vmp", "wopt"], estimator=estimator, coverage=0.8)
    assert list(table.index) == ["cep", "vmp", "wopt"]
    assert table.index.name == "method"
    costs = ["sweeps", "seconds", "peak_mb"]
    assert list(table.columns) == ["rmse", "log_score", "coverage", "calibration_error", *costs]
    for name in ("cep", "vmp"):
        model = new("regressor", **QUICK, method=name).fit(train)
        line = table.loc[name]
        assert line["rmse"] == pytest.approx(metrics.rmse(test.values, model.predict(test)))
        assert line["log_score"] == pytest.approx(model.log_score(test, test.values).mean())
        covered = {
            level: metrics.coverage(test.values, *model.predict_interval(test, level).T)
            for level in (0.5, 0.8, 0.9, 0.95)
        }
        assert line["coverage"] == pytest.approx(covered[0.8])
        assert line["calibration_error"] == pytest.approx(np.mean([abs(c - level) for level, c in covered.items()]))
        assert line["sweeps"] == model.n_iter_
    assert table.loc["wopt", ["coverage", "calibration_error"]].isna().all()
    assert np.isfinite(table.loc["wopt", ["rmse", "log_score"]].to_numpy(float)).all()
    assert (table[costs] > 0).all(axis=None)
    assert not hasattr(estimator, "posterior_")
    assert not tracemalloc.is_tracing()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # a point estimate of few labels says so
def test_compare_labels_gives_ranking_and_calibration_of_probabilities() -> None:
    train, test = split("classifier")
    table = compare(train, test, ["vmp", "wopt"], estimator=new("classifier", **QUICK))
    p = new("classifier", **QUICK, method="vmp").fit(train).predict_proba(test)[:, 1]
    assert table.loc["vmp", "auc"] == pytest.approx(metrics.auc(test.values, p))
    assert table.loc["vmp", "calibration_error"] == pytest.approx(metrics.expected_calibration_error(test.values, p))
    assert table["coverage"].isna().all()
    assert np.isfinite(table[["auc", "log_score", "calibration_error"]].to_numpy()).all()
    only_ones = test.select(test.values == 1)
    assert np.isnan(compare(train, only_ones, ["vmp"], estimator=new("classifier", **QUICK)).loc["vmp", "auc"])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # so large a ridge leaves nothing
def test_compare_passes_parameters_to_one_method_only() -> None:
    train, test = split("regressor")
    shrunk = {"wopt": {"method": tc.WOPT(ridge=1e6)}}
    table = compare(train, test, ["vmp", "wopt"], estimator=new("regressor", **QUICK), params=shrunk)
    assert table.loc["wopt", "rmse"] == pytest.approx(np.sqrt(np.mean(test.values**2)), rel=1e-3)
    assert table.loc["vmp", "rmse"] < 0.5 * table.loc["wopt", "rmse"]


def test_compare_peak_memory_counts_what_a_method_stores() -> None:
    """CEP keeps K (P + R) numbers per entry; VMP keeps none of them."""
    train, test = split("regressor")
    methods = [tc.CEP(n_starts=1), tc.VMP(n_starts=1)]
    table = compare(train, test, methods, estimator=paper(CPRegressor, 8, random_state=0, max_iter=200, tol=0.5))
    messages = 8 * train.nnz * 3 * (36 + 8) / 1e6
    assert table.loc["CEP(n_starts=1)", "peak_mb"] > messages
    assert table.loc["VMP(n_starts=1)", "peak_mb"] < 0.6 * messages


@each(
    ("kind", "params", "those", "not_those"),
    [
        ("regressor", {}, {"cep", "vmp", "wopt"}, set()),
        ("counts", {}, {"cep", "vmp", "wopt", "gibbs"}, set()),
        ("regressor", {"prior": "learned"}, {"cep", "laplace", "vmp"}, {"wopt"}),
    ],
)
def test_compare_takes_every_method_that_fits_by_default(
    kind: str, params: dict[str, Any], those: set[str], not_those: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "measure", lambda model, *_: {"rmse": 1.0, "asked": model.method})
    table = compare(*split(kind), estimator=new(kind, **params))
    assert list(table["asked"]) == list(table.index) == [name for name in METHODS if name in table.index]
    assert those <= set(table.index)
    assert not not_those & set(table.index)


@each(
    ("change", "error", "message"),
    [
        ({"methods": ["gipps"]}, ValueError, "a method for the likelihood 'gaussian' must be one of 'cep', .*'gipps'"),
        ({"methods": []}, ValueError, "methods must hold at least one name, each once; got \\[\\]"),
        ({"methods": ["cep", "cep"]}, ValueError, "each once; got \\['cep', 'cep'\\]"),
        ({"params": {"vmp": {}}}, ValueError, "a name in params must be one of 'cep'; got 'vmp'"),
        ({"coverage": 90}, ValueError, "coverage must be a number in \\(0, 1\\); got 90"),
        ({"estimator": "cep"}, TypeError, "estimator must be one of tensorcep's; got str"),
        ({"tensor_test": np.ones((2, 2))}, TypeError, "tensor_test must be a SparseTensor; got ndarray"),
    ],
)
def test_compare_refuses(change: dict[str, Any], error: type[Exception], message: str) -> None:
    train, test = split("regressor")
    with pytest.raises(error, match=message):
        compare(**{"tensor_train": train, "tensor_test": test, "methods": ["cep"], **change})


def test_compare_refuses_an_empty_tensor() -> None:
    train, test = split("regressor")
    with pytest.raises(ValueError, match="tensor_test holds no entries"):
        compare(train, test.select(np.zeros(test.nnz, dtype=bool)))


def test_compare_measures_a_method_whose_fit_to_a_few_entries_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = split("regressor")
    fit = CPRegressor.fit

    def fragile(model: CPRegressor, X: SparseTensor, y: Any = None) -> CPRegressor:
        if X.nnz <= WARM_UP_ENTRIES:
            raise FloatingPointError
        return fit(model, X, y)

    monkeypatch.setattr(CPRegressor, "fit", fragile)
    assert np.isfinite(compare(train, test, ["vmp"], estimator=new("regressor")).loc["vmp", "rmse"])
