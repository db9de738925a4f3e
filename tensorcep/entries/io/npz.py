"""Tensors in npz archives: plain arrays and a JSON header, nothing pickled."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorcep.core.checks import check_shape, fail_value, reason_of
from tensorcep.core.persist.archive import read_archive, write_archive
from tensorcep.entries.labels import pack_labels, unpack_labels
from tensorcep.entries.tensor import SparseTensor

KIND = "tensorcep.tensor"
VERSION = 1
# What labels, shapes and arrays that make no sense end in, here and in pandas.
WRONG = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RuntimeError, MemoryError)


def write_npz(tensor: SparseTensor, path: str | os.PathLike[str]) -> None:
    """Write entries, shape, labels and what is known of sampled zeros; indices in the smallest integer type."""
    small = np.min_scalar_type(max(tensor.shape) - 1)
    arrays: dict[str, NDArray[Any]] = {"coords": tensor.coords.astype(small), "values": tensor.values}
    if tensor.sampled is not None:
        arrays["sampled"] = tensor.sampled
    labels = [None if found is None else pack_labels(found, k, arrays) for k, found in enumerate(tensor.labels)]
    rate = {} if tensor.zero_rate == 1.0 else {"zero_rate": tensor.zero_rate}
    write_archive(path, KIND, VERSION, {"shape": list(tensor.shape), "labels": labels, **rate}, arrays)


def read_npz(path: str, shape: Any = None) -> SparseTensor:
    """Read what `write_npz` wrote; a given `shape` must be the stored one."""
    header, arrays = read_archive(path, KIND, VERSION)
    if shape is not None and check_shape(shape) != tuple(header.get("shape", ())):
        fail_value(f"shape must be left out or be that of '{path}', {tuple(header['shape'])}; got {tuple(shape)}.")
    try:
        described = header["labels"]
        labels = [None if item is None else unpack_labels(item, k, arrays) for k, item in enumerate(described)]
        return SparseTensor(
            arrays["coords"],
            arrays["values"],
            header["shape"],
            labels,  # type: ignore[arg-type]
            zero_rate=header.get("zero_rate", 1.0),
            sampled=arrays.get("sampled"),
        )
    except WRONG as error:
        raise ValueError(f"'{path}' is damaged ({reason_of(error)}); write it again.") from error
