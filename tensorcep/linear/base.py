"""What Bayesian probit and logistic regression share: checks, fitting, adding data, prediction, files."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from tensorcep.core.checks import (
    check_choice,
    check_int,
    check_random_state,
    check_range,
    fail_value,
    warn_user,
    word_or_range,
)
from tensorcep.core.executor import n_threads
from tensorcep.core.store import write_attributes
from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.record import Likelihood
from tensorcep.linear.data import GLMProblem, as_csr
from tensorcep.linear.full import FullFit
from tensorcep.linear.methods import GLM_METHODS, fit_glm

STORED = ("classes_", "coef_", "coef_std_", "intercept_", "intercept_std_", "prior_scale_", "n_features_in_", "n_iter_")
STORED_TOO = ("converged_", "_mean", "_cov")
STORED_IF_THERE = ("log_evidence_", "feature_names_in_")


class BaseBayesianGLM(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Two classes, P(y = 1 | x) = link(x'w + intercept), with a Gaussian posterior of the weights."""

    _link = ""

    def __init__(
        self,
        method: str = "ep",
        *,
        prior_scale: float | str = 1.0,
        fit_intercept: bool = True,
        intercept_scale: float = 10.0,
        max_iter: int = 2000,
        tol: float = 1e-4,
        method_options: dict[str, Any] | None = None,
        n_jobs: int | None = None,
        random_state: Any = 0,
    ):
        self.method = method
        self.prior_scale = prior_scale
        self.fit_intercept = fit_intercept
        self.intercept_scale = intercept_scale
        self.max_iter = max_iter
        self.tol = tol
        self.method_options = method_options
        self.n_jobs = n_jobs
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: Any) -> Any:
        """Find the posterior of the weights.

        Parameters
        ----------
        X : array-like or sparse matrix (n_samples, n_features)
        y : array-like (n_samples,)
            Labels of two classes; the second in sorted order is class 1.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            On parameters or data that are not allowed.
        """
        self._check_parameters()
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        check_classification_targets(y)
        self.classes_ = _two_classes(y)
        d = X.shape[1]
        learned = self.prior_scale == "evidence"
        scale = np.full(d + bool(self.fit_intercept), 1.0 if learned else float(self.prior_scale))
        scale[d:] = float(self.intercept_scale)
        learns = np.full(len(scale), learned)
        learns[d:] = False
        self._infer(X, y, np.zeros(len(scale)), scale**2, learns)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Any:
        """Take the posterior so far as the prior for more data (assumed density filtering over batches).

        Parameters
        ----------
        X, y
            As in `fit`; a batch may hold one class only.
        classes : array-like (2,), optional
            Both labels, needed in the first call if its batch does not hold both.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            As in `fit`, for labels that are new, and for prior_scale="evidence", which needs all data at once.
        """
        self._check_parameters()
        first = not hasattr(self, "_mean")
        if self.prior_scale == "evidence":
            fail_value("partial_fit needs a number as prior_scale, because 'evidence' needs all data at once; use fit.")
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, reset=first)
        check_classification_targets(y)
        if first:
            self.classes_ = _two_classes(y if classes is None else np.asarray(classes))
            scale = np.full(X.shape[1] + bool(self.fit_intercept), float(self.prior_scale))
            scale[X.shape[1] :] = float(self.intercept_scale)
            mean, cov = np.zeros(len(scale)), scale**2
        else:
            mean, cov = self._mean, self._cov
        strange = np.setdiff1d(y, self.classes_)
        if len(strange):
            fail_value(f"y must hold labels {self.classes_.tolist()} in partial_fit; got {strange.tolist()[0]!r}.")
        if cov.ndim == 2 and not GLM_METHODS[self.method].full:
            fail_value(
                f"partial_fit with method {self.method!r} must go on from a factorised posterior; use fit first."
            )
        self._infer(X, y, mean, cov, np.zeros(len(mean), dtype=bool))
        return self

    def _check_parameters(self) -> None:
        check_choice("method", self.method, GLM_METHODS)
        word_or_range("prior_scale", self.prior_scale, ("evidence",), 0.0, include_low=False)
        check_range("intercept_scale", self.intercept_scale, 0.0, include_low=False)
        check_int("max_iter", self.max_iter)
        check_range("tol", self.tol, 0.0)
        if self.method_options is not None and not isinstance(self.method_options, dict):
            raise TypeError(f"method_options must be a dict or None; got {self.method_options!r}.")

    def _infer(self, X: Any, y: np.ndarray, mean: np.ndarray, cov: np.ndarray, learned: np.ndarray) -> None:
        labels = np.where(y == self.classes_[1], 1.0, -1.0)
        rows = as_csr(self._with_constant(X))
        seed = int(check_random_state(self.random_state).integers(2**63))
        problem = GLMProblem(rows, labels, self._likelihood(), mean, cov, learned, seed)
        found = fit_glm(
            problem,
            self.method,
            self.method_options,
            max_iter=int(self.max_iter),
            tol=float(self.tol),
            n_threads=n_threads(self.n_jobs),
        )
        self._keep(found, X.shape[1], learned)
        if not found.converged:
            warn_user(
                f"{self.method} stopped after max_iter={self.max_iter} sweeps with a change of "
                f"{found.trace['change'][-1]:.2g} > tol={self.tol:g} standard deviations; increase max_iter, raise "
                "tol, scale the features, or choose another method.",
                ConvergenceWarning,
            )

    def _keep(self, found: FullFit, d: int, learned: np.ndarray) -> None:
        posterior = found.posterior
        std = np.sqrt(posterior.cov if posterior.cov.ndim == 1 else np.diag(posterior.cov))
        self._mean, self._cov = posterior.mean, posterior.cov
        self.coef_, self.coef_std_ = posterior.mean[None, :d], std[None, :d]
        zero = np.zeros(1)
        self.intercept_: np.ndarray = posterior.mean[d:] if self.fit_intercept else zero
        self.intercept_std_: np.ndarray = std[d:] if self.fit_intercept else zero
        self.prior_scale_ = float(np.sqrt(posterior.prior_cov[0])) if learned.any() else float(self.prior_scale)
        self.__dict__.pop("log_evidence_", None)
        if np.isfinite(posterior.log_evidence):
            self.log_evidence_ = float(posterior.log_evidence)
        self.n_iter_, self.converged_, self.trace_ = found.n_iter, bool(found.converged), found.trace

    def _likelihood(self) -> Likelihood:
        return get_likelihood(self._link)

    def _with_constant(self, X: Any) -> Any:
        if not self.fit_intercept:
            return X
        ones = np.ones((X.shape[0], 1))
        return sparse.hstack([X, ones], format="csr") if sparse.issparse(X) else np.hstack([X, ones])

    def predict_latent(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and variance of x'w + intercept, (n,) each."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        rows = self._with_constant(X)
        half = rows if self._cov.ndim == 1 else np.asarray(rows @ self._cov)
        product = rows.multiply(half) if sparse.issparse(rows) else rows * half
        weights = self._cov if self._cov.ndim == 1 else np.ones(len(self._mean))
        return np.asarray(rows @ self._mean), np.maximum(np.asarray(product @ weights).ravel(), 0.0)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Predictive probabilities of the two classes, the posterior integrated out, (n, 2)."""
        log_p = self.predict_log_proba(X)
        return np.exp(log_p)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the predictive probabilities, without underflow, (n, 2)."""
        mean, variance = self.predict_latent(X)
        likelihood = self._likelihood()
        return np.stack([likelihood.logpdf(side, mean, variance, likelihood.default_theta) for side in (-1.0, 1.0)], 1)

    def decision_function(self, X: Any) -> np.ndarray:
        """Log odds of the predictive probability of class 1, (n,)."""
        log_p = self.predict_log_proba(X)
        return np.asarray(log_p[:, 1] - log_p[:, 0])

    def predict(self, X: Any) -> np.ndarray:
        """The more probable label, (n,)."""
        positive = self.predict_latent(X)[0] > 0.0
        return np.asarray(self.classes_[positive.astype(np.int64)])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file that `tensorcep.load` reads; nothing in it is pickled.

        Raises
        ------
        FileNotFoundError, IsADirectoryError, ValueError
            If the folder does not exist, `path` is a folder, or the labels are objects other than text.
        """
        check_is_fitted(self)
        write_attributes(path, self, [*STORED, *STORED_TOO, *(name for name in STORED_IF_THERE if hasattr(self, name))])


def _two_classes(y: np.ndarray) -> np.ndarray:
    classes = np.unique(y)
    if len(classes) != 2:
        found = "one class" if len(classes) < 2 else f"{len(classes)} classes: the type of the target is multiclass"
        fail_value(f"Only binary classification is supported; y must hold labels of two classes; got {found}.")
    return classes
