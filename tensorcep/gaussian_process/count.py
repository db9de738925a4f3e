"""Regression of counts with a Gaussian process."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import nbinom, ncx2
from sklearn.base import RegressorMixin

from tensorcep.core.checks import check_choice, check_counts, check_fraction, check_values, fail_value, word_or_range
from tensorcep.core.settings import ScoresUnmasked, fill_docstring
from tensorcep.gaussian_process.base import SHARED, BaseGaussianProcess
from tensorcep.gaussian_process.engine import Observations
from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.base import Likelihood

LINKS = {"square": "poisson_square", "log": "poisson"}
# Added to the mean count, so that the prior mean of data without events is finite.
LEAST_RATE = 0.05


@dataclass(eq=False, repr=False)
class GaussianProcessCountRegressor(ScoresUnmasked, RegressorMixin, BaseGaussianProcess):  # type: ignore[misc]
    """Counts from a Poisson distribution whose rate is the square or the exponential of a latent Gaussian process.

    Parameters
    ----------
    kernel : kernel of sklearn.gaussian_process.kernels, optional
        Prior covariance of the latent function; parameters whose bounds are not fixed are learned. None is a constant
        times an RBF, both learned.
    method : {"ep", "qp", "vb", "laplace"} or a record of settings, default="ep"
        Records are in `tensorcep.gaussian_process.settings`, such as ``EP(schedule="sequential")``.
    link : {"square", "log"}, default="square"
        The rate is f^2 or e^f. Under the square link the predictive distribution of counts is exact.
    prior_mean : float or "auto", default="auto"
        Constant prior mean of f; "auto" is the mean count's, sqrt(mean) or log(mean).
    {shared}

    Attributes
    ----------
    kernel_ : kernel
        With its learned parameters.
    prior_mean_ : float
        Of f.
    log_marginal_likelihood_value_ : float
        The method's evidence of the training data: a lower bound for "vb", and for "qp" a surrogate, EP's formula at
        its sites.
    n_iter_, converged_ : int, bool
        Sweeps of the last fit, and whether it met the tolerance.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from tensorcep import GaussianProcessCountRegressor
    >>> X = np.arange(12.0)[:, None]
    >>> y = [5, 4, 6, 5, 3, 4, 2, 1, 0, 1, 0, 0]
    >>> model = GaussianProcessCountRegressor(0.5 * RBF(4.0), optimizer=None).fit(X, y)
    >>> model.predict([[1.0], [10.0]]).round()
    array([5., 0.])

    References
    ----------
    Zhang, Walder, Bonilla, Rizoiu, Xie (2020), Quantile propagation for Wasserstein-approximate Gaussian processes.
    Where we differ: the predictive distribution of the square link is exact, not a moment-matched negative binomial.
    """

    _: KW_ONLY
    link: str = "square"
    prior_mean: float | str = "auto"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    def _likelihood(self) -> Likelihood:
        return get_likelihood(LINKS[self.link])

    def fit(self, X: Any, y: Any) -> GaussianProcessCountRegressor:
        """Learn the kernel and find the posterior; a fit that is refused leaves the model as it was.

        Points, errors and what is returned are those of `GaussianProcessClassifier.fit`; y (n_samples,) holds counts 0,
        1, 2, ...

        Examples
        --------
        >>> from tensorcep import GaussianProcessCountRegressor
        >>> X, y = [[0.0], [1.0], [2.0], [3.0], [4.0]], [2, 3, 1, 5, 8]
        >>> model = GaussianProcessCountRegressor(optimizer=None).fit(X, y)
        >>> model.predict(X).shape
        (5,)
        """
        check_choice("link", self.link, LINKS)
        word_or_range("prior_mean", self.prior_mean, ("auto",), -np.inf)
        X, y, about = self._read(X, y)
        y = check_counts("y", check_values(y, name="y"))
        rate = max(float(y.mean()), LEAST_RATE)
        mean = float(np.sqrt(rate) if self.link == "square" else np.log(rate))
        mean = mean if self.prior_mean == "auto" else float(self.prior_mean)
        machines = self._fit_machines(X, self._targets(y), mean)
        return self._finish(machines, {**about, "prior_mean_": mean, "_X_fit": X, "_y_fit": y})

    def _targets(self, y: np.ndarray) -> list[Observations]:
        return [Observations(self._likelihood(), y, self._likelihood().default_theta)]

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Expected counts, (n,), and, if asked, standard deviations of new counts.

        Examples
        --------
        >>> from tensorcep import GaussianProcessCountRegressor
        >>> X, y = [[0.0], [1.0], [2.0], [3.0], [4.0]], [2, 3, 1, 5, 8]
        >>> model = GaussianProcessCountRegressor(optimizer=None).fit(X, y)
        >>> mean, sd = model.predict(X, return_std=True)
        >>> bool((sd**2 > mean).all())
        True
        """
        mean, variance = self._likelihood().predict(*self._latent(self._checked(X)), 1.0)
        return (mean, np.sqrt(variance)) if return_std else mean

    def predict_interval(self, X: Any, coverage: float = 0.9, of: str = "counts") -> np.ndarray:
        """Central intervals of new counts, or of the rate, (n, 2).

        Parameters
        ----------
        X : array-like (n_samples, n_features)
        coverage : float, default=0.9
        of : {"counts", "rate"}, default="counts"

        Examples
        --------
        >>> from tensorcep import GaussianProcessCountRegressor
        >>> X, y = [[0.0], [1.0], [2.0], [3.0], [4.0]], [2, 3, 1, 5, 8]
        >>> model = GaussianProcessCountRegressor(optimizer=None).fit(X, y)
        >>> model.predict_interval(X, coverage=0.9).shape, model.predict_interval(X, of="rate").shape
        ((5, 2), (5, 2))
        """
        check_choice("of", of, ("counts", "rate"))
        tail = 0.5 - 0.5 * check_fraction("coverage", coverage)
        mean, variance = self._latent(self._checked(X))
        if of == "counts":
            ends = [self._likelihood().quantile(q, mean, variance, 1.0) for q in (tail, 1.0 - tail)]
        elif self.link == "log":
            ends = [np.exp(mean + ndtri(q) * np.sqrt(variance)) for q in (tail, 1.0 - tail)]
        else:
            v = np.maximum(variance, np.finfo(np.float64).tiny)
            ends = [v * ncx2.ppf(q, 1.0, mean**2 / v) for q in (tail, 1.0 - tail)]
        return np.stack(ends, axis=1)

    def log_score(self, X: Any, y: Any, approximation: str = "exact") -> np.ndarray:
        """Log predictive probability of each observed count, (n,).

        Parameters
        ----------
        X : array-like (n_samples, n_features)
        y : array-like (n_samples,)
            Counts.
        approximation : {"exact", "negative-binomial"}, default="exact"
            "negative-binomial" takes the squared latent value for a Gamma variable, as the paper does (its eq. 119); it
            is there to compare with, for the square link.

        Examples
        --------
        >>> from tensorcep import GaussianProcessCountRegressor
        >>> X, y = [[0.0], [1.0], [2.0], [3.0], [4.0]], [2, 3, 1, 5, 8]
        >>> model = GaussianProcessCountRegressor(optimizer=None).fit(X, y)
        >>> model.log_score(X, y).shape
        (5,)
        """
        check_choice("approximation", approximation, ("exact", "negative-binomial"))
        mean, variance = self._latent(self._checked(X))
        y = check_counts("y", check_values(y, len(mean), name="y"))
        if approximation == "exact":
            return self._likelihood().logpdf(y, mean, variance, 1.0)
        if self.link != "square":
            fail_value(f"approximation='negative-binomial' is for link='square'; got {self.link!r}.")
        rate, spread = mean**2 + variance, 2.0 * variance * (2.0 * mean**2 + variance)
        return np.asarray(nbinom.logpmf(y, rate**2 / spread, rate / (rate + spread)))

    def _observed(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return self._likelihood().sample(rng, f[0].ravel(), np.ones(f[0].size)).reshape(f.shape[1:])


fill_docstring(GaussianProcessCountRegressor, {"{shared}": SHARED})
