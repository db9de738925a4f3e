"""The `score` of scikit-learn's mixins, given no masked numbers."""

from __future__ import annotations

from typing import Any

from tensorcep.core.checks import check_unmasked


class ScoresUnmasked:
    """Stands before scikit-learn's mixin among the bases of an estimator, whose `score` it calls."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Mean accuracy of a classifier, R2 of a regressor, as scikit-learn defines them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        float

        Raises
        ------
        ValueError
            If numbers of y or of the weights are masked.

        Examples
        --------
        >>> from tensorcep import BayesianLogisticRegression
        >>> X, y = [[-2.0], [-1.0], [1.0], [2.0]], [0, 0, 1, 1]
        >>> BayesianLogisticRegression().fit(X, y).score(X, y)
        1.0
        """
        given = check_unmasked(y, "y"), check_unmasked(sample_weight, "sample_weight")
        return float(super().score(X, *given))  # type: ignore[misc]
