"""`power` of CPRegressor: which power of y is Gaussian."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorcep.core.checks import fail_value, warn_user, word_or_range
from tensorcep.core.sums import weighted_mean
from tensorcep.cp.estimators.limits import spike_at_minimum
from tensorcep.cp.left_out import FEWEST
from tensorcep.cp.telling import telling
from tensorcep.likelihoods.powers import of_power
from tensorcep.likelihoods.record import Likelihood

# Those that "auto" chooses among, the first unless another predicts better.
POWERS = (1.0, 0.5, 0.0)
# By default others than 1 are tried where one makes the values, whatever their cells, nearer normal by so many
# nats each: what a standard deviation wrong by a factor of 1.3 would cost. Exponential values gain 0.37, log-normal
# ones 0.25 where the standard deviation of their logarithms is 0.58.
LEAST_GAIN = 0.25


def given_power(power: Any, limit: Any, noise: Any, streaming: bool = False, stored: bool = False) -> Any:
    """The power that is given, "auto", or None by default, after its check beside what it cannot be used with.

    By default it is 1 beside these.

    Raises
    ------
    ValueError, TypeError
        If it is not allowed, or not beside a limit that is given, noise that differs, in a stream or on scratch.
    """
    found = None if power is None else word_or_range("power", power, ("auto",), 0.0, 1.0)
    if found == 1.0:
        return 1.0
    beside = None
    if limit not in ("auto", None):
        beside = "a limit"
    elif noise != "one":
        beside = f"noise={noise!r}"
    elif streaming:
        beside = "partial_fit or stream"
    elif stored and found in ("auto", None):
        beside = "scratch="
    if beside is None:
        return found
    if found is not None:
        fail_value(f"power={power!r} cannot be used with {beside}; leave one of them out.")
    return 1.0


def likelihood_of(
    power: float, y: np.ndarray, centred: bool, weight: np.ndarray | None = None
) -> tuple[Likelihood, dict[str, Any]]:
    """The likelihood of a power of y, about its mean if it is to be centred, and the fitted attributes that tell it."""
    level = weighted_mean(of_power(power, 0.0).check_y(y), weight) if centred else 0.0
    return of_power(power, level), {"level_": level, "power_": power}


def powers_to_try(power: Any, y: np.ndarray, weight: np.ndarray | None = None) -> tuple[float, ...]:
    """The powers that are compared, 1 first; the one that is given alone. Of values not all positive that is 1.

    By default also of values that pile up at the least one, which no power makes normal, and of few: as those say whose
    weights (N,) tell.
    """
    if power not in ("auto", None):
        return (power,)
    if not (len(y) and y.min() > 0.0):
        return POWERS[:1]
    if power == "auto":
        return POWERS
    some = y[telling(weight)]
    uneven = len(some) >= FEWEST and max(gain_of(other, some) for other in POWERS[1:]) >= LEAST_GAIN
    return POWERS if uneven and spike_at_minimum(y, weight) is None else POWERS[:1]


def in_stream(powers: tuple[float, ...]) -> tuple[float, ...]:
    """The first, of a stream, in which no other can be tried; with a word on that."""
    warn_user(
        "the values are all positive, and so uneven that their root or logarithm is far nearer normal; a stream takes "
        "them as they are: give it one of these in their place, or say power=1.",
        UserWarning,
    )
    return powers[:1]


def gain_of(power: float, y: np.ndarray) -> float:
    """How much likelier positive values are, on average and in logs, if a power of them is normal than if they are.

    -inf where that cannot be said.
    """
    with np.errstate(all="ignore"):
        logs = np.log(y)
        spread = logs.std() if power == 0.0 else (y**power).std() / power
        gain = np.log(y.std()) - np.log(spread) + (power - 1.0) * logs.mean()
    return float(gain) if np.isfinite(gain) else -np.inf
