"""A fit takes tables: columns by name, labels of any kind in their order; what is missing is refused by name."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.models import paper

import tensorcep as tc

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
MODES = ["user", "item", "month"]


def frame():
    tensor = tc.simulate_cp((12, 11, 4), 1, 200, random_state=0).tensor
    u, i, m = tensor.coords.T
    columns = {
        "user": [f"u{n}" for n in u],
        "item": [f"i{n}" for n in i],
        "month": pd.PeriodIndex([pd.Period(ordinal=int(i), freq="M") for i in m]),
    }
    return pd.DataFrame({"note": "x", **columns, "rating": tensor.values})


def quick(cls=tc.CPRegressor, **params):
    return paper(cls, rank=1, max_iter=5, random_state=0, **params)


def test_fit_takes_a_frame_by_column_names_and_ignores_others():
    df = frame()
    model = quick().fit(df, modes=MODES, value="rating")
    tensor = tc.SparseTensor.from_pandas(df, MODES, "rating")
    expected = quick().fit(tensor).predict(tensor)
    np.testing.assert_array_equal(model.predict(df), expected)
    others = [
        quick().fit(df[MODES], df["rating"]),
        quick().fit(df, df["rating"], modes=MODES),
        quick().fit(df[[*MODES, "rating"]], value="rating"),
        quick().fit(df.to_dict("records"), modes=MODES, value="rating"),
    ]
    for other in others:
        np.testing.assert_array_equal(other.predict(df.iloc[:, ::-1]), expected)
    np.testing.assert_array_equal(model.predict(df[MODES].to_dict("records")), expected)


@each(
    ("arguments", "message"),
    [
        ({"modes": ["user", "film"], "value": "rating"}, "X has no column 'film'; it has 'note', 'user'"),
        ({"modes": MODES, "value": "stars"}, "X has no column 'stars'"),
        ({"modes": MODES}, "the values are needed: give y, or say with value="),
        ({"modes": MODES, "value": "rating", "y": np.ones(200)}, "y or a column, not both"),
        ({"modes": "user", "value": "rating"}, "modes must be a list of column names; got 'user'"),
        ({"modes": MODES, "y": np.ones(3)}, "y must hold one number for each of the 200 entries; got 3"),
    ],
)
def test_fit_refuses_columns_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        quick().fit(frame(), **arguments)


def test_fit_refuses_column_names_of_arrays_and_uneven_records():
    with pytest.raises(ValueError, match="name columns of a table; got X as ndarray"):
        quick().fit(np.zeros((3, 2), dtype=int), np.ones(3), value="rating")
    with pytest.raises(ValueError, match="record 1 has no 'b'"):
        quick().fit([{"a": 1, "b": 2}, {"a": 1}], np.ones(2))


def test_fit_counts_the_lines_of_a_log():
    log = pd.DataFrame({"host": list("aabbbc"), "port": [1, 1, 2, 2, 2, 1]})
    model = quick(tc.CPCountRegressor).fit(log, value=None)
    assert (model.shape_, model.n_samples_seen_) == ((3, 2), 3)


def test_classifier_takes_a_column_of_two_words():
    df = frame().assign(rating=lambda d: np.where(d["rating"] > 0, "yes", "no"))
    assert set(quick(tc.CPClassifier).fit(df, modes=MODES, value="rating").predict(df)) <= {"yes", "no"}


def test_streams_take_records():
    df = frame()
    parts = [df[:150], df[150:]]
    model, other = quick(), quick()
    model.stream([part.to_dict("records") for part in parts], modes=MODES, value="rating")
    other.stream(parts, modes=MODES, value="rating")
    np.testing.assert_array_equal(model.predict(df), other.predict(df))
    quick().partial_fit(df[MODES].to_dict("records"), df["rating"])


def values_of(cls, df):
    """A frame whose values the estimator takes, with weights beside them."""
    rank = df["rating"].rank(pct=True)
    values = {
        tc.CPRegressor: df["rating"],
        tc.CPClassifier: np.where(rank > 0.5, "yes", "no"),
        tc.CPCountRegressor: np.floor(4.0 * rank),
        tc.CPOrdinalClassifier: 1.0 + 0.5 * np.floor(2.9 * rank),
    }
    return df.assign(rating=values[cls], w=1.0 + np.arange(len(df)) % 2)


@each("cls", [tc.CPRegressor, tc.CPClassifier, tc.CPCountRegressor, tc.CPOrdinalClassifier])
def test_every_call_that_takes_data_takes_the_words_of_fit(cls):
    """A column may be the value, and another the weights, wherever data are given; other columns are no modes."""
    df, method = values_of(cls, frame()), {"method": "vmp"} if cls is tc.CPOrdinalClassifier else {}
    X, y, w, words = df[MODES], df["rating"].to_numpy(), df["w"].to_numpy(), {"modes": MODES, "value": "rating"}
    named = quick(cls, **method).fit(df, **words, sample_weight="w")
    plain = quick(cls, **method).fit(X, y, sample_weight=w)
    np.testing.assert_array_equal(named.predict(df), plain.predict(X))
    if cls is not tc.CPOrdinalClassifier:
        named = quick(cls).partial_fit(df[:150], **words, sample_weight="w")
        named.partial_fit(df[150:].iloc[:, ::-1], value="rating", sample_weight="w")
        plain = quick(cls).partial_fit(X[:150], y[:150], sample_weight=w[:150])
        plain.partial_fit(X[150:], y[150:], sample_weight=w[150:])
        np.testing.assert_array_equal(named.predict(df), plain.predict(X))
    assert named.score(df, value="rating", sample_weight="w") == plain.score(X, y, w)
    np.testing.assert_array_equal(named.log_score(df, value="rating"), plain.log_score(X, y))
    given = [model.anomaly_score(*cells)["surprise"] for model, cells in ((plain, (X, y)), (named, (X, y)))]
    np.testing.assert_array_equal(named.anomaly_score(df, **words)["surprise"], given[0])
    np.testing.assert_array_equal(*given)
    new = df[:3].assign(user="v")
    rows = named.transform(new, mode="user", **words), plain.transform(new[MODES], y[:3], mode="user")
    np.testing.assert_array_equal(*(one.mean for one in rows))


def test_streams_count_the_lines_of_a_log_and_take_a_single_further_column():
    log = pd.DataFrame({"host": list("aabbbcabcc"), "port": [1, 1, 2, 2, 2, 1, 3, 3, 1, 1]})
    model = quick(tc.CPCountRegressor).partial_fit(log[:6], value=None).partial_fit(log[6:], value=None)
    assert (model.shape_, model.n_samples_seen_) == ((3, 3), 6)
    df = frame()[[*MODES, "rating"]]
    model, other = (quick().partial_fit(df[:150], value="rating") for _ in range(2))
    np.testing.assert_array_equal(model.partial_fit(df[150:]).predict(df), other.partial_fit(df[150:]).predict(df))


@each(
    ("arguments", "message"),
    [
        ({"value": "stars"}, "X has no column 'stars'"),
        ({"value": "rating", "y": np.ones(200)}, "y or a column, not both"),
        ({"value": "rating", "sample_weight": "n"}, "sample_weight must be one of 'note', 'user'"),
        ({"X": np.zeros((3, 3), dtype=int), "y": np.ones(3), "value": "rating"}, "got X as ndarray"),
        ({"X": np.zeros((3, 3), dtype=int), "y": np.ones(3), "sample_weight": "w"}, "sample_weight='w' names a column"),
    ],
)
def test_words_that_name_no_column_are_refused_everywhere(arguments, message):
    df = frame()
    model = quick().fit(df, modes=MODES, value="rating")
    for call in (quick().fit, quick().partial_fit, model.partial_fit, model.score):
        with pytest.raises(ValueError, match=message):
            call(**{"X": df, **arguments})


def test_labels_stay_in_order_and_are_saved(tmp_path):
    df = frame().assign(user=lambda d: d["user"].str[1:] + "h")
    model = quick().fit(df, modes=MODES, value="rating")
    model.save(tmp_path / "m.npz")
    for one in (model, tc.load(tmp_path / "m.npz")):
        assert one.components(0).iloc[:, 0].unique().tolist() == [f"{n}h" for n in range(12)]
        periods = pd.Index(one.components(2).iloc[:, 0].unique())
        assert isinstance(periods, pd.PeriodIndex)
        assert periods.is_monotonic_increasing


def test_text_is_sorted_by_its_numbers():
    given = ["12h", "6h", "-3h", "0.25h", "1.5h", "b10", "b9", "b", "1.10.2", "1.9.2"]
    ordered = ["-3h", "0.25h", "1.5h", "6h", "12h", "b", "b9", "b10"]
    assert list(tc.Labels.from_column(given[:8])[0]) == ordered
    assert list(tc.Labels.from_column(["1.10.2", "1.9.2"])[0]) == ["1.9.2", "1.10.2"]
    labels, rows = tc.Labels.from_column(given)
    assert list(labels[rows]) == given


def test_xarray_dimensions_are_modes_in_their_order():
    xarray = pytest.importorskip("xarray")
    values = np.arange(12.0).reshape(3, 4)
    values[1, 2] = np.nan
    array = xarray.DataArray(values, dims=["dose", "time"], coords={"dose": ["low", "mid", "high"]})
    model = quick().fit(array, value="value")
    assert model.n_samples_seen_ == 11
    assert list(model.labels_[0]) == ["low", "mid", "high"]
    assert model.labels_[1].name == "time"
