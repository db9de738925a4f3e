"""Matrices of other libraries: small stand-ins for those that need not be installed."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from scipy import sparse

import tensorcep as tc
from tensorcep.cp.inputs.coordinates import coords_to_predict
from tensorcep.entries.tables import as_frame, as_matrix, as_views

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def stand_in(library, **attributes):
    """An object whose class says that it is of a library."""
    cls = type("Thing", (), {"__module__": f"{library}._core"})
    thing = cls()
    vars(thing).update(attributes)
    return thing


def anndata(frame, stored=np.asarray):
    return stand_in("anndata", X=stored(frame), obs_names=frame.index, var_names=frame.columns)


def frame(rng, n=30, d=5, name="g"):
    return pd.DataFrame(rng.normal(size=(n, d)), [f"s{i}" for i in range(n)]).add_prefix(name)


@pytest.mark.parametrize("stored", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
def test_anndata_keeps_its_names(stored, rng):
    table = frame(rng)
    table.iloc[3, 2] = 0.0
    pd.testing.assert_frame_equal(as_matrix(anndata(table, stored)), table)
    model, plain = (tc.BayesianPCA(2, random_state=0).fit(X) for X in (anndata(table, stored), table))
    np.testing.assert_array_equal(model.components_, plain.components_)
    assert model.scores_frame()["row"].tolist()[:2] == ["s0", "s1"]
    assert model.components()["feature"].tolist()[:2] == ["g0", "g1"]
    np.testing.assert_array_equal(model.transform(anndata(table[:4], stored)), plain.transform(table[:4]))


def test_modalities_of_a_mudata_are_views_of_all_rows(rng):
    rna, atac = frame(rng), frame(rng, d=4, name="peak")[5:]
    data = stand_in("mudata", mod={"rna": anndata(rna), "atac": anndata(atac)}, obs_names=rna.index)
    views = as_views(data)
    assert list(views) == ["rna", "atac"]
    assert views["atac"].shape == (30, 4)
    assert views["atac"][:5].isna().all(axis=None)
    model = tc.GroupFactorAnalysis(2, random_state=0, max_iter=20).fit(data)
    assert model.matrix_names_ == ["rna", "atac"]
    assert set(model.components("atac")["feature"]) == set(atac.columns)
    assert model.transform(data).shape == (30, 2)
    assert tc.BayesianCCA(2, random_state=0, max_iter=20).fit(data).matrix_names_ == ["rna", "atac"]
    assert as_views(views) is views


def test_xarray_and_polars_matrices_are_frames(rng):
    xarray = pytest.importorskip("xarray")
    table = frame(rng)
    coords = {"sample": table.index, "gene": table.columns}
    array = xarray.DataArray(table.to_numpy(), dims=["sample", "gene"], coords=coords)
    model = tc.BayesianPCA(2, random_state=0).fit(array)
    assert model.components()["feature"].tolist()[:2] == ["g0", "g1"]
    with pytest.raises(ValueError, match="a matrix must have 2 dimensions; got 1"):
        as_matrix(array[0])
    columns = {name: table[name] for name in table}
    polars = type("Frame", (dict,), {"__module__": "polars.dataframe", "columns": list(columns)})(columns)
    np.testing.assert_array_equal(as_matrix(polars), table)


def test_polars_tables_and_xarray_arrays_are_entries(rng):
    long = pd.DataFrame({"user": rng.integers(8, size=60), "item": rng.integers(9, size=60)}).drop_duplicates()
    long = long.assign(stars=rng.normal(size=len(long)))
    columns = {name: long[name] for name in long}
    polars = type("Frame", (dict,), {"__module__": "polars.dataframe", "columns": list(columns)})(columns)
    how = {"method": "vmp", "max_iter": 5, "random_state": 0, "prior": "fixed"}
    model = tc.CPRegressor(1, **how).fit(polars, value="stars")
    assert model.n_samples_seen_ == len(long)
    np.testing.assert_array_equal(model.predict(polars), model.predict(long))
    with pytest.raises(ValueError, match="there is none of 'item', only 'user', 'film', 'stars'"):
        model.predict(long.rename(columns={"item": "film"}))
    xarray = pytest.importorskip("xarray")
    array = xarray.DataArray(rng.normal(size=(4, 5)), dims=["dose", "time"])
    assert tc.CPRegressor(1, **how).fit(array).n_samples_seen_ == 20


def _lazy():
    return type("LazyFrame", (), {"__module__": "polars.lazyframe.frame", "columns": ["a"], "collect": None})()


INDEXED = pd.DataFrame({"u": ["a", "b"], "i": ["c", "d"], "y": [1.0, 2.0]}).set_index(["u", "i"])
NOT_READ = {
    "lazy": (_lazy(), TypeError, "got a LazyFrame of polars; pass X.collect()"),
    "scipy": (sparse.csr_matrix(np.eye(3)), TypeError, "got a csr_matrix; pass SparseTensor.from_scipy"),
    "indexed": (INDEXED, ValueError, "a DataFrame with the levels 'u', 'i' in its index; pass X.reset_index"),
    "series": (INDEXED["y"], TypeError, "a Series with the levels 'u', 'i' in its index; pass X.reset_index"),
}


@each("what", NOT_READ)
def test_what_is_no_table_of_entries_is_refused_with_what_to_call(what):
    X, error, words = NOT_READ[what]
    labels = tc.Labels(["a", "b"], name="u"), tc.Labels(["c", "d"], name="i")
    for call in (
        lambda: tc.CPRegressor().fit(X),
        lambda: tc.CPRegressor().fit(X, value="y"),
        lambda: tc.CPRegressor().fit(X, [1.0, 2.0]),
        lambda: tc.CPRegressor().partial_fit(X, [1.0, 2.0]),
        lambda: coords_to_predict(X, labels),
    ):
        with pytest.raises(error, match=words):
            call()


def test_lazy_frames_are_no_matrices():
    with pytest.raises(TypeError, match="pass X.collect"):
        as_matrix(_lazy())


def test_tables_of_pyarrow_are_entries_and_matrices():
    pa = pytest.importorskip("pyarrow")
    frame = INDEXED.reset_index()
    table = pa.Table.from_pandas(frame, preserve_index=False)
    pd.testing.assert_frame_equal(as_frame(table), frame)
    labels = tc.Labels(["a", "b"], name="u"), tc.Labels(["c", "d"], name="i")
    assert coords_to_predict(table, labels).tolist() == [[0, 0], [1, 1]]
    gaps = as_matrix(pa.table({"a": [1, 2], "b": [None, 3.5]}))
    np.testing.assert_array_equal(gaps, [[1.0, np.nan], [2.0, 3.5]])
