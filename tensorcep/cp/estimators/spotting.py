"""`anomaly_score` of the CP estimators: how odd observations are under what the model predicts of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tensorcep.core.checks import check_values, fail_value
from tensorcep.core.components import Components
from tensorcep.cp.estimators.predictions import CPPredictions
from tensorcep.cp.fitted.forecast import described_rows, placed
from tensorcep.cp.fitted.predict import observed_logpdf, observed_moments, observed_tails
from tensorcep.cp.inputs.coordinates import coords_to_predict, names_of, placed_rows
from tensorcep.cp.stream.learn import BatchPlan, belief_before
from tensorcep.entries.batch import Batch
from tensorcep.entries.tables import UNSAID, split_observed
from tensorcep.entries.tensor import SparseTensor
from tensorcep.likelihoods.record import Likelihood

SCORES = ("value", "mean", "sd", "surprise", "lower_tail", "upper_tail", "unseen")


class Spotting(CPPredictions):
    """What a fitted CP estimator says of observations beside its predictions."""

    def anomaly_score(
        self, X: Any, y: Any = None, *, modes: Any = None, value: Any = UNSAID, **extent: Any
    ) -> pd.DataFrame:
        """How odd each observation is; in a stream, of a batch before it is learned.

        Parameters
        ----------
        X : entries as in `predict`
        y : array-like of shape (n,), optional
            What was observed; left out with a SparseTensor, and where `value` names its column.
        modes, value : as in `fit`
            With ``value=None`` lines are events, and the value of a cell is the number of its lines.
        **extent
            Of counts exposure= or n_trials=, as in `fit`.

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
        extents, X = self._extent_of(X, extent, needed=True), self._without_extent(X, extent)
        X, y = split_observed(names, X, y, modes, value, empty=True)
        if y is None:
            fail_value("anomaly_score needs what was observed: give y, or the column that holds it as value=.")
        coords = coords_to_predict(X, self.labels_)
        values = likelihood.check_y(check_values(self._coded(y), len(coords), name="y"))
        found = placed(self, X)
        belief, (rows, unseen) = found.belief, placed_rows(found.coords, self.posterior_, described_rows(self))
        rows = found.rows(rows)
        if self.unknown == "error":
            self._at(X)
        frame = self._cells_frame(X, coords, names)
        shown = np.asarray(self._coded(y), dtype=np.float64)
        return _with_scores(frame, (shown, *_scored(likelihood, belief, rows, values, extents), unseen))

    def _cells_frame(self, X: Any, coords: np.ndarray, names: list[Any]) -> pd.DataFrame:
        """The modes of the entries, as they were given."""
        if isinstance(X, pd.DataFrame):
            return X.reset_index(drop=True)
        if isinstance(X, SparseTensor):
            found = names_of(X.labels)
            return X.to_pandas(value=SCORES[0]).drop(columns=SCORES[0]).set_axis(found, axis=1)
        return pd.DataFrame(coords, columns=names)


def _scored(
    likelihood: Likelihood, belief: Components, rows: np.ndarray, values: np.ndarray, extents: np.ndarray | None = None
) -> tuple[np.ndarray, ...]:
    """Mean, sd, surprise and both tails of values (n,) of the likelihood's coding, at packed rows (n, K)."""
    mean, variance = observed_moments(likelihood, belief, rows, extent=extents)
    surprise = -observed_logpdf(likelihood, belief, rows, values, extent=extents) - likelihood.log_slopes(values)
    return mean, np.sqrt(variance), surprise, *observed_tails(likelihood, belief, rows, values, extents)


def _with_scores(frame: pd.DataFrame, numbers: tuple[np.ndarray, ...]) -> pd.DataFrame:
    """A frame of modes with the columns of SCORES."""
    names = list(frame.columns)
    for name, numbers_of in zip(SCORES, numbers, strict=True):
        frame[f"predicted_{name}" if name in names else name] = numbers_of
    return frame


def scores_of_batch(likelihood: Likelihood, plan: BatchPlan, arrival: Batch) -> pd.DataFrame:
    """The anomaly scores of the entries of a batch that is planned and not learned yet."""
    frame, batch = cells_of_batch(arrival), plan.batch
    numbers = _scored(likelihood, belief_before(plan), batch.rows, plan.y, plan.extent)
    seen = [mode.seen[rows] for mode, rows in zip(plan.state.modes, plan.coords.T, strict=True)]
    return _with_scores(frame, (arrival.values, *numbers, ~np.all(seen, axis=0)))


def scores_of_first(arrival: Batch) -> pd.DataFrame:
    """The same of a first batch, which nothing predicts: its scores are missing."""
    n = len(arrival.values)
    return _with_scores(cells_of_batch(arrival), (arrival.values, *np.full((5, n), np.nan), np.ones(n, dtype=bool)))


def cells_of_batch(arrival: Batch) -> pd.DataFrame:
    """The modes of the entries of a batch, as they came."""
    names = [k if name is None else name for k, name in enumerate(arrival.names)]
    keys = zip(arrival.keys, arrival.coords.T, strict=True)
    columns = dict(zip(names, (at if own is None else own for own, at in keys), strict=True))
    return pd.DataFrame(columns)
