"""How far the predictions of real values are shrunk to the constant, by the entries that chains left out.

Chains and pilots that follow the noise of few entries predict with the right spread, perhaps, but worse than the
constant. The mean m of all of them is then better multiplied by the slope b of the values left out on it, between 0 and
1. As few entries with large m can make b large by chance, it counts as b (1 - (se / b)^2), with its standard error from
the entries' own squared residuals (White 1980, Econometrica 48, p. 817). Where nothing is to be shrunk this costs about
1 / (2 n) of the squared error for n entries. In place of a share of the draws come draws that say nothing but the
constant, with the noise that it leaves.
"""

from __future__ import annotations

import numpy as np

from tensorcep.core.belief import Draws
from tensorcep.cp.gibbs.held_out import LEAST_WEIGHT, HeldOut

LOG_SQRT_2PI = 0.5 * np.log(2.0 * np.pi)


def shrunk(held: HeldOut) -> HeldOut:
    """What all together count beside the constant 0, and the score of that."""
    share = _slope(held.y, held.mean_of_all)
    if share > 1.0 - LEAST_WEIGHT:
        return held
    precision = _precision_of_constant(held)
    nothing = 0.5 * np.log(precision) - LOG_SQRT_2PI - 0.5 * precision * held.y**2
    with np.errstate(divide="ignore"):
        score = np.logaddexp(np.log(share) + held.score, np.log1p(-share) + nothing)
    return held._replace(share=share, score=score)


def _slope(y: np.ndarray, mean: np.ndarray) -> float:
    """The share of a prediction that counts, between 0 and 1."""
    square = float(mean @ mean)
    slope = float(y @ mean) / square if square > 0.0 else 0.0
    if slope <= 0.0:
        return 0.0
    variance = float(mean**2 @ (y - slope * mean) ** 2) / square**2
    return float(np.clip(slope - variance / slope, 0.0, 1.0))


def _precision_of_constant(held: HeldOut) -> float:
    return 1.0 / max(float(np.mean(held.y**2)), np.finfo(float).tiny)


def with_constant(draws: Draws, held: HeldOut, free: np.ndarray | None) -> Draws:
    """Draws of which those that do not count, evenly spread, say nothing but the constant.

    Parameters
    ----------
    draws : Draws
    held : HeldOut
    free : (K, R) bool or None
        Columns that are not held at 1; None when all are free.
    """
    if held.share >= 1.0:
        return draws
    number = np.arange(draws.rows.shape[0] * draws.rows.shape[1]).reshape(draws.rows.shape[:2])
    off = np.floor((number + 1) * (1.0 - held.share)) > np.floor(number * (1.0 - held.share))
    rows, clamped = draws.rows.copy(), np.zeros((len(draws.shape), draws.rank)) if free is None else ~free
    rows[off] = np.repeat(clamped, draws.shape, axis=0)
    unknown, theta = draws.unknown, draws.theta
    if unknown is not None:
        unknown = unknown.copy()
        unknown[off] = clamped
    if theta is not None:
        theta = theta.copy()
        theta[off] = _precision_of_constant(held)
    return draws._replace(rows=rows, unknown=unknown, theta=theta)
