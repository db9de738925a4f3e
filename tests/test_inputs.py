"""What estimators take in place of numpy arrays: the bits that arrays lead to, or a sentence that says what to call."""

from __future__ import annotations

import decimal
import functools
import importlib
import importlib.util

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from scipy import sparse

import tensorcep as tc

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning",
    "ignore:X does not have valid feature names",
    "ignore:X has feature names",
)
N, NAMES = 14, list("abcd")
CLASSES = ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"]
SPARSE = [f"{name}_{kind}" for name in CLASSES for kind in ("matrix", "array")]


def numbers():
    rng = np.random.default_rng(0)
    X = 4.0 * np.outer(rng.normal(size=N), [1.0, -1.0, 0.5, 2.0]) + 2.0 * rng.normal(size=(N, 4))
    X = np.round(X)
    return X + (X == 0.0)  # so that sparse ones store all


X = numbers()
Y = (X[:, 0] > 0.0).astype(np.int64)
QUICK = {"random_state": 0, "max_iter": 3}

FACTORS = {
    "pca": lambda X: tc.BayesianPCA(1, **QUICK).fit(X).transform(X),
    "fa": lambda X: tc.BayesianFactorAnalysis(1, **QUICK).fit(X).score_samples(X),
    "gfa": lambda X: tc.GroupFactorAnalysis(1, **QUICK).fit([X]).transform([X]),
    "cca": lambda X: tc.BayesianCCA(1, **QUICK).fit(X, X).scores_,
    "cmf": lambda X: tc.CollectiveMatrixFactorization([("r", "c", "gaussian")], 1, **QUICK).fit([X]).transform([X]),
}
POINTS = {
    "gp classifier": lambda X: tc.GaussianProcessClassifier(optimizer=None).fit(X, Y).predict_proba(X),
    "gp counts": lambda X: tc.GaussianProcessCountRegressor(optimizer=None, max_iter=20).fit(X, Y).predict(X),
    "logistic": lambda X: tc.BayesianLogisticRegression().fit(X, Y).predict_proba(X),
    "probit": lambda X: tc.BayesianProbitRegression().fit(X, Y).predict_proba(X),
    "bayes point": lambda X: tc.BayesPointMachine().fit(X, Y).predict_proba(X),
}
MATRICES = {**FACTORS, **POINTS}


@functools.cache
def of_arrays(name):
    """What an estimator makes of the matrix as an array."""
    return MATRICES[name](X)


def frame(**changed):
    return pd.DataFrame(X, columns=NAMES).assign(**changed)


def library(name):
    """An optional library, or a reason to leave the case out."""
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    return importlib.import_module(name)


AS_ARRAYS = {
    "list": X.tolist,
    "float32": lambda: X.astype(np.float32),
    "object": lambda: X.astype(object),
    "mask without masked ones": lambda: np.ma.array(X),
    "Int64": lambda: frame().astype("Int64"),
    "Float64": lambda: frame().astype("Float64"),
    "arrow": lambda: frame().astype("double[pyarrow]") if library("pyarrow") else None,
    "category": lambda: frame(a=pd.Categorical(X[:, 0], categories=[99.0, *np.unique(X[:, 0])])),
    "ordered": lambda: frame(a=pd.Categorical(X[:, 0], ordered=True)),
    "text of numbers": lambda: frame(a=[str(item) for item in X[:, 0]]),
    "decimals": lambda: frame().map(lambda item: decimal.Decimal(int(item))),
    "sparse columns": lambda: frame().astype(pd.SparseDtype("float64", 0.0)),
    "levels of rows": lambda: frame().set_index(pd.MultiIndex.from_product([["s"], range(N)])),
    "levels of columns": lambda: frame().set_axis(pd.MultiIndex.from_product([["x", "y"], ["u", "v"]]), axis=1),
    "polars": lambda: library("polars").DataFrame({name: X[:, j] for j, name in enumerate(NAMES)}),
    "pyarrow": lambda: library("pyarrow").table({name: X[:, j] for j, name in enumerate(NAMES)}),
    "xarray": lambda: library("xarray").DataArray(X, dims=["row", "column"], coords={"column": NAMES}),
}


@each("kind", AS_ARRAYS)
@each("name", MATRICES)
def test_inputs_of_matrices_lead_to_the_bits_of_arrays(name, kind):
    given = AS_ARRAYS[kind]()
    np.testing.assert_array_equal(MATRICES[name](given), of_arrays(name))


WITH_GAPS = {
    "masked": lambda gaps: np.ma.array(np.where(gaps, 1e9, X), mask=gaps),
    "masked whole numbers": lambda gaps: np.ma.array(np.where(gaps, 10**9, X).astype(int), mask=gaps),
    "Int64": lambda gaps: pd.DataFrame(X).astype("Int64").mask(gaps),
    "objects": lambda gaps: pd.DataFrame(X).astype(object).mask(gaps, None),
    "polars": lambda gaps: library("polars").DataFrame(
        {
            name: [None if hidden else item for hidden, item in zip(*pair, strict=True)]
            for name, *pair in zip(NAMES, gaps.T, X.T, strict=True)
        }
    ),
    "tensor": lambda gaps: tc.SparseTensor.from_dense(np.where(gaps, np.nan, X)),
}


@each("kind", WITH_GAPS)
@each("name", FACTORS)
def test_inputs_with_gaps_lead_to_the_bits_of_nan(name, kind):
    gaps = np.arange(X.size).reshape(X.shape) % 9 == 0
    np.testing.assert_array_equal(FACTORS[name](WITH_GAPS[kind](gaps)), FACTORS[name](np.where(gaps, np.nan, X)))


@each("kind", ["masked", "Int64", "polars"])
@each("name", POINTS)
def test_inputs_with_gaps_are_refused_where_none_are_allowed(name, kind):
    gaps = np.arange(X.size).reshape(X.shape) % 9 == 0
    with pytest.raises(ValueError, match="X must have no masked numbers|Input X contains NaN"):
        POINTS[name](WITH_GAPS[kind](gaps))


DATES = pd.date_range("2024-01-01", periods=N)


def order_three():
    try:
        return sparse.coo_array((np.ones(2), ([0, 1], [0, 1], [0, 1])))
    except (TypeError, ValueError):
        pytest.skip("this scipy has no coo_array of order 3")


REFUSED = {
    "text": (lambda: frame(b=["t"] * N), "column 'b' of (X|matrix 0) must hold numbers; got 't'"),
    "arrow text": (lambda: frame(b=pd.array(["t"] * N, dtype="string")), "column 'b' of .* must hold numbers; got 't'"),
    "times": (lambda: frame(b=DATES), "column 'b' of .* must hold numbers; got Timestamp"),
    "no times": (lambda: frame(b=DATES.where(DATES == "")), "column 'b' of .* must hold numbers; got NaT"),
    "lengths of time": (lambda: frame(b=DATES - DATES[0]), "column 'b' of .* must hold numbers; got Timedelta"),
    "columns by name": (lambda: {name: X[:, j] for j, name in enumerate(NAMES)}, r"pass pandas\.DataFrame\(X\)"),
    "records": (lambda: frame().to_dict("records"), r"got columns by name; pass pandas\.DataFrame\(X\)"),
    "fields": (lambda: frame().to_records(index=False), r"got columns by name; pass pandas\.DataFrame\(X\)"),
    "lazy": (lambda: library("polars").LazyFrame({"a": X[:, 0]}), r"pass X\.collect\(\)"),
    "dataset": (
        lambda: library("xarray").Dataset({name: ("row", X[:, j]) for j, name in enumerate(NAMES)}),
        r"got a Dataset of xarray; pass one of its arrays, or X\.to_dataframe\(\)",
    ),
    "pydata": (
        lambda: library("sparse").COO.from_numpy(X),
        r"pass SparseTensor\.from_sparse\(X\) if .* X\.todense\(\)",
    ),
    "order 3": (order_three, "a matrix must have 2 dimensions; got 3|dense data is required|Got 3D"),
}


@each("kind", REFUSED)
@each("name", MATRICES)
def test_inputs_that_are_no_matrices_are_refused_with_what_to_call(name, kind):
    make, words = REFUSED[kind]
    given = make()
    with pytest.raises((TypeError, ValueError), match=words):
        MATRICES[name](given)


SOME = np.where(np.arange(X.size).reshape(X.shape) % 3 == 0, 0.0, X)


@functools.cache
def of_stored(name):
    """What an estimator makes of a sparse matrix, nearly that of the array."""
    found, dense = (
        MATRICES[name](sparse.csr_array(SOME)),
        SOME if name in POINTS else np.where(SOME == 0.0, np.nan, SOME),
    )
    np.testing.assert_allclose(found, MATRICES[name](dense), rtol=1e-6)
    return found


@each("kind", SPARSE)
@each("name", [*FACTORS, "logistic", "probit", "bayes point"])
def test_inputs_of_every_sparse_class_lead_to_the_same_bits(name, kind):
    np.testing.assert_array_equal(MATRICES[name](getattr(sparse, kind)(SOME)), of_stored(name))


@each("name", FACTORS)
def test_inputs_stored_zeros_are_observed_and_cells_listed_twice_are_summed(name):
    some = X.copy()
    some[2, 1] = some[5, 3] = 0.0
    at = np.indices(X.shape).reshape(2, -1)
    stored = sparse.coo_array((some.ravel(), at), shape=X.shape)
    twice = sparse.coo_array((np.append(some.ravel() - 1.0, np.ones(X.size)), np.append(at, at, axis=1)), shape=X.shape)
    for given in (stored, stored.tocsr(), stored.tocsc(), twice):
        with pytest.warns(UserWarning, match="2 explicit zeros of the matrix are kept as observed entries"):
            np.testing.assert_allclose(FACTORS[name](given), FACTORS[name](some), rtol=1e-6)
    listed = tc.SparseTensor.from_dense(some)
    with pytest.warns(UserWarning, match="2 explicit zeros of the matrix are kept as observed entries"):
        again = tc.SparseTensor.from_scipy(twice)
    np.testing.assert_array_equal(again.to_dense(), listed.to_dense())


@each("kind", ["bsr_array", "dia_array"])
def test_inputs_zeros_that_fill_blocks_and_diagonals_up_are_no_cells(kind):
    given = getattr(sparse, kind)(SOME) if kind != "bsr_array" else sparse.bsr_array(SOME, blocksize=(2, 2))
    tensor = tc.SparseTensor.from_scipy(given)
    assert tensor.nnz == np.count_nonzero(SOME)
    np.testing.assert_array_equal(tensor.to_dense(0.0), SOME)


def test_inputs_labels_need_no_warning_of_zeros_and_absent_zeros_neither():
    labels = sparse.coo_array(((X > 0.0).astype(float).ravel(), np.indices(X.shape).reshape(2, -1)))
    one, other = (tc.BayesianPCA(1, "bernoulli", **QUICK).fit(given) for given in (labels, labels.toarray()))
    np.testing.assert_allclose(one.components_, other.components_, rtol=1e-6)
    tc.BayesianPCA(1, absent="zero", **QUICK).fit(labels)


def test_inputs_coo_arrays_of_any_order_are_tensors():
    given = order_three()
    tensor = tc.SparseTensor.from_scipy(given)
    assert tensor.shape == (2, 2, 2)
    assert tensor.coords.tolist() == [[0, 0, 0], [1, 1, 1]]
    with pytest.raises(TypeError, match=r"an array of two dimensions or more; got coo_array of shape \(2,\)"):
        tc.SparseTensor.from_scipy(sparse.coo_array((np.ones(2), ([0, 1],)), shape=(2,)))


TARGETS = {
    "Int64": lambda: pd.array(Y, dtype="Int64"),
    "arrow": lambda: pd.Series(Y, dtype="int64[pyarrow]") if library("pyarrow") else None,
    "category": lambda: pd.Categorical(Y, categories=[0, 1, 2]),
    "polars": lambda: library("polars").Series(Y),
    "chunks": lambda: library("pyarrow").chunked_array([Y[:3], Y[3:]]),
    "text": lambda: pd.array(Y.astype(str), dtype="string"),
    "booleans": lambda: pd.array(Y == 1, dtype="boolean"),
}
CLASSIFIERS = {
    "gp": lambda: tc.GaussianProcessClassifier(optimizer=None),
    "logistic": tc.BayesianLogisticRegression,
    "bayes point": tc.BayesPointMachine,
}


@each("kind", TARGETS)
@each("name", CLASSIFIERS)
def test_inputs_targets_of_other_kinds_are_those_of_arrays(name, kind):
    plain = {"text": Y.astype(str), "booleans": Y == 1}.get(kind, Y)
    model, same = CLASSIFIERS[name]().fit(X, TARGETS[kind]()), CLASSIFIERS[name]().fit(X, plain)
    np.testing.assert_array_equal(model.classes_, same.classes_)
    assert model.classes_.dtype.kind == same.classes_.dtype.kind or kind == "text"
    np.testing.assert_array_equal(model.predict_proba(X), same.predict_proba(X))


@each("model", [*CLASSIFIERS.values(), lambda: tc.GaussianProcessCountRegressor(optimizer=None, max_iter=20)])
def test_inputs_score_refuses_masked_targets_and_weights(model):
    fitted, masked = model().fit(X, Y), np.arange(N) == 3
    assert fitted.score(X, np.ma.array(Y), np.ones(N)) == fitted.score(X, Y)
    with pytest.raises(ValueError, match="y must have no masked numbers; got some, the first at entry 3"):
        fitted.score(X, np.ma.array(Y, mask=masked))
    with pytest.raises(ValueError, match="sample_weight must have no masked numbers"):
        fitted.score(X, Y, np.ma.array(np.ones(N), mask=masked))


ROW, COL = (part.ravel()[::2] for part in np.indices((8, 7)))
VALUES = np.round(4.0 * np.sin(ROW) * np.cos(COL)) / 4.0
TABLE = pd.DataFrame({"user": [f"u{n}" for n in ROW], "item": [f"i{n}" for n in COL], "y": VALUES})
CP = {"random_state": 0, "max_iter": 2, "method": "vmp", "prior": "fixed"}


def predicted(X, model=tc.CPRegressor, **given):
    fitted = model(1, **CP).fit(X, **given)
    return fitted.predict(TABLE[["user", "item"]] if fitted.labels_[0] is not None else np.stack([ROW, COL], axis=1))


TABLES = {
    "records": lambda: (TABLE.to_dict("records"), {"value": "y"}),
    "string": lambda: (TABLE.astype({"user": "string", "item": "string"}), {"value": "y"}),
    "nullable": lambda: (TABLE.convert_dtypes(), {"value": "y"}),
    "arrow": lambda: (library("pyarrow") and TABLE.convert_dtypes(dtype_backend="pyarrow"), {"value": "y"}),
    "category": lambda: (TABLE.astype({"user": "category"}), {"value": "y"}),
    "values of a category": lambda: (TABLE.astype({"y": "category"}), {"value": "y"}),
    "text of values": lambda: (TABLE.astype({"y": str}), {"value": "y"}),
    "polars": lambda: (library("polars").from_dicts(TABLE.to_dict("records")), {"value": "y"}),
    "polars and a series": lambda: (
        library("polars").from_dicts(TABLE[["user", "item"]].to_dict("records")),
        {"y": library("polars").Series(VALUES)},
    ),
    "pyarrow": lambda: (library("pyarrow").Table.from_pandas(TABLE), {"value": "y"}),
    "batch": lambda: (library("pyarrow").RecordBatch.from_pandas(TABLE), {"value": "y"}),
    "chunks": lambda: (TABLE[["user", "item"]], {"y": library("pyarrow").chunked_array([VALUES[:5], VALUES[5:]])}),
    "xarray": lambda: (library("xarray").DataArray.from_series(TABLE.set_index(["user", "item"])["y"]), {}),
    "reset index": lambda: (TABLE.set_index(["user", "item"]).reset_index(), {"value": "y"}),
    "melt": lambda: (
        TABLE.pivot(index="user", columns="item", values="y").reset_index().melt("user").dropna(),
        {"modes": ["user", "item"], "value": "value"},
    ),
    "mask without masked ones": lambda: (TABLE[["user", "item"]], {"y": np.ma.array(VALUES)}),
    "Float64": lambda: (TABLE[["user", "item"]], {"y": pd.array(VALUES, dtype="Float64")}),
}


@each("kind", TABLES)
def test_inputs_of_tables_lead_to_the_bits_of_a_frame(kind):
    X, given = TABLES[kind]()
    found = predicted(X, **given)
    if kind == "melt":  # whose lines have another order
        np.testing.assert_allclose(found, of_frame())
    else:
        np.testing.assert_array_equal(found, of_frame())


@functools.cache
def of_frame():
    return predicted(TABLE, value="y")


WIDE = TABLE.pivot(index="user", columns="item", values="y")
NO_TABLES = {
    "dataset": (lambda: library("xarray").Dataset({"y": ("u", VALUES)}), r"X\.to_dataframe\(\)\.reset_index\(\)"),
    "pydata": (lambda: library("sparse").COO.from_numpy(X), r"SparseTensor\.from_sparse\(X\), whose stored cells"),
    "dict": (lambda: TABLE.to_dict("list"), r"got columns by name; pass pandas\.DataFrame\(X\)"),
    "fields": (lambda: TABLE.to_records(index=False), r"got columns by name; pass pandas\.DataFrame\(X\)"),
    "lazy": (lambda: library("polars").LazyFrame({"user": ["a"]}), r"pass X\.collect\(\)"),
    "order 3": (order_three, r"pass SparseTensor\.from_scipy\(X\)"),
    "lists of labels": (lambda: [["u1", "i1"], ["u2", "i2"]], "must hold integers; got dtype <U2; use from_pandas"),
    "wide": (lambda: WIDE.reset_index().rename(columns={"i6": "y"}), "column 'i.' has . missing labels.* pandas.melt"),
    "levels": (lambda: TABLE.set_index(["user", "item"]), r"pass X\.reset_index\(\)"),
}


@each("kind", NO_TABLES)
def test_inputs_that_are_no_tables_are_refused_with_what_to_call(kind):
    make, words = NO_TABLES[kind]
    given = make()
    how = {"y": [1.0, 2.0]} if kind in ("lists of labels", "order 3") else {"value": "y"}
    with pytest.raises((TypeError, ValueError), match=words):
        tc.CPRegressor(1, **CP).fit(given, **how)
    if kind not in ("wide", "levels"):
        with pytest.raises((TypeError, ValueError), match=words):
            labelled().predict(given)


@functools.cache
def labelled():
    return tc.CPRegressor(1, **CP).fit(TABLE, value="y")


LINES = np.arange(len(TABLE))
ODD = {
    "Unnamed: 0": (LINES, "of 28 rows for 28 entries: it looks like an identifier, an index or a point of time"),
    "text": ([f"x{n}" for n in LINES], "looks like an identifier"),
    "timestamp": (
        1_600_000_000 + 3600 * (LINES // 2),
        "of 14 rows for 28 entries: it looks like points of time, in sec",
    ),
    "ms": (1_600_000_000_000.0 + 3600 * (LINES // 2), "looks like points of time"),
    "value": (np.linspace(0.1, 0.9, len(LINES)), r"values of a wide table \(pandas.melt\); name the modes by modes="),
}


@each("name", ODD)
def test_inputs_columns_that_look_like_no_modes_are_told(name):
    column, words = ODD[name]
    with pytest.warns(UserWarning, match=f"column '{name}' is taken as a mode .*{words}"):
        tc.CPRegressor(1, **CP).fit(TABLE.assign(**{name: column}), value="y")
    tc.CPRegressor(1, **CP).fit(TABLE.assign(**{name: column}), value="y", modes=["user", "item"])


def test_inputs_of_one_entry_a_row_are_fine_where_a_series_says_so():
    days = pd.date_range("2024-01-01", periods=len(TABLE))
    how = {**CP, "prior": {"day": tc.Series()}}
    model = tc.CPRegressor(1, **how).fit(TABLE[["user", "y"]].assign(day=days), value="y")
    assert model.shape_ == (8, 28)


def test_inputs_without_entries_have_an_empty_answer():
    model, rows = labelled(), tc.CPRegressor(1, **CP).fit(np.stack([ROW, COL], axis=1), VALUES)
    for nothing in ([], TABLE[["user", "item"]][:0], np.empty((0, 2))):
        assert rows.predict(nothing if isinstance(nothing, list) else np.empty((0, 2), dtype=int)).shape == (0,)
        assert model.predict(nothing).shape == (0,)
        assert model.predict_interval(nothing).shape == (0, 2)
    assert len(model.anomaly_score(TABLE[:0], value="y")) == 0
    with pytest.raises(ValueError, match="X must be an integer array of shape"):
        tc.CPRegressor(1, **CP).fit([], [])


@each("size", [1e-200, 1e-160, 1e150])
def test_inputs_whose_squares_are_no_numbers_are_refused(size):
    words = "must reach 1e-140 in size|must not exceed 1e\\+140 in size"
    for method in ("auto", "vmp", "cep", "wopt"):
        with pytest.raises(ValueError, match=f"y {words}"):
            tc.CPRegressor(1, method=method).fit(np.stack([ROW, COL], axis=1), size * VALUES)
    with pytest.raises(ValueError, match=f"y {words}"):
        tc.CPRegressor(1).partial_fit(np.stack([ROW, COL], axis=1), size * VALUES)
    for name, fit in FACTORS.items():
        with pytest.raises(ValueError, match=f"(X|matrix 0) {words}"):
            fit(size * X)
        assert name


def test_inputs_a_batch_or_new_rows_may_be_next_to_nothing():
    model = tc.CPRegressor(1, **CP).fit(np.stack([ROW, COL], axis=1), VALUES)
    model.partial_fit([[0, 1]], [1e-200])
    assert np.isfinite(tc.BayesianPCA(1, **QUICK).fit(X).transform(np.full((1, 4), 1e-200))).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_inputs_of_one_value_lead_to_no_word_of_numpy():
    rows = np.stack([np.random.default_rng(0).integers(0, n, 300) for n in (9, 8, 7)], axis=1)
    model = tc.CPRegressor(2, random_state=0).fit(rows, np.full(300, 3.0))
    np.testing.assert_allclose(model.predict(rows), 3.0)
    assert model.summary()
    assert (model.variance_explained(rows, np.full(300, 3.0))["cumulative"] <= 1.0).all()
