"""What the components of a fitted model look like: their share of the latent values, order, signs, and a table."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from tensorcep.core.checks import check_int
from tensorcep.core.packing import offsets
from tensorcep.cp.columns import free_columns, modes_of_columns

# A component whose mean square is below this share of the largest one's is switched off.
NEGLIGIBLE = 1e-3


def relevance(factors: Sequence[np.ndarray], seen: Sequence[np.ndarray]) -> np.ndarray:
    """Mean square over all cells of what each component adds to the latent value, as shares of their sum, (R,).

    Only rows with entries count, since the others hold what the prior says.
    """
    squares = [np.mean(factor[rows] ** 2, axis=0) for factor, rows in zip(factors, seen, strict=True)]
    product = np.prod(squares, axis=0)
    return np.asarray(product / max(float(product.sum()), np.finfo(float).tiny))


def signs(factors: Sequence[np.ndarray], column_modes: Sequence[tuple[int, ...]]) -> np.ndarray:
    """Signs (K, R) that make every factor but a component's first point up and leave each product as it is."""
    result = np.ones((len(factors), len(column_modes)))
    for r, modes in enumerate(column_modes):
        for k in modes[1:]:
            if factors[k][:, r].sum() < 0.0:
                result[[modes[0], k], r] *= -1.0
    return result


def components_table(
    mean: np.ndarray, cov: np.ndarray, sign: np.ndarray, order: np.ndarray, index: Any
) -> pd.DataFrame:
    """Means and standard deviations of some columns, one row per row of the mode; column labels (component, what)."""
    sd = np.sqrt(np.maximum(np.diagonal(cov, axis1=1, axis2=2), 0.0))
    columns = pd.MultiIndex.from_product([[int(r) for r in order], ["mean", "sd"]], names=["component", None])
    values = np.stack([(mean * sign)[:, order], sd[:, order]], axis=2).reshape(len(mean), -1)
    return pd.DataFrame(values, index=index, columns=columns)


class CPComponents(BaseEstimator):  # type: ignore[misc]
    """What a fitted CP estimator says of its components."""

    factors_: list[np.ndarray]
    factor_covs_: list[np.ndarray]

    @property
    def column_modes_(self) -> list[tuple[int, ...]]:
        """The modes that each column of the factors belongs to; in the others it is 1."""
        check_is_fitted(self, "posterior_")
        return modes_of_columns(free_columns(self.interactions_, len(self.shape_)))

    @property
    def relevance_(self) -> np.ndarray:
        """Share of each component in the mean square of the latent values, (R,)."""
        check_is_fitted(self, "posterior_")
        first = offsets(self.shape_)
        return relevance(self.factors_, [self.posterior_.seen[a:b] for a, b in itertools.pairwise(first)])

    @property
    def n_components_(self) -> int:
        """Number of components that are not switched off."""
        shares = self.relevance_
        return int(np.count_nonzero(shares > NEGLIGIBLE * shares.max()))

    @property
    def lower_bound_(self) -> float:
        """Lower bound of the log evidence after the last sweep; only methods that compute one have the attribute."""
        check_is_fitted(self, "posterior_")
        bounds = self.trace_["lower_bound"]
        if "member" in self.trace_:  # of a mixture it is that of the best fit, which comes first
            bounds = bounds[self.trace_["member"] == 0]
        bound = float(bounds[-1])
        if np.isnan(bound):
            raise AttributeError(f"method {self.method_!r} gives no lower bound of the evidence.")
        return bound

    def components_frame(self, mode: int) -> pd.DataFrame:
        """Means and standard deviations of the factors of a mode, the most relevant component first.

        Of a component that several modes share, all factors but the first are turned to have a positive sum; products
        stay as they are. Columns that are held at 1 are left out.

        Parameters
        ----------
        mode : int

        Returns
        -------
        DataFrame
            A row per row of the mode, with its label if there is one; columns (component, "mean" or "sd").
        """
        check_is_fitted(self, "posterior_")
        k, modes = check_int("mode", mode, 0, len(self.shape_) - 1), self.column_modes_
        order = [r for r in np.argsort(-self.relevance_, kind="stable") if k in modes[r]]
        index = None if self.labels_[k] is None else self.labels_[k].index
        sign = signs(self.factors_, modes)[k]
        return components_table(self.factors_[k], self.factor_covs_[k], sign, np.array(order, dtype=int), index)
