"""The Bayes point machine, by expectation propagation."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from tensorcep.core.checks import check_choice, check_int, check_range, fail_value, warn_user
from tensorcep.core.store import write_attributes
from tensorcep.ep.gaussian import EPResult, GaussianEP
from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.record import Likelihood

STORED = ("classes_", "intercept_", "_cov", "log_evidence_", "n_iter_", "converged_", "n_features_in_")
STORED_IF_THERE = ("coef_", "dual_coef_", "_X_fit", "feature_names_in_")


class BayesPointMachine(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Bayes point machine: classify by the posterior mean of a linear classifier, in feature space for a kernel.

    f(x) = w'x (+ intercept) with w ~ N(0, prior_scale^2 I), or f ~ GP(0, prior_scale^2 k). EP gives the posterior
    mean and covariance of w, and the log evidence, which compares kernels and scales without held-out data.

    Parameters
    ----------
    kernel : {"linear", "rbf"} or callable, default="linear"
        "rbf" is exp(-|x - z|^2 / (2 length_scale^2)). A callable ``kernel(X, Z)`` returns the matrix of k(x, z).
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
    """

    def __init__(
        self,
        kernel: str | Callable[[Any, Any], Any] = "linear",
        *,
        likelihood: str = "probit",
        slack: float = 0.0,
        length_scale: float = 1.0,
        prior_scale: float = 1.0,
        fit_intercept: bool = True,
        schedule: str = "sequential",
        damping: float | None = None,
        max_iter: int = 100,
        tol: float = 1e-4,
    ):
        self.kernel = kernel
        self.likelihood = likelihood
        self.slack = slack
        self.length_scale = length_scale
        self.prior_scale = prior_scale
        self.fit_intercept = fit_intercept
        self.schedule = schedule
        self.damping = damping
        self.max_iter = max_iter
        self.tol = tol

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: Any) -> BayesPointMachine:
        """Fit by EP.

        Parameters
        ----------
        X : array-like or sparse matrix (n_samples, n_features)
        y : array-like (n_samples,)
            Labels of two classes.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            On parameters or data that are not allowed.
        FloatingPointError
            If the posterior stops being a Gaussian.
        """
        self._check_parameters()
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) != 2:
            found = "one class" if len(self.classes_) == 1 else "the type of the target is multiclass"
            fail_value(f"Only binary classification is supported; y must hold labels of two classes; got {found}.")
        in_weights = self.kernel == "linear" and X.shape[1] <= X.shape[0]
        variance = float(self.prior_scale) ** 2
        rows = _with_constant(X, self.fit_intercept) if in_weights else None
        ep = GaussianEP(
            prior_cov=variance if in_weights else variance * self._kernel_matrix(X, X),
            schedule=self.schedule,
            damping=self.damping,
            max_iter=self.max_iter,
            tol=self.tol,
        )
        result = ep.fit(rows, codes, self._likelihood(), self._theta())
        for name in ("coef_", "dual_coef_", "_X_fit"):  # of an earlier fit in the other space
            self.__dict__.pop(name, None)
        if in_weights:
            self._keep_weights(result, X.shape[1])
        else:
            self._keep_functions(result, X, variance)
        self.log_evidence_, self.n_iter_, self.converged_ = result.log_evidence, result.n_iter, result.converged
        if not result.converged:
            warn_user(
                f"EP stopped after max_iter={self.max_iter} sweeps with a change of {result.trace['change'][-1]:.2g} > "
                f"tol={self.tol:g} and {result.skipped} updates left out; increase max_iter, add damping, or allow for "
                "wrong labels by slack or the probit.",
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
        check_int("max_iter", self.max_iter)
        check_range("tol", self.tol, 0.0)
        if self.slack and self.likelihood != "step":
            fail_value(f"slack has a meaning only with likelihood='step'; got slack={self.slack!r} with 'probit'.")

    def _likelihood(self) -> Likelihood:
        return get_likelihood(self.likelihood)

    def _theta(self) -> float:
        return float(self.slack) if self.likelihood == "step" else self._likelihood().default_theta

    def _kernel_matrix(self, X: Any, Z: Any) -> np.ndarray:
        if callable(self.kernel):
            K = np.asarray(self.kernel(X, Z), dtype=np.float64)
            if K.shape != (X.shape[0], Z.shape[0]):
                fail_value(f"kernel must return a matrix of shape {(X.shape[0], Z.shape[0])}; got {K.shape}.")
        elif self.kernel == "rbf":
            K = np.exp(-0.5 * euclidean_distances(X, Z, squared=True) / float(self.length_scale) ** 2)
        else:
            K = (X @ Z.T).toarray() if sparse.issparse(X) else X @ Z.T
        return K + 1.0 if self.fit_intercept else K

    def _kernel_diagonal(self, X: Any) -> np.ndarray:
        n = X.shape[0]
        if callable(self.kernel):
            return np.array([self._kernel_matrix(X[i : i + 1], X[i : i + 1])[0, 0] for i in range(n)])
        square = X.multiply(X) if sparse.issparse(X) else X * X
        own = np.ones(n) if self.kernel == "rbf" else np.asarray(square.sum(axis=1)).ravel()
        return own + 1.0 if self.fit_intercept else own

    def _keep_weights(self, result: EPResult, n_features: int) -> None:
        self._cov = result.cov
        self.coef_ = result.mean[None, :n_features]
        self.intercept_ = result.mean[n_features:] if self.fit_intercept else np.zeros(1)

    def _keep_functions(self, result: EPResult, X: Any, variance: float) -> None:
        """f at the training points has mean K a and covariance K - K B K; so has f elsewhere, without inverting K."""
        tau = result.sites.tau
        a = result.sites.nu - tau * result.mean
        self._cov = variance * (np.diag(tau) - tau[:, None] * result.cov * tau) * variance
        self._X_fit = X
        self.dual_coef_ = variance * a[None]
        self.intercept_ = self.dual_coef_.sum(axis=1) if self.fit_intercept else np.zeros(1)
        if self.kernel == "linear":
            self.coef_ = np.asarray(X.T @ self.dual_coef_[0])[None]

    def predict_latent(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and variance of f at each row of X, (n,) each."""
        X = self._checked_points(X)
        if not hasattr(self, "dual_coef_"):
            rows = _with_constant(X, self.fit_intercept)
            half = np.asarray(rows @ self._cov)
            product = rows.multiply(half) if sparse.issparse(rows) else rows * half
            return self._mean(X), np.maximum(np.asarray(product.sum(axis=1)).ravel(), 0.0)
        K = self._kernel_matrix(X, self._X_fit)
        prior = float(self.prior_scale) ** 2 * self._kernel_diagonal(X)
        explained = np.einsum("ni,ni->n", K @ self._cov, K)
        return K @ self.dual_coef_[0], np.maximum(prior - explained, 0.0)

    def _checked_points(self, X: Any) -> Any:
        check_is_fitted(self)
        return validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)

    def _mean(self, X: Any) -> np.ndarray:
        if hasattr(self, "coef_"):
            return np.asarray(X @ self.coef_[0] + self.intercept_[0])
        return self._kernel_matrix(X, self._X_fit) @ self.dual_coef_[0]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Predictive probabilities of the two classes, (n, 2), the posterior integrated out."""
        mean, variance = self.predict_latent(X)
        p, _ = self._likelihood().predict(mean, variance, self._theta())
        return np.stack([1.0 - p, p], axis=1)

    def decision_function(self, X: Any) -> np.ndarray:
        """Posterior mean of f divided by its predictive scale: ranks points as `predict_proba` does, (n,)."""
        mean, variance = self.predict_latent(X)
        noise = 1.0 if self.likelihood == "probit" else 0.0
        return mean / np.sqrt(np.maximum(noise + variance, np.finfo(np.float64).tiny))

    def predict(self, X: Any) -> np.ndarray:
        """The label on the side of the Bayes point, (n,)."""
        positive = self._mean(self._checked_points(X)) > 0.0
        return self.classes_[positive.astype(np.int64)]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted machine to a file that `tensorcep.load` reads; nothing in it is pickled.

        With dual_coef_ the training points are part of the file.

        Raises
        ------
        ValueError
            If the kernel is a function, which no file can hold, or the labels are objects other than text.
        FileNotFoundError, IsADirectoryError
            If the folder does not exist, or `path` is a folder.
        """
        check_is_fitted(self)
        if callable(self.kernel):
            fail_value("kernel must be 'linear' or 'rbf' to be saved; got a function, which a file cannot hold.")
        write_attributes(path, self, [*STORED, *(name for name in STORED_IF_THERE if hasattr(self, name))])


def _with_constant(X: Any, constant: bool) -> Any:
    if not constant:
        return X
    ones = np.ones((X.shape[0], 1))
    return sparse.hstack([X, ones], format="csr") if sparse.issparse(X) else np.hstack([X, ones])
