"""What a likelihood is: y given the latent value f of its entry, and what makes its entries Gaussian in f."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from tensorcep.likelihoods.parameters.base import Parameter
from tensorcep.likelihoods.parameters.thresholds import Levels

# Moments of a tilted density, or a log density and its first two derivatives, (n,) each.
Triple: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]

# Calls of the block kernels with freshly allocated results, for the parts of a likelihood that run in numpy.


def aligned(*arrays: ArrayLike) -> list[np.ndarray]:
    """Return the arguments as C-contiguous float64 arrays of one common length (a number serves every entry)."""
    broadcast = np.broadcast_arrays(*[np.atleast_1d(np.asarray(a, dtype=np.float64)) for a in arrays])
    return [np.array(a, dtype=np.float64, order="C") for a in broadcast]


def tilted_moments(tilted: Any, y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, ...]:
    """Return logz, alpha and beta, each (n,) float64, from a likelihood's `tilted` kernel."""
    y, m, v, theta = aligned(y, m, v, theta)
    logz, alpha, beta = np.empty_like(m), np.empty_like(m), np.empty_like(m)
    tilted(y, m, v, theta, logz, alpha, beta)
    return logz, alpha, beta


def log_density(loglik: Any, y: ArrayLike, f: ArrayLike, theta: ArrayLike) -> Triple:
    """Return log p(y | f) and its first two derivatives in f, each (n,) float64, from a `loglik` kernel."""
    y, f, theta = aligned(y, f, theta)
    value, d1, d2 = np.empty_like(f), np.empty_like(f), np.empty_like(f)
    loglik(y, f, theta, value, d1, d2)
    return value, d1, d2


# An auxiliary variable per entry, given which the entry says N(target / weight; f, 1 / weight) of its latent value.
# Mean-field methods take expectations of weight and target, samplers draw them; both then add up the same sums per row.


def _every(y: np.ndarray) -> np.ndarray:
    return np.ones(y.shape, dtype=bool)


class Augmentation(NamedTuple):
    """What makes the entries of a likelihood Gaussian in f; `theta` is the likelihood's parameter of the entry."""

    # expected(y, f, square, theta, weight, target, spread, constant), in place over n entries: for E[f] = f and
    # E[f^2] = square the expectations of weight and target under the best law of the auxiliary variable, and the
    # variance of the target. What the entry adds to a lower bound is constant + target f - weight square / 2; where
    # the parameter is a precision of the entry, constant is the entropy of the auxiliary variable instead. None where
    # entries are Gaussian in f as they are: of weight 1 and target y.
    expected: Any = None
    # drawn(first, last, y, used, f, theta, key, weight, target, s): draws of weight and target for the blocks
    # first:last of (n_blocks, LANES) arrays; `used` is 0 in padding lanes and 1 in others, or, where the augmentation
    # is `weighted`, how often the entry counts; `key` and `s` are those of `core.random`. None as for `expected`.
    drawn: Any = None
    # Whether weights differ from 1. What is expected then depends on E[f^2] alone, and otherwise on E[f] alone.
    weighted: bool = False
    # Whether there is no auxiliary variable, but a Gaussian matched to the log likelihood, by both E[f] and E[f^2].
    matched: bool = False
    # hides(y) -> bool, elementwise: whether the entry has an auxiliary variable; it is Gaussian as it is otherwise.
    hides: Callable[[np.ndarray], np.ndarray] = _every
    # exponents(y, theta) -> (b, kappa) of a Polya-Gamma variable, which makes exp(kappa f) / (2 cosh(f / 2))^b
    # Gaussian in f; b may have one item for all entries.
    exponents: Callable[[np.ndarray, Any], tuple[np.ndarray, np.ndarray]] | None = None

    @property
    def auxiliary(self) -> bool:
        """Whether entries have auxiliary variables, or are matched."""
        return self.expected is not None


@dataclass(frozen=True)
class Likelihood:
    """One observation model. A part that does not exist is None; methods say which parts they need.

    Every function works on n entries at once. `theta` is one float64 parameter per entry (noise precision, dispersion,
    number of trials); a likelihood without a parameter ignores it, and `default_theta` is what to pass. Each is a class
    of its own with what it predicts, after this one; the fields are what differs between likelihoods of a class.

    Examples
    --------
    >>> import numpy as np
    >>> from tensorcep.likelihoods import get_likelihood
    >>> probit = get_likelihood("probit")
    >>> mean, variance = probit.predict(np.zeros(1), np.ones(1), np.zeros(1))
    >>> probit.observes, float(mean[0]), float(variance[0])
    ('labels', 0.5, 0.25)
    """

    name: str
    # tilted(y, m, v, theta, logz, alpha, beta), in place: with f ~ N(m, v), logz = log E[p(y | f)],
    # alpha = d logz / dm, beta = -d2 logz / dm2. All arrays (n,) float64.
    tilted: Any = None
    loglik: Any = None  # loglik(y, f, theta, value, d1, d2), in place: log p(y | f), its first two derivatives in f
    parameters: tuple[Parameter[Any], ...] = ()  # what is learned of it
    default_theta: float = 1.0
    # A normal latent value per entry, of mean f; its precision is theta where that is one, and 1 otherwise.
    normal: Augmentation | None = None
    pg: Augmentation | None = None  # a Polya-Gamma variable per entry
    # No variable, but a Gaussian in f per entry that is matched to the log likelihood at the present f.
    matched: Augmentation | None = None
    # tilted2(y, m, v, theta, logz, alpha, beta, alpha2, beta2), in place: `tilted`, and the second derivatives in m of
    # alpha and of beta.
    tilted2: Any = None
    # As `loglik`, but the value may lack what does not depend on f; where there is none `loglik` serves.
    in_f: Any = None
    # The limit of censored values. Inside, y and f are differences from it, and y <= 0 says only that a Gaussian value
    # of mean f and precision theta is not above 0.
    limit: float | None = None
    side: float = 1.0  # of a limit: 1 for a lower one; -1 for an upper one, where y >= 0 says it is not below 0

    # "values", "labels", "counts" or "levels". `CPClassifier` offers those of labels by name, `CPCountRegressor` those
    # of counts; `CPRegressor` and `CPOrdinalClassifier` make theirs for each fit. None: no estimator of CP offers it.
    observes: ClassVar[str | None] = None
    # What an entry of a count may have: an "exposure", by which e^f is multiplied, or "trials", which are its theta.
    extent: ClassVar[str | None] = None
    f_is_log_odds: ClassVar[bool] = False  # whether f is the log odds of a label
    is_dispersed: ClassVar[bool] = False  # whether theta is a dispersion, by which counts vary more than Poisson ones
    is_curved: ClassVar[bool] = False  # whether what kernels take is a curved function of y (see `log_slopes`)
    # mixture_quantile(q, m, v, theta) -> (n,) for (C, n) arrays: the q-quantile of the mixture of C equally likely
    # components, where it can be had better than from a pool of quantiles of the components.
    mixture_quantile: ClassVar[Callable[..., np.ndarray] | None] = None
    # of_points(f, theta) -> (mean, variance) for (S, n) arrays: those (n,) of a new observation under equally likely
    # latent values, where they can be had faster than by `predict` at variance 0.
    of_points: ClassVar[Callable[..., tuple[np.ndarray, np.ndarray]] | None] = None
    third: ClassVar[Callable[..., np.ndarray] | None] = None  # third(y, f, theta) -> (n,): d^3 log p(y | f) / df^3
    # averaged(y, m, v, theta): the mean of log p(y | f) under f ~ N(m, v) and its derivatives in m, where they have a
    # closed form; otherwise they are means of what `loglik` gives, by quadrature.
    averaged: ClassVar[Callable[..., Triple] | None] = None
    # rough(y, theta) -> (tau, nu): Gaussians in f that say about what y says, for methods whose first step from the
    # prior could be far too long.
    rough: ClassVar[Callable[..., tuple[np.ndarray, np.ndarray]] | None] = None

    def check_y(self, y: ArrayLike) -> np.ndarray:
        """Return observations, (n,) float64, as kernels take them; raises ValueError with the first bad value."""
        raise NotImplementedError

    def predict(self, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance (n,) of a new observation when f ~ N(m, v)."""
        raise NotImplementedError

    def quantile(self, q: float, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
        """Return the q-quantile (n,) of a new observation when f ~ N(m, v)."""
        return self.mixture_quantile(q, *(part[None] for part in aligned(m, v, theta)))  # type: ignore[misc]

    def logpdf(self, y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
        """Return the log predictive density or mass (n,) of y, as kernels take it, when f ~ N(m, v)."""
        return tilted_moments(self.tilted, y, m, v, theta)[0]

    def tails(self, y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return the probabilities (n,) of an observation of at most, and of at least, y when f ~ N(m, v)."""
        raise TypeError(f"the likelihood {self.name!r} has no tails.")

    def sample(self, rng: np.random.Generator, f: ArrayLike, theta: ArrayLike) -> np.ndarray:
        """Return draws (n,) of y given f."""
        raise NotImplementedError

    def log_slopes(self, y: np.ndarray) -> np.ndarray | float:
        """What turns log densities of coded observations into those of observations; 0 where they are the same."""
        return 0.0

    def by_component(self, values: np.ndarray) -> Likelihood:
        """The likelihood whose theta is the number of a line of `values` (C, m), where entries have no theta each."""
        raise NotImplementedError

    def at(self, m: np.ndarray, theta: np.ndarray, extent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The means (C, n) of latent values and the parameter, (C, n), of entries with these extents (n,)."""
        if self.extent == "exposure":
            return m + np.log(extent), theta
        return m, np.broadcast_to(extent, m.shape)

    @property
    def parameter(self) -> Any:
        """What is learned of its theta, or None."""
        return next((own for own in self.parameters if own.is_theta), None)

    @property
    def learns_precision(self) -> bool:
        """Whether what is learned of it is the precision of its noise."""
        return any(own.is_precision for own in self.parameters)

    @property
    def learns_dispersion(self) -> bool:
        """Whether what is learned of its theta is a dispersion."""
        return self.is_dispersed and self.parameter is not None

    @property
    def first_theta(self) -> float:
        """Where theta begins if nothing of the data says more."""
        return (None if self.parameter is None else self.parameter.start) or self.default_theta

    def starting_at(self, theta: float) -> Likelihood:
        """The likelihood whose theta starts there; as it is where theta is not learned, or has no start."""
        own = self.parameter
        return self if own is None or own.start is None else self.with_parameter(replace(own, start=theta))

    def as_fitted(self, theta: np.ndarray) -> Likelihood:
        """The likelihood as a fit left its thresholds or its dispersion; any other as it is."""
        return self

    def with_parameter(self, new: Parameter[Any]) -> Likelihood:
        """The likelihood with this parameter in the place of the one of its kind."""
        return replace(self, parameters=tuple(new if type(own) is type(new) else own for own in self.parameters))

    @property
    def levels(self) -> Levels | None:
        """Of ordered levels, how a latent value is cut into them."""
        # kernels then take the cuts below and above an entry's level (`Levels.between`) in the places of y and theta;
        # everywhere else y is the level
        return None

    @property
    def zeros(self) -> Any:
        """Of counts with structural zeros, their `ZeroInflation`; the kernels are those of the others."""
        return None

    @property
    def mean_field(self) -> Augmentation | None:
        """What makes entries Gaussian in f for variational message passing."""
        return self.normal or self.matched

    @property
    def is_of_rates(self) -> bool:
        """Whether it is of counts whose mean is e^f, or a multiple of it."""
        return self.extent == "exposure" and self.zeros is None

    @property
    def is_gaussian(self) -> bool:
        """Whether entries are Gaussian in f as they are."""
        return self.normal is not None and not self.normal.auxiliary

    @property
    def censored(self) -> bool:
        """Whether values at a limit are censored."""
        return self.limit is not None
