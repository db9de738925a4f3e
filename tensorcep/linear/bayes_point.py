"""The Bayes point machine, in weights or in functions of a kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import euclidean_distances

from tensorcep.core.checks import check_choice, check_flag, check_int, check_range, fail_value, warn_user
from tensorcep.ep.gaussian import Functions, GaussianEP, functions_of
from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.base import Likelihood
from tensorcep.linear.glm import FeatureClassifier, two_classes, with_constant

# The kernels of the Bayes point machine.


class PriorCovariance(NamedTuple):
    """The prior covariance of f(x) and f(z) without the prior variance: k(x, z), and 1 for an intercept."""

    kernel: str | Callable[[Any, Any], Any]
    length_scale: float
    constant: bool

    def matrix(self, X: Any, Z: Any) -> np.ndarray:
        """Covariances of f at the rows of X with f at those of Z."""
        if callable(self.kernel):
            K = np.asarray(self.kernel(X, Z), dtype=np.float64)
            if K.shape != (X.shape[0], Z.shape[0]):
                fail_value(f"kernel must return a matrix of shape {(X.shape[0], Z.shape[0])}; got {K.shape}.")
        elif self.kernel == "rbf":
            K = np.exp(-0.5 * euclidean_distances(X, Z, squared=True) / self.length_scale**2)
        else:
            K = (X @ Z.T).toarray() if sparse.issparse(X) else X @ Z.T
        return K + 1.0 if self.constant else K

    def diagonal(self, X: Any) -> np.ndarray:
        """Variances of f at the rows of X."""
        n = X.shape[0]
        if callable(self.kernel):
            return np.array([self.matrix(X[i : i + 1], X[i : i + 1])[0, 0] for i in range(n)])
        square = X.multiply(X) if sparse.issparse(X) else X * X
        own = np.ones(n) if self.kernel == "rbf" else np.asarray(square.sum(axis=1)).ravel()
        return own + 1.0 if self.constant else own


# The Bayes point machine, by expectation propagation.


@dataclass(eq=False, repr=False)
class BayesPointMachine(FeatureClassifier):
    """Bayes point machine: classify by the posterior mean of a linear classifier, in feature space for a kernel.

    f(x) = w'x (+ intercept) with w ~ N(0, prior_scale^2 I), or f ~ GP(0, prior_scale^2 k). EP gives the posterior
    mean and covariance of w, and the log evidence, which compares kernels and scales without held-out data.

    Parameters
    ----------
    kernel : {"linear", "rbf"} or callable, default="linear"
        "rbf" is ``exp(-|x - z|^2 / (2 length_scale^2))``. A callable ``kernel(X, Z)`` returns the matrix of k(x, z).
    likelihood : {"probit", "step"}, default="probit"
        "step" is the classical machine: a label says on which side of f = 0 its point lies, up to the slack.
    slack : float in [0, 0.5), default=0
        Probability of a wrong label, for the step.
    length_scale : float, default=1.0
        Of the kernel "rbf".
    prior_scale : float, default=1.0
        Prior standard deviation of a weight; with a kernel the square root of its factor.
    fit_intercept : bool, default=True
        Add a constant feature (1 to the kernel), whose weight has the same prior.
    schedule : {"sequential", "parallel"}, default="sequential"
        Order of the updates of EP.
    damping : float in [0, 1), optional
        Fraction of the old site kept. By default it starts at 0 for sequential and 0.2 for parallel updates, and grows
        while the changes do not fall.
    max_iter : int, default=100
        Largest number of sweeps.
    tol : float, default=1e-4
        Stop when no update would move a latent value by more than this fraction of its standard deviation.

    Attributes
    ----------
    classes_ : ndarray (2,)
    coef_ : ndarray (1, n_features)
        Posterior mean of the weights; only for the linear kernel.
    intercept_ : ndarray (1,)
    dual_coef_ : ndarray (1, n_samples)
        Weights of the kernel functions at the training points, where the posterior was found in function space: with
        any kernel that is not linear, and for more features than samples.
    log_evidence_ : float
        EP's estimate of log p(y | X).
    n_iter_, converged_ : int, bool

    References
    ----------
    Minka (2001), Expectation propagation for approximate Bayesian inference, sec. 5. Where we differ: the printed
    update mixes the formulas of step and probit; here each likelihood has its own.

    Examples
    --------
    >>> from tensorcep import BayesPointMachine
    >>> X, y = [[-2.0], [-1.0], [0.5], [1.0], [2.0]], [0, 0, 1, 0, 1]
    >>> model = BayesPointMachine().fit(X, y)
    >>> model.predict([[-3.0], [3.0]]).tolist(), round(model.log_evidence_, 1)
    ([0, 1], -3.7)
    """

    _stored = ("classes_", "intercept_", "_cov", "log_evidence_", "n_iter_", "converged_", "n_features_in_")
    _stored_if_there = ("coef_", "dual_coef_", "_X_fit", "feature_names_in_")

    kernel: str | Callable[[Any, Any], Any] = "linear"
    _: KW_ONLY
    likelihood: str = "probit"
    slack: float = 0.0
    length_scale: float = 1.0
    prior_scale: float = 1.0
    fit_intercept: bool = True
    schedule: str = "sequential"
    damping: float | None = None
    max_iter: int = 100
    tol: float = 1e-4

    def _fit(self, X: Any, y: Any) -> BayesPointMachine:
        self._check_parameters()
        X, y, about = self._read(X, y)
        classes = two_classes(y)
        in_weights = self.kernel == "linear" and X.shape[1] <= X.shape[0]
        variance = float(self.prior_scale) ** 2
        rows = with_constant(X, self.fit_intercept) if in_weights else None
        ep = GaussianEP(
            prior_cov=variance if in_weights else variance * self._kernel().matrix(X, X),
            schedule=self.schedule,
            damping=self.damping,
            max_iter=self.max_iter,
            tol=self.tol,
        )
        result = ep.fit(rows, (y == classes[1]).astype(np.int64), self._likelihood(), self._theta())
        about |= {"classes_": classes, "log_evidence_": result.log_evidence}
        about |= {"n_iter_": result.n_iter, "converged_": result.converged, "intercept_": np.zeros(1)}
        if in_weights:
            d = X.shape[1]
            about |= {"_cov": result.cov, "coef_": result.mean[None, :d]}
            weights_of_ones = result.mean[d:]
        else:
            functions = functions_of(result, variance)
            dual = functions.dual[None]
            about |= {"_cov": functions.cov, "_X_fit": X, "dual_coef_": dual}
            weights_of_ones = dual.sum(axis=1)
            if self.kernel == "linear":
                about["coef_"] = np.asarray(X.T @ dual[0])[None]
        self._take({**about, "intercept_": weights_of_ones} if self.fit_intercept else about)
        if not result.converged:
            is_step = self.likelihood == "step"
            cures = ", add damping, or allow for wrong labels by slack or the probit" if is_step else " or add damping"
            warn_user(
                f"EP stopped after max_iter={self.max_iter} sweeps with a change of {result.trace['change'][-1]:.2g} > "
                f"tol={self.tol:g} and {result.skipped} updates left out; increase max_iter{cures}.",
                ConvergenceWarning,
            )
        return self

    def _check_parameters(self) -> None:
        if not callable(self.kernel):
            check_choice("kernel", self.kernel, ("linear", "rbf"))
        check_choice("likelihood", self.likelihood, ("probit", "step"))
        check_range("slack", self.slack, 0.0, 0.5, include_high=False)
        check_range("length_scale", self.length_scale, 0.0, include_low=False)
        check_range("prior_scale", self.prior_scale, 0.0, include_low=False)
        check_flag("fit_intercept", self.fit_intercept)
        check_int("max_iter", self.max_iter)
        check_range("tol", self.tol, 0.0)
        if self.length_scale != 1.0 and self.kernel == "linear":
            fail_value(f"length_scale has a meaning only with kernel='rbf'; got length_scale={self.length_scale!r}.")
        if self.slack and self.likelihood != "step":
            fail_value(f"slack has a meaning only with likelihood='step'; got slack={self.slack!r} with 'probit'.")

    def _likelihood(self) -> Likelihood:
        return get_likelihood(self.likelihood)

    def _theta(self) -> float:
        return float(self.slack) if self.likelihood == "step" else self._likelihood().default_theta

    def _kernel(self) -> PriorCovariance:
        return PriorCovariance(self.kernel, float(self.length_scale), bool(self.fit_intercept))

    def _latent(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        if not hasattr(self, "dual_coef_"):
            return super()._latent(X)
        kernel = self._kernel()
        prior = float(self.prior_scale) ** 2 * kernel.diagonal(X)
        return Functions(self.dual_coef_[0], self._cov).latent(kernel.matrix(X, self._X_fit), prior)

    def _latent_mean(self, X: Any) -> np.ndarray:
        if hasattr(self, "coef_"):
            return super()._latent_mean(X)
        return np.asarray(self._kernel().matrix(X, self._X_fit) @ self.dual_coef_[0])

    def _probabilities(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        p, _ = self._likelihood().predict(mean, variance, self._theta())
        return np.stack([1.0 - p, p], axis=1)

    def decision_function(self, X: Any) -> np.ndarray:
        """Posterior mean of f divided by its predictive scale: ranks points as `predict_proba` does, (n,).

        Examples
        --------
        >>> from tensorcep import BayesPointMachine
        >>> X, y = [[-2.0], [-1.0], [0.5], [1.0], [2.0]], [0, 0, 1, 0, 1]
        >>> model = BayesPointMachine().fit(X, y)
        >>> model.decision_function(X).shape
        (5,)
        """
        mean, variance = self.predict_latent(X)
        noise = 1.0 if self.likelihood == "probit" else 0.0
        return mean / np.sqrt(np.maximum(noise + variance, np.finfo(np.float64).tiny))

    def _check_storable(self) -> None:
        if callable(self.kernel):
            fail_value("kernel must be 'linear' or 'rbf' to be saved; got a function, which a file cannot hold.")
