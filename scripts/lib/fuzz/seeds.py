"""Good files for the fuzzer to damage: tables, tensors, models of every family, and a checkpoint with its input."""

from __future__ import annotations

import gzip
import os
import warnings
from typing import Any

import numpy as np
import pandas as pd

import tensorcep as tc
from tensorcep.cli.main import main
from tensorcep.methods import CEP

# What resumes the checkpoint.
STREAM = ("--rank", "1", "--batch-size", "20", "--checkpoint-every", "1", "--max-iter", "3", "--quiet")
CSV = 'user,item,week,y\nu1,a,1,0.5\nu2,b,2,1.5\nu1,b,3,-0.25\n"u,3",a,2,2e-1\nu3,c,1,7\n'
NUMBERS = "1,2,3,0.5\n2,1,3,1.5\n3,3,1,-0.25\n1,1,1,2\n"
TNS = "# a comment\n1 2 3 0.5\n2 1 3 1.5\n3 3 1 -0.25\n1 1 1 2\n"
EXTENDED = "# extended\n3 4\n3 3 3\n1 2 3 0.5\n2 1 3 1.5\n3 3 1 -0.25\n1 1 1 2\n"
TABLES = {"csv": (CSV, NUMBERS), "tns": (TNS, EXTENDED)}
SEPARATORS = {"csv": ",", "tns": " "}


def tensors(folder: str) -> dict[str, bytes]:
    """Tensors as files, by name."""
    labels = [tc.Labels(["u", "v", "w"], "user"), tc.Labels(pd.period_range("2025-01", periods=3, freq="M"), "month")]
    others = [tc.Labels([1, "a", (2, "b")]), tc.Labels(pd.interval_range(0, 3)), tc.Labels([0.5, 1.5, 2.5])]
    coords, values = np.array([[0, 1], [1, 0], [2, 2]]), np.array([0.5, -1.0, 2.0])
    kept = {
        "plain.npz": tc.SparseTensor(coords, values),
        "labels.npz": tc.SparseTensor(coords, values, None, labels),
        "others.npz": tc.SparseTensor(coords[:, [0, 1, 0]], values, None, others),  # type: ignore[arg-type]
        "rows.parquet": tc.SparseTensor(coords, values, None, [labels[0], tc.Labels([1, 2, 3], "n")]),
    }
    found = {}
    for name, tensor in kept.items():
        path = os.path.join(folder, name)
        tc.write_tensor(tensor, path)
        found[name] = _content(path)
    for kind, texts in TABLES.items():
        for number, text in enumerate(texts):
            found[f"{number}.{kind}"] = text.encode()
            found[f"{number}.{kind}.gz"] = gzip.compress(text.encode(), mtime=0)
    return found


def models(folder: str) -> dict[str, bytes]:
    """Fitted models as files, by name."""
    tensor = tc.simulate_cp((4, 3, 3), 1, 30, noise_precision=25.0, prior_mean=0.7, random_state=0).tensor
    named = tc.SparseTensor(tensor.coords, tensor.values, None, [tc.Labels(list("abcd"), "user"), None, None])
    short: dict[str, Any] = {"max_iter": 4, "tol": 1e9, "random_state": 0}
    rng = np.random.default_rng(0)
    X, labels = rng.standard_normal((20, 3)), rng.integers(2, size=20)
    fits = {
        "regressor": tc.CPRegressor(1, method=CEP(n_ensemble=2), **short).fit(named),
        "gibbs": tc.CPRegressor(1, method="gibbs", **{**short, "max_iter": 8}).fit(tensor),
        "wopt": tc.CPRegressor(1, method="wopt", **short).fit(tensor),
        "classifier": tc.CPClassifier(1, method="pg-vb", **short).fit(
            tensor.coords, tensor.values > np.median(tensor.values)
        ),
        "counts": tc.CPCountRegressor(1, method="cep", likelihood="negbinomial", **short).fit(
            tensor.coords, np.round(np.abs(tensor.values))
        ),
        "stream": tc.CPRegressor(1, method="cep", prior="fixed", revisit=5, **short).partial_fit(named),
        "pca": tc.BayesianPCA(2, max_iter=5, random_state=0).fit(X),
        "views": tc.GroupFactorAnalysis(2, max_iter=5, random_state=0).fit([X, X[:, :2]]),
        "relations": tc.CollectiveMatrixFactorization([("a", "b", "gaussian")], 2, max_iter=5, random_state=0).fit([X]),
        "logistic": tc.BayesianLogisticRegression().fit(X, labels),
        "point": tc.BayesPointMachine(max_iter=5).fit(X, labels),
    }
    found = {}
    for name, model in fits.items():
        path = os.path.join(folder, f"{name}.npz")
        model.save(path)
        found[name] = _content(path)
    return found


def checkpoint(folder: str) -> dict[str, bytes]:
    """A checkpoint after three of five batches, and the table that it was made of."""
    rng = np.random.default_rng(0)
    lines = [f"u{a},v{b},{a * b / 3.0}" for a, b in rng.integers(1, 5, size=(100, 2))]
    head = "user,item,y\n"
    data, model = os.path.join(folder, "data.csv"), os.path.join(folder, "checkpoint.npz")
    with open(data, "w") as handle:
        handle.write(head + "\n".join(lines[:60]) + "\n")
    if main(["stream", data, "-o", model, *STREAM]):
        raise RuntimeError("the stream whose checkpoint is to be damaged failed")
    return {"checkpoint.npz": _content(model), "data.csv": (head + "\n".join(lines) + "\n").encode()}


def corpus(folder: str) -> dict[str, dict[str, bytes]]:
    """All good files, by what they are."""
    here = os.getcwd()
    os.chdir(folder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of fits that are short on purpose
            return {"tensors": tensors("."), "models": models("."), "checkpoint": checkpoint(".")}
    finally:
        os.chdir(here)


def _content(path: str) -> bytes:
    with open(path, "rb") as handle:
        return handle.read()
