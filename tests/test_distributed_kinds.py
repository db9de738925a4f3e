"""Fits whose entries have auxiliary variables, on the workers of a Dask cluster: the same bits as in process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.clusters import local_client
from helpers.ended_fit import TENSOR

import tensorcep as tc
from tensorcep import distributed

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with local_client() as found:
        yield found


GIBBS = tc.Gibbs(n_chains=2)
PG = tc.PGGibbs(n_chains=2)
LABELS = tc.SparseTensor(TENSOR.coords, (TENSOR.values > np.median(TENSOR.values)).astype(float), TENSOR.shape)
COUNTS = tc.SparseTensor(TENSOR.coords, np.floor(np.exp(0.7 * TENSOR.values)), TENSOR.shape)
LIMIT = float(np.quantile(TENSOR.values, 0.3))
CUT = tc.SparseTensor(TENSOR.coords, np.maximum(TENSOR.values, LIMIT), TENSOR.shape)
LEVELS = tc.SparseTensor(TENSOR.coords, np.digitize(TENSOR.values, [LIMIT, LIMIT + 1.0]).astype(float), TENSOR.shape)


def of_kind(kind: str, method: Any, **params: Any) -> tuple[Any, tc.SparseTensor]:
    """A model of a kind of data, and the data."""
    kinds: dict[str, tuple[Any, tc.SparseTensor, dict[str, Any]]] = {
        "labels": (tc.CPClassifier, LABELS, {}),
        "probit": (tc.CPClassifier, LABELS, {"link": "probit"}),
        "counts": (tc.CPCountRegressor, COUNTS, {"likelihood": "negbinomial"}),
        "poisson": (tc.CPCountRegressor, COUNTS, {}),
        "limits": (tc.CPRegressor, CUT, {"lower_limit": LIMIT}),
        "levels": (tc.CPOrdinalClassifier, LEVELS, {}),
    }
    make, tensor, own = kinds[kind]
    how = {"rank": 2, "init": "random", "max_iter": 5, "interactions": "cp", "random_state": 0, "method": method}
    return make(**{**how, **own, **params}), tensor


def check_kind(client: Any, kind: str, method: Any, **params: Any) -> None:
    """A fit on workers and here."""
    model, tensor = of_kind(kind, method, **params)
    here = model.fit(tensor)
    there = distributed.fit(of_kind(kind, method, **params)[0], tensor, client=client, n_parts=2)
    check_beliefs(here, there)


def check_beliefs(here: Any, there: Any) -> None:
    """Factors, traces and predictions to the bit."""
    for a, b in zip(here.factors_, there.factors_, strict=True):
        np.testing.assert_array_equal(a, b)
    for name in set(here.trace_) - {"seconds"}:
        np.testing.assert_array_equal(here.trace_[name], there.trace_[name], err_msg=name)
    cells = TENSOR.coords[:20]
    predict = "predict_proba" if hasattr(here, "predict_proba") else "predict"
    np.testing.assert_array_equal(getattr(here, predict)(cells), getattr(there, predict)(cells))


# Weights and targets that workers draw, and those that follow from squares that they compute.
@pytest.mark.parametrize(("kind", "method"), [("labels", PG), ("labels", "pg-vb")])
def test_fit_with_auxiliary_variables_on_workers_has_the_bits_of_one_process(
    client: Any, kind: str, method: Any
) -> None:
    check_kind(client, kind, method)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "method", "params"),
    [
        ("labels", "pg-vb", {"interactions": "main+cp"}),
        ("labels", PG, {"interactions": "auto"}),
        ("probit", GIBBS, {}),
        ("probit", "vmp", {}),
        ("limits", GIBBS, {}),
        ("limits", "vmp", {}),
        ("counts", "pg-vb", {}),
        ("poisson", "vmp", {}),
        ("levels", GIBBS, {}),
        ("levels", "vmp", {}),
    ],
)
def test_other_fits_with_auxiliary_variables_on_workers(
    client: Any, kind: str, method: Any, params: dict[str, Any]
) -> None:
    check_kind(client, kind, method, **params)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["labels", "poisson", "limits", "levels"])
def test_default_fits_of_other_data_on_workers(client: Any, kind: str) -> None:
    check_kind(client, kind, "auto", init="auto", interactions="auto", max_iter=9)


class EndedError(Exception):
    """What ends a fit in a test."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "method"), [("labels", PG), ("labels", "pg-vb"), ("limits", "vmp"), ("levels", "vmp")]
)
def test_fit_with_auxiliary_variables_goes_on_to_the_same_bits(
    client: Any, tmp_path: Path, kind: str, method: Any
) -> None:
    def end(n: int, *_: Any) -> None:
        if n == 4:
            raise EndedError

    how: dict[str, Any] = {"client": client, "checkpoint": tmp_path / "fit", "n_parts": 2, "every": 1}
    model, tensor = of_kind(kind, method)
    here = model.fit(tensor)
    with pytest.raises(EndedError):
        distributed.fit(of_kind(kind, method, callbacks=end)[0], tensor, **how)
    seen: list[int] = []
    ended = of_kind(kind, method, callbacks=lambda n, *_: seen.append(n))[0]
    there = distributed.fit(ended, tensor, **how)
    check_beliefs(here, there)
    assert seen == [4, 5]
