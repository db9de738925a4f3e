"""Records as trees and back: types and shapes are those that the fields declare."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest
from helpers.cases import each
from scipy import sparse

from tensorcep.core.persist.models import StoredModel, fitted_record, open_model, write_model
from tensorcep.core.persist.records import Sized, check_shapes, merge, read_as, split, tree_of


class Leaf(NamedTuple):
    """An array whose size the record above gives, and one of any size."""

    x: Annotated[np.ndarray, Sized("n")]
    y: Annotated[np.ndarray, Sized("m _")]
    z: Annotated[np.ndarray, Sized("m", "i")] | None = None


class Other(NamedTuple):
    """Another kind of leaf."""

    name: str


class Branch(NamedTuple):
    """Every kind of field."""

    n: int
    share: float
    leaves: tuple[Leaf, ...]
    pair: tuple[int, str]
    either: Leaf | Other
    numbers: dict[int, int]
    trace: dict[str, np.ndarray]
    some: tuple[Annotated[np.ndarray, Sized("n")] | None, ...]

    def dims(self) -> dict[str, int]:
        """The size that it knows."""
        return {"n": self.n}


def leaf(n: int = 3, m: int = 2) -> Leaf:
    return Leaf(np.arange(n, dtype=float), np.ones((m, 5)), np.arange(m))


def branch(**fields: Any) -> Branch:
    x = np.zeros(3)
    start = Branch(3, 1.5, (leaf(), leaf(m=4)), (1, "b"), Other("me"), {4: 5}, {"t": np.array([np.nan])}, (x, None))
    return start._replace(**fields)


def there_and_back(record: Branch) -> Branch:
    plain, arrays = split(tree_of(record))
    result: Branch = read_as(Branch, merge(json.loads(json.dumps(plain)), arrays), "")
    return result


def test_records_come_back_as_they_were() -> None:
    record = branch(either=leaf())
    again = there_and_back(record)
    check_shapes(again)
    assert str(again) == str(record)
    assert there_and_back(branch()).either == Other("me")


def test_records_arrays_lie_under_their_paths() -> None:
    _, arrays = split(tree_of(branch()))
    assert {"leaves.0.x", "leaves.1.z", "trace.t", "some.0"} <= set(arrays)


WRONG_SHAPES = {
    "a size that the record gives": branch(leaves=(leaf(n=4),)),
    "one size with two values": branch(either=leaf()._replace(z=np.arange(9))),
    "an array in a tuple": branch(some=(None, np.zeros(4))),
    "too few dimensions": branch(leaves=(leaf()._replace(y=np.ones(2)),)),
    "numbers that are not finite": branch(leaves=(leaf()._replace(x=np.array([0.0, np.inf, 1.0])),)),
    "real numbers for integers": branch(leaves=(leaf()._replace(z=np.ones(2)),)),
}


@each("case", WRONG_SHAPES)
def test_records_refuse_arrays_that_do_not_fit(case: str) -> None:
    with pytest.raises(ValueError, match=r"do not fit its shape|does not hold integers|not finite"):
        check_shapes(there_and_back(WRONG_SHAPES[case]))


@each(
    ("field", "value"),
    [
        ("n", 2.0),
        ("n", True),
        ("share", "much"),
        ("share", float("nan")),
        ("leaves", {}),
        ("leaves", [None]),
        ("pair", [1]),
        ("either", {"record": "Branch"}),
        ("numbers", {"four": 5}),
        ("trace", {"t": [1.0]}),
    ],
)
def test_records_refuse_values_of_another_type(field: str, value: Any) -> None:
    tree = {**tree_of(branch()), field: value}
    with pytest.raises((TypeError, ValueError)):
        read_as(Branch, tree, "")
    with pytest.raises(KeyError, match=field):
        read_as(Branch, {name: item for name, item in tree.items() if name != field}, "")


@dataclass(frozen=True)
class Settings:
    """What a parameter may be."""

    order: int = 1
    window: tuple[int, int] = (1, 2)


def test_records_of_parameters_are_plain_values_and_dataclasses() -> None:
    assert tree_of(Settings(2), records=False) == {"record": "Settings", "order": 2, "window": [1, 2]}
    assert tree_of({"a": np.float64(2.0)}, records=False) == {"a": 2.0}
    for odd in (np.ones(2), leaf(), {1: 2}, print, [np.ones(1)]):
        with pytest.raises(TypeError, match="cannot be stored"):
            tree_of(odd, records=False)


def test_records_hold_sparse_matrices_where_no_type_is_declared() -> None:
    matrix = sparse.csr_array(np.eye(3)[:2])
    plain, arrays = split(tree_of({"X": matrix}))
    again = read_as(dict[str, Any], merge(plain, arrays), "")["X"]
    np.testing.assert_array_equal(again.toarray(), matrix.toarray())


class Model:
    """What a file takes for a model."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {"deep": deep}

    def _check_parameters(self) -> None:
        """All are right."""


class Held(NamedTuple):
    """Two arrays of one size."""

    x: Annotated[np.ndarray, Sized("n")]
    y: Annotated[np.ndarray, Sized("n")]
    pair: tuple[int, int] = (1, 2)
    numbers: dict[int, int] | None = None


def held_of(stored: StoredModel) -> Held:
    """What a file holds."""
    held: Held = fitted_record(stored, Held)
    return held


@each("wrong", [{"y": np.zeros(4)}, {"x": np.full(3, np.nan)}, {"y": np.zeros(3, dtype=np.int64)}, {"pair": (1, None)}])
def test_models_whose_file_would_be_refused_are_not_written(tmp_path: Path, wrong: dict[str, Any]) -> None:
    path, right = tmp_path / "m.npz", Held(np.zeros(3), np.ones(3), numbers={7: 8})
    write_model(path, Model(), right, read=held_of)
    read = held_of(open_model(path))
    assert (read.pair, read.numbers, read.y.tolist()) == ((1, 2), {7: 8}, [1.0, 1.0, 1.0])
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"^the model cannot be saved to '.*m\.npz', since its file .* report this\.$"):
        write_model(path, Model(), right._replace(**wrong), read=held_of)
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["m.npz"]
