"""Classification with a Gaussian process."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from tensorcep.core.checks import check_choice, check_fraction, check_range, fail_value
from tensorcep.core.settings import ScoresUnmasked, fill_docstring
from tensorcep.gaussian_process.base import SHARED, BaseGaussianProcess
from tensorcep.gaussian_process.engine import Observations
from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.base import Likelihood

LIKELIHOODS = ("probit", "logit", "step")


@dataclass(eq=False, repr=False)
class GaussianProcessClassifier(ScoresUnmasked, ClassifierMixin, BaseGaussianProcess):  # type: ignore[misc]
    """Classify by the sign of a latent function with a Gaussian process prior, with its uncertainty integrated out.

    The posterior comes from expectation propagation, or a method to compare it with, and the kernel from the evidence.
    Several classes are told apart one against the rest.

    Parameters
    ----------
    kernel : kernel of sklearn.gaussian_process.kernels, optional
        Prior covariance of the latent function; parameters whose bounds are not fixed are learned. None is a constant
        times an RBF, both learned. It has no WhiteKernel: noise belongs to the likelihood.
    method : {"ep", "qp", "vb", "laplace"} or a record of settings, default="ep"
        Records are in `tensorcep.gaussian_process.settings`, such as ``EP(schedule="sequential")``.
    likelihood : {"probit", "logit", "step"}, default="probit"
        "step" says that a label is the sign of f, but for the slack; with "ep" and "qp".
    slack : float in [0, 0.5), default=0
        Probability of a wrong label, for the step.
    {shared}

    Attributes
    ----------
    classes_ : ndarray (n_classes,)
    kernel_ : kernel
        With its learned parameters; of several classes a CompoundKernel.
    log_marginal_likelihood_value_ : float
        The method's evidence of the training data: a lower bound for "vb", and for "qp" a surrogate, EP's formula at
        its sites; of several classes the mean.
    n_iter_, converged_ : int, bool
        Sweeps of the last fit, and whether it met the tolerance.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from tensorcep import GaussianProcessClassifier
    >>> X = np.linspace(-3.0, 3.0, 21)[:, None]
    >>> model = GaussianProcessClassifier(1.0 * RBF(1.0)).fit(X, X[:, 0] > 0.5)
    >>> model.predict([[-1.0], [2.0]])
    array([False,  True])

    References
    ----------
    Rasmussen and Williams (2006), Gaussian processes for machine learning, ch. 3; Zhang, Walder, Bonilla, Rizoiu, Xie
    (2020), Quantile propagation for Wasserstein-approximate Gaussian processes.
    """

    _: KW_ONLY
    likelihood: str = "probit"
    slack: float = 0.0

    def _likelihood(self) -> Likelihood:
        return get_likelihood(self.likelihood)

    def _theta(self) -> float:
        return float(self.slack) if self.likelihood == "step" else self._likelihood().default_theta

    def fit(self, X: Any, y: Any) -> GaussianProcessClassifier:
        """Learn the kernel and find the posterior; a fit that is refused leaves the model as it was.

        Parameters
        ----------
        X : array-like (n_samples, n_features)
        y : array-like (n_samples,)
            Labels of two or more classes, of any type.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            On parameters or data that are not allowed.
        FloatingPointError
            If there is no Gaussian posterior.

        Examples
        --------
        >>> from tensorcep import GaussianProcessClassifier
        >>> model = GaussianProcessClassifier(optimizer=None).fit([[-2.0], [-1.0], [1.0], [2.0]], [0, 0, 1, 1])
        >>> model.classes_.tolist()
        [0, 1]
        """
        check_choice("likelihood", self.likelihood, LIKELIHOODS)
        check_range("slack", self.slack, 0.0, 0.5, include_high=False)
        if self.slack and self.likelihood != "step":
            fail_value(f"slack has a meaning only with likelihood='step'; got slack={self.slack!r}.")
        X, y, about = self._read(X, y)
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            fail_value("y must hold labels of two classes or more; got one class.")
        codes = codes.astype(np.int64)
        machines = self._fit_machines(X, self._targets(codes), 0.0)
        fitted = {**about, "classes_": classes, "_X_fit": X, "_y_fit": codes}
        return self._finish(machines, fitted, without="constant_value")  # labels told apart have no finite one

    def _targets(self, y: np.ndarray) -> list[Observations]:
        codes = np.unique(y)
        ones = codes[1:] if len(codes) == 2 else codes
        return [Observations(self._likelihood(), (y == c).astype(np.float64), self._theta()) for c in ones]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Predictive probabilities of the classes, (n, n_classes), the latent function integrated out.

        Examples
        --------
        >>> from tensorcep import GaussianProcessClassifier
        >>> model = GaussianProcessClassifier(optimizer=None).fit([[-2.0], [-1.0], [1.0], [2.0]], [0, 0, 1, 1])
        >>> model.predict_proba([[-3.0], [3.0]]).shape
        (2, 2)
        """
        return self._probabilities(*self._latent(self._checked(X)))

    def _probabilities(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        ones = self._likelihood().predict(mean.ravel(), variance.ravel(), self._theta())[0].reshape(mean.shape)
        if mean.ndim == 1:
            return np.stack([1.0 - ones, ones], axis=1)
        ones = np.maximum(ones, np.finfo(np.float64).tiny)
        return np.asarray(ones / ones.sum(axis=1, keepdims=True))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label, (n,).

        Examples
        --------
        >>> from tensorcep import GaussianProcessClassifier
        >>> model = GaussianProcessClassifier(optimizer=None).fit([[-2.0], [-1.0], [1.0], [2.0]], [0, 0, 1, 1])
        >>> model.predict([[-3.0], [3.0]]).tolist()
        [0, 1]
        """
        mean, variance = self._latent(self._checked(X))
        best = (mean > 0.0).astype(np.int64) if mean.ndim == 1 else self._probabilities(mean, variance).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Central intervals of P(y = 1 | f(x)), what is not known of f left in, (n, 2).

        Of several classes those of each against the rest, (n, n_classes, 2). They say how sure a probability is: far
        from all data they reach from 0 to 1, though the probability itself is about a half. For the likelihood "step"
        the probability given f is the slack or 1 minus it.

        Examples
        --------
        >>> from tensorcep import GaussianProcessClassifier
        >>> X, y = [[-2.0], [-1.0], [0.5], [1.0], [2.0]], [0, 0, 1, 0, 1]
        >>> model = GaussianProcessClassifier(optimizer=None).fit(X, y)
        >>> lower, upper = model.predict_interval(X, coverage=0.5).T
        >>> bool((lower < model.predict_proba(X)[:, 1]).all() and (model.predict_proba(X)[:, 1] < upper).all())
        True
        """
        half = float(ndtri(0.5 + 0.5 * check_fraction("coverage", coverage)))
        mean, variance = self._latent(self._checked(X))
        ends = mean[..., None] + half * np.sqrt(variance)[..., None] * np.array([-1.0, 1.0])
        return self._of_latent(ends)

    def _of_latent(self, f: np.ndarray) -> np.ndarray:
        """P(y = 1 | f)."""
        return np.exp(self._likelihood().logpdf(1.0, f.ravel(), 0.0, self._theta())).reshape(f.shape)

    def _observed(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        p = self._of_latent(f)
        if len(p) == 1:
            return np.asarray(self.classes_[(rng.random(p.shape[1:]) < p[0]).astype(np.int64)])
        upto = np.cumsum(p / p.sum(axis=0), axis=0)
        code = np.minimum((rng.random(p.shape[1:]) > upto).sum(axis=0), len(p) - 1)
        return np.asarray(self.classes_[code])


fill_docstring(GaussianProcessClassifier, {"{shared}": SHARED})
