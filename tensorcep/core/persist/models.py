"""Saving and loading fitted models: one .npz of plain arrays with a JSON header; nothing in it is pickled.

The header has the class, the parameters and the fitted record without its arrays; the arrays lie beside it under their
paths in the record.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.checks import fail_value, reason_of
from tensorcep.core.persist.archive import Path, archive_kind, read_archive, write_archive
from tensorcep.core.persist.records import RECORD, check_shapes, merge, read_as, split, tree_of

KIND = "tensorcep.model"
VERSION = 2
# What files of factor models said they were under format version 1, which is not read.
FACTOR_KIND = "tensorcep.factor_model"

# What readers raise where a file makes no sense.
UNREADABLE = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RuntimeError)


class StoredModel(NamedTuple):
    """What a model file holds: class name, parameters as JSON has them, the whole header, and arrays by name."""

    path: str
    class_name: str
    params: dict[str, Any]
    header: dict[str, Any]
    arrays: dict[str, np.ndarray]


Reader = Callable[[StoredModel], Any]


def write_model(path: Path, model: Any, fitted: Any, extra: Mapping[str, Any] | None = None, *, read: Reader) -> None:
    """Write a fitted estimator: its class, the parameters that JSON can hold, a record or dict of what was fitted."""
    # `extra` are further fields of the header. `read`, as a load does, is tried on what is to be written: what it would
    # refuse is refused, so that an earlier file at `path` is as it was.
    params = {}
    for name, value in model.get_params(deep=False).items():
        with contextlib.suppress(TypeError):  # those that are no plain values or dataclasses have done their work
            params[name] = tree_of(value, records=False)
    tree, arrays = split(tree_of(fitted))
    header = {"class": type(model).__name__, "params": params, "fitted": tree, **(extra or {})}
    again = json.loads(json.dumps(header))  # as a file has it: lists for tuples, text for keys
    views = {name: np.asarray(array).view() for name, array in arrays.items()}
    for view in views.values():
        view.flags.writeable = False  # the model goes on with these arrays
    try:
        model._check_parameters()
        read(StoredModel(os.fspath(path), again["class"], again["params"], again, views))
    except UNREADABLE as error:
        why = f"since its file could not be loaded ({reason_of(error)}); nothing was written"
        text = f"the model cannot be saved to '{os.fspath(path)}', {why}: keep the fitted model and report this."
        raise ValueError(text) from None
    write_archive(path, KIND, VERSION, header, arrays)


def open_model(path: str | os.PathLike[str]) -> StoredModel:
    """Read what `write_model` wrote; refused if it is truncated, incomplete, of another kind, or of another version."""
    kind = FACTOR_KIND if archive_kind(path) == FACTOR_KIND else KIND
    header, arrays = read_archive(path, kind, VERSION)
    if header["version"] < VERSION:
        holds = f"holds a model of format version {header['version']}, which this tensorcep does not read"
        fail_value(f"'{os.fspath(path)}' {holds}, only version {VERSION}; fit the model again and save it.")
    with complete(path):
        class_name, params = read_as(str, header["class"], "class"), dict(header["params"])
        return StoredModel(os.fspath(path), class_name, params, header, arrays)


def read_parameter(value: Any, records: Mapping[str, type]) -> Any:
    """A parameter of a saved model; `records` are the dataclasses that it may be, by name."""
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, dict) and RECORD in value:
        fields = {name: read_parameter(item, records) for name, item in value.items() if name != RECORD}
        return records[value[RECORD]](**fields)
    return {name: read_parameter(item, records) for name, item in value.items()} if isinstance(value, dict) else value


@contextlib.contextmanager
def complete(path: str | os.PathLike[str]) -> Iterator[None]:
    """Say in a ValueError which file it is, whatever goes wrong while its content is put together."""
    try:
        yield
    except UNREADABLE as error:
        raise ValueError(f"'{os.fspath(path)}' is not a complete model ({reason_of(error)}); save it again.") from None


def fitted_record(stored: StoredModel, kind: Any) -> Any:
    """The fitted record of this type that a file holds, its shapes checked."""
    record = read_as(kind, merge(stored.header["fitted"], stored.arrays), "")
    check_shapes(record)
    return record


def write_attributes(path: str | os.PathLike[str], model: Any, names: Sequence[str]) -> None:
    """Write an estimator without a record: attributes (arrays, sparse matrices, numbers, text), and the trace."""
    values = {name: text_array(getattr(model, name)) for name in names}
    fitted = {**values, "trace_": getattr(model, "trace_", {})}
    write_model(path, model, fitted, read=lambda stored: read_attributes(stored, names))


def text_array(values: Any) -> Any:
    """Objects that are all text, as an array of text; anything else as it is."""
    if isinstance(values, np.ndarray) and values.dtype.hasobject and all(isinstance(v, str) for v in values.ravel()):
        return values.astype(str)
    return values


def read_attributes(stored: StoredModel, names: Sequence[str]) -> dict[str, Any]:
    """What `write_attributes` wrote of these names, by name; one of `UNREADABLE` if something is missing or wrong."""
    fitted = dict(fitted_record(stored, dict[str, Any]))
    check_names(fitted, (*names, "trace_"))
    return fitted


def check_names(fitted: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse attributes of other names than these: a file decides about values, never about methods."""
    odd = sorted(set(fitted) - set(known))
    if odd:
        raise ValueError(f"it has no attribute {odd[0]!r}")
