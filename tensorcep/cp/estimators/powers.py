"""`power` of CPRegressor: which power of y is Gaussian."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorcep.core.checks import fail_value, word_or_range
from tensorcep.likelihoods.powers import of_power
from tensorcep.likelihoods.record import Likelihood

# Those that "auto" chooses among, the first unless another predicts better.
POWERS = (1.0, 0.5, 0.0)


def given_power(power: Any, limit: Any, noise: Any, streaming: bool = False, stored: bool = False) -> Any:
    """The power that is given, or "auto", after its check beside what it cannot be used with.

    Raises
    ------
    ValueError, TypeError
        If it is not allowed, or not beside a limit that is given, noise that differs, in a stream or on scratch.
    """
    found = word_or_range("power", power, ("auto",), 0.0, 1.0)
    if found == 1.0:
        return 1.0
    beside = None
    if limit not in ("auto", None):
        beside = "a limit"
    elif noise != "one":
        beside = f"noise={noise!r}"
    elif streaming:
        beside = "partial_fit or stream"
    elif stored and found == "auto":
        beside = "scratch="
    if beside is not None:
        fail_value(f"power={power!r} cannot be used with {beside}; leave one of them out.")
    return found


def likelihood_of(power: float, y: np.ndarray, centred: bool) -> tuple[Likelihood, dict[str, Any]]:
    """The likelihood of a power of y, about its mean if it is to be centred, and the fitted attributes that tell it."""
    level = float(np.mean(of_power(power, 0.0).check_y(y))) if centred else 0.0
    return of_power(power, level), {"level_": level, "power_": power}


def likelihoods_to_try(y: np.ndarray, centred: bool) -> list[tuple[Likelihood, dict[str, Any]]]:
    """Those of the powers that "auto" chooses among, which for values that are not all positive is 1 alone."""
    return [likelihood_of(power, y, centred) for power in (POWERS if y.min() > 0.0 else POWERS[:1])]
