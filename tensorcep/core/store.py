"""Saving and loading fitted attributes: one .npz of plain arrays with a JSON header; nothing in it is pickled."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from tensorcep.core.files import write_archive

KIND = "tensorcep.model"
VERSION = 1
# The arrays of a sparse matrix.
CSR = ("data", "indices", "indptr")


class StoredModel(NamedTuple):
    """What a model file holds: class name, parameters, the fitted attributes by name, and the whole header."""

    class_name: str
    params: dict[str, Any]
    fitted: dict[str, Any]
    header: dict[str, Any]


def write_attributes(path: str | os.PathLike[str], model: Any, names: Sequence[str]) -> None:
    """Write a fitted estimator that is no CP model: class name, plain parameters, these attributes and the trace.

    Attributes may be arrays of numbers or text, sparse matrices, numbers, and booleans.

    Raises
    ------
    ValueError
        If an array holds objects other than text.
    """
    values = {name: getattr(model, name) for name in names}
    scattered = {name: sparse.csr_array(value) for name, value in values.items() if sparse.issparse(value)}
    arrays = {name: _text_array(value) for name, value in values.items() if isinstance(value, np.ndarray)}
    arrays.update({f"{name}.{part}": getattr(csr, part) for name, csr in scattered.items() for part in CSR})
    arrays.update({f"trace_{name}": steps for name, steps in getattr(model, "trace_", {}).items()})
    header: dict[str, Any] = {
        "class": type(model).__name__,
        "params": {k: plain(v) for k, v in model.get_params(deep=False).items() if is_plain(v)},
        "attributes": {k: plain(v) for k, v in values.items() if k not in arrays and k not in scattered},
    }
    if scattered:
        header["sparse"] = {name: plain(csr.shape) for name, csr in scattered.items()}
    write_archive(path, KIND, VERSION, header, arrays)


def _text_array(values: np.ndarray) -> np.ndarray:
    """Objects that are all text, as an array of text; any other array as it is."""
    if values.dtype.hasobject and all(isinstance(item, str) for item in values.ravel()):
        return values.astype(str)
    return values


def read_attributes(path: str | os.PathLike[str], header: dict[str, Any], arrays: dict[str, np.ndarray]) -> StoredModel:
    try:
        scattered = {}
        for name, shape in header.get("sparse", {}).items():
            scattered[name] = sparse.csr_array(tuple(arrays.pop(f"{name}.{part}") for part in CSR), shape=shape)
        fitted = {**header["attributes"], **scattered}
        fitted |= {n: a for n, a in arrays.items() if not n.startswith("trace_")}
        fitted["trace_"] = {n.removeprefix("trace_"): a for n, a in arrays.items() if n.startswith("trace_")}
        return StoredModel(header["class"], dict(header["params"]), fitted, header)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"'{os.fspath(path)}' is not a complete model ({error}); save it again.") from error


def is_plain(value: Any) -> bool:
    if type(value) in (tuple, list):  # not a Prior, which is a tuple too
        return all(is_plain(item) for item in value)
    if type(value) is dict:
        return all(isinstance(key, str) and is_plain(item) for key, item in value.items())
    return value is None or isinstance(value, (bool, int, float, str, np.integer, np.floating))


def plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value.item() if isinstance(value, np.generic) else value
