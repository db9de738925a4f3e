"""What the classifiers of feature vectors share: how points and labels are read, what is kept of a fit, files."""

from __future__ import annotations

import copy
import os
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from tensorcep.core.checks import check_unmasked, fail_value
from tensorcep.core.persist.models import write_attributes
from tensorcep.core.scored import ScoresUnmasked
from tensorcep.entries.matrices import as_numbers, as_targets

# What validation says of the features.
OF_FEATURES = ("n_features_in_", "feature_names_in_")


class Points(NamedTuple):
    """Checked training points.

    Attributes
    ----------
    X : (n, d) float64, dense or CSR
    y : (n,)
        Labels as they were given.
    about : dict
        The estimator's attributes `OF_FEATURES`, as far as it has them.
    """

    X: Any
    y: np.ndarray
    about: dict[str, Any]


class FeatureClassifier(ScoresUnmasked, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Two classes, told apart by the sign of a latent value f(x) with a Gaussian posterior.

    Fitting assigns its attributes at the end, all at once: a call that is refused or interrupted changes nothing.
    """

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

    def _read(self, X: Any, y: Any, *, first: bool = True) -> Points:
        """Check training points, against those of earlier batches unless they are the first."""
        stand_in = copy.copy(self)
        X, y = as_numbers(check_unmasked(X, "X")), as_targets(y)
        X, y = validate_data(stand_in, X, y, accept_sparse="csr", dtype=np.float64, order="C", reset=first)
        check_classification_targets(y)
        about = vars(stand_in)
        return Points(X, y, {name: about[name] for name in OF_FEATURES if name in about})

    def _take(self, fitted: dict[str, Any]) -> None:
        """Have these fitted attributes, and none of an earlier fit."""
        private = {*self._stored, *self._stored_if_there}
        kept = {name: value for name, value in vars(self).items() if not name.endswith("_") and name not in private}
        self.__dict__ = {**kept, **fitted}

    def _checked(self, X: Any) -> Any:
        """Points to predict at."""
        check_is_fitted(self)
        X = as_numbers(check_unmasked(X, "X"))
        return validate_data(self, X, accept_sparse="csr", dtype=np.float64, order="C", reset=False)

    def fit(self, X: Any, y: Any) -> Any:
        """Find the posterior.

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
        FloatingPointError
            If the posterior of EP stops being a Gaussian.

        Examples
        --------
        >>> import numpy as np
        >>> from tensorcep import BayesianLogisticRegression
        >>> X, y = np.array([[-2.0], [-1.0], [0.5], [1.0], [2.0]]), [0, 0, 1, 0, 1]
        >>> model = BayesianLogisticRegression().fit(X, y)
        >>> model.coef_.shape, model.coef_std_.shape
        ((1, 1), (1, 1))
        """
        return self._fit(X, y)

    def _fit(self, X: Any, y: Any) -> Any:
        raise NotImplementedError

    def _latent_mean(self, X: Any) -> np.ndarray:
        """Posterior mean of f at checked points."""
        return np.asarray(X @ self.coef_[0] + self.intercept_[0])

    def predict_latent(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and variance of f at each row of X, (n,) each.

        Examples
        --------
        >>> import numpy as np
        >>> from tensorcep import BayesianLogisticRegression
        >>> X, y = np.array([[-2.0], [-1.0], [0.5], [1.0], [2.0]]), [0, 0, 1, 0, 1]
        >>> model = BayesianLogisticRegression().fit(X, y)
        >>> mean, variance = model.predict_latent(X)
        >>> mean.shape, bool((variance > 0).all())
        ((5,), True)
        """
        X = self._checked(X)
        return self._latent_mean(X), row_variances(with_constant(X, self.fit_intercept), self._cov)

    def predict(self, X: Any) -> np.ndarray:
        """The more probable label, (n,): that of the side on which the posterior mean of f lies.

        Examples
        --------
        >>> import numpy as np
        >>> from tensorcep import BayesianLogisticRegression
        >>> X, y = np.array([[-2.0], [-1.0], [0.5], [1.0], [2.0]]), [0, 0, 1, 0, 1]
        >>> model = BayesianLogisticRegression().fit(X, y)
        >>> model.predict([[-3.0], [3.0]]).tolist()
        [0, 1]
        """
        positive = self._latent_mean(self._checked(X)) > 0.0
        return np.asarray(self.classes_[positive.astype(np.int64)])

    def _check_parameters(self) -> None:
        """Refuse parameters that no fit takes, whatever the data: files may hold any."""
        raise NotImplementedError

    def _try_out(self) -> None:
        """Predict at one point, after loading: what a file holds may have the right names and make no sense.

        Raises
        ------
        ValueError, TypeError, IndexError, AttributeError
            If arrays do not fit each other, or hold no finite real numbers.
        """
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
            If the folder does not exist, `path` is a folder, or the labels are objects other than text.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from tensorcep import BayesianLogisticRegression, load
        >>> X, y = np.array([[-2.0], [-1.0], [0.5], [1.0], [2.0]]), [0, 0, 1, 0, 1]
        >>> model = BayesianLogisticRegression().fit(X, y)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/model.npz")
        ...     again = load(f"{folder}/model.npz")
        ...
        >>> bool((again.predict_proba(X) == model.predict_proba(X)).all())
        True
        """
        check_is_fitted(self)
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


def row_variances(rows: Any, cov: np.ndarray) -> np.ndarray:
    """Variance of x'w for every row, given the covariance of w, or its variances where it is diagonal."""
    half = rows if cov.ndim == 1 else np.asarray(rows @ cov)
    product = rows.multiply(half) if sparse.issparse(rows) else rows * half
    weights = cov if cov.ndim == 1 else np.ones(len(cov))
    return np.maximum(np.asarray(product @ weights).ravel(), 0.0)
