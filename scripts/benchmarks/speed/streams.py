"""Streams of entries that are drawn as they are learned: entries a second, latency, and memory along the way."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

import tensorcep as tc
from tensorcep import methods

from .memory import resident

SHAPE = (1000, 200, 1000)


def batches(n: int, size: int, rank: int = 8) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Labels of a fixed probit CP model, none of which is stored."""
    rng = np.random.default_rng(0)
    factors = [rng.normal(0.6, 0.8, (m, rank)) for m in SHAPE]
    for _ in range(0, n, size):
        coords = np.stack([rng.integers(0, m, size) for m in SHAPE], axis=1)
        rows = [factor[column] for factor, column in zip(factors, coords.T, strict=True)]
        f = np.prod(rows, axis=0).sum(axis=1) + rng.standard_normal(size)
        yield coords, (f > rank * 0.6**3).astype(float)


def model(rank: int = 8) -> Any:
    """A classifier of the CEP paper's model, which starts at its prior."""
    method = methods.CEP(anneal=0, n_ensemble=1)
    return tc.CPClassifier(rank, method=method, prior="fixed", interactions="cp", init="prior", random_state=0)


class Stream:
    """One pass over 100,000 labels."""

    params = ([100, 1000, 10_000],)
    param_names = ("batch_size",)
    timeout = 900

    def track_entries_per_second(self, size: int) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # batches that end before the tolerance
            trace = model().stream(batches(100_000, size)).stream_trace_
        return (100_000 - size) / float(trace["seconds"][1:].sum())  # the first batch may compile

    track_entries_per_second.unit = "entries per second"  # type: ignore[attr-defined]

    def track_latency(self, size: int) -> float:
        seconds, learner = [], model()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for coords, y in batches(100_000, size):
                begin = time.perf_counter()
                learner.partial_fit(coords, y)
                seconds.append(time.perf_counter() - begin)
        return float(np.quantile(seconds[1:], 0.99))

    track_latency.unit = "s, 99th percentile"  # type: ignore[attr-defined]


class LongStream:
    """Megabytes by which a process grows while it learns the second half of two million labels at rank 4."""

    unit = "MB"
    timeout = 900

    def track_growth(self) -> float:
        learner, held = model(4), []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for number, (coords, y) in enumerate(batches(2_000_000, 10_000, 4)):
                learner.partial_fit(coords, y)
                if number in (99, 199):
                    held.append(resident("VmRSS") / 1e6)
        return held[1] - held[0]
