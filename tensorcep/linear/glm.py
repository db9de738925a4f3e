"""What Bayesian probit and logistic regression share: fitting, adding data, prediction."""

from __future__ import annotations

import copy
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from tensorcep.core.checks import (
    check_flag,
    check_int,
    check_random_state,
    check_range,
    fail_value,
    warn_user,
    word_or_range,
)
from tensorcep.core.executor import n_threads
from tensorcep.core.loop import Run
from tensorcep.core.settings import TakesMethod
from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.base import Likelihood
from tensorcep.linear.base import FeatureClassifier, Points, two_classes, with_constant
from tensorcep.linear.data import GLMProblem, as_csr
from tensorcep.linear.methods import fit_glm
from tensorcep.linear.settings import ENGINES, GLMSettings, settings_of


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

    def _fit(self, X: Any, y: Any) -> Any:
        settings = self._checked_settings()
        points = self._read(X, y)
        learned = self.prior_scale == "evidence"
        scale = self._prior_scales(points.X.shape[1], 1.0 if learned else float(self.prior_scale))
        learns = np.full(len(scale), learned)
        learns[points.X.shape[1] :] = False
        return self._infer(points, settings, two_classes(points.y), np.zeros(len(scale)), scale**2, learns)

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

        Examples
        --------
        >>> import numpy as np
        >>> from tensorcep import BayesianLogisticRegression
        >>> X, y = np.array([[-2.0], [-1.0], [0.5], [1.0], [2.0]]), [0, 0, 1, 0, 1]
        >>> model = BayesianLogisticRegression().fit(X, y)
        >>> model = BayesianLogisticRegression().partial_fit(X[:3], y[:3], classes=[0, 1]).partial_fit(X[3:], y[3:])
        >>> model.predict([[-3.0], [3.0]]).tolist()
        [0, 1]
        """
        settings = self._checked_settings()
        if self.prior_scale == "evidence":
            fail_value("partial_fit needs a number as prior_scale, because 'evidence' needs all data at once; use fit.")
        first = not hasattr(self, "_mean")
        points = self._read(X, y, first=first)
        if first:
            both = two_classes(points.y if classes is None else np.asarray(classes))
            scale = self._prior_scales(points.X.shape[1], float(self.prior_scale))
            mean, cov = np.zeros(len(scale)), scale**2
        else:
            both, mean, cov = self.classes_, self._mean, self._cov
        strange = np.setdiff1d(points.y, both)
        if len(strange):
            fail_value(f"y must hold labels {both.tolist()} in partial_fit; got {strange.tolist()[0]!r}.")
        if cov.ndim == 2 and not settings.full:
            fail_value(
                f"partial_fit with method {settings.name!r} must go on from a factorised posterior; use fit first."
            )
        return self._infer(points, settings, both, mean, cov, np.zeros(len(mean), dtype=bool))

    def _check_parameters(self) -> None:
        self._checked_settings()
        check_random_state(self.random_state)

    def _checked_settings(self) -> GLMSettings:
        """The method's settings, after a look at all parameters."""
        settings = settings_of(self.method)
        word_or_range("prior_scale", self.prior_scale, ("evidence",), 0.0, include_low=False)
        check_flag("fit_intercept", self.fit_intercept)
        check_range("intercept_scale", self.intercept_scale, 0.0, include_low=False)
        if self.intercept_scale != 10.0 and not self.fit_intercept:
            given = self.intercept_scale
            fail_value(f"intercept_scale has a meaning only with fit_intercept=True; got intercept_scale={given!r}.")
        check_int("max_iter", self.max_iter)
        check_range("tol", self.tol, 0.0)
        n_threads(self.n_jobs)
        return settings

    def _prior_scales(self, d: int, scale: float) -> np.ndarray:
        """Prior standard deviation of every weight, and of the intercept if there is one."""
        scales = np.full(d + bool(self.fit_intercept), scale)
        scales[d:] = float(self.intercept_scale)
        return scales

    def _infer(
        self,
        points: Points,
        settings: GLMSettings,
        classes: np.ndarray,
        mean: np.ndarray,
        cov: np.ndarray,
        learned: np.ndarray,
    ) -> Any:
        labels = np.where(points.y == classes[1], 1.0, -1.0)
        rows = with_constant(points.X, self.fit_intercept)
        if sparse.issparse(rows) or not settings.full:  # factorised methods go by the numbers that are not 0
            rows = as_csr(rows)
        seed = int(check_random_state(self.random_state).integers(2**63))
        problem = GLMProblem(rows, labels, self._likelihood(), mean, cov, learned, seed)
        max_iter, tol = int(self.max_iter), float(self.tol)
        run = fit_glm(problem, settings, max_iter=max_iter, tol=tol, n_threads=n_threads(self.n_jobs))
        prior_scale = float(np.sqrt(run.posterior.prior_cov[0])) if learned.any() else float(self.prior_scale)
        about = {**points.about, "classes_": classes, "prior_scale_": prior_scale}
        self._take({**about, **_attributes(run, points.X.shape[1], bool(self.fit_intercept))})
        if not run.converged:
            warn_user(
                f"{settings.name} stopped after max_iter={self.max_iter} sweeps with a change of "
                f"{run.trace['change'][-1]:.2g} > tol={self.tol:g} standard deviations; increase max_iter, raise "
                "tol, scale the features, or choose another method.",
                ConvergenceWarning,
            )
        return self

    def _likelihood(self) -> Likelihood:
        return get_likelihood(self._link)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Predictive probabilities of the two classes, the posterior integrated out, (n, 2).

        Examples
        --------
        >>> import numpy as np
        >>> from tensorcep import BayesianLogisticRegression
        >>> X, y = np.array([[-2.0], [-1.0], [0.5], [1.0], [2.0]]), [0, 0, 1, 0, 1]
        >>> model = BayesianLogisticRegression().fit(X, y)
        >>> model.predict_proba([[-3.0], [3.0]]).shape
        (2, 2)
        """
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the predictive probabilities, without underflow, (n, 2).

        Examples
        --------
        >>> import numpy as np
        >>> from tensorcep import BayesianLogisticRegression
        >>> X, y = np.array([[-2.0], [-1.0], [0.5], [1.0], [2.0]]), [0, 0, 1, 0, 1]
        >>> model = BayesianLogisticRegression().fit(X, y)
        >>> bool(abs(np.exp(model.predict_log_proba(X)) - model.predict_proba(X)).max() < 1e-12)
        True
        """
        mean, variance = self.predict_latent(X)
        likelihood = self._likelihood()
        return np.stack([likelihood.logpdf(side, mean, variance, likelihood.default_theta) for side in (-1.0, 1.0)], 1)

    def decision_function(self, X: Any) -> np.ndarray:
        """Log odds of the predictive probability of class 1, (n,).

        Examples
        --------
        >>> import numpy as np
        >>> from tensorcep import BayesianLogisticRegression
        >>> X, y = np.array([[-2.0], [-1.0], [0.5], [1.0], [2.0]]), [0, 0, 1, 0, 1]
        >>> model = BayesianLogisticRegression().fit(X, y)
        >>> p = model.predict_proba(X)[:, 1]
        >>> bool(abs(model.decision_function(X) - np.log(p / (1 - p))).max() < 1e-9)
        True
        """
        log_p = self.predict_log_proba(X)
        return np.asarray(log_p[:, 1] - log_p[:, 0])


def _attributes(run: Run, d: int, intercept: bool) -> dict[str, Any]:
    """What a fit says of d weights and the intercept."""
    posterior = run.posterior
    mean, cov = posterior.mean, posterior.cov
    std = np.sqrt(cov if cov.ndim == 1 else np.diag(cov))
    fitted = {"_mean": mean, "_cov": cov, "coef_": mean[None, :d], "coef_std_": std[None, :d]}
    fitted["intercept_"] = mean[d:] if intercept else np.zeros(1)
    fitted["intercept_std_"] = std[d:] if intercept else np.zeros(1)
    if np.isfinite(posterior.log_evidence):
        fitted["log_evidence_"] = float(posterior.log_evidence)
    return {**fitted, "n_iter_": run.n_iter, "converged_": bool(run.converged), "trace_": run.trace}
