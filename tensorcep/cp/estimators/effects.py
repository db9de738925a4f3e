"""What a fitted CP estimator says of the features of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from tensorcep.core.belief import ModePrior
from tensorcep.cp.estimators.predictions import CPPredictions
from tensorcep.cp.inputs.coordinates import names_of
from tensorcep.priors.design import Design
from tensorcep.priors.learned import LearnedPrior
from tensorcep.priors.regressed import with_features

# Draws of the factors that effects are drawn for, those of the first that are not kept, and the smallest standard
# deviation of a column beside the largest.
DRAWS, FIRST, LEAST_SCALE = 100, 5, 1e-6


class Effects(CPPredictions):
    """What a CP estimator knows of features of its rows."""

    @cached_property
    def feature_effects_(self) -> pd.DataFrame:
        """How the rows' factors depend on their features, the surest effects first.

        A line is the change of the prior mean of a column of `factors_`, main effects included, from one more standard
        deviation of a number, or from 0 to 1: mean and sd over draws of the linear map given draws of the factors.

        Returns
        -------
        DataFrame
            Columns mode, feature, component, mean, sd; sorted by abs(mean) / sd.
        """
        designs = self._features
        check_is_fitted(self, "posterior_")
        if not designs:
            raise AttributeError("feature_effects_ needs a fit with features, such as prior={'item': Features(X)}.")
        factors, parts = self.sample_posterior(DRAWS, random_state=0), []
        for k, own in enumerate(designs):
            if own is None:
                continue
            columns = np.array([k in modes for modes in self.column_modes_])
            seen = self._layout().seen[k] - self._layout().rows[k].start
            seen = np.isin(np.arange(len(own.described)), seen)
            rows = np.asarray(factors[k][:, : len(seen)][:, seen][:, :, columns], dtype=np.float64)
            coef = _slopes_of_draws(own, seen, rows)
            parts.append(_effects(names_of(self.labels_)[k], own.names, np.flatnonzero(columns), coef))
        table = pd.concat(parts, ignore_index=True)
        order = np.argsort(-(table["mean"].abs() / table["sd"]).to_numpy(), kind="stable")
        return table.iloc[order].reset_index(drop=True)


def _slopes_of_draws(design: Design, seen: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """A draw of the linear map for each draw (S, n, D) of the rows with entries: (S, F, D)."""
    every = rows.reshape(-1, rows.shape[2])
    scale = np.maximum(every.std(axis=0), LEAST_SCALE * max(float(every.std(axis=0).max()), 1e-300))
    nothing, mean = np.zeros((0, len(scale))), every.mean(axis=0)[None]
    plain = LearnedPrior(nothing, nothing, mean, scale[None], np.ones((1, len(scale)), dtype=bool))
    prior, rng = with_features(plain, [design]).for_rows([seen]), np.random.default_rng(0)
    now, found = ModePrior(mean, np.diag(scale**-2.0)[None]), []
    for s in [0] * FIRST + list(range(len(rows))):
        now = prior.draw(now, [rows[s]], rng)
        own: Any = now.slopes[0]
        found.append(own.coef)
    return np.stack(found[FIRST:])


def _effects(mode: Any, names: Sequence[str], columns: np.ndarray, coef: np.ndarray) -> pd.DataFrame:
    """The lines of a mode, of draws (S, F, D)."""
    F, D = coef.shape[1:]
    sd = np.maximum(coef.std(axis=0, ddof=1), np.finfo(float).tiny)
    return pd.DataFrame(
        {
            "mode": [mode] * (F * D),
            "feature": np.repeat(np.array(names, dtype=object), D),
            "component": np.tile(columns, F),
            "mean": coef.mean(axis=0).ravel(),
            "sd": sd.ravel(),
        }
    )
