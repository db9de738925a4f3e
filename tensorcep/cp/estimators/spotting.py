"""`anomaly_score` of the CP estimators: how odd observations are under what the model predicts of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tensorcep.core.checks import check_values, fail_value
from tensorcep.cp.estimators.entries import coords_to_predict, placed_rows
from tensorcep.cp.estimators.later import described_rows, placed
from tensorcep.cp.estimators.modes import names_of
from tensorcep.cp.estimators.predictions import CPPredictions
from tensorcep.cp.predict import observed_logpdf, observed_moments, observed_tails
from tensorcep.entries.tables import UNSAID, as_frame, split_like
from tensorcep.entries.tensor import SparseTensor

SCORES = ("value", "mean", "sd", "surprise", "lower_tail", "upper_tail", "unseen")


class Spotting(CPPredictions):
    """What a fitted CP estimator says of observations beside its predictions."""

    def anomaly_score(self, X: Any, y: Any = None, *, modes: Any = None, value: Any = UNSAID) -> pd.DataFrame:
        """How odd each observation is; in a stream, of a batch before it is learned.

        Parameters
        ----------
        X : entries as in `predict`
        y : array-like of shape (n,), optional
            What was observed; left out with a SparseTensor, and where `value` names its column.
        modes, value : as in `fit`
            With ``value=None`` lines are events, and the value of a cell is the number of its lines.

        Returns
        -------
        DataFrame
            A row per entry, with the columns of its modes and

            value : what was observed; of labels 0 or 1
            mean, sd : of a new observation
            surprise : minus the log predictive density or mass, in nats; of use to rank
            lower_tail, upper_tail : the probability of an observation as low, and as high, or more so
            unseen : whether a row of the entry had no training entries, so that its prior was used

        Examples
        --------
        >>> import pandas as pd
        >>> from tensorcep import CPRegressor
        >>> cells = [(f"u{a}", f"i{b}", a * b / 5 + (a + b) % 3 / 9) for a in range(6) for b in range(6)]
        >>> table = pd.DataFrame(cells, columns=["user", "item", "stars"])
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(table, value="stars")
        >>> odd = pd.DataFrame({"user": ["u1", "u2"], "item": ["i1", "i2"], "stars": [0.3, 9.0]})
        >>> int(model.anomaly_score(odd, value="stars")["surprise"].argmax())
        1
        """
        self._fitted_belief()
        likelihood, names = self._likelihood_of_new(), names_of(self.labels_)
        X = as_frame(X)
        if isinstance(X, pd.DataFrame):
            X, y = split_like(names_of(self.labels_), X, y, modes, value)
        if y is None and not isinstance(X, SparseTensor):
            fail_value("anomaly_score needs what was observed: give y, or the column that holds it as value=.")
        y = X.values if y is None else y
        coords = coords_to_predict(X, self.labels_)
        values = likelihood.check_y(check_values(self._coded(y), len(coords), name="y"))
        found = placed(self, X)
        belief, (rows, unseen) = found.belief, placed_rows(found.coords, self.posterior_, described_rows(self))
        rows = found.rows(rows)
        if self.unknown == "error":
            self._at(X)
        frame = self._cells_frame(X, coords, names)
        mean, variance = observed_moments(likelihood, belief, rows)
        lower, upper = observed_tails(likelihood, belief, rows, values)
        surprise = -observed_logpdf(likelihood, belief, rows, values)
        shown = np.asarray(self._coded(y), dtype=np.float64)
        numbers = (shown, mean, np.sqrt(variance), surprise, lower, upper, unseen)
        for name, numbers_of in zip(SCORES, numbers, strict=True):
            frame[f"predicted_{name}" if name in names else name] = numbers_of
        return frame

    def _cells_frame(self, X: Any, coords: np.ndarray, names: list[Any]) -> pd.DataFrame:
        """The modes of the entries, as they were given."""
        if isinstance(X, pd.DataFrame):
            return X.reset_index(drop=True)
        if isinstance(X, SparseTensor):
            found = names_of(X.labels)
            return X.to_pandas(value=SCORES[0]).drop(columns=SCORES[0]).set_axis(found, axis=1)
        return pd.DataFrame(coords, columns=names)
