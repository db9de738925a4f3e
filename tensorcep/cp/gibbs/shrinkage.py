"""How far the predictions of values and labels are shrunk to the constant, by the entries that chains left out.

Chains and pilots that follow the noise of few entries predict with the right spread, perhaps, but worse than the
constant. The mean m of all of them is then better multiplied by the slope b of the values left out on it, between 0 and
1. As few entries with large m can make b large by chance, it counts as b (1 - (se / b)^2), with its standard error from
the entries' own squared residuals (White 1980, Econometrica 48, p. 817). Where nothing is to be shrunk this costs about
1 / (2 n) of the squared error for n entries. Labels are predicted by the mixture with the constant that predicts those
left out best, if it gains more than one unit of log score. In place of a share of the draws come draws that say nothing
but the constant, with the noise that it leaves.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logit, ndtri

from tensorcep.core.belief import Draws
from tensorcep.cp.gibbs.held_out import LEAST_WEIGHT, HeldOut, stacking_weights
from tensorcep.cp.problem import Problem
from tensorcep.likelihoods.record import Likelihood

LOG_SQRT_2PI = 0.5 * np.log(2.0 * np.pi)


def is_shrunk(likelihood: Likelihood) -> bool:
    """Whether predictions can be shrunk; means of counts and of censored values are no multiples of latent ones."""
    real = likelihood.parameter is not None and likelihood.parameter.is_precision and not likelihood.censored
    return real or likelihood.observes == "labels"


def shrunk(held: HeldOut, problem: Problem) -> HeldOut:
    """What all together count beside the constant, that constant, and the score of both."""
    if problem.likelihood.observes == "labels":
        return _shrunk_labels(held, problem)
    share = _slope(held.y, held.mean_of_all)
    precision = _precision_of_constant(held)
    nothing: np.ndarray = 0.5 * np.log(precision) - LOG_SQRT_2PI - 0.5 * precision * held.y**2
    return _mixed(held, share, nothing, 0.0)


def _shrunk_labels(held: HeldOut, problem: Problem) -> HeldOut:
    if _main_column(problem.free) is None:  # no column can hold the constant
        return held
    y = problem.entries.y.ravel()[: len(problem.entries.permutation)]
    ones, n = np.count_nonzero(y > 0.0) - np.count_nonzero(held.y > 0.0), len(y) - len(held.y)
    p = (ones + 0.5) / (n + 1.0)
    nothing = np.asarray(np.where(held.y > 0.0, np.log(p), np.log1p(-p)))
    share = float(stacking_weights(np.stack([held.score, nothing]), np.array([1.0, 0.0]))[0])
    return _mixed(held, share, nothing, float(logit(p) if problem.likelihood.f_is_log_odds else ndtri(p)))


def _mixed(held: HeldOut, share: float, nothing: np.ndarray, constant: float) -> HeldOut:
    """All together at a share, beside the constant, of which the log densities are `nothing`."""
    if share > 1.0 - LEAST_WEIGHT:
        return held
    with np.errstate(divide="ignore"):
        score = np.logaddexp(np.log(share) + held.score, np.log1p(-share) + nothing)
    return held._replace(share=share, score=score, constant=constant)


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
    one = clamped.astype(rows.dtype)
    column = _main_column(free)
    if column is not None:
        one[0, column] = held.constant
    rows[off] = np.repeat(one, draws.shape, axis=0)
    unknown, theta = draws.unknown, draws.theta
    if unknown is not None:
        unknown = unknown.copy()
        unknown[off] = one
    if theta is not None:
        theta = theta.copy()
        theta[off] = _precision_of_constant(held)
    return draws._replace(rows=rows, unknown=unknown, theta=theta)


def _main_column(free: np.ndarray | None) -> int | None:
    """The column of the main effect of the first mode, which can hold the constant; None where there is none."""
    found = np.zeros(0, dtype=int) if free is None else np.flatnonzero(free[0] & (free.sum(axis=0) == 1))
    return int(found[0]) if len(found) else None
