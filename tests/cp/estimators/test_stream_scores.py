"""Anomaly scores in a stream: those of the model before each batch, each entry once."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.data import entries, new

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")
MODES = ["a", "b", "c"]


def frame_of(name):
    X, y = entries(name)
    table = pd.DataFrame({mode: [f"{mode}{i}" for i in at] for mode, at in zip(MODES, X.T, strict=True)})
    return table.assign(n=y)


@each("name", ["regressor", "classifier", "counts"])
def test_scores_are_those_of_anomaly_score_before_each_batch(name):
    df, told, known = frame_of(name)[:320], [], []
    default = {"prior": "auto"} if name == "classifier" else {}  # whose probabilities are mixed with a constant
    df.loc[300, "a"] = "new"

    def scored(model, _):
        ahead = df[len(known) * 100 + 100 :][:100]
        known.append(model.anomaly_score(ahead, modes=MODES, value="n") if len(ahead) else None)

    model = new(name, **default).stream(df, batch_size=100, modes=MODES, value="n", scores=told.append, callback=scored)
    first, *others = told
    assert first[["mean", "sd", "surprise", "lower_tail", "upper_tail"]].isna().all(axis=None)
    assert [len(each) for each in told] == [100, 100, 100, 20]
    # the noise of a first batch is that of a fit, which a stream holds for less sure
    for mine, other in zip(others[1:], known[1:], strict=False):
        columns = list(mine.columns)
        assert columns == [*MODES, "value", "mean", "sd", "surprise", "lower_tail", "upper_tail", "unseen"]
        other, same = other[columns].reset_index(drop=True), mine["a"] != "new"  # whose prior is the stream's own
        pd.testing.assert_frame_equal(mine[same], other[same], check_dtype=False, rtol=1e-9)
    assert others[2]["unseen"].tolist() == [True] + [False] * 19
    assert model.n_batches_ == 4


def test_scores_go_to_a_file_and_are_of_batches_that_were_learned(tmp_path):
    X, y = entries("regressor")
    path = tmp_path / "scores.csv"
    batches = [(X[:100], y[:100]), (X[100:200], y[100:200]), (X[200:300], np.full(100, np.nan))]
    with pytest.raises(ValueError, match="y must be finite"):
        new("regressor").stream(iter(batches), scores=path)
    table = pd.read_csv(path)
    np.testing.assert_array_equal(table[["mode_0", "mode_1", "mode_2"]], X[:200])
    assert table["mean"].notna().sum() == 100
    np.testing.assert_allclose(table["value"], y[:200], rtol=1e-7)
    with pytest.raises(TypeError, match="scores must be a path or callable; got int"):
        new("regressor").stream(iter(batches), scores=3)


def test_a_model_that_was_fitted_is_scored_from_its_first_batch():
    df, told = frame_of("regressor"), []
    model = new("regressor", max_iter=30)
    model.fit(df[:300], modes=MODES, value="n")
    other = model.anomaly_score(df[300:400], modes=MODES, value="n")
    model.stream(df[300:400], modes=MODES, value="n", scores=told.append)
    np.testing.assert_allclose(told[0]["surprise"], other["surprise"], rtol=1e-9)
