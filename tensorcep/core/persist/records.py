"""Records of arrays, as trees that a file can hold, and back by the types and the shapes that their fields declare.

A tree is made of dicts, lists, arrays and what JSON can hold. A record is a NamedTuple; in the tree it is a dict with
its name under "record". Reading goes by the types of the fields: a file decides about values, never about code.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np
from scipy import sparse

RECORD = "record"
# What a numpy array of each kind holds, and the types that it may have; "n" is what a trace holds.
KINDS = {"f": "real numbers", "i": "integers", "b": "booleans", "n": "numbers"}
TYPES = {"f": "f4 f8", "i": "i4 i8", "b": "b1", "n": "f4 f8 i4 i8 b1"}


class Sized(NamedTuple):
    """Of an array field: names of its sizes, as in "n R", and the kind of its items, of `KINDS`."""

    # A record gives numbers to names by a method ``dims()``, for itself and for the records that it holds; a name
    # without a number means the same size in all fields of a record, and "_" any size.
    names: str
    kind: str = "f"  # real numbers must be finite, those of a trace (kind "n") need not be


def tree_of(value: Any, records: bool = True) -> Any:
    """A value as a tree, or a TypeError; of parameters, which may be dataclasses, without `records` of arrays."""
    names = value._fields if records and hasattr(value, "_fields") else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
    if names is not None:
        return {RECORD: type(value).__name__, **{name: tree_of(getattr(value, name), records) for name in names}}
    if type(value) in (tuple, list):
        return [tree_of(item, records) for item in value]
    if isinstance(value, dict) and (records or all(isinstance(key, str) for key in value)):
        return {str(key): tree_of(item, records) for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (np.integer, np.floating, np.bool_)):
        return value.item()
    if records and isinstance(value, np.ndarray):
        return value
    if records and sparse.issparse(value):
        csr = sparse.csr_array(value)
        parts = {name: getattr(csr, name) for name in ("data", "indices", "indptr")}
        return {RECORD: "csr_array", "shape": list(csr.shape), **parts}
    raise TypeError(f"a {type(value).__name__} cannot be stored")


def split(tree: Any, path: str = "") -> tuple[Any, dict[str, np.ndarray]]:
    """A tree without its arrays, and the arrays by their paths, such as "posterior.members.0.Lam"."""
    if isinstance(tree, np.ndarray):
        return None, {path: tree}
    if not isinstance(tree, (dict, list)):
        return tree, {}
    start = f"{path}." if path else ""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    parts = {key: split(item, f"{start}{key}") for key, item in items}
    arrays = {where: array for _, own in parts.values() for where, array in own.items()}
    if isinstance(tree, list):
        return [rest for rest, _ in parts.values()], arrays
    return {key: rest for key, (rest, _) in parts.items() if not isinstance(tree[key], np.ndarray)}, arrays


def merge(tree: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The tree that `split` took apart; its containers are changed in place."""
    for path, array in arrays.items():
        *parents, last = path.split(".")
        at = tree
        for key in parents:
            at = at[int(key)] if isinstance(at, list) else at.setdefault(key, {})
        at[int(last) if isinstance(at, list) else last] = array
    return tree


# What no whole number of a file reaches.
LARGEST_INTEGER = 1 << 63


def read_as(hint: Any, tree: Any, name: str) -> Any:
    """The value of this type in a tree, shapes not checked; KeyError, TypeError or ValueError where there is none."""
    origin, options = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return read_as(options[0], tree, name)
    if origin in (Union, types.UnionType):  # of the type that the tree names, or of the only one that is not None
        if tree is None and types.NoneType in options:
            return None
        kinds = [option for option in options if option is not types.NoneType]
        kinds = kinds if len(kinds) == 1 else [kind for kind in kinds if kind.__name__ == tree[RECORD]]
        if not kinds:
            raise ValueError(f"{name} is of an unknown kind {tree[RECORD]!r}; update tensorcep")
        return read_as(kinds[0], tree, name)
    if hint is Any:
        if isinstance(tree, dict) and tree.get(RECORD) == "csr_array":
            return sparse.csr_array((tree["data"], tree["indices"], tree["indptr"]), shape=tuple(tree["shape"]))
        return tree
    is_record, start = hasattr(hint, "_fields"), f"{name}." if name else ""
    kind: Any = dict if is_record else {tuple: list, float: (int, float)}.get(origin or hint, origin or hint)
    if not isinstance(tree, kind) or (isinstance(tree, bool) and hint in (int, float)):
        raise TypeError(f"{name} is of type {type(tree).__name__}")
    if isinstance(tree, float) and hint is float and not np.isfinite(tree):
        raise ValueError(f"{name} is {tree}, not a finite number")
    if isinstance(tree, int) and hint in (int, float) and abs(tree) >= LARGEST_INTEGER:
        raise ValueError(f"{name} is a number of {len(str(tree))} digits")
    if is_record:
        hints = _field_types(hint)
        missing = [field for field in hint._fields if field not in tree and field not in hint._field_defaults]
        if missing:
            raise KeyError(f"{start}{missing[0]}")
        known = [field for field in hint._fields if field in tree]
        return hint(**{field: read_as(hints[field], tree[field], f"{start}{field}") for field in known})
    if origin is tuple:
        each = [options[0]] * len(tree) if options[-1] is Ellipsis else options
        return tuple(read_as(*pair, f"{name}.{i}") for i, pair in enumerate(zip(each, tree, strict=True)))
    if origin is dict:
        return {options[0](key): read_as(options[1], item, f"{name}.{key}") for key, item in tree.items()}
    return float(tree) if hint is float else tree


@cache
def _field_types(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def check_shapes(value: Any, name: str = "", sizes: dict[str, int] | None = None, sized: Sized | None = None) -> None:
    """Refuse a record in which an array has not the shape or the kind of items that its field declares."""
    sizes = {} if sizes is None else sizes
    if isinstance(value, np.ndarray) and sized is not None:
        names = sized.names.split()
        wanted = [sizes.get(key, "any") for key in names]
        if value.ndim != len(names) or any(n not in ("any", size) for n, size in zip(wanted, value.shape, strict=True)):
            expected = ", ".join(map(str, wanted))
            raise ValueError(f"the arrays do not fit its shape: {name} is {value.shape}, not ({expected})")
        sizes.update((key, size) for key, size in zip(names, value.shape, strict=True) if key != "_")
        if value.dtype not in [np.dtype(kind) for kind in TYPES[sized.kind].split()]:
            raise ValueError(f"{name} does not hold {KINDS[sized.kind]}")
        if sized.kind == "f" and not np.isfinite(value).all():
            raise ValueError(f"{name} holds numbers that are not finite")
    elif hasattr(value, "_fields"):
        own = dict(sizes)
        for key, size in (value.dims() if hasattr(value, "dims") else {}).items():
            if own.setdefault(key, size) != size:
                raise ValueError(f"the arrays do not fit its shape: {name} has {key} = {size}, not {own[key]}")
        kind: Any = type(value)
        hints = _field_types(kind)
        for field in value._fields:
            check_shapes(getattr(value, field), f"{name}.{field}".lstrip("."), own, _sized_in(hints[field]))
    elif isinstance(value, (tuple, list, dict)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            check_shapes(item, f"{name}.{key}", sizes, sized)


def _sized_in(hint: Any) -> Sized | None:
    """What a type says of the shape of an array, or of arrays in a tuple."""
    if isinstance(hint, Sized):
        return hint
    inner = (*get_args(hint), *getattr(hint, "__metadata__", ()))
    return next((sized for sized in map(_sized_in, inner) if sized is not None), None)
