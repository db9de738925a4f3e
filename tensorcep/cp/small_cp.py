"""CP decomposition of a small dense array by alternating ridge regressions from several random starts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

MAX_SWEEPS = 200
# A start has ended when a sweep lowers the loss by less than this share of it.
TOL = 1e-5
STARTS = 8


class _Try(NamedTuple):
    """Factors of one start and half the squared residuals plus the penalty."""

    factors: list[np.ndarray]
    loss: float


def decompose(core: np.ndarray, rank: int, penalty: float, rng: np.random.Generator) -> list[np.ndarray]:
    """Factors [(r_k, rank)] that minimise half the squared residuals plus `penalty` / 2 times their squares.

    The penalty, equal for all modes, sends components that are weaker than it allows to zero. The best of several
    random starts is returned.
    """
    unfolded = [np.moveaxis(core, k, 0).reshape(core.shape[k], -1) for k in range(core.ndim)]
    return min((_descend(core, unfolded, rank, penalty, rng) for _ in range(STARTS)), key=lambda one: one.loss).factors


def khatri_rao(factors: list[np.ndarray]) -> np.ndarray:
    """The columnwise Kronecker product: (prod r_k, rank)."""
    product = factors[0]
    for factor in factors[1:]:
        product = (product[:, None, :] * factor[None, :, :]).reshape(-1, factor.shape[1])
    return product


def _descend(core: np.ndarray, unfolded: list[np.ndarray], rank: int, penalty: float, rng: np.random.Generator) -> _Try:
    size = float((core * core).sum())
    scale = (size / rank) ** (0.5 / core.ndim)
    factors = [rng.standard_normal((r, rank)) * scale / np.sqrt(r) for r in core.shape]
    loss = np.inf
    for _ in range(MAX_SWEEPS):
        for k in range(core.ndim):
            others = [factor for j, factor in enumerate(factors) if j != k]
            gram = np.prod([factor.T @ factor for factor in others], axis=0)
            right = unfolded[k] @ khatri_rao(others)
            factors[k] = np.linalg.solve(gram + penalty * np.eye(rank), right.T).T
        squares = float((gram * (factors[-1].T @ factors[-1])).sum())
        before, loss = loss, 0.5 * (size - 2.0 * float((right * factors[-1]).sum()) + squares)
        loss += 0.5 * penalty * sum(float((factor * factor).sum()) for factor in factors)
        if before - loss <= TOL * loss:
            break
    return _Try(factors, loss)
