"""The record that describes a likelihood: y given the latent value f of its entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tensorcep.likelihoods.augmentation import Augmentation
from tensorcep.likelihoods.parameters.base import Parameter
from tensorcep.likelihoods.parameters.thresholds import Levels, ThresholdParameter
from tensorcep.likelihoods.parameters.zero_inflation import ZeroInflation


class Likelihood(NamedTuple):
    """One observation model. A part that does not exist is None; methods say which parts they need.

    Every function works on n entries at once. `theta` is one float64 parameter per entry (noise precision, dispersion,
    number of trials); a likelihood without a parameter ignores it, and `default_theta` is what to pass.

    Attributes
    ----------
    name : str
    default_theta : float
    check_y : callable
        ``check_y(y) -> float64 (n,)`` in the likelihood's own coding; raises ValueError with the first bad value.
    tilted : kernel or None
        ``tilted(y, m, v, theta, logz, alpha, beta)``, in place: with f ~ N(m, v), logz = log E[p(y | f)],
        alpha = d logz / dm, beta = -d2 logz / dm2. All arrays (n,) float64.
    loglik : kernel or None
        ``loglik(y, f, theta, value, d1, d2)``, in place: log p(y | f) and its first two derivatives in f.
    predict : callable
        ``predict(m, v, theta) -> (mean, variance)`` of a new observation when f ~ N(m, v).
    quantile : callable
        ``quantile(q, m, v, theta) -> (n,)``: the q-quantile of a new observation when f ~ N(m, v).
    logpdf : callable
        ``logpdf(y, m, v, theta) -> (n,)``: the log predictive density or mass of y when f ~ N(m, v).
    sample : callable
        ``sample(rng, f, theta) -> (n,)``: draws of y given f.
    parameters : tuple of Parameter
        What is learned of it.
    normal : Augmentation or None
        A normal latent value per entry, of mean f; its precision is theta where that is one, and 1 otherwise.
    pg : Augmentation or None
        A Polya-Gamma variable per entry.
    matched : Augmentation or None
        No variable, but a Gaussian in f per entry that is matched to the log likelihood at the present f.
    mixture_quantile : callable or None
        ``mixture_quantile(q, m, v, theta) -> (n,)`` for (C, n) arrays: the q-quantile of the mixture of C equally
        likely components, where it can be had better than from a pool of quantiles of the components.
    tilted2 : kernel or None
        ``tilted2(y, m, v, theta, logz, alpha, beta, alpha2, beta2)``, in place: `tilted`, and the second derivatives in
        m of alpha and of beta.
    limit : float or None
        The limit of censored values. Inside, y and f are differences from it, and y <= 0 says only that a Gaussian
        value of mean f and precision theta is not above 0.
    side : float
        Of a limit: 1 for a lower one, and -1 for an upper one, where y >= 0 says that the value is not below 0.
    f_is_log_odds : bool
        Whether f is the log odds of a label.
    third : callable or None
        ``third(y, f, theta) -> (n,)``: the third derivative of log p(y | f) in f.
    averaged : callable or None
        ``averaged(y, m, v, theta) -> (value, d1, d2)``: the mean of log p(y | f) under f ~ N(m, v) and its derivatives
        in m, where they have a closed form; otherwise they are means of what `loglik` gives, by quadrature.
    rough : callable or None
        ``rough(y, theta) -> (tau, nu)``: Gaussians in f that say about what y says, for methods whose first step from
        the prior could be far too long.
    observes : {"values", "labels", "counts", "levels"} or None
        The kind of data. `CPClassifier` offers those of labels by name, `CPCountRegressor` those of counts;
        `CPRegressor` and `CPOrdinalClassifier` make theirs for each fit. None: no estimator of CP offers it.
    tails : callable or None
        ``tails(y, m, v, theta) -> (lower, upper)``: the probabilities of an observation that is at most, and at least,
        y, when f ~ N(m, v).
    of_points : callable or None
        ``of_points(f, theta) -> (mean, variance)`` for (S, n) arrays: those (n,) of a new observation under equally
        likely latent values, where they can be had faster than by `predict` at variance 0.
    extent : {"exposure", "trials"} or None
        What an entry of a count may have: an exposure, by which e^f is multiplied, or a number of trials, which is its
        theta.
    by_component : callable or None
        ``by_component(values) -> Likelihood``: where the parameter has m numbers for all entries together, the record
        whose theta is the number of a line of these (C, m).
    log_slope : callable or None
        ``log_slope(y) -> (n,)`` where what goes into the kernels is a curved function of the observation: the log of
        its slope, which is to be added to log densities of y before they are those of observations.
    in_f : kernel or None
        As `loglik`, but the value may lack what does not depend on f; where there is none `loglik` serves.

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
    default_theta: float
    check_y: Callable[[Any], np.ndarray]
    tilted: Any
    loglik: Any
    predict: Callable[..., tuple[np.ndarray, np.ndarray]]
    quantile: Callable[..., np.ndarray]
    logpdf: Callable[..., np.ndarray]
    sample: Callable[..., np.ndarray]
    parameters: tuple[Parameter[Any], ...] = ()
    normal: Augmentation | None = None
    pg: Augmentation | None = None
    matched: Augmentation | None = None
    tilted2: Any = None
    mixture_quantile: Callable[..., np.ndarray] | None = None
    limit: float | None = None
    side: float = 1.0
    f_is_log_odds: bool = False
    third: Callable[..., np.ndarray] | None = None
    averaged: Callable[..., tuple[np.ndarray, np.ndarray, np.ndarray]] | None = None
    rough: Callable[..., tuple[np.ndarray, np.ndarray]] | None = None
    observes: str | None = None
    tails: Callable[..., tuple[np.ndarray, np.ndarray]] | None = None
    of_points: Callable[..., tuple[np.ndarray, np.ndarray]] | None = None
    by_component: Callable[[np.ndarray], Likelihood] | None = None
    extent: str | None = None
    log_slope: Callable[[np.ndarray], np.ndarray] | None = None
    in_f: Any = None

    @property
    def parameter(self) -> Any:
        """What is learned of its theta, or None."""
        return next((own for own in self.parameters if own.is_theta), None)

    @property
    def learns_precision(self) -> bool:
        """Whether what is learned of it is the precision of its noise."""
        return any(own.is_precision for own in self.parameters)

    @property
    def levels(self) -> Levels | None:
        """Of ordered levels, how a latent value is cut into them.

        Kernels then take the cuts below and above an entry's level (`Levels.between`) in the places of y and theta;
        everywhere else y is the level.
        """
        return next((own.levels for own in self.parameters if isinstance(own, ThresholdParameter)), None)

    @property
    def zeros(self) -> ZeroInflation | None:
        """Of counts with structural zeros, what is learned of these; the kernels are those of the others."""
        return next((own for own in self.parameters if isinstance(own, ZeroInflation)), None)

    def with_parameter(self, new: Parameter[Any]) -> Likelihood:
        """The likelihood with this parameter in the place of the one of its kind."""
        return self._replace(parameters=tuple(new if type(own) is type(new) else own for own in self.parameters))

    @property
    def mean_field(self) -> Augmentation | None:
        """What makes entries Gaussian in f for variational message passing."""
        return self.normal or self.matched

    def at(self, m: np.ndarray, theta: np.ndarray, extent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The means (C, n) of latent values and the parameter, (C, n), of entries with these extents (n,)."""
        if self.extent == "exposure":
            return m + np.log(extent), theta
        return m, np.broadcast_to(extent, m.shape)

    def log_slopes(self, y: np.ndarray) -> np.ndarray | float:
        """What turns log densities of coded observations into those of observations; 0 where they are the same."""
        return 0.0 if self.log_slope is None else self.log_slope(y)

    @property
    def censored(self) -> bool:
        """Whether values at a limit are censored."""
        return self.limit is not None
