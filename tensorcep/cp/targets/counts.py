"""Counts: their likelihood by how much they vary, dispersions, structural zeros, exposures and numbers of trials."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import logit

from tensorcep.core.arrays import empty_near, fill_by_parts, weighted_mean
from tensorcep.core.checks import check_choice, check_flag, check_range, fail_value, warn_user
from tensorcep.cp.inputs.coordinates import mode_of, names_of, refuse_others
from tensorcep.cp.inputs.weights import ARGUMENTS, TAKERS, Weighted, check_trials, checked_extents, split_extents
from tensorcep.cp.methods import METHODS, refuse_unable
from tensorcep.cp.model.memmap import StoredColumns
from tensorcep.cp.model.problem import Uneven
from tensorcep.cp.model.subsets import sampled_columns, telling
from tensorcep.cp.targets.base import Chosen, Decided, Facts, Observation, OfEach, Target
from tensorcep.entries.coo import merge_duplicates
from tensorcep.entries.io import Batch
from tensorcep.entries.tables import as_frame
from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods import names_of as names_of_likelihoods
from tensorcep.likelihoods.base import Likelihood
from tensorcep.likelihoods.counts import ZeroInflation, presence, zero_inflated

# The likelihoods of counts without an upper limit.
RATES = ("poisson", "negbinomial")
# Shares of structural zeros at which a fit may start.
STARTS_OF_ZEROS = (0.01, 0.9)
# Rounds of fitting the margins in turn; each row's effect is that of its counts and one more at the mean.
ROUNDS = 10
# Standard errors of the score of Poisson counts from which they count as overdispersed.
CLEAR = 3.0
# An entry's leverage counts as at most so much. A count above FEW that has it was explained by effects of its own.
MOST_LEVERAGE, FEW = 0.9, 2.0
# Counts whose variance is a smaller share of Poisson ones' get intervals that hold much more than they should: nominal
# 90 % hold 97 % at this share. It is told of entries whose means follow themselves by less than HALF.
EVEN, HALF = 0.6, 0.5
# Counts of so small a mean are often 1 or more because those of 0 were not written down.
TRUNCATED = 5.0
# Dispersions at which a fit may start.
STARTS_OF_DISPERSION = (0.05, 100.0)
# A count that is so many times as large as all others together is told of.
WILD = 100.0


class Overdispersion(NamedTuple):
    """How counts vary beyond Poisson ones."""

    score: float  # of overdispersion, in standard errors
    r: float  # that explains it
    share: float = 0.0  # of structural zeros
    blind: bool = False  # whether there are counts of which the score cannot tell: their rows have little else
    spread: float = 1.0  # the variance as a share of that of Poisson counts where it is clearly less, else 1

    @property
    def clear(self) -> bool:
        """Whether Poisson counts would not vary so much."""
        return self.score > CLEAR

    @property
    def possible(self) -> bool:
        """Whether they vary more, or may: one that is far above its mean costs Poisson counts hundreds of nats."""
        return self.clear or self.blind


def overdispersion_of(
    coords: np.ndarray, y: np.ndarray, exposure: OfEach = None, inflated: bool = False
) -> Overdispersion:
    """How much counts, of exposures with mean 1, vary beyond Poisson ones about main effects."""
    # What components would explain counts as variation too: the dispersion is the least that fits need. With `inflated`
    # it is that of counts which are no structural zeros. The score is of errors, of which residuals are a part only
    # where a mean follows its own count: of few entries per row main effects explain much by chance. That of residuals
    # alone is the dispersion, so that fits begin where components may explain most.
    # Source: Dean and Lawless (1989), Tests for detecting overdispersion in Poisson regression models.
    order = np.lexsort((y, *coords.T))  # sums then do not depend on the order of the input
    coords, y, exposure = coords[order], y[order], np.ones(len(y)) if exposure is None else exposure[order]
    # means (n,) with main effects alone, mu = exposure c prod_k a_k[i_k], fitted to margins; the probability (n,) that
    # each count is no structural zero, by EM (Lambert 1992); and how far each mean follows its own count, the leverage
    mu, present = exposure * max(float(y.mean()), 0.5 / len(y)), np.ones(len(y))
    share = 0.5 * float(np.mean(y == 0.0))
    for _ in range(ROUNDS):
        if inflated and share > 0.0:
            present = presence(y, -mu, share)
            share = 1.0 - float(present.mean())
        for column in coords.T:
            expected = np.bincount(column, weights=present * mu)
            mu *= ((np.bincount(column, weights=y) + 1.0) / (expected + 1.0))[column]
    told = [np.bincount(column, weights=present * mu)[column] + 1.0 for column in coords.T]
    leverage = np.minimum(sum(present * mu / own for own in told), MOST_LEVERAGE)
    errors, square = (y - mu) ** 2, float((present * mu * mu).sum())
    excess, least = (float((present * (own - y)).sum()) for own in (errors / (1.0 - leverage), errors))
    r = square / least if least > 0.0 else STARTS_OF_DISPERSION[1]
    blind = bool(np.any((y > FEW) & (leverage >= MOST_LEVERAGE)))
    score, r = excess / np.sqrt(2.0 * square), float(np.clip(r, *STARTS_OF_DISPERSION))
    weight = present * (leverage < HALF)
    own, poisson = float(weight @ (errors / (1.0 - leverage))), float(weight @ mu)
    even = float(weight @ y) - own > CLEAR * np.sqrt(2.0 * float(weight @ mu**2))
    return Overdispersion(score, r, 1.0 - float(present.mean()), blind, own / poisson if even else 1.0)


def with_dispersion(name: str, fixed: float | None) -> Likelihood:
    """The likelihood of this name, with its dispersion fixed if a number is given."""
    record = get_likelihood(name)
    return record if fixed is None or record.parameter is None else replace(record, default_theta=fixed, parameters=())


def with_zeros(likelihood: Likelihood, asked: bool, share: float | None = None) -> Likelihood:
    """The likelihood with structural zeros if they are asked for, whose share starts by main effects."""
    if not asked:
        return likelihood
    if likelihood.extent != "exposure":
        fail_value(
            f"zero_inflation=True is for likelihood='poisson' or 'negbinomial'; got {likelihood.name!r}; leave it out."
        )
    zeros = ZeroInflation() if share is None else ZeroInflation(start=float(np.clip(share, *STARTS_OF_ZEROS)))
    return zero_inflated(likelihood, zeros)


@dataclass(frozen=True)
class CountObservation(Observation):
    """What a fit to counts decided; `extent_unit` is the mean exposure, None without, and 1 of numbers of trials."""

    ESTIMATOR = "CPCountRegressor"
    of_logs = True
    FACTS = ("_likelihood_name", "_fixed_dispersion", "_extent_unit", "_extent_column", "_inflated")

    likelihood_name: str = "poisson"
    fixed_dispersion: float | None = None
    extent_unit: float | None = None
    extent_column: str | None = None
    inflated: bool = False

    @property
    def likelihood(self) -> Likelihood:
        return with_zeros(with_dispersion(self.likelihood_name, self.fixed_dispersion), self.inflated)

    @property
    def origin(self) -> float:
        """Minus the log of the unit of exposures: latent values are of an exposure of 1."""
        return 0.0 if self.extent_unit is None else -float(np.log(self.extent_unit))

    @property
    def has_extents(self) -> bool:
        return self.extent_unit is not None

    def extent_of(self, X: Any, given: dict[str, Any], needed: bool = False) -> np.ndarray | None:
        """Exposures in units of those of the fit, or numbers of trials, given or in a column of the table."""
        kind = str(self.likelihood.extent)
        X = as_frame(X)
        _, value, _ = split_extents((kind,), X, given)
        if value is None and isinstance(X, pd.DataFrame) and self.extent_column in X.columns:
            value = X[self.extent_column].to_numpy()
        if value is None and self.extent_unit is None:
            return None
        if value is None:
            name = ARGUMENTS[kind]
            if needed:
                fail_value(f"the fit was to counts with {name}=, and so are these to be scored; give theirs.")
            if kind == "exposure":  # shares of successes are what one trial means
                warn_user(
                    "the fit was to counts with exposure=, and these have none: rates, the counts of an exposure of 1, "
                    "are predicted; give theirs, or exposure=1 if that is meant."
                )
        return checked_extents(kind, 1.0 if value is None else value, len(X)) / (self.extent_unit or 1.0)

    def without_extent(self, X: Any, given: dict[str, Any] | None = None) -> Any:
        X = as_frame(X)
        if not isinstance(X, pd.DataFrame):
            return X
        columns = [self.extent_column, *(name for name in (given or {}).values() if isinstance(name, str))]
        return X.drop(columns=[name for name in columns if name is not None and name in X.columns])


@dataclass(frozen=True)
class CountTarget(Target):
    """What a user says of counts; see the parameters of `CPCountRegressor`."""

    OBSERVATION = CountObservation
    is_scaled = True

    likelihood: str = "auto"
    dispersion: Any = "learned"
    zero_inflation: bool = False

    def likelihoods(self) -> list[Likelihood]:
        names = RATES if self._name() == "auto" else (self._name(),)
        return [with_zeros(get_likelihood(name), self.asks_for_zeros()) for name in names]

    def asked(self, method: str) -> Likelihood:
        """What is named, or the first that the method serves."""
        name = self._name()
        self._dispersion()
        if name != "auto":
            return self.likelihoods()[0]
        fits = [one for one in self.likelihoods() if method == "auto" or not METHODS[method].lacks(one)]
        return (fits or self.likelihoods())[0]

    def asks_for_zeros(self) -> bool:
        """The parameter zero_inflation after its check."""
        return check_flag("zero_inflation", self.zero_inflation)

    def _name(self) -> str:
        """The parameter likelihood after its check; a dispersion for every row asks for that which has one."""
        given, known = self.dispersion, ("auto", *names_of_likelihoods("counts"))
        name = check_choice("likelihood", self.likelihood, known)
        if isinstance(given, str) and given == "learned":
            return name
        if name not in ("auto", "negbinomial"):
            fail_value(
                f"dispersion={given!r} is for likelihood='negbinomial' or 'auto'; got {name!r}; use one of these, or "
                "dispersion='learned'."
            )
        if not isinstance(given, str):
            return name
        if self.asks_for_zeros():
            fail_value(
                f"zero_inflation=True takes one dispersion of all counts; got dispersion={given!r}; leave one out."
            )
        return "negbinomial"

    def _dispersion(self) -> float | None:
        """The parameter dispersion after its check; None where it is to be learned."""
        if isinstance(self.dispersion, str):  # which mode it names is known later
            return None
        instead = "'learned', the name of a mode, or "
        return check_range("dispersion", self.dispersion, 0.0, include_low=False, instead=instead)

    def decide(self, y: np.ndarray, chosen: Chosen, coords: np.ndarray, extent: OfEach, weight: OfEach) -> Decided:
        """The likelihood of the counts, its dispersion starting where main effects leave it."""
        if isinstance(coords, StoredColumns):  # all counts are checked where they are packed
            coords, y = sampled_columns(coords, y)
        y, inflated = get_likelihood("poisson").check_y(y), self.asks_for_zeros()
        told: Facts = {"_fixed_dispersion": None, "_inflated": False}
        if self._name() == "binomial":
            check_trials(y, extent)
            return self.asked(chosen.method), {**told, "_likelihood_name": "binomial"}
        told_by = telling(weight)  # how counts vary, and whether one is wild, is for those to say that weigh
        coords, y, extent = coords[told_by], y[told_by], None if extent is None else extent[told_by]
        found, name, fixed = overdispersion_of(coords, y, extent, inflated), self._name(), self._dispersion()
        if name == "auto":
            sure = METHODS[chosen.method].capabilities.knows_sparse_rows
            varies = found.clear if sure else found.possible
            name = "negbinomial" if varies else "poisson"
            if METHODS[chosen.method].lacks(get_likelihood(name)):
                name = self.asked(chosen.method).name
        if fixed is not None and not get_likelihood(name).is_dispersed:
            warn_user(
                f"the counts vary no more than Poisson ones, which have none: dispersion={fixed:g} is not used; "
                "say likelihood='negbinomial' to keep it."
            )
        record = with_dispersion(name, fixed).starting_at(found.r)
        if self.is_wild(y):
            warn_user(
                f"one count, {y.max():g}, is more than {WILD:g} times the {len(y) - 1} others together and can "
                "decide the fit; check it, or leave it out."
            )
        if found.spread < EVEN:
            what = "CPRegressor learns how much they vary; of counts out of a known number take likelihood='binomial'"
            if np.max(y) <= 1.0:
                what = "CPClassifier is made for counts of 0 and 1"
            elif np.min(y) >= 1.0 and np.mean(y) < TRUNCATED:
                what = "if cells that are not given hold zeros, add some (with_zeros)"
            warn_user(
                "the counts vary less than Poisson ones: their variance about what their rows say is "
                f"{found.spread:.2g} of the mean, and intervals will be too wide; {what}."
            )
        told |= {"_likelihood_name": name, "_fixed_dispersion": fixed, "_inflated": inflated}
        return with_zeros(record, inflated, found.share), told

    def decide_noise(self, labels: Any, chosen: Chosen, streaming: bool, prior: Any) -> tuple[Uneven | None, Facts]:
        """How the dispersion differs; there is no other noise."""
        given, names = self.dispersion, names_of(labels)
        if not isinstance(given, str) or given == "learned":
            return None, {}
        cannot, instead = f"cannot use dispersion={given!r}", "dispersion='learned'"
        refuse_unable(chosen.method, "heteroscedastic", cannot, about="dispersion", instead=instead)
        if given not in names:
            fail_value(f"dispersion must be a number > 0, 'learned', or a mode, one of {names}; got {given!r}.")
        return Uneven(mode_of(labels, given)), {}

    def is_wild(self, values: np.ndarray) -> bool:
        """Whether one count is far larger than all others together."""
        largest, total = float(np.max(values, initial=0.0)), float(np.sum(values))
        return len(values) > 1 and largest > WILD * max(total - largest, 1.0)

    def intercept(self, y: np.ndarray, likelihood: Likelihood, weight: OfEach = None) -> float:
        """The log of the mean, or of the odds of success, half a count at least."""
        if likelihood.extent == "trials":  # y are shares
            return float(logit(weighted_mean(y, weight)))
        n = len(y) if weight is None else weight.sum()
        present = 1.0 if likelihood.zeros is None else 1.0 - likelihood.zeros.start
        mean = max(weighted_mean(y, weight), 0.5 / n) / present
        return float(np.log(mean)) - float(np.log(likelihood.first_theta))

    def latent_guess(self, y: np.ndarray, likelihood: Likelihood, weight: OfEach = None) -> np.ndarray:
        """Their logs, with half a count more; of shares of successes their log odds."""
        if likelihood.extent == "trials":
            return np.asarray(logit(y))
        shift = float(np.log(likelihood.first_theta))
        return fill_by_parts(empty_near(y), lambda at: np.log(y[at] + 0.5) - shift)

    def for_batches(self) -> Target:
        """Poisson counts, if that is left open."""
        # a dispersion that is learned beside rows of which hardly anything is known explains all that these could, and
        # later batches hardly bring it back
        left_open = self.likelihood == "auto" and self.dispersion == "learned"
        return replace(self, likelihood="poisson") if left_open else self

    def split_extents(self, X: Any, given: dict[str, Any], call: str = "fit") -> tuple[Any, Any, str | None]:
        refuse_others(f"CPCountRegressor.{call}", {name: value for name, value in given.items() if name not in TAKERS})
        return split_extents(self._kinds(), X, given)

    def column_of_extents(self, given: dict[str, Any]) -> str | None:
        said = {name: value for name, value in given.items() if value is not None}
        for name, value in said.items():
            if not isinstance(value, str):
                kind = type(value).__name__
                fail_value(f"{name} of a stream is the name of a column; got a {kind}; use partial_fit.")
        split_extents(self._kinds(), pd.DataFrame(columns=list(said.values())), said)
        return next(iter(said.values()), None)

    def _kinds(self) -> tuple[str, ...]:
        return tuple({one.extent for one in self.likelihoods() if one.extent is not None})

    def checked_extents(self, extents: Any, n: int) -> np.ndarray | None:
        """The extents of n counts; of binomial ones without any a trial each."""
        kind = str(self.likelihoods()[0].extent)
        extents = 1.0 if extents is None and kind == "trials" else extents
        return None if extents is None else checked_extents(kind, extents, n)

    def summed(self, weighted: Weighted) -> Weighted:
        """Poisson counts of one cell as one count: starts and hold-outs then know no more than the likelihood does."""
        (coords, values, shape, labels), power, extents = weighted
        asked = self.likelihoods()
        if extents is None or power is not None or len(asked) > 1 or asked[0].is_dispersed or not asked[0].is_of_rates:
            return weighted
        values = self.checked(values, asked[0])
        cells, total = merge_duplicates(coords, values, shape, "sum")
        return Weighted((cells, total, shape, labels), None, merge_duplicates(coords, extents, shape, "sum")[1])

    def in_units(self, extents: OfEach, column: str | None, before: Any, weight: OfEach) -> tuple[OfEach, Facts]:
        """Exposures in units of their mean, or of that of an earlier fit; numbers of trials as they are."""
        known = None if before is None else before.extent_unit
        if extents is None:
            return None, {"_extent_unit": known, "_extent_column": None}
        if self.likelihoods()[0].extent == "trials":
            several = (extents > 1.0).any() or known is not None
            return extents, {"_extent_unit": 1.0 if several else None, "_extent_column": column}
        unit = weighted_mean(extents, weight) if before is None else known or 1.0
        return extents / unit, {"_extent_unit": unit, "_extent_column": column}

    def batch_in_units(self, batch: Batch, before: Any) -> tuple[Batch, Facts]:
        """A batch whose exposures are in units of those of the first one."""
        extents = self.checked_extents(batch.extents, len(batch.values))
        if extents is None and before is not None and before.extent_unit is not None:
            fail_value("earlier counts had exposure=, and so must these; give theirs.")
        if self.likelihoods()[0].extent == "trials":
            check_trials(batch.values, extents)
        column = batch.column or (None if before is None else before.extent_column)
        extents, about = self.in_units(extents, column, before, batch.weights)
        return batch._replace(extents=extents), {**about, "_extent_column": column}
