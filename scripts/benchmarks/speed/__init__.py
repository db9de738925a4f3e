"""Benchmarks of asv, by names that earlier commits have, too; `drawn` makes what they fit."""

from __future__ import annotations

import math
import time
import warnings
from typing import Any

import numpy as np

import tensorcep as tc
from tensorcep import methods

ALOG = 21_076  # entries of the file-access log, whose shape 200 x 100 x 200 sizes grow from
ESTIMATORS = {"values": tc.CPRegressor, "labels": tc.CPClassifier, "counts": tc.CPCountRegressor}
FITS = {  # one start or chain, which no quick fit precedes
    "gibbs": lambda: methods.Gibbs(n_chains=1, weights="equal", noise="sampled"),
    "pg-gibbs": lambda: methods.PGGibbs(n_chains=1, weights="equal"),
    "vmp": lambda: methods.VMP(anneal=0, n_starts=1),
    "pg-vb": lambda: methods.PGVB(anneal=0, n_starts=1),
    "cep": lambda: methods.CEP(anneal=0, n_starts=1, n_ensemble=1),
    "cep-float32": lambda: methods.CEP(dtype="float32", anneal=0, n_starts=1, n_ensemble=1),
    "cep-averaged": lambda: methods.CEP(messages="averaged", damping=0.5, anneal=0, n_starts=1, n_ensemble=1),
    "laplace": lambda: methods.Laplace(anneal=0, n_starts=1),
    "wopt": lambda: methods.WOPT(iterations=1),
}


def shape_of(n: int) -> tuple[int, ...]:
    """Alog's shape, grown so that a row keeps its number of entries."""
    unit = max(100, n // 1000)
    return 2 * unit, unit, 2 * unit


def drawn(kind: str, n: int, shape: tuple[int, ...], rank: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Random cells in random order; values with noise of sd 0.5, labels, or counts of mean 8.5, of a zero-mean CP."""
    rng = np.random.default_rng(0)
    cells = np.unique(rng.integers(0, math.prod(shape), n))
    rng.shuffle(cells)
    coords = np.stack(np.unravel_index(cells, shape), axis=1)
    f = 1.0
    for size, column in zip(shape, coords.T, strict=True):
        f = f * rng.standard_normal((size, rank))[column]
    f = np.sum(f, axis=1) / math.sqrt(rank)
    if kind == "values":
        return coords, f + 0.5 * rng.standard_normal(len(f))
    if kind == "labels":
        return coords, (rng.random(len(f)) < 1.0 / (1.0 + np.exp(-2.0 * f))).astype(float)
    return coords, rng.poisson(8.5 * np.exp(0.8 * f - 0.32)).astype(float)


def fitted(kind: str, coords: np.ndarray, y: np.ndarray, **how: Any) -> Any:
    """A fit whose warnings, of few sweeps, are no news."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ESTIMATORS[kind](random_state=0, **how).fit(coords, y)


def plain(kind: str, method: str, rank: int, sweeps: int, coords: np.ndarray, y: np.ndarray, **how: Any) -> Any:
    """A fit of so many sweeps from a random start; asv leaves out what the kind of data does not allow."""
    given = {"method": FITS[method](), "interactions": "cp", "init": "random", "max_iter": sweeps, "tol": 0.0}
    try:
        return fitted(kind, coords, y, rank=rank, **{**given, **how})
    except ValueError as refused:
        raise NotImplementedError(str(refused)) from None


def cpu_seconds(work: Any, *given: Any) -> float:
    """CPU seconds of a call."""
    begin = time.process_time()
    work(*given)
    return time.process_time() - begin
