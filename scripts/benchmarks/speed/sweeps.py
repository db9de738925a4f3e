"""One sweep of every method: by kind of data, rank, size, threads, columns, and what is known of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

import tensorcep as tc

from . import ALOG, FITS, drawn, plain, shape_of


class Sweep:
    """Microseconds per entry of the fastest sweep after the first: updates, latent means, train score."""

    params = (list(FITS), ["values", "labels", "counts"], [8], [ALOG], [1])
    param_names = ("method", "kind", "rank", "entries", "threads")
    unit = "us per entry"
    timeout = 900

    def setup(self, method: str, kind: str, rank: int, n: int, threads: int) -> None:
        self.data = drawn(kind, n, shape_of(n), rank)
        plain(kind, method, rank, 4, *(part[:500] for part in self.data))  # compiled code is loaded

    def track_us_per_entry(self, method: str, kind: str, rank: int, n: int, threads: int) -> float:
        seconds = plain(kind, method, rank, 12, *self.data, n_jobs=threads).trace_["seconds"]
        return 1e6 * float(np.min(seconds[1:])) / len(self.data[1])


class SweepOfRank(Sweep):
    """The same by rank."""

    params = (["gibbs", "cep", "cep-averaged", "vmp"], ["values"], [5, 8, 10, 32, 64], [ALOG], [1])


class SweepOfMillions(Sweep):
    """The same of a million entries, in one and in two threads."""

    params = (["gibbs", "cep", "vmp", "pg-gibbs"], ["values", "labels"], [5, 8, 10], [1_000_000], [1, 2])


class SweepOfColumns:
    """Microseconds per entry of a sweep in components alone, with main effects, and with pairs of modes."""

    params = (["gibbs", "vmp", "cep", "laplace"], ["cp", "main+cp", "all"])
    param_names = ("method", "interactions")
    unit = "us per entry"
    timeout = 900

    def track_us_per_entry(self, method: str, interactions: str) -> float:
        data = drawn("values", ALOG, shape_of(ALOG))
        seconds = plain("values", method, 8, 12, *data, interactions=interactions).trace_["seconds"]
        return 1e6 * float(np.min(seconds[1:])) / len(data[1])


class SweepOfKnownRows:
    """Seconds of a sweep of 200,000 entries: 10,000 rows of the first mode have features, are a series or a graph."""

    params = (["gibbs", "vmp"], ["nothing", "features", "series", "graph"])
    param_names = ("method", "known")
    unit = "s"
    timeout = 900

    def track_seconds(self, method: str, known: str) -> float:
        shape, rng = (10_000, 2_000, 500), np.random.default_rng(0)
        ring = np.stack([np.arange(shape[0]), np.roll(np.arange(shape[0]), 1)], axis=1)
        priors: dict[str, Any] = {
            "nothing": lambda: "auto",
            "features": lambda: {0: tc.Features(rng.standard_normal((shape[0], 100)))},
            "series": lambda: {0: tc.Series()},
            "graph": lambda: {0: tc.Graph([tuple(pair) for pair in ring.tolist()])},
        }
        data, prior = drawn("values", 200_000, shape), priors[known]()
        return float(np.min(plain("values", method, 8, 5, *data, prior=prior, shape=shape).trace_["seconds"][1:]))
