"""Limits at which real values are censored: what a user gives, and what the values show."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorcep.core.checks import check_range, fail_value, warn_user, word_or_range
from tensorcep.core.sums import leaves
from tensorcep.cp.estimators.defaults import Chosen
from tensorcep.cp.methods import METHODS
from tensorcep.cp.settings.passing import CEP
from tensorcep.cp.telling import telling
from tensorcep.likelihoods.censored import LOWER, TOBIT, UPPER

# A spike at the least value: its share of all values, and how many times as frequent it is as any other value.
SPIKE_SHARE, SPIKE_RATIO = 0.1, 3
# CEP can censor, but predicts real values worse for it.
CENSORED_BY_RULE = ("gibbs", "vmp")
NAMES = {LOWER: "lower_limit", UPPER: "upper_limit"}


def given_limit(lower: Any, upper: Any) -> tuple[Any, float]:
    """The limit that is given, "auto" or None, and its side, after the checks of both.

    Raises
    ------
    ValueError, TypeError
        If one is no number, or both are given.
    """
    if lower is not None:
        lower = word_or_range("lower_limit", lower, ("auto",), -np.inf)
    if upper is None:
        return lower, LOWER
    upper = check_range("upper_limit", upper, -np.inf)
    if lower not in ("auto", None):
        fail_value(
            f"a model has a limit on one side; got lower_limit={lower:g} and upper_limit={upper:g}; leave out the one "
            "that fewer values reach, or use CPOrdinalClassifier for ordered levels."
        )
    return upper, UPPER


def check_limit(limit: float, side: float, y: np.ndarray, chosen: Chosen) -> None:
    """Refuse a limit that the method does not know or that leaves no value; say how many values it hides beyond it.

    Raises
    ------
    ValueError
    """
    unable, name = _unable_to_censor(chosen), NAMES[side]
    if unable:
        fail_value(f"{unable} cannot use {name}={limit:g}; set {name}=None.")
    least, most = y.min(), y.max()
    above, largest, farthest = ("above", "largest", most) if side == LOWER else ("below", "least", least)
    if side * farthest < side * limit:
        fail_value(f"{name} must not be {above} all values, the {largest} of which is {farthest:g}; got {limit:g}.")
    beyond = np.count_nonzero(side * y < side * limit)
    if beyond:
        below, down, lower, end = ("below", "down", "lower", least) if side == LOWER else ("above", "up", "raise", most)
        warn_user(
            f"{beyond} of {len(y)} values lie {below} {name}={limit:g}, {down} to {end:g}, and count as values at "
            f"the limit; {lower} it if they were observed.",
            UserWarning,
        )


def _unable_to_censor(chosen: Chosen) -> str:
    """What of the method rules out a limit, if something does."""
    if METHODS[chosen.method].lacks(TOBIT):
        return f"method={chosen.method!r}"
    if isinstance(chosen.settings, CEP):
        allowed = {"order": 1, "moments": "cavity", "messages": "full"}
        values = chosen.settings.get_params()
        return next((f"{name}={values[name]!r}" for name in allowed if values[name] != allowed[name]), "")
    return ""


def spike_at_minimum(y: np.ndarray, weight: np.ndarray | None = None) -> float | None:
    """The least value if it is a spike (see `CPRegressor.lower_limit`) and not the only one.

    With weights (N,) it is that of the entries that tell, and shares are of their weights.
    """
    if weight is not None:
        told = telling(weight)
        values, place = np.unique(y[told], return_inverse=True)
        return _spike(values, np.bincount(place, weights=weight[told]), float(weight[told].sum()))
    least = y.min()
    if sum(np.count_nonzero(y[a:b] == least) for a, b in leaves(len(y))) < SPIKE_SHARE * len(y):
        return None  # before all values are sorted
    values, counts = np.unique(y, return_counts=True)
    return _spike(values, counts, len(y))


def _spike(values: np.ndarray, counts: np.ndarray, total: float) -> float | None:
    """The first value if it counts enough, of all in total and beside any other."""
    if len(values) < 2 or counts[0] < max(SPIKE_SHARE * total, SPIKE_RATIO * counts[1:].max()):
        return None
    return float(values[0])
