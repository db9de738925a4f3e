"""Values, labels, counts, limits and levels of the same cells, models of them, and a comparison of the bits of fits."""

from __future__ import annotations

from typing import Any

import numpy as np

import tensorcep as tc

Kinds = dict[str, tuple[Any, tc.SparseTensor, dict[str, Any]]]


def kinds_of(tensor: tc.SparseTensor) -> Kinds:
    """Of each kind the estimator, the data, and the parameters of its own."""
    values = tensor.values
    limit = float(np.quantile(values, 0.3))

    def of(y: np.ndarray) -> tc.SparseTensor:
        return tc.SparseTensor(tensor.coords, y.astype(float), tensor.shape)

    labels, counts = of(values > np.median(values)), of(np.floor(np.exp(0.7 * values)))
    return {
        "values": (tc.CPRegressor, tensor, {}),
        "labels": (tc.CPClassifier, labels, {}),
        "probit": (tc.CPClassifier, labels, {"link": "probit"}),
        "counts": (tc.CPCountRegressor, counts, {"likelihood": "negbinomial"}),
        "poisson": (tc.CPCountRegressor, counts, {}),
        "limits": (tc.CPRegressor, of(np.maximum(values, limit)), {"lower_limit": limit}),
        "levels": (tc.CPOrdinalClassifier, of(np.digitize(values, [limit, limit + 1.0])), {}),
    }


def of_kind(kinds: Kinds, kind: str, method: Any, **params: Any) -> tuple[Any, tc.SparseTensor]:
    """A model of a kind of data, and the data."""
    make, tensor, own = kinds[kind]
    how = {"rank": 2, "init": "random", "max_iter": 5, "interactions": "cp", "random_state": 0, "method": method}
    return make(**{**how, **own, **params}), tensor


def check_bits(here: Any, there: Any, cells: np.ndarray) -> None:
    """Factors, traces and predictions of these cells, to the bit."""
    for a, b in zip(here.factors_, there.factors_, strict=True):
        np.testing.assert_array_equal(a, b)
    for name in set(here.trace_) - {"seconds"}:
        np.testing.assert_array_equal(here.trace_[name], there.trace_[name], err_msg=name)
    predict = "predict_proba" if hasattr(here, "predict_proba") else "predict"
    np.testing.assert_array_equal(getattr(here, predict)(cells), getattr(there, predict)(cells))
