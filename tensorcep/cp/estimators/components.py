"""What the components of a fitted model look like: their share of the latent values, order, signs, and a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

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
