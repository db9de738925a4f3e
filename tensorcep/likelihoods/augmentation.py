"""The record of an augmentation: an auxiliary variable per entry, given which the entry is Gaussian in f.

Given it, an entry says N(target / weight; f, 1 / weight) of its latent value. Mean-field methods take expectations of
weight and target, samplers draw them; both then add up the same sums per row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


def _every(y: np.ndarray) -> np.ndarray:
    return np.ones(y.shape, dtype=bool)


class Augmentation(NamedTuple):
    """What makes the entries of a likelihood Gaussian in f; `theta` is the likelihood's parameter of the entry.

    Attributes
    ----------
    expected : kernel or None
        ``expected(y, f, square, theta, weight, target, spread, constant)``, in place over n entries: for E[f] = f and
        E[f^2] = square the expectations of weight and target under the best law of the auxiliary variable, and the
        variance of the target. What the entry adds to a lower bound is constant + target f - weight square / 2; where
        the parameter is a precision of the entry, constant is the entropy of the auxiliary variable instead.
        None where entries are Gaussian in f as they are: of weight 1 and target y.
    drawn : kernel or None
        ``drawn(first, last, y, used, f, theta, key, weight, target, s)``: draws of weight and target for the blocks
        first:last of (n_blocks, LANES) arrays; `used` is 0 in padding lanes and 1 in others, or, where the augmentation
        is `weighted`, how often the entry counts; `key` and `s` are those of `core.random`. None as for `expected`.
    weighted : bool
        Whether weights differ from 1. What is expected then depends on E[f^2] alone, and otherwise on E[f] alone.
    matched : bool
        Whether there is no auxiliary variable, but a Gaussian matched to the log likelihood. What is expected then
        depends on both E[f] and E[f^2].
    hides : callable
        ``hides(y) -> bool``, elementwise: whether the entry has an auxiliary variable; it is as without `expected` and
        `drawn` otherwise.
    exponents : callable or None
        ``exponents(y, theta) -> (b, kappa)`` of a Polya-Gamma variable, which makes exp(kappa f) / (2 cosh(f / 2))^b
        Gaussian in f; b may have one item for all entries.
    """

    expected: Any = None
    drawn: Any = None
    weighted: bool = False
    matched: bool = False
    hides: Callable[[np.ndarray], np.ndarray] = _every
    exponents: Callable[[np.ndarray, Any], tuple[np.ndarray, np.ndarray]] | None = None

    @property
    def auxiliary(self) -> bool:
        """Whether entries have auxiliary variables, or are matched."""
        return self.expected is not None
