"""Calls of the block kernels with freshly allocated results, for the parts of a likelihood that run in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def aligned(*arrays: ArrayLike) -> list[np.ndarray]:
    """Return the arguments as C-contiguous float64 arrays of one common length (a number serves every entry)."""
    broadcast = np.broadcast_arrays(*[np.atleast_1d(np.asarray(a, dtype=np.float64)) for a in arrays])
    return [np.array(a, dtype=np.float64, order="C") for a in broadcast]


def tilted_moments(
    tilted: Any, y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return logz, alpha and beta, each (n,) float64, from a likelihood's `tilted` kernel."""
    y, m, v, theta = aligned(y, m, v, theta)
    logz, alpha, beta = np.empty_like(m), np.empty_like(m), np.empty_like(m)
    tilted(y, m, v, theta, logz, alpha, beta)
    return logz, alpha, beta


def log_density(loglik: Any, y: ArrayLike, f: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return log p(y | f) and its first two derivatives in f, each (n,) float64, from a `loglik` kernel."""
    y, f, theta = aligned(y, f, theta)
    value, d1, d2 = np.empty_like(f), np.empty_like(f), np.empty_like(f)
    loglik(y, f, theta, value, d1, d2)
    return value, d1, d2
