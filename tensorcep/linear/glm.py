"""Bayesian probit and logistic regression and their methods; the Bayes point machine, in weights or in functions."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from tensorcep.core import checks
from tensorcep.core.checks import check_choice, check_flag, check_int, check_random_state, check_range, fail_value
from tensorcep.core.executor import n_threads, one_blas_thread
from tensorcep.core.loop import AnyMethod, Run, run
from tensorcep.core.persist.models import write_attributes
from tensorcep.core.settings import ScoresUnmasked, TakesMethod
from tensorcep.entries.tables import as_numbers, as_targets
from tensorcep.ep.gaussian import Functions, GaussianEP
from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.base import Likelihood
from tensorcep.linear.factorised import FACTORISED
from tensorcep.linear.full import fit_ep, fit_is
from tensorcep.linear.problem import GLMProblem, as_csr
from tensorcep.linear.settings import ENGINES, GLMSettings, settings_of
from tensorcep.linear.vb import VB

OF_FEATURES = ("n_features_in_", "feature_names_in_")  # what validation says of the features


class FeatureClassifier(ScoresUnmasked, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Two classes, told apart by the sign of a latent value f(x) with a Gaussian posterior."""

    # Fitting assigns its attributes at the end, all at once: a call that is refused or interrupted changes nothing.
    # Classes have `_fit(X, y)`, `_probabilities(mean, variance)` of f, and `_check_parameters()`, which refuses
    # parameters that no fit takes, whatever the data: files may hold any.

    # What a file holds: attributes that every fit has, and those that some have. Names that do not end in an underscore
    # are no parameters of the estimator.
    _stored: tuple[str, ...] = ()
    _stored_if_there: tuple[str, ...] = ()
    fit_intercept: bool

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags

    def _read(self, X: Any, y: Any, *, first: bool = True) -> tuple[Any, np.ndarray, dict[str, Any]]:
        """Training points (n, d), dense or CSR, checked against earlier ones unless `first`; labels; `OF_FEATURES`."""
        stand_in = copy.copy(self)
        X, y = as_numbers(checks.check_unmasked(X, "X")), as_targets(y)
        X, y = validate_data(stand_in, X, y, accept_sparse="csr", dtype=np.float64, order="C", reset=first)
        check_classification_targets(y)
        about = vars(stand_in)
        return X, y, {name: about[name] for name in OF_FEATURES if name in about}

    def _take(self, fitted: dict[str, Any]) -> None:
        """Have these fitted attributes, and none of an earlier fit."""
        private = {*self._stored, *self._stored_if_there}
        kept = {name: value for name, value in vars(self).items() if not name.endswith("_") and name not in private}
        self.__dict__ = {**kept, **fitted}

    def _checked(self, X: Any) -> Any:
        """Points to predict at."""
        check_is_fitted(self)
        X = as_numbers(checks.check_unmasked(X, "X"))
        return validate_data(self, X, accept_sparse="csr", dtype=np.float64, order="C", reset=False)

    def fit(self, X: Any, y: Any) -> Any:
        """Find the posterior, and return the model.

        Parameters
        ----------
        X : array-like or sparse matrix (n_samples, n_features)
        y : array-like (n_samples,)
            Labels of two classes; the second in sorted order is class 1.

        Raises
        ------
        ValueError
            On parameters or data that are not allowed.
        FloatingPointError
            If the posterior of EP stops being a Gaussian.

        Examples
        --------
        >>> from tensorcep import BayesianLogisticRegression
        >>> model = BayesianLogisticRegression().fit([[-2.0], [-1.0], [0.5], [1.0], [2.0]], [0, 0, 1, 0, 1])
        >>> model.coef_.shape, model.coef_std_.shape
        ((1, 1), (1, 1))
        """
        return self._fit(X, y)

    def _latent_mean(self, X: Any) -> np.ndarray:
        """Posterior mean of f at checked points."""
        return np.asarray(X @ self.coef_[0] + self.intercept_[0])

    def predict_latent(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and variance of f at each row of X, (n,) each.

        Examples
        --------
        >>> from tensorcep import BayesianLogisticRegression
        >>> model = BayesianLogisticRegression().fit([[-2.0], [-1.0], [0.5], [1.0], [2.0]], [0, 0, 1, 0, 1])
        >>> mean, variance = model.predict_latent([[-3.0], [3.0]])
        >>> mean.shape, bool((variance > 0).all())
        ((2,), True)
        """
        return self._latent(self._checked(X))

    def _latent(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and variance of f at checked points, given the covariance of the weights, or its diagonal."""
        rows, cov = with_constant(X, self.fit_intercept), self._cov
        half = rows if cov.ndim == 1 else np.asarray(rows @ cov)
        product = rows.multiply(half) if sparse.issparse(rows) else rows * half
        weights = cov if cov.ndim == 1 else np.ones(len(cov))
        return self._latent_mean(X), np.maximum(np.asarray(product @ weights).ravel(), 0.0)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Predictive probabilities of the two classes, the posterior integrated out, (n, 2).

        Examples
        --------
        >>> from tensorcep import BayesianLogisticRegression
        >>> model = BayesianLogisticRegression().fit([[-2.0], [-1.0], [0.5], [1.0], [2.0]], [0, 0, 1, 0, 1])
        >>> model.predict_proba([[-3.0], [3.0]]).shape
        (2, 2)
        """
        return self._probabilities(*self.predict_latent(X))

    def predict(self, X: Any) -> np.ndarray:
        """The more probable label, (n,): that of the side on which the posterior mean of f lies.

        Examples
        --------
        >>> from tensorcep import BayesianLogisticRegression
        >>> model = BayesianLogisticRegression().fit([[-2.0], [-1.0], [0.5], [1.0], [2.0]], [0, 0, 1, 0, 1])
        >>> model.predict([[-3.0], [3.0]]).tolist()
        [0, 1]
        """
        positive = self._latent_mean(self._checked(X)) > 0.0
        return np.asarray(self.classes_[positive.astype(np.int64)])

    def _try_out(self) -> None:
        """Predict at one point, after loading: what a file holds may have the right names and make no sense."""
        missing = [name for name in self._stored if not hasattr(self, name)]
        if missing:
            fail_value(f"it has no {missing[0]!r}")
        if not np.isfinite(self._cov).all():
            fail_value("its covariances are not finite")
        X: Any = np.ones((1, self.n_features_in_))
        names = getattr(self, "feature_names_in_", None)
        found = [*self.predict_latent(X if names is None else pd.DataFrame(X, columns=names)), self.classes_]
        if [len(array) for array in found] != [1, 1, 2] or not all(np.isreal(array).all() for array in found[:2]):
            fail_value("its arrays do not fit each other")
        if not (np.isfinite(found[0]).all() and np.isfinite(found[1]).all()):
            fail_value("its arrays hold numbers that are not finite")
        mean = getattr(self, "_mean", None)  # what partial_fit goes on from
        if mean is not None and (
            mean.shape != self._cov.shape[:1] or mean.dtype.kind != "f" or not np.isfinite(mean).all()
        ):
            fail_value("its means do not fit its covariances")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file that `tensorcep.load` reads; nothing in it is pickled.

        Raises
        ------
        FileNotFoundError, IsADirectoryError, ValueError
            If the folder does not exist, `path` is a folder, the labels are objects other than text, or the kernel of a
            `BayesPointMachine` is a function, which no file can hold.

        Examples
        --------
        >>> import tempfile
        >>> from tensorcep import BayesianLogisticRegression, load
        >>> model = BayesianLogisticRegression().fit([[-2.0], [-1.0], [0.5], [1.0], [2.0]], [0, 0, 1, 0, 1])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/model.npz")
        ...     again = load(f"{folder}/model.npz")
        ...
        >>> bool(again.coef_ == model.coef_)
        True
        """
        check_is_fitted(self)
        if callable(getattr(self, "kernel", None)):
            fail_value("kernel must be 'linear' or 'rbf' to be saved; got a function, which a file cannot hold.")
        write_attributes(path, self, [*self._stored, *(name for name in self._stored_if_there if hasattr(self, name))])


def two_classes(y: np.ndarray) -> np.ndarray:
    """The two labels, sorted."""
    classes = np.unique(y)
    if len(classes) != 2:
        given = "one class" if len(classes) < 2 else f"{len(classes)} classes: the type of the target is multiclass"
        fail_value(f"Only binary classification is supported; y must hold labels of two classes; got {given}.")
    return classes


def with_constant(X: Any, constant: bool) -> Any:
    """X with a column of ones behind it, for an intercept."""
    if not constant:
        return X
    ones = np.ones((X.shape[0], 1))
    return sparse.hstack([X, ones], format="csr") if sparse.issparse(X) else np.hstack([X, ones])


FULL: dict[str, Callable[[GLMProblem, Any, int, float], Run]] = {"ep": fit_ep, "is": fit_is}
SWEPT: dict[str, AnyMethod] = {method.name: method for method in (*FACTORISED, VB)}


def fit_glm(problem: GLMProblem, method: str | GLMSettings, *, max_iter: int, tol: float, n_threads: int = 1) -> Run:
    """Find the posterior of the weights, a GLMPosterior, by a method of `tensorcep.linear.settings`."""
    # A factorised method takes the prior's variances alone, others a covariance too; `tol` is in standard deviations.
    settings = settings_of(method)
    if settings.full:
        with one_blas_thread():  # two wait for each other longer than they work, of 60,000 x 300, too
            return FULL[settings.name](problem, settings, max_iter, tol)
    swept = SWEPT[settings.name]
    missing = swept.lacks(problem.likelihood)
    if missing:
        fail_value(f"method {swept.name!r} needs {', '.join(missing)}; {problem.likelihood.name!r} has none.")
    return run(swept, problem, settings, max_iter=max_iter, tol=tol, n_threads=n_threads)


@dataclass(eq=False, repr=False)
class BaseBayesianGLM(FeatureClassifier, TakesMethod):
    """Two classes, P(y = 1 | x) = link(x'w + intercept), with a Gaussian posterior of the weights."""

    engines = ENGINES
    _link = ""
    _stored = (
        *("classes_", "coef_", "coef_std_", "intercept_", "intercept_std_", "prior_scale_", "n_features_in_"),
        *("n_iter_", "converged_", "_mean", "_cov"),
    )
    _stored_if_there = ("log_evidence_", "feature_names_in_")

    method: str | GLMSettings = "ep"
    _: KW_ONLY
    prior_scale: float | str = 1.0
    fit_intercept: bool = True
    intercept_scale: float = 10.0
    max_iter: int = 2000
    tol: float = 1e-4
    n_jobs: int | None = None
    random_state: Any = 0

    def set_params(self, **params: Any) -> Any:
        """Set parameters, all of them or none; ``method__damping`` and its like are settings of the method.

        Examples
        --------
        >>> from tensorcep import BayesianLogisticRegression
        >>> from tensorcep.linear.settings import EP
        >>> BayesianLogisticRegression(EP()).set_params(method__schedule="parallel").method
        EP(schedule='parallel')
        """
        own = {name: params.pop(name) for name in list(params) if name.startswith("method__")}
        if own:
            settings = copy.copy(settings_of(params.get("method", self.method)))
            params["method"] = settings.set_params(**{name.removeprefix("method__"): own[name] for name in own})
        return super().set_params(**params)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Any:
        """Take the posterior so far as the prior for more data (assumed density filtering); returns the model.

        Parameters
        ----------
        X, y
            As in `fit`; a batch may hold one class only.
        classes : array-like (2,), optional
            Both labels, needed in the first call if its batch does not hold both.

        Raises
        ------
        ValueError
            As in `fit`, for labels that are new, and for prior_scale="evidence", which needs all data at once.

        Examples
        --------
        >>> from tensorcep import BayesianLogisticRegression
        >>> X, y = [[-2.0], [-1.0], [0.5], [1.0], [2.0]], [0, 0, 1, 0, 1]
        >>> model = BayesianLogisticRegression().partial_fit(X[:3], y[:3], classes=[0, 1]).partial_fit(X[3:], y[3:])
        >>> model.predict([[-3.0], [3.0]]).tolist()
        [0, 1]
        """
        return self._fit(X, y, classes, more=True)

    def _check_parameters(self) -> GLMSettings:
        """The method's settings, after a look at all parameters."""
        settings = settings_of(self.method)
        checks.word_or_range("prior_scale", self.prior_scale, ("evidence",), 0.0, include_low=False)
        check_flag("fit_intercept", self.fit_intercept)
        check_range("intercept_scale", self.intercept_scale, 0.0, include_low=False)
        if self.intercept_scale != 10.0 and not self.fit_intercept:
            given = self.intercept_scale
            fail_value(f"intercept_scale has a meaning only with fit_intercept=True; got intercept_scale={given!r}.")
        check_int("max_iter", self.max_iter)
        check_range("tol", self.tol, 0.0)
        n_threads(self.n_jobs)
        check_random_state(self.random_state)
        return settings

    def _fit(self, X: Any, y: Any, classes: Any = None, more: bool = False) -> Any:
        """Find the posterior, if there is to be `more` of the data from that so far."""
        settings, learned = self._check_parameters(), self.prior_scale == "evidence"
        if more and learned:
            fail_value("partial_fit needs a number as prior_scale, because 'evidence' needs all data at once; use fit.")
        first = not (more and hasattr(self, "_mean"))
        X, y, about = self._read(X, y, first=first)
        d = X.shape[1]
        if first:
            classes = two_classes(y if classes is None else np.asarray(classes))
            scale = np.full(d + bool(self.fit_intercept), 1.0 if learned else float(self.prior_scale))
            scale[d:] = float(self.intercept_scale)
            mean, cov = np.zeros(len(scale)), scale**2
        else:
            classes, mean, cov = self.classes_, self._mean, self._cov
        strange = np.setdiff1d(y, classes)
        if len(strange):
            fail_value(f"y must hold labels {classes.tolist()} in partial_fit; got {strange.tolist()[0]!r}.")
        if cov.ndim == 2 and not settings.full:
            what = f"partial_fit with method {settings.name!r}"
            fail_value(f"{what} must go on from a factorised posterior; use fit first.")
        rows = with_constant(X, self.fit_intercept)
        if sparse.issparse(rows) or not settings.full:  # factorised methods go by the numbers that are not 0
            rows = as_csr(rows)
        labels, learns = np.where(y == classes[1], 1.0, -1.0), learned & (np.arange(len(mean)) < d)
        seed = int(check_random_state(self.random_state).integers(2**63))
        problem = GLMProblem(rows, labels, get_likelihood(self._link), mean, cov, learns, seed)
        max_iter, tol = int(self.max_iter), float(self.tol)
        run = fit_glm(problem, settings, max_iter=max_iter, tol=tol, n_threads=n_threads(self.n_jobs))
        mean, cov, prior_cov, log_evidence = run.posterior
        std = np.sqrt(cov if cov.ndim == 1 else np.diag(cov))
        prior_scale = float(np.sqrt(prior_cov[0])) if learns.any() else float(self.prior_scale)
        about |= {"classes_": classes, "prior_scale_": prior_scale, "_mean": mean, "_cov": cov}
        about |= {"coef_": mean[None, :d], "coef_std_": std[None, :d]}
        intercept = (mean[d:], std[d:]) if self.fit_intercept else (np.zeros(1), np.zeros(1))
        about["intercept_"], about["intercept_std_"] = intercept
        if np.isfinite(log_evidence):
            about["log_evidence_"] = float(log_evidence)
        self._take({**about, "n_iter_": run.n_iter, "converged_": bool(run.converged), "trace_": run.trace})
        if not run.converged:
            got = f"with a change of {run.trace['change'][-1]:.2g} > tol={self.tol:g} standard deviations"
            cure = "increase max_iter, raise tol, scale the features, or choose another method."
            text = f"{settings.name} stopped after max_iter={self.max_iter} sweeps {got}; {cure}"
            checks.warn_user(text, ConvergenceWarning)
        return self

    def _probabilities(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        return np.exp(self._log_probabilities(mean, variance))

    def _log_probabilities(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        likelihood = get_likelihood(self._link)
        return np.stack([likelihood.logpdf(side, mean, variance, likelihood.default_theta) for side in (-1.0, 1.0)], 1)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the predictive probabilities, without underflow, (n, 2).

        Examples
        --------
        >>> from tensorcep import BayesianLogisticRegression
        >>> model = BayesianLogisticRegression().fit([[-2.0], [-1.0], [0.5], [1.0], [2.0]], [0, 0, 1, 0, 1])
        >>> model.predict_log_proba([[-3.0], [3.0]]).shape
        (2, 2)
        """
        return self._log_probabilities(*self.predict_latent(X))

    def decision_function(self, X: Any) -> np.ndarray:
        """Log odds of the predictive probability of class 1, (n,).

        Examples
        --------
        >>> from tensorcep import BayesianLogisticRegression
        >>> model = BayesianLogisticRegression().fit([[-2.0], [-1.0], [0.5], [1.0], [2.0]], [0, 0, 1, 0, 1])
        >>> (model.decision_function([[-3.0], [3.0]]) > 0).tolist()
        [False, True]
        """
        log_p = self.predict_log_proba(X)
        return np.asarray(log_p[:, 1] - log_p[:, 0])


_DOCUMENTATION = """{model} with Gaussian priors.

    Parameters
    ----------
    method : str or record of settings, default="ep"
        "ep" (expectation propagation with a full covariance, O(n d^2) a sweep), factorised methods at a cost in
        proportion to the non-zeros of X: "ep-factorized", "cep1", "cep2" (conditional EP), "lp" (Laplace propagation)
        and "vb" (mean-field variational Bayes); or "is" (importance sampling around EP's posterior). A method's own
        settings come with it, as in ``ConditionalEP(order=2, damping=0.5)``; see `tensorcep.linear.settings`.
    prior_scale : float or "evidence", default=1.0
        Prior standard deviation of a weight. "evidence" learns it from the data: "ep" and "is" maximise EP's log
        evidence, the others take steps of EM in their sweeps.
    fit_intercept : bool, default=True
    intercept_scale : float, default=10.0
        Prior standard deviation of the intercept, which is never learned.
    max_iter : int, default=2000
        Largest number of sweeps.
    tol : float, default=1e-4
        Stop when a whole, undamped sweep would move no weight by more than this many posterior standard deviations.
    n_jobs : int, optional
        Threads; -1 uses all processors. The result does not depend on it.
    random_state : int, RandomState, Generator or None, default=0
        For "is" only.

    Attributes
    ----------
    classes_ : ndarray (2,)
    coef_, coef_std_ : ndarray (1, n_features)
        Posterior mean and standard deviation of the weights. Factorised EP, CEP and LP give 1 / sqrt(precision), which
        is less than the marginal standard deviation where weights are correlated; "vb" gives less still.
    intercept_, intercept_std_ : ndarray (1,)
    prior_scale_ : float
    log_evidence_ : float
        Log evidence of "ep", "ep-factorized" (EP's estimate), "is" (unbiased on the scale of the evidence) and "vb" (a
        lower bound); the other methods have none. After partial_fit that of the last batch given those before.
    n_iter_, converged_ : int, bool
    trace_ : dict of ndarray
        Change and seconds of every sweep.

    References
    ----------
    Wang and Zhe, Conditional Expectation Propagation, sec. 5.1. {reference}

    Examples
    --------
    >>> from tensorcep import {name}
    >>> model = {name}().fit([[-2.0], [-1.0], [0.5], [1.0], [2.0]], [0, 0, 1, 0, 1])
    >>> model.predict([[-3.0], [3.0]]).tolist(), model.coef_std_.shape
    ([0, 1], (1, 1))
    """


class BayesianProbitRegression(BaseBayesianGLM):
    __doc__ = _DOCUMENTATION.format(
        name="BayesianProbitRegression",
        model="Bayesian probit regression: P(y = 1 | x) = Phi(x'w + b)",
        reference="Minka (2001), Expectation propagation for approximate Bayesian\n    inference.",
    )
    _link = "probit"


class BayesianLogisticRegression(BaseBayesianGLM):
    __doc__ = _DOCUMENTATION.format(
        name="BayesianLogisticRegression",
        model="Bayesian logistic regression: P(y = 1 | x) = 1 / (1 + exp(-x'w - b))",
        reference="Jaakkola and Jordan (2000), Bayesian parameter\n    estimation via variational methods.",
    )
    _link = "logit"


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
    >>> model = BayesPointMachine().fit([[-2.0], [-1.0], [0.5], [1.0], [2.0]], [0, 0, 1, 0, 1])
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
        cov = variance if in_weights else variance * self._covariance(X, X)
        limits: dict[str, Any] = {"max_iter": self.max_iter, "tol": self.tol}
        ep = GaussianEP(prior_cov=cov, schedule=self.schedule, damping=self.damping, **limits)
        rows = with_constant(X, self.fit_intercept) if in_weights else None
        result = ep.fit(rows, (y == classes[1]).astype(np.int64), *self._likelihood_and_theta())
        about |= {"classes_": classes, "log_evidence_": result.log_evidence}
        about |= {"n_iter_": result.n_iter, "converged_": result.converged}
        if in_weights:
            d = X.shape[1]
            about |= {"_cov": result.cov, "coef_": result.mean[None, :d]}
            of_ones = result.mean[d:]
        else:
            tau = result.sites.tau  # of f at the training points, in units of the prior variance
            dual = variance * (result.sites.nu - tau * result.mean)
            cov = variance * (np.diag(tau) - tau[:, None] * result.cov * tau) * variance
            about |= {"_cov": cov, "_X_fit": X, "dual_coef_": dual[None]}
            of_ones = dual[None].sum(axis=1)
            if self.kernel == "linear":
                about["coef_"] = np.asarray(X.T @ dual)[None]
        self._take({**about, "intercept_": of_ones if self.fit_intercept else np.zeros(1)})
        if not result.converged:
            is_step = self.likelihood == "step"
            cures = ", add damping, or allow for wrong labels by slack or the probit" if is_step else " or add damping"
            got = (
                f"a change of {result.trace['change'][-1]:.2g} > tol={self.tol:g} and {result.skipped} updates left out"
            )
            text = f"EP stopped after max_iter={self.max_iter} sweeps with {got}; increase max_iter{cures}."
            checks.warn_user(text, ConvergenceWarning)
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

    def _likelihood_and_theta(self) -> tuple[Likelihood, float]:
        likelihood = get_likelihood(self.likelihood)
        return likelihood, float(self.slack) if self.likelihood == "step" else likelihood.default_theta

    def _covariance(self, X: Any, Z: Any) -> np.ndarray:
        """Covariances of f at the rows of X with f at those of Z, without the prior variance."""
        if callable(self.kernel):
            K = np.asarray(self.kernel(X, Z), dtype=np.float64)
            if K.shape != (X.shape[0], Z.shape[0]):
                fail_value(f"kernel must return a matrix of shape {(X.shape[0], Z.shape[0])}; got {K.shape}.")
        elif self.kernel == "rbf":
            K = np.exp(-0.5 * euclidean_distances(X, Z, squared=True) / float(self.length_scale) ** 2)
        else:
            K = (X @ Z.T).toarray() if sparse.issparse(X) else X @ Z.T
        return K + 1.0 if self.fit_intercept else K

    def _variances(self, X: Any) -> np.ndarray:
        """Variances of f at the rows of X, without the prior variance."""
        n = X.shape[0]
        if callable(self.kernel):
            return np.array([self._covariance(X[i : i + 1], X[i : i + 1])[0, 0] for i in range(n)])
        square = X.multiply(X) if sparse.issparse(X) else X * X
        own = np.ones(n) if self.kernel == "rbf" else np.asarray(square.sum(axis=1)).ravel()
        return own + 1.0 if self.fit_intercept else own

    def _latent(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        if not hasattr(self, "dual_coef_"):
            return super()._latent(X)
        prior = float(self.prior_scale) ** 2 * self._variances(X)
        return Functions(self.dual_coef_[0], self._cov).latent(self._covariance(X, self._X_fit), prior)

    def _latent_mean(self, X: Any) -> np.ndarray:
        if hasattr(self, "coef_"):
            return super()._latent_mean(X)
        return np.asarray(self._covariance(X, self._X_fit) @ self.dual_coef_[0])

    def _probabilities(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        likelihood, theta = self._likelihood_and_theta()
        p, _ = likelihood.predict(mean, variance, theta)
        return np.stack([1.0 - p, p], axis=1)

    def decision_function(self, X: Any) -> np.ndarray:
        """Posterior mean of f divided by its predictive scale: ranks points as `predict_proba` does, (n,).

        Examples
        --------
        >>> from tensorcep import BayesPointMachine
        >>> model = BayesPointMachine().fit([[-2.0], [-1.0], [0.5], [1.0], [2.0]], [0, 0, 1, 0, 1])
        >>> model.decision_function([[-3.0], [3.0]]).shape
        (2,)
        """
        mean, variance = self.predict_latent(X)
        noise = 1.0 if self.likelihood == "probit" else 0.0
        return mean / np.sqrt(np.maximum(noise + variance, np.finfo(np.float64).tiny))
