"""Whether counts vary more than Poisson ones about a cheap fit of main effects, and by how much.

What the count estimator learns beside its rows: the dispersions, and the share of structural zeros.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

from tensorcep.core.checks import check_choice, check_flag, check_range, fail_value, warn_user
from tensorcep.cp.model.problem import Uneven
from tensorcep.cp.targets.base import Chosen
from tensorcep.cp.targets.real import uneven_dispersion
from tensorcep.likelihoods import get_likelihood, names_of
from tensorcep.likelihoods.inflated import zero_inflated
from tensorcep.likelihoods.record import Likelihood
from tensorcep.likelihoods.zeros import Zeros, presence

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
    """The score of overdispersion in standard errors, the r that explains it, and the share of structural zeros.

    `blind` says whether there are counts of which the score cannot tell: their rows have little else. `spread` is the
    variance as a share of that of Poisson counts where it is clearly less, else 1.
    """

    score: float
    r: float
    share: float = 0.0
    blind: bool = False
    spread: float = 1.0

    @property
    def clear(self) -> bool:
        """Whether Poisson counts would not vary so much."""
        return self.score > CLEAR

    @property
    def possible(self) -> bool:
        """Whether they vary more, or may: one that is far above its mean costs Poisson counts hundreds of nats."""
        return self.clear or self.blind


def log_linear_means(
    coords: np.ndarray, y: np.ndarray, exposure: np.ndarray, inflated: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The means (n,) of counts with main effects alone, mu = exposure c prod_k a_k[i_k], fitted to margins.

    With `inflated` zeros may be structural (by EM, Lambert 1992); the probability (n,) that each count is not comes
    second. Last is how far each mean follows its own count (n,), the leverage.
    """
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
    return mu, present, np.minimum(sum(present * mu / own for own in told), MOST_LEVERAGE)


def overdispersion_of(
    coords: np.ndarray, y: np.ndarray, exposure: np.ndarray | None = None, inflated: bool = False
) -> Overdispersion:
    """How much counts, of exposures with mean 1, vary beyond Poisson ones about main effects.

    What components would explain counts as variation too: the dispersion is the least that fits need. With `inflated`
    it is that of counts which are no structural zeros. The score is of errors, of which residuals are a part only where
    a mean follows its own count: of few entries per row main effects explain much by chance. That of residuals alone
    is the dispersion, so that fits begin where components may explain most.

    Source: Dean and Lawless (1989), Tests for detecting overdispersion in Poisson regression models.
    """
    order = np.lexsort((y, *coords.T))  # sums then do not depend on the order of the input
    coords, y, exposure = coords[order], y[order], np.ones(len(y)) if exposure is None else exposure[order]
    mu, present, leverage = log_linear_means(coords, y, exposure, inflated)
    errors, square = (y - mu) ** 2, float((present * mu * mu).sum())
    excess, least = (float((present * (own - y)).sum()) for own in (errors / (1.0 - leverage), errors))
    r = square / least if least > 0.0 else STARTS_OF_DISPERSION[1]
    blind = bool(np.any((y > FEW) & (leverage >= MOST_LEVERAGE)))
    share = 1.0 - float(present.mean())
    score, r = excess / np.sqrt(2.0 * square), float(np.clip(r, *STARTS_OF_DISPERSION))
    return Overdispersion(score, r, share, blind, _spread(y, mu, present, leverage))


def _spread(y: np.ndarray, mu: np.ndarray, present: np.ndarray, leverage: np.ndarray) -> float:
    """Variance of counts as a share of that of Poisson ones where their score says that it is less, else 1."""
    weight = present * (leverage < HALF)
    own, poisson = float(weight @ ((y - mu) ** 2 / (1.0 - leverage))), float(weight @ mu)
    clear = float(weight @ y) - own > CLEAR * np.sqrt(2.0 * float(weight @ mu**2))
    return own / poisson if clear else 1.0


def has_wild_count(y: np.ndarray) -> bool:
    """Whether one count is far larger than all others together."""
    largest, total = float(np.max(y, initial=0.0)), float(np.sum(y))
    return len(y) > 1 and largest > WILD * max(total - largest, 1.0)


def warn_of_wild_count(y: np.ndarray) -> None:
    """Warn if one count is far larger than all others together."""
    if has_wild_count(y):
        warn_user(
            f"one count, {y.max():g}, is more than {WILD:g} times the {len(y) - 1} others together and can "
            "decide the fit; check it, or leave it out.",
            UserWarning,
        )


def warn_of_even_counts(y: np.ndarray, found: Overdispersion) -> None:
    """Warn of counts that vary much less than any law of counts here lets them."""
    if found.spread >= EVEN:
        return
    if np.max(y) <= 1.0:
        what = "CPClassifier is made for counts of 0 and 1"
    elif np.min(y) >= 1.0 and np.mean(y) < TRUNCATED:
        what = "if cells that are not given hold zeros, add some (with_zeros)"
    else:
        what = "CPRegressor learns how much they vary; of counts out of a known number take likelihood='binomial'"
    warn_user(
        f"the counts vary less than Poisson ones: their variance about what their rows say is {found.spread:.2g} of "
        f"the mean, and intervals will be too wide; {what}.",
        UserWarning,
    )


def with_dispersion(name: str, fixed: float | None) -> Likelihood:
    """The likelihood of this name, with its dispersion fixed if a number is given."""
    record = get_likelihood(name)
    if fixed is None or record.parameter is None:
        return record
    return record._replace(default_theta=fixed, parameter=None)


def log_dispersion(likelihood: Likelihood) -> float:
    """Log of the dispersion that a fit starts with; 0 for Poisson counts."""
    start = None if likelihood.parameter is None else likelihood.parameter.start
    return 0.0 if likelihood.name != "negbinomial" else float(np.log(start or likelihood.default_theta))


# Shares at which a fit may start.
STARTS = (0.01, 0.9)


class CountParameters:
    """The part of an estimator of counts that tells of their dispersion and of structural zeros."""

    _inflated: ClassVar[bool] = False  # until a fit

    def _given_name(self: Any) -> str:
        """The parameter likelihood after its check; a dispersion for every row asks for that which has one."""
        given, name = self.dispersion, check_choice("likelihood", self.likelihood, ("auto", *names_of("counts")))
        if isinstance(given, str) and given == "learned":
            return name
        if name not in ("auto", "negbinomial"):
            fail_value(
                f"dispersion={given!r} is for likelihood='negbinomial' or 'auto'; got {name!r}; use one of these, or "
                "dispersion='learned'."
            )
        if not isinstance(given, str):
            return name
        if self._asks_for_zeros():
            fail_value(
                f"zero_inflation=True takes one dispersion of all counts; got dispersion={given!r}; leave one out."
            )
        return "negbinomial"

    def _given_dispersion(self: Any) -> float | None:
        """The parameter dispersion after its check; None where it is to be learned."""
        if isinstance(self.dispersion, str):  # which mode it names is known later
            return None
        return check_range(
            "dispersion", self.dispersion, 0.0, include_low=False, instead="'learned', the name of a mode, or "
        )

    def _is_wild(self, values: np.ndarray) -> bool:
        """Whether one of the counts could decide all of a fit by chains."""
        return has_wild_count(values)

    def _decide_noise(self: Any, labels: Any, chosen: Chosen, streaming: bool) -> tuple[Uneven | None, dict[str, Any]]:
        """How the dispersion differs; there is no other noise."""
        return uneven_dispersion(self.dispersion, labels, chosen.method, streaming), {}

    def _with_zeros(self: Any, likelihood: Likelihood, asked: bool, share: float | None = None) -> Likelihood:
        """The likelihood with structural zeros if they are asked for, whose share starts by main effects."""
        if not asked:
            return likelihood
        if likelihood.extent != "exposure":
            fail_value(
                f"zero_inflation=True is for likelihood='poisson' or 'negbinomial'; got {likelihood.name!r}; leave it "
                "out."
            )
        zeros = Zeros() if share is None else Zeros(start=float(np.clip(share, *STARTS)))
        return zero_inflated(likelihood, zeros)

    def _asks_for_zeros(self: Any) -> bool:
        """The parameter zero_inflation after its check."""
        return check_flag("zero_inflation", self.zero_inflation)

    @property
    def zero_share_(self: Any) -> float | None:
        """Posterior mean of the share of structural zeros; None where none were looked for."""
        theta = self._fitted_belief().theta
        return float(theta.values[:, -1].mean()) if self._inflated and theta is not None else None

    @property
    def zero_share_std_(self: Any) -> float | None:
        """Posterior standard deviation of the share of structural zeros; None where none were looked for."""
        theta = self._fitted_belief().theta
        if not self._inflated or theta is None:
            return None
        within = 0.0
        if theta.shares is not None:
            a, b = theta.shares
            within = float((a * b / ((a + b) ** 2 * (a + b + 1.0))).mean())
        return float(np.sqrt(within + theta.values[:, -1].var()))

    @property
    def dispersion_(self: Any) -> float | np.ndarray | None:
        """Posterior mean of r, or the number that was given; None for Poisson and binomial counts."""
        theta, likelihood = self._fitted_belief().theta, self._likelihood()
        if likelihood.name != "negbinomial":
            return None
        if theta is None:
            return float(likelihood.default_theta)
        if theta.mode is not None:
            return np.asarray(theta.values.mean(axis=0))
        return float(theta.values[:, 0].mean()) if likelihood.parameter is not None else float(likelihood.default_theta)

    @property
    def dispersion_std_(self: Any) -> float | np.ndarray | None:
        """Posterior standard deviation of r; None where it was given or has no law."""
        theta = self._fitted_belief().theta
        if theta is None or (theta.gamma is None and len(theta.values) == 1) or self._likelihood().parameter is None:
            return None
        within = 0.0 if theta.gamma is None else (theta.gamma[0] / theta.gamma[1] ** 2).mean(axis=0)
        values = theta.values[:, :1] if self._inflated else theta.values
        sd = np.sqrt(within + values.var(axis=0))
        return float(sd[0]) if theta.mode is None else sd
