"""Real values: limits that censor them, noise that differs, the power of them that is Gaussian, and their level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorcep.core.arrays import leaves, mean_square, weighted_mean
from tensorcep.core.checks import LARGEST, check_choice, check_range, check_size, fail_value, warn_user, word_or_range
from tensorcep.core.diagnostics import THRESHOLDS
from tensorcep.cp.inputs.coordinates import mode_of, names_of
from tensorcep.cp.inputs.side_information import coupled
from tensorcep.cp.methods import METHODS, refuse_unable
from tensorcep.cp.model.memmap import StoredColumns
from tensorcep.cp.model.problem import Uneven
from tensorcep.cp.model.subsets import telling
from tensorcep.cp.posterior import EntryTheta, GammaNoise
from tensorcep.cp.targets.base import Chosen, Decided, Facts, Observation, OfEach, Target, deciding
from tensorcep.likelihoods.base import Likelihood
from tensorcep.likelihoods.gaussian import GAUSSIAN, of_power
from tensorcep.likelihoods.tobit import LOWER, TOBIT, UPPER, censored_at

# A spike at the least value: its share of all values, and how many times as frequent it is as any other value.
SPIKE_SHARE, SPIKE_RATIO = 0.1, 3
NAMES = {LOWER: "lower_limit", UPPER: "upper_limit"}


def given_limit(lower: Any, upper: Any) -> tuple[Any, float]:
    """The limit that is given, "auto" or None, and its side, after the checks of both, of which one may be given."""
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
    """Refuse a limit that the method does not know or that leaves no value; say how many values it hides beyond it."""
    name = NAMES[side]
    refuse_unable(chosen.settings, "censors", f"cannot use {name}={limit:g}", TOBIT, instead=f"{name}=None")
    least, most = y.min(), y.max()
    above, largest, farthest = ("above", "largest", most) if side == LOWER else ("below", "least", least)
    if side * farthest < side * limit:
        fail_value(f"{name} must not be {above} all values, the {largest} of which is {farthest:g}; got {limit:g}.")
    beyond = np.count_nonzero(side * y < side * limit)
    if beyond:
        below, down, lower, end = ("below", "down", "lower", least) if side == LOWER else ("above", "up", "raise", most)
        warn_user(
            f"{beyond} of {len(y)} values lie {below} {name}={limit:g}, {down} to {end:g}, and count as values at "
            f"the limit; {lower} it if they were observed."
        )


def spike_at_minimum(y: np.ndarray, weight: OfEach = None) -> float | None:
    """The least value if it is a spike (see `CPRegressor.lower_limit`) and not the only one."""
    least, total = y.min(), float(len(y))
    if weight is not None:  # that of the entries that tell, and shares of their weights
        told = telling(weight)
        values, place = np.unique(y[told], return_inverse=True)
        counts, total = np.bincount(place, weights=weight[told]), float(weight[told].sum())
    elif sum(np.count_nonzero(y[a:b] == least) for a, b in leaves(len(y))) < SPIKE_SHARE * len(y):
        return None  # before all values are sorted
    else:
        values, counts = np.unique(y, return_counts=True)
    if len(values) < 2 or counts[0] < max(SPIKE_SHARE * total, SPIKE_RATIO * counts[1:].max()):
        return None
    return float(values[0])


def name_of_noise(uneven: Uneven | None, labels: Any) -> str | int:
    if uneven is None:
        return "one"
    if uneven.mode is None:
        return "entry"
    known = labels[uneven.mode]
    return uneven.mode if known is None or known.name is None else str(known.name)


def noise_sd(theta: EntryTheta | None, precision: float) -> float | np.ndarray:
    """Standard deviation of the noise, (m,) where rows of a mode have one each."""
    if theta is not None and theta.factors is not None:
        return float(np.sqrt(np.mean(1.0 / (theta.factors * theta.values[:, 0]))))
    if theta is None or theta.uneven is None:
        return float(precision**-0.5)
    if theta.mode is not None:
        return np.asarray(theta.values.mean(axis=0) ** -0.5)
    alpha = theta.uneven[:, 1]
    return float(np.sqrt(np.mean(alpha / (alpha - 1.0) / theta.values[:, 0])))


def noise_dof(theta: EntryTheta | None) -> float | None:
    """Degrees of freedom of the noise of an entry, or of a row that is not known."""
    return None if theta is None or theta.uneven is None else float(2.0 * np.median(theta.uneven[:, 1]))


# Those that "auto" chooses among, the first unless another predicts better.
POWERS = (1.0, 0.5, 0.0)


def given_power(power: Any, limit: Any, noise: Any, streaming: bool = False, stored: bool = False) -> Any:
    """The power that is given, "auto" or None, after its check; by default 1 beside what it cannot be used with."""
    found = None if power is None else word_or_range("power", power, ("auto",), 0.0, 1.0)
    if found == 1.0:
        return 1.0
    others = {"a limit": limit not in ("auto", None), f"noise={noise!r}": noise != "one"}
    others |= {"partial_fit or stream": streaming, "scratch=": stored and found in ("auto", None)}
    beside = next((name for name, is_there in others.items() if is_there), None)
    if beside is None:
        return found
    if found is not None:
        fail_value(f"power={power!r} cannot be used with {beside}; leave one of them out.")
    return 1.0


def likelihood_of(power: float, y: np.ndarray, centred: bool, weight: OfEach = None) -> Decided:
    """The likelihood of a power of y, about its mean if it is to be centred, and the facts that tell it."""
    level = weighted_mean(of_power(power, 0.0).check_y(y), weight) if centred else 0.0
    return of_power(power, level), {"level_": level, "power_": power}


def powers_to_try(power: Any, y: np.ndarray, weight: OfEach = None) -> tuple[float, ...]:
    """The powers that are compared, 1 first; the one that is given alone. Of values not all positive that is 1."""
    if power not in ("auto", None):
        return (power,)
    if not (len(y) and y.min() > 0.0):
        return POWERS[:1]
    if power == "auto":
        return POWERS
    # by default 1, too, of values that pile up at the least one, which no power makes normal, and of few
    some = y[telling(weight)]
    gains = (gain_of(other, some) for other in POWERS[1:])
    uneven = len(some) >= THRESHOLDS.fewest and max(gains) >= THRESHOLDS.least_gain_by_power
    return POWERS if uneven and spike_at_minimum(y, weight) is None else POWERS[:1]


def in_stream(powers: tuple[float, ...]) -> tuple[float, ...]:
    """The first, of a stream, in which no other can be tried; with a word on that."""
    warn_user(
        "the values are all positive, and so uneven that their root or logarithm is far nearer normal; a stream takes "
        "them as they are: give it one of these in their place, or say power=1."
    )
    return powers[:1]


def gain_of(power: float, y: np.ndarray) -> float:
    """How much likelier positive values are, on average and in logs, if a power of them is normal than if they are."""
    with np.errstate(all="ignore"):
        logs = np.log(y)
        spread = logs.std() if power == 0.0 else (y**power).std() / power
        gain = np.log(y.std()) - np.log(spread) + (power - 1.0) * logs.mean()
    return float(gain) if np.isfinite(gain) else -np.inf


# The noise's Gamma prior: the least rate, and one over the largest shape, with which precisions stay finite.
LEAST_RATE = 1e-150


@dataclass(frozen=True)
class RealObservation(Observation):
    """What a fit to real values decided; see the attributes of `CPRegressor`."""

    ESTIMATOR = "CPRegressor"
    FACTS = ("lower_limit_", "upper_limit_", "level_", "noise_", "power_")

    lower_limit: float | None = None
    upper_limit: float | None = None
    level: float = 0.0
    noise: str | int = "one"
    power: float = 1.0

    @property
    def likelihood(self) -> Likelihood:
        if self.upper_limit is not None:
            return censored_at(self.upper_limit, UPPER)
        return of_power(self.power, self.level) if self.lower_limit is None else censored_at(self.lower_limit)

    @property
    def origin(self) -> float:
        """The level, or the limit, from which latent values are counted."""
        return self.level + (self.lower_limit or self.upper_limit or 0.0)


@dataclass(frozen=True)
class RealTarget(Target):
    """What a user says of real values; see the parameters of `CPRegressor`."""

    OBSERVATION = RealObservation
    is_scaled = True

    noise_prior: tuple[float, float] | None = None
    noise: Any = "one"
    lower_limit: float | str | None = "auto"
    upper_limit: float | None = None
    power: float | str | None = None
    fit_intercept: bool | str = "auto"

    def check(self) -> None:
        self.gamma_noise(np.ones(1))
        given_power(self.power, None, "one")
        if not isinstance(self.fit_intercept, (bool, np.bool_)):
            check_choice("fit_intercept", self.fit_intercept, ("auto",))

    def asked(self, method: str) -> Likelihood:
        limit, _ = given_limit(self.lower_limit, self.upper_limit)
        return GAUSSIAN if limit in ("auto", None) else TOBIT

    def decide(self, y: np.ndarray, chosen: Chosen, coords: np.ndarray, extent: OfEach, weight: OfEach) -> Decided:
        """The limit, the power (several, where entries left out are to decide) and the level of the values."""
        check_size("y", y)
        limit, side = given_limit(self.lower_limit, self.upper_limit)
        power = given_power(self.power, limit, self.noise, stored=isinstance(coords, StoredColumns))
        limit = limit if power in (1.0, None) else None
        if limit == "auto":
            limit = spike_at_minimum(y, weight) if METHODS[chosen.method].capabilities.censors_spikes else None
        elif limit is not None:
            check_limit(limit, side, y, chosen)
        decided = {"lower_limit_": None, "upper_limit_": None, "level_": 0.0, "power_": 1.0}
        centred = self.has_intercept(chosen)
        open_to = power if centred or power is not None else 1.0
        powers = powers_to_try(open_to, y, weight) if limit is None else (1.0,)
        if powers == (1.0,) and not isinstance(coords, StoredColumns):  # of logarithms few values are far away
            out = deciding(y, counts=False)
            if out.any():
                farthest, n = y[np.argmax(np.abs(y - np.median(y)))], int(out.sum())
                warn_user(
                    f"{'a value' if n == 1 else f'{n} values'} of {len(y)} ({farthest:g} is the farthest) outweigh all "
                    "others together and can decide the fit, most of all one by a named method; check them, or leave "
                    "them out."
                )
        if limit is not None:
            return censored_at(limit, side), {**decided, f"{NAMES[side]}_": limit}
        if powers != (1.0,):
            likelihood, told = likelihood_of(powers[0], y, centred, weight)
            return likelihood, {**decided, **told, "power_": powers if len(powers) > 1 else powers[0]}
        level = 0.0
        if centred:
            level = weighted_mean(y, weight)
        elif self.fit_intercept == "auto" and chosen.from_least and chosen.has_positive_rows and chosen.random:
            level = float(np.min(y[telling(weight)]))
        return of_power(1.0, level), {**decided, "level_": level}

    def has_intercept(self, chosen: Chosen) -> bool:
        if isinstance(self.fit_intercept, (bool, np.bool_)):
            return bool(self.fit_intercept)
        check_choice("fit_intercept", self.fit_intercept, ("auto",))
        return not chosen.has_positive_rows and chosen.prior_name != "given" and chosen.random

    def decide_noise(self, labels: Any, chosen: Chosen, streaming: bool, prior: Any) -> tuple[Uneven | None, Facts]:
        given_power(self.power, None, "one", streaming=streaming)  # here it is known whether this is a stream
        given, names, beside = self.noise, names_of(labels), coupled(prior)
        if isinstance(given, str) and given == "one":
            return None, {"noise_": "one"}
        if isinstance(given, str) and given == "auto" and "auto" not in names:
            differs = "noise" in METHODS[chosen.method].capabilities.heteroscedastic
            return None, {"noise_": "auto" if differs and beside is None else "one"}
        cannot = f"cannot use noise={given!r}"
        refuse_unable(chosen.method, "heteroscedastic", cannot, about="noise", instead="noise='one'")
        if beside is not None:
            what = beside.removeprefix("a ")
            fail_value(f"noise={given!r} cannot be used beside {beside}; use noise='one', or leave the {what} out.")
        if isinstance(given, str) and given == "entry" and "entry" not in names:
            return Uneven(None), {"noise_": "entry"}
        if isinstance(given, str) and given not in names:
            fail_value(
                f"noise must be 'one', 'entry', 'auto', or a mode, one of {names} or its position; got {given!r}."
            )
        found = Uneven(mode_of(labels, given))
        return found, {"noise_": name_of_noise(found, labels)}

    def gamma_noise(self, y: np.ndarray, weight: OfEach = None) -> GammaNoise:
        """The prior that is given, or the paper's in units of the data."""
        if self.noise_prior is None:
            return GammaNoise(1e-3, 1e-3 * (mean_square(y, weight) or 1.0))
        try:
            a, b = self.noise_prior
        except (TypeError, ValueError):
            fail_value(f"noise_prior must be None or a pair (a, b) of positive numbers; got {self.noise_prior!r}.")
        a = check_range("noise_prior[0]", a, 0.0, 1.0 / LEAST_RATE, include_low=False)
        return GammaNoise(a, check_range("noise_prior[1]", b, LEAST_RATE, LARGEST**2))

    def checked(self, y: np.ndarray, likelihood: Likelihood) -> np.ndarray:
        """Values whose squares are numbers."""
        return check_size("y", likelihood.check_y(y), least=0.0)  # less the level they may be next to nothing

    def intercept(self, y: np.ndarray, likelihood: Likelihood, weight: OfEach = None) -> float:
        return weighted_mean(y, weight)
