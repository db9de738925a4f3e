"""SparseTensor: validation, conversion, splitting and sampling."""

from __future__ import annotations

import copy
import math
import pickle
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from helpers.cases import each
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tensorcep.core.reporting import Summary
from tensorcep.entries.coo import linear_index
from tensorcep.entries.labels import Labels
from tensorcep.entries.sparse_tensor import SparseTensor

COORDS = [[0, 1, 2], [3, 0, 0], [1, 1, 1], [0, 0, 0]]
VALUES = [1.5, -2.0, 0.0, 4.0]
QUICK = settings(deadline=None, max_examples=60)  # no deadline: the first call imports scikit-learn
HUGE = (2**40, 2**40, 2**40)  # more cells than 64 bits can number


def make(shape: Any = (4, 2, 3), **options: Any) -> SparseTensor:
    return SparseTensor.from_coo(COORDS, VALUES, shape, **options)


def cells(tensor: SparseTensor) -> set[tuple[int, ...]]:
    return set(map(tuple, tensor.coords.tolist()))


def as_dict(tensor: SparseTensor) -> dict[tuple[int, ...], float]:
    return dict(zip(map(tuple, tensor.coords.tolist()), tensor.values.tolist(), strict=True))


@st.composite
def tensors(draw: Any, min_entries: int = 1) -> SparseTensor:
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=2, max_size=4)))
    total = math.prod(shape)
    ids = draw(st.lists(st.integers(0, total - 1), unique=True, min_size=min(min_entries, total), max_size=40))
    floats = st.floats(allow_nan=False, allow_infinity=False)
    values = draw(st.lists(floats, min_size=len(ids), max_size=len(ids)))
    coords = np.stack(np.unravel_index(np.array(ids, dtype=np.int64), shape), axis=1)
    return SparseTensor(coords, np.array(values), shape)  # type: ignore[arg-type]


def test_tensor_holds_int64_coords_and_float64_values() -> None:
    tensor = SparseTensor.from_coo(np.asfortranarray(np.array(COORDS, dtype=np.uint8)), np.array([1, 2, 3, 4]))
    assert tensor.coords.dtype == np.int64
    assert tensor.coords.flags.c_contiguous
    assert tensor.values.dtype == np.float64
    assert tensor.shape == (4, 2, 3)
    assert (len(tensor), tensor.order, tensor.nnz) == (4, 3, 4)
    assert tensor.density == pytest.approx(4 / 24)


def test_tensor_is_frozen() -> None:
    with pytest.raises(AttributeError):
        make().shape = (9, 9, 9)  # type: ignore[misc]


def test_tensor_repr_says_shape_entries_density_and_labels() -> None:
    assert repr(make()) == "<SparseTensor 4 x 2 x 3, 4 entries, density 16.7 %>"
    labelled = make(labels=[Labels(["wxyz", *list("abc")], name="user"), None, ["p", "q", "r"]])
    assert repr(labelled) == "<SparseTensor 4 x 2 x 3, 4 entries, density 16.7 %, labels of user, 2>"


def test_tensor_survives_pickle_and_deepcopy() -> None:
    tensor = make(labels=[None, ["a", "b"], None])
    for twin in (pickle.loads(pickle.dumps(tensor)), copy.deepcopy(tensor)):
        assert as_dict(twin) == as_dict(tensor)
        assert twin.labels == tensor.labels


@each(
    ("coords", "values", "shape", "message"),
    [
        ([[0, 1], [1, 0]], [1.0, np.nan], None, r"values must be finite; got nan at entry 1 \(1 such in all\)"),
        ([[0, 1], [1, 0]], [np.inf, np.nan], None, r"values must be finite; got inf at entry 0 \(2 such in all\)"),
        ([[0, 1], [1, -3]], [1, 2], None, r"coords must be >= 0; got -3 at entry 1, mode 1 \(indices count from 0\)"),
        ([[0, 1], [1, 0.5]], [1, 2], None, "coords must hold integers; got 0.5 at entry 1, mode 1"),
        ([[0, 1], [np.nan, 0]], [1, 2], None, "coords must hold integers; got nan at entry 1, mode 0"),
        ([[0, 1], [1, 5]], [1, 2], (2, 5), r"coords must be below the shape \(2, 5\); got 5 at entry 1, mode 1"),
        (np.array([[0, 2**63]], dtype=np.uint64), [1], None, r"coords must be below 2\*\*63"),
        ([[0, 1]], [1, 2], None, "values must hold one number for each of the 1 entries; got 2"),
        ([[0, 1]], [[1.0]], None, r"values must be one-dimensional, one number per entry; got shape \(1, 1\)"),
        ([0, 1], [1, 2], None, "coords must be an integer array of shape"),
        ([[0], [1]], [1, 2], None, "coords must be an integer array of shape .* two modes or more"),
        ([[0, 1]], [1], (2, 2, 2), "shape must have 2 modes like the entries; got 3"),
        ([[0, 1]], [1], (2, 0), r"shape must hold one integer >= 1 .*; got \(2, 0\)"),
        ([[0, 1]], [1], 7, "shape must hold one integer >= 1 .*; got 7"),
    ],
)
def test_tensor_refuses_bad_entries(coords: Any, values: Any, shape: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SparseTensor.from_coo(coords, values, shape)


@each(
    ("coords", "values", "message"),
    [
        ([["a", "b"]], [1], "coords must hold integers; got dtype <U1; use from_pandas for labels"),
        ([[True, False]], [1], "coords must hold integers; got dtype bool"),
        ([[0, 1]], ["x"], "values must hold real numbers; got dtype <U1"),
        ([[0, 1]], [1 + 2j], "values must hold real numbers; got dtype complex128"),
        (
            [[0, 1]],
            np.array(["2024-01-01"], dtype="datetime64[D]"),
            "values must hold real numbers; got dtype datetime64",
        ),
    ],
)
def test_tensor_refuses_bad_types(coords: Any, values: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        SparseTensor.from_coo(coords, values)


def test_tensor_may_be_empty() -> None:
    tensor = SparseTensor.from_coo(np.empty((0, 3), dtype=np.int64), [], (2, 3, 4))
    assert (len(tensor), tensor.density) == (0, 0.0)
    assert "0 entries" in repr(tensor)
    assert [empty.size for empty in tensor.info().empty_rows] == [2, 3, 4]


def test_tensor_labels_must_be_as_many_as_rows() -> None:
    with pytest.raises(ValueError, match="labels of mode 1 must be as many as its 2 rows; got 3"):
        make(labels=[None, ["a", "b", "c"], None])
    with pytest.raises(ValueError, match="labels must have exactly 3 modes"):
        make(labels=[None, None])


@each(
    ("policy", "expected"),
    [
        ("mean", {(5, 5): 2.0, (0, 1): 4.0, (2, 2): 7.0}),
        ("sum", {(5, 5): 2.0, (0, 1): 12.0, (2, 2): 7.0}),
        ("last", {(5, 5): 2.0, (0, 1): 8.0, (2, 2): 7.0}),
    ],
)
@each("shape", [(6, 6), (2**40, 2**40)])
def test_tensor_duplicates_policies_merge(shape: Any, policy: str, expected: dict[Any, float]) -> None:
    coords, values = [[5, 5], [0, 1], [2, 2], [0, 1], [0, 1]], [2.0, 1.0, 7.0, 3.0, 8.0]
    tensor = SparseTensor.from_coo(coords, values, shape, duplicates=policy)
    assert as_dict(tensor) == expected
    assert tensor.coords.tolist() == [[5, 5], [0, 1], [2, 2]]


@pytest.mark.parametrize("shape", [(6, 6), (2**40, 2**40)])
def test_tensor_duplicates_error_names_the_first_and_the_count(shape: Any) -> None:
    coords = [[5, 5], [0, 1], [2, 2], [5, 5], [0, 1], [0, 1]]
    message = r"the cell \(5, 5\) \(indices from 0\) occurs more than once, first at entries 0 and 3, and 3 entries"
    with pytest.raises(ValueError, match=message):
        SparseTensor.from_coo(coords, np.arange(6.0), shape)


def test_tensor_unknown_duplicates_policy_lists_the_known() -> None:
    with pytest.raises(ValueError, match="duplicates must be one of 'error', 'mean', 'sum', 'last'; got 'first'"):
        make(duplicates="first")


def test_coo_linear_index_is_row_major_or_none_beyond_64_bits() -> None:
    coords = np.array(COORDS)
    np.testing.assert_array_equal(linear_index(coords, (4, 2, 3)), np.ravel_multi_index(tuple(coords.T), (4, 2, 3)))
    assert linear_index(coords, HUGE) is None


def test_tensor_from_pandas_keeps_labels_of_any_dtype() -> None:
    df = pd.DataFrame(
        {
            "user": ["zoe", "al", "al"],
            "day": pd.to_datetime(["2024-05-02", "2024-05-01", "2024-05-02"]),
            "item": [900, 17, 17],
            "y": [1, 0, 1],
        }
    )
    tensor = SparseTensor.from_pandas(df, modes=["user", "day", "item"])
    assert tensor.shape == (2, 2, 2)
    assert [list(found) for found in tensor.labels if found] == [
        ["al", "zoe"],
        list(pd.to_datetime(["2024-05-01", "2024-05-02"])),
        [17, 900],
    ]
    pd.testing.assert_frame_equal(tensor.to_pandas(), df.astype({"y": float}))


def test_tensor_from_pandas_with_known_labels_keeps_rows_and_appends() -> None:
    train = SparseTensor.from_pandas(pd.DataFrame({"u": ["b", "a"], "v": [1, 2], "y": [0.0, 1.0]}), ["u", "v"])
    later = pd.DataFrame({"u": ["c", "b"], "v": [2, 2], "y": [5.0, 6.0]})
    tensor = SparseTensor.from_pandas(later, ["u", "v"], labels=train.labels)
    assert tensor.shape == (3, 2)
    assert as_dict(tensor) == {(2, 1): 5.0, (1, 1): 6.0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"modes": ["u", "w"]}, "the DataFrame has no column 'w'; it has 'u', 'v', 'y'"),
        ({"modes": ["u", "v"], "value": "z"}, "the DataFrame has no column 'z'"),
        ({"modes": ["u"]}, r"modes must name at least two modes; got \['u'\]"),
    ],
)
def test_tensor_from_pandas_refuses_bad_columns(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SparseTensor.from_pandas(pd.DataFrame({"u": [1], "v": [2], "y": [3]}), **options)


def test_tensor_to_pandas_refuses_a_name_used_twice() -> None:
    with pytest.raises(ValueError, match="column names must be distinct"):
        make().to_pandas(modes=["a", "b", "y"])


@pytest.mark.parametrize("kind", ["csr_matrix", "coo_array", "dok_array"])
def test_tensor_scipy_round_trip(kind: str) -> None:
    dense = np.array([[0, 2.0, 0], [1.0, 0, 3.0]])
    tensor = SparseTensor.from_scipy(getattr(scipy.sparse, kind)(dense))
    assert as_dict(tensor) == {(0, 1): 2.0, (1, 0): 1.0, (1, 2): 3.0}
    np.testing.assert_array_equal(tensor.to_scipy().toarray(), dense)


def test_tensor_from_scipy_warns_that_explicit_zeros_are_observed() -> None:
    matrix = scipy.sparse.coo_array(([0.0, 1.0], ([0, 1], [1, 0])), shape=(2, 2))
    with pytest.warns(UserWarning, match="1 explicit zeros of the matrix are kept as observed"):
        tensor = SparseTensor.from_scipy(matrix)
    assert as_dict(tensor) == {(0, 1): 0.0, (1, 0): 1.0}
    assert tensor.to_scipy().nnz == 2


def test_tensor_scipy_is_for_order_two() -> None:
    with pytest.raises(ValueError, match="to_scipy takes exactly 2 modes"):
        make().to_scipy()
    with pytest.raises(TypeError, match=r"from_scipy takes a scipy\.sparse matrix, .* got ndarray"):
        SparseTensor.from_scipy(np.eye(2))


def test_tensor_dense_nan_is_unobserved() -> None:
    dense = np.array([[1.0, np.nan], [0.0, 2.0], [np.nan, np.nan]])
    tensor = SparseTensor.from_dense(dense, labels=[["a", "b", "c"], None])
    assert as_dict(tensor) == {(0, 0): 1.0, (1, 0): 0.0, (1, 1): 2.0}
    assert tensor.shape == (3, 2)
    np.testing.assert_array_equal(tensor.to_dense(), dense)
    assert tensor.to_dense(fill=-1)[2, 1] == -1


def test_tensor_dense_mask_says_what_is_observed() -> None:
    dense = np.arange(6.0).reshape(2, 3)
    mask = np.array([[1, 0, 0], [0, 1, 1]])
    assert as_dict(SparseTensor.from_dense(dense, mask)) == {(0, 0): 0.0, (1, 1): 4.0, (1, 2): 5.0}
    with pytest.raises(ValueError, match="values must be finite; got nan at entry 0"):
        SparseTensor.from_dense(np.full((2, 3), np.nan), mask)
    with pytest.raises(ValueError, match=r"mask must have the shape of the array, \(2, 3\); got \(2, 2\)"):
        SparseTensor.from_dense(dense, np.ones((2, 2)))
    with pytest.raises(ValueError, match="mask must hold only True"):
        SparseTensor.from_dense(dense, 2 * mask)


def test_tensor_tensorly_round_trip_and_cp(rng: np.random.Generator) -> None:
    tensorly = pytest.importorskip("tensorly")
    from tensorly.cp_tensor import CPTensor

    tensor = make()
    dense, mask = tensor.to_tensorly()
    assert as_dict(SparseTensor.from_tensorly(tensorly.tensor(dense), mask)) == as_dict(tensor)
    factors = [rng.normal(size=(n, 2)) for n in (4, 2, 3)]
    cp = CPTensor((np.array([2.0, -1.0]), factors))
    np.testing.assert_allclose(SparseTensor.from_tensorly(cp).to_dense(), tensorly.cp_to_tensor(cp), rtol=1e-12)
    some = SparseTensor.from_tensorly(cp, coords=COORDS)
    np.testing.assert_allclose(some.values, tensorly.cp_to_tensor(cp)[tuple(np.array(COORDS).T)], rtol=1e-12)
    with pytest.raises(ValueError, match="mask is only for a dense tensor"):
        SparseTensor.from_tensorly(cp, mask)
    with pytest.raises(ValueError, match="coords must be below the shape"):
        SparseTensor.from_tensorly(cp, coords=[[9, 0, 0]])


def test_tensor_pydata_sparse_round_trip() -> None:
    pytest.importorskip("sparse")
    tensor = make()
    array = tensor.to_sparse()
    assert np.isnan(array.fill_value)
    np.testing.assert_array_equal(array.todense(), tensor.to_dense())
    assert as_dict(SparseTensor.from_sparse(array)) == as_dict(tensor)
    assert as_dict(SparseTensor.from_sparse(array.asformat("gcxs"))) == as_dict(tensor)
    with pytest.raises(TypeError, match="from_sparse takes a pydata/sparse array; got list"):
        SparseTensor.from_sparse([1, 2])


def test_tensor_to_sparse_without_the_library_says_how_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sparse", None)
    with pytest.raises(ImportError, match="to_sparse needs sparse, which is not installed; pip install sparse"):
        make().to_sparse()


def test_tensor_select_takes_a_mask_or_positions() -> None:
    tensor = make(labels=[None, ["a", "b"], None])
    chosen = tensor.select(tensor.values > 0)
    assert as_dict(chosen) == {(0, 1, 2): 1.5, (0, 0, 0): 4.0}
    assert chosen.labels == tensor.labels
    assert tensor.select([2, 0]).values.tolist() == [0.0, 1.5]
    with pytest.raises(ValueError, match="where must hold one bool for each of the 4 entries"):
        tensor.select([True])
    with pytest.raises(ValueError, match=r"where must hold positions in 0\.\.3; got 0 to 4"):
        tensor.select([0, 4])
    with pytest.raises(ValueError, match="where must hold distinct positions"):
        tensor.select([1, 1])


def test_tensor_concatenate_joins_entries_under_a_policy() -> None:
    first, second = make(), SparseTensor.from_coo([[3, 1, 2], [1, 1, 1]], [7.0, 8.0], (4, 2, 3))
    with pytest.raises(ValueError, match=r"the cell \(1, 1, 1\)"):
        first.concatenate(second)
    assert as_dict(first.concatenate(second, duplicates="sum")) == {**as_dict(first), (3, 1, 2): 7.0, (1, 1, 1): 8.0}
    with pytest.raises(ValueError, match="tensors must have the same shape"):
        first.concatenate(make((4, 2, 4)))
    with pytest.raises(ValueError, match="tensors must have the same labels"):
        first.concatenate(make(labels=[None, ["a", "b"], None]).select([0]))


@QUICK
@given(tensors(min_entries=3), st.integers(0, 2**32 - 1))
def test_tensor_train_test_split_is_a_partition(tensor: SparseTensor, seed: int) -> None:
    assume(len(tensor) >= 3)
    train, test = tensor.train_test_split(0.4, seed)
    assert len(test) == math.ceil(0.4 * len(tensor))
    assert not cells(train) & cells(test)
    assert {**as_dict(train), **as_dict(test)} == as_dict(tensor)


@QUICK
@given(tensors(min_entries=3), st.integers(0, 2**32 - 1))
def test_tensor_kfold_tests_every_entry_once(tensor: SparseTensor, seed: int) -> None:
    assume(len(tensor) >= 3)
    folds = list(tensor.kfold(3, seed))
    assert sorted(cell for _, test in folds for cell in cells(test)) == sorted(cells(tensor))
    assert all({**as_dict(train), **as_dict(test)} == as_dict(tensor) for train, test in folds)
    assert all(len(train) + len(test) == len(tensor) for train, test in folds)


@pytest.mark.parametrize("make_seed", [lambda: 3, lambda: np.random.RandomState(3), lambda: np.random.default_rng(3)])
def test_tensor_random_choices_repeat_with_the_seed(make_seed: Any) -> None:
    tensor = SparseTensor.from_dense(np.arange(40.0).reshape(5, 8)).select(np.arange(30))
    for draw in (
        lambda seed: tensor.train_test_split(0.5, seed)[1],
        lambda seed: next(iter(tensor.kfold(3, seed)))[1],
        lambda seed: next(iter(tensor.minibatches(7, seed))),
        lambda seed: tensor.sample_zeros(5, random_state=seed),
    ):
        assert as_dict(draw(make_seed())) == as_dict(draw(make_seed()))
        assert as_dict(draw(make_seed())) != as_dict(draw(4))


@QUICK
@given(tensors(), st.integers(1, 12), st.booleans())
def test_tensor_minibatches_cover_every_entry_once(tensor: SparseTensor, size: int, shuffle: bool) -> None:
    batches = list(tensor.minibatches(size, random_state=0, shuffle=shuffle))
    assert [len(batch) for batch in batches[:-1]] == [size] * (len(batches) - 1)
    joined = np.concatenate([batch.coords for batch in batches])
    assert sorted(joined.tolist()) == sorted(tensor.coords.tolist())
    if not shuffle:
        np.testing.assert_array_equal(joined, tensor.coords)


@QUICK
@given(tensors(), st.integers(0, 2**32 - 1), st.data())
def test_tensor_sample_zeros_never_hits_observed_or_excluded(tensor: SparseTensor, seed: int, data: Any) -> None:
    others = np.argwhere(np.isnan(tensor.to_dense()))
    exclude = others[data.draw(st.integers(0, len(others))) :]
    free = len(others) - len(exclude)
    n = data.draw(st.integers(0, free))
    zeros = tensor.sample_zeros(n, exclude=exclude, random_state=seed)
    assert len(cells(zeros)) == len(zeros) == n
    assert not cells(zeros) & (cells(tensor) | set(map(tuple, exclude.tolist())))
    assert zeros.shape == tensor.shape
    assert (zeros.values == 0).all()
    with pytest.raises(ValueError, match=f"n must be at most the {free} free cells .*; got {free + 1}"):
        tensor.sample_zeros(free + 1, exclude=exclude, random_state=seed)


def test_tensor_sample_zeros_is_uniform_over_the_free_cells() -> None:
    tensor = SparseTensor.from_coo([[0, 0], [1, 2], [2, 3]], [1.0, 1.0, 1.0], (3, 4))
    rng = np.random.default_rng(5)
    draws, n = 3000, 4
    counts = np.zeros((3, 4))
    for _ in range(draws):
        counts[tuple(tensor.sample_zeros(n, random_state=rng).coords.T)] += 1
    p = n / 9
    free = counts[np.isnan(tensor.to_dense())]
    assert counts.sum() == free.sum() == draws * n
    assert np.abs(free - draws * p).max() < 6 * math.sqrt(draws * p * (1 - p))


@pytest.mark.parametrize("shape", [(2**31, 2**32 - 1), HUGE, (2**62, 3)])
def test_tensor_sample_zeros_serves_huge_shapes(shape: tuple[int, ...]) -> None:
    tensor = SparseTensor.from_coo([[0] * len(shape), [1] * len(shape)], [1.0, 2.0], shape)
    zeros = tensor.sample_zeros(2000, exclude=tensor, random_state=0)
    assert len(cells(zeros)) == 2000
    assert not cells(zeros) & cells(tensor)
    assert (zeros.coords >= 0).all()
    assert (zeros.coords < np.array(shape)).all()
    middle = np.array(shape, dtype=float) / 2
    assert np.abs((zeros.coords > middle)[:, 0].mean() - 0.5) < 6 * 0.5 / math.sqrt(2000)


def test_tensor_sample_zeros_rejection_drops_taken_cells() -> None:
    from tensorcep.entries.coo import _reject_taken

    taken = np.argwhere(np.ones((3, 4)))[:10].astype(np.int64)
    found = _reject_taken(2, taken, (3, 4), np.random.default_rng(0))
    assert sorted(map(tuple, found.tolist())) == [(2, 2), (2, 3)]


def test_tensor_sample_zeros_excludes_several_tensors() -> None:
    tensor = SparseTensor.from_dense([[1.0, np.nan], [np.nan, np.nan]])
    test = SparseTensor.from_coo([[0, 1]], [1.0], (2, 2))
    held = SparseTensor.from_coo([[1, 0]], [1.0], (2, 2))
    assert cells(tensor.sample_zeros(1, exclude=[test, held])) == {(1, 1)}
    with pytest.raises(ValueError, match="exclude must have 2 columns"):
        tensor.sample_zeros(1, exclude=[[0, 1, 1]])
    with pytest.raises(ValueError, match="n must be an integer >= 0; got -1"):
        tensor.sample_zeros(-1)


def test_tensor_info_counts_rows_and_reads_well() -> None:
    tensor = make((4, 2, 4), labels=[Labels(["a", "b", "c", "d"], name="user"), None, None])
    info = tensor.info()
    assert [count.tolist() for count in info.counts] == [[2, 1, 0, 1], [2, 2], [2, 1, 1, 0]]
    assert [empty.tolist() for empty in info.empty_rows] == [[2], [], [3]]
    assert (info.value_min, info.value_max, info.value_mean) == (-2.0, 4.0, pytest.approx(0.875))
    text = str(info).splitlines()
    assert text[1] == "entries  4 (density 12.5 %)"
    assert text[3] == "mode 0 (user): 4 rows, entries per row min 0, median 1, max 2; 1 empty"


@QUICK
@given(tensors())
def test_tensor_pandas_round_trip_keeps_cells_and_values(tensor: SparseTensor) -> None:
    frame = tensor.to_pandas()
    again = SparseTensor.from_pandas(frame, [f"mode_{k}" for k in range(tensor.order)])
    pd.testing.assert_frame_equal(again.to_pandas(), frame)


@QUICK
@given(tensors())
def test_tensor_dense_round_trip_keeps_cells_and_values(tensor: SparseTensor) -> None:
    assert as_dict(SparseTensor.from_dense(tensor.to_dense())) == as_dict(tensor)


def test_tensor_sample_zeros_knows_its_rate_and_choices_keep_it() -> None:
    ones = SparseTensor.from_coo([[0, 0], [1, 2], [2, 1]], [1.0, 1.0, 1.0], (4, 5))
    held = SparseTensor.from_coo([[3, 3]], [1.0], (4, 5))
    zeros = ones.sample_zeros(4, exclude=held, random_state=0)
    assert ones.zero_rate == 1.0
    assert zeros.zero_rate == 4 / 16
    both = ones.concatenate(zeros)
    assert both.zero_rate == zeros.concatenate(ones).zero_rate == 4 / 16
    for part in (*both.train_test_split(0.5, 0), *both.minibatches(3, 0), both.select([0, 6])):
        assert part.zero_rate == 4 / 16
    assert ones.concatenate(ones.select([]), held).zero_rate == 1.0


def test_tensor_knows_which_zeros_were_sampled() -> None:
    some = SparseTensor.from_coo([[0, 0], [1, 2], [2, 1]], [1.0, 0.0, 1.0], (4, 5))
    assert some.sampled is None
    both = some.with_zeros(4, random_state=0)
    assert both.sampled is not None
    assert both.sampled.tolist() == [False] * 3 + [True] * 4
    assert both.select([5, 1]).sampled.tolist() == [True, False]  # type: ignore[union-attr]
    again = SparseTensor.from_coo(both.coords[4:5], [2.0], (4, 5))
    assert both.concatenate(again, duplicates="sum").sampled.tolist() == [False] * 3 + [True, False, True, True]  # type: ignore[union-attr]
    with pytest.raises(ValueError, match=r"sampled must be a boolean array of shape \(1,\); got int64 of shape \(2,\)"):
        SparseTensor([[0, 0]], [0.0], sampled=[0, 1])
    with pytest.raises(ValueError, match="got entry 0, whose value is 2; leave it out"):
        SparseTensor([[0, 0]], [2.0], sampled=[True])


def test_tensor_zeros_of_two_rates_have_no_one_rate() -> None:
    ones = SparseTensor.from_coo([[0, 0]], [1.0], (4, 5))
    zeros = ones.sample_zeros(4, random_state=0)
    others = ones.sample_zeros(5, exclude=zeros, random_state=0)
    assert ones.concatenate(zeros, others).zero_rate is None
    with pytest.raises(ValueError, match=r"zero_rate must be a number in \(0, 1\]; got 2"):
        SparseTensor([[0, 0]], [0.0], zero_rate=2.0)


def test_what_is_printed_of_names_and_labels_commands_no_terminal():
    odd = "ä\x1b]0;pwn\x07\u202e"
    tensor = make(labels=[Labels(["wxyz", *list("abc")], name=odd), None, None])
    table = pd.DataFrame({"label": [odd, "b"], odd: [1.0, 2.0]})
    for text in (repr(tensor), str(tensor.info()), str(Summary(odd, {odd: odd}, {odd: table}))):
        assert "ä\\x1b]0;pwn\\x07\\u202e" in text
        assert all(line.isprintable() for line in text.split("\n"))
    page = Summary(odd, {odd: f"<b>{odd}"}, {f"<i>{odd}": table}).to_html()
    assert "ä\\x1b]0;pwn\\x07\\u202e" in page
    assert not any(tag in page for tag in ("<b>", "<i>"))
    assert all(line.isprintable() for line in page.split("\n"))
