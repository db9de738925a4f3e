"""Every input check and the sentence it raises: what was wrong, the value, what is allowed, what to do."""

from __future__ import annotations

import importlib
import numbers
import os
import re
import stat
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Errors and warnings where a check cannot be a function of its arguments.

INFINITE = "are infinite: beyond the range of float64"
LONGEST_REASON, LONGEST = 300, 1600  # characters
# What stands between a warning and the line that led to it: this package, and what wraps its methods or calls them.
BETWEEN = {__name__.partition(".")[0], "sklearn", "joblib", "contextlib", "functools"}


class InvalidParameter(ValueError):
    """A parameter `name`, or what it holds, whose `value` it may not have, what is `allowed`, perhaps a `remedy`."""

    def __init__(self, name: str, value: object, allowed: str, remedy: str = "") -> None:
        super().__init__(name, value, allowed, remedy)  # of which workers make it anew
        self.name, self.value, self.allowed, self.remedy = name, value, allowed, remedy

    def __str__(self) -> str:  # the sentence of Python
        return self._sentence(self.name, self.allowed)

    def in_shell(self, option_of: Callable[[str], str]) -> str:
        """The sentence of the shell: the option in place of the parameter, words without quotation marks."""
        return self._sentence(option_of(self.name), re.sub(r"'([\w+-]+)'", r"\1", self.allowed))

    def _sentence(self, name: str, allowed: str) -> str:
        got = repr(self.value)
        got = got if len(got) <= LONGEST else f"{got[:LONGEST]}..."
        return f"{name} must {allowed}; got {got}{self.remedy and f'; {self.remedy}'}."


class _Told(str):
    """A value as a sentence told it."""

    __slots__ = ()
    __repr__ = str.__str__


# The sentences that are those of an InvalidParameter.
INVALID = re.compile(
    r"(?!there |it )(?P<name>-*\w[\w.\[\]-]*) must (?P<allowed>.+?); got (?P<value>.+?)(?:; (?P<remedy>.+))?\.",
    re.DOTALL,
)


def fail_value(message: str) -> NoReturn:
    """Raise ValueError, an InvalidParameter by its sentence if it can; of a very long label the middle is left out."""
    message, half = printable(message), LONGEST // 2
    message = message if len(message) <= LONGEST else f"{message[:half]} ... {message[-half:]}"
    parts = INVALID.fullmatch(message)
    if parts is None:
        raise ValueError(message)
    raise InvalidParameter(parts["name"], _Told(parts["value"]), parts["allowed"], parts["remedy"] or "")


def reason_of(error: BaseException) -> str:
    """What another library says is wrong, in one short line, for a sentence of ours to name it."""
    return (str(error).splitlines() or [type(error).__name__])[0][:LONGEST_REASON]


def printable(text: str) -> str:
    """Text of others, as labels are, in which signs that nobody sees, or that command a terminal, are escaped."""
    return "".join(s if s.isprintable() or s == "\n" else s.encode("unicode_escape").decode() for s in text)


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn, pointing at the user's line that led here: the first outside this package and scikit-learn."""
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in BETWEEN:
        level, frame = level + 1, frame.f_back
    warnings.warn(message if message.isprintable() else printable(message), category, stacklevel=level)


# Files and tables: what should be there.


def check_file(path: str | os.PathLike[str]) -> str:
    """Return the path of an existing file, or of a pipe, as text."""
    text = os.fspath(path)
    if not os.path.exists(text):
        raise FileNotFoundError(f"there is no file '{text}'; check the path.")
    if os.path.isdir(text):
        raise IsADirectoryError(f"'{text}' is a folder; give the path of a file.")
    mode = os.stat(text).st_mode
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):  # it may have no end
        raise ValueError(f"'{text}' is a device; give the path of a file or a pipe.")
    return text


def check_columns(columns: Iterable[Any], wanted: Iterable[Any], where: str = "the DataFrame") -> None:
    """Refuse a column name that does not exist; the error lists those that do."""
    known = list(columns)
    for name in wanted:
        if name not in known:
            raise ValueError(f"{where} has no column {name!r}; it has {list_names(known)}.")


def list_names(names: Iterable[Any], most: int = 12, longest: int = 60) -> str:
    """Names as a sentence lists them: some, and none at full length that is very long."""
    known = [repr(name) for name in names]
    shown = [name if len(name) <= longest else f"{name[:longest]}..." for name in known[:most]]
    return ", ".join(shown) + (f" and {len(known) - most} more" if len(known) > most else "")


# Arrays: coordinates, values, and what must be true of all their numbers.

INT64_MAX = 2**63 - 1
MOST_ROWS, ROWS_PER_ENTRY = 10_000_000, 100  # indices above both are ids
LARGEST = 1e140  # of values: their squares are finite, and so are sums of these
DUPLICATE_POLICIES = ("error", "mean", "sum", "last")


def check_shape(shape: Any, order: int | None = None) -> tuple[int, ...]:
    """Return `shape` as a tuple of at least two ints >= 1 (exactly `order` of them when given)."""
    try:
        sizes = tuple(shape)
    except TypeError:
        sizes = ()
    good = all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) and 1 <= n <= INT64_MAX for n in sizes)
    if not good or len(sizes) < 2:
        raise ValueError(f"shape must hold one integer >= 1 for each of at least two modes; got {shape!r}.")
    if order is not None and len(sizes) != order:
        raise ValueError(f"shape must have {order} modes like the entries; got {len(sizes)} in {shape!r}.")
    return tuple(int(n) for n in sizes)


def check_coords(
    coords: Any, shape: Sequence[int] | None = None, order: int | None = None, name: str = "coords"
) -> NDArray[np.int64]:
    """Return whole numbers as a C-contiguous (N, K) int64 array of indices, each inside `shape` where it is given."""
    array = np.asarray(check_unmasked(coords, name))
    if order is not None and array.shape == (0,):  # an empty list is no entries
        return np.empty((0, order), dtype=np.int64)
    if array.ndim != 2 or array.shape[1] < 2:
        must = "be an integer array of shape (entries, modes), two modes or more"
        raise ValueError(f"{name} must {must}; got shape {array.shape}.")
    order = len(shape) if shape is not None else order
    if order is not None and array.shape[1] != order:
        raise ValueError(f"{name} must have {order} columns, one per mode; got {array.shape[1]}.")
    if array.dtype == bool or array.dtype.kind not in "iuf":
        if array.size or array.dtype.kind not in "O":
            raise TypeError(f"{name} must hold integers; got dtype {array.dtype}; use from_pandas for labels.")
        array = array.astype(np.int64)
    if array.dtype.kind == "f":
        bad = ~((np.floor(array) == array) & (np.abs(array) < 2.0**53))
        if bad.any():
            n, k = np.argwhere(bad)[0]
            raise ValueError(f"{name} must hold integers; got {array[n, k]} at entry {n}, mode {k}.")
    if array.dtype == np.uint64 and array.size and array.max() > INT64_MAX:
        raise ValueError(f"{name} must be below 2**63; got {array.max()}.")
    array = np.ascontiguousarray(array, dtype=np.int64)
    if array.shape[0] == 0:
        return array
    for k in range(array.shape[1]):
        column = array[:, k]
        if column.min() < 0:
            n = int(np.argmax(column < 0))
            raise ValueError(f"{name} must be >= 0; got {column[n]} at entry {n}, mode {k} (indices count from 0).")
        if shape is not None and column.max() >= shape[k]:
            n = int(np.argmax(column >= shape[k]))
            raise ValueError(f"{name} must be below the shape {tuple(shape)}; got {column[n]} at entry {n}, mode {k}.")
    return array


def check_unmasked(array: Any, name: str) -> Any:
    """Return the array, unless some of it is masked: the numbers behind a mask are none."""
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        n = int(np.argwhere(np.ma.getmaskarray(array))[0][0])
        raise ValueError(f"{name} must have no masked numbers; got some, the first at entry {n}; leave them out.")
    return array


def check_sizes(shape: Sequence[int], n_entries: int, given: bool = False) -> None:
    """Refuse sizes that no model can have, or (where they are not `given`) that only ids lead to."""
    for k, size in enumerate(shape):
        if size > 2**31:
            limit = "at most 2**31 rows in a mode"
        elif not given and size > max(MOST_ROWS, ROWS_PER_ENTRY * n_entries):
            limit = f"fewer rows for {n_entries} entries, unless shape= says otherwise"
        else:
            continue
        raise ValueError(
            f"there must be {limit}; got the index or size {size - 1} in mode {k}. A model keeps every row from 0 on: "
            "make ids the labels of rows, by SparseTensor.from_pandas."
        )


def check_values(values: ArrayLike, n_entries: int | None = None, name: str = "values") -> NDArray[np.float64]:
    """Return values as a C-contiguous (N,) float64 array of finite numbers."""
    array = np.asarray(check_unmasked(values, name))
    if array.dtype.kind not in "iufb":
        try:
            array = array.astype(np.float64, casting="unsafe" if array.dtype.kind == "O" else "safe")
        except (TypeError, ValueError, OverflowError):
            raise TypeError(f"{name} must hold real numbers; got dtype {array.dtype}.") from None
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, one number per entry; got shape {array.shape}.")
    if n_entries is not None and array.shape[0] != n_entries:
        raise ValueError(f"{name} must hold one number for each of the {n_entries} entries; got {array.shape[0]}.")
    array = np.ascontiguousarray(array, dtype=np.float64)
    finite = np.isfinite(array)
    if not finite.all():
        n = int(np.argmin(finite))
        got = f"{array[n]} at entry {n} ({np.count_nonzero(~finite)} such in all)"
        raise ValueError(f"{name} must be finite; got {got}; leave unobserved cells out.")
    return array


def check_size(name: str, values: NDArray[np.float64], least: float = 1.0 / LARGEST) -> NDArray[np.float64]:
    """Return the values if their squares are numbers: none is too large, and the largest is 0 or not below `least`."""
    largest = float(max(values.max(), -values.min())) if values.size else 0.0
    if largest > LARGEST:
        must = f"not exceed {LARGEST:g} in size, so that squares stay finite"
        raise ValueError(f"{name} must {must}; got {largest:g}; rescale {name}.")
    if 0.0 < largest < least:
        must = f"reach {least:g} in size, so that squares are not 0"
        raise ValueError(f"{name} must {must}; got {largest:g} at most; rescale {name}.")
    return values


def check_same_shape(shape: Sequence[int], other: Sequence[int]) -> None:
    """Refuse to combine tensors of different shapes."""
    if tuple(shape) != tuple(other):
        raise ValueError(f"tensors must have the same shape to be combined; got {tuple(shape)} and {tuple(other)}.")


def check_vectors(**arrays: ArrayLike) -> list[NDArray[np.float64]]:
    """Return each array as (N,) float64 of finite numbers, N >= 1 the same for all; the names are used in errors."""
    names = list(arrays)
    result = [check_values(array, name=name) for name, array in arrays.items()]
    check_not_empty(result[0].shape[0], names[0])
    for name, array in zip(names[1:], result[1:], strict=True):
        if array.shape != result[0].shape:
            raise ValueError(f"{name} must be as long as {names[0]}, {result[0].shape[0]}; got {array.shape[0]}.")
    return result


def check_weights(name: str, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weights if none is negative and their sum is positive."""
    if weights.min() < 0.0 or weights.sum() == 0.0:
        raise ValueError(f"{name} must be >= 0 and not all 0; got a minimum of {weights.min():g}.")
    return weights


def check_all(name: str, values: NDArray[np.float64], good: NDArray[np.bool_], must: str) -> NDArray[np.float64]:
    """Return the values if all are good; otherwise say what they must, and name the first that does not."""
    if not good.all():
        n = int(np.argmin(good))
        raise ValueError(f"{name} must {must}; got {values[n]:g} at entry {n}.")
    return values


def check_zero_one(name: str, y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the labels if each is 0 or 1."""
    return check_all(name, y, (y == 0.0) | (y == 1.0), "hold labels 0 and 1")


def check_both_classes(y: NDArray[np.float64]) -> None:
    """Refuse labels that are not 0 and 1, or that are all the same, where a ranking of the two classes is scored."""
    check_zero_one("y", y)
    if y.min() == y.max():
        raise ValueError(f"y must hold both labels 0 and 1 for this score; got only {y[0]:g}.")


def check_mask_or_rows(where: ArrayLike, n_entries: int) -> NDArray[Any]:
    """Return a boolean array with one item per entry, or distinct entry positions as int64."""
    array = np.asarray(where)
    if array.dtype == bool:
        if array.shape != (n_entries,):
            raise ValueError(f"where must hold one bool for each of the {n_entries} entries; got shape {array.shape}.")
        return array
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise TypeError(f"where must be a boolean array or entry positions; got dtype {array.dtype}, {array.ndim}-d.")
    rows = array.astype(np.int64)
    if rows.size and (rows.min() < 0 or rows.max() >= n_entries):
        raise ValueError(f"where must hold positions in 0..{n_entries - 1}; got {rows.min()} to {rows.max()}.")
    if np.bincount(rows, minlength=1).max() > 1:
        raise ValueError("where must hold distinct positions; an entry cannot be chosen twice.")
    return rows


def check_per_mode(name: str, value: Any, order: int, low: float = -np.inf) -> NDArray[np.float64]:
    """Return one finite number above `low` for each of `order` modes, (order,) float64; one number serves all modes."""
    numbers_given = [value] * order if np.ndim(value) == 0 else list(value)
    if len(numbers_given) != order:
        raise ValueError(f"{name} must be one number, or one for each of the {order} modes; got {len(numbers_given)}.")
    return np.array([check_range(name, item, low, include_low=False) for item in numbers_given])


def check_counts(name: str, y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the counts if each is a whole number >= 0."""
    return check_all(name, y, (y >= 0.0) & (np.floor(y) == y), "hold counts, integers >= 0")


def check_matrix(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return a C-contiguous (n, d) float64 array of finite numbers."""
    array = np.asarray(check_unmasked(values, name))
    if array.ndim != 2:
        raise ValueError(f"{name} must be two-dimensional; got shape {array.shape}.")
    return check_values(array.ravel(), name=name).reshape(array.shape)


def check_not_empty(n_entries: int, name: str = "the tensor") -> None:
    """Refuse data without entries where some are needed."""
    if n_entries == 0:
        raise ValueError(f"{name} holds no entries; at least one observed cell is needed.")


def check_mode_count(items: Sequence[Any], order: int | None = None, what: str = "modes must name") -> None:
    """Refuse a list with other than `order` items, one per mode (at least two when `order` is None)."""
    if isinstance(items, str) or len(items) < 2 or (order is not None and len(items) != order):
        wanted = "at least two modes" if order is None else f"exactly {order} modes"
        raise ValueError(f"{what} {wanted}; got {items!r}.")


# Settings: words, numbers, seeds, and options that exclude each other.


def check_choice(name: str, value: Any, allowed: Iterable[str]) -> str:
    """Return `value` if it is one of `allowed`; the error lists what exists."""
    known = tuple(allowed)
    if not isinstance(value, str) or value not in known:
        raise InvalidParameter(name, value, f"be one of {', '.join(map(repr, known))}")
    return value


def check_flag(name: str, value: Any) -> bool:
    """Return `value` if it is True or False, which numpy has, too."""
    if not isinstance(value, (bool, np.bool_)):
        raise InvalidParameter(name, value, "be True or False")
    return bool(value)


def check_int(name: str, value: Any, minimum: int = 1, maximum: int | None = None, *, instead: str = "") -> int:
    """Return `value` as an int within bounds, not a bool or float; `instead` is what else it may be, for the error."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, (bool, np.bool_))
    if not whole or value < minimum or (maximum is not None and value > maximum):
        span = f">= {minimum}" if maximum is None else f"from {minimum} to {maximum}"
        raise InvalidParameter(name, value, f"be {instead}an integer {span}")
    return int(value)


def check_range(
    name: str,
    value: Any,
    low: float = -np.inf,
    high: float = np.inf,
    *,
    include_low: bool = True,
    include_high: bool = True,
    instead: str = "",
) -> float:
    """Return `value` as a finite float of an interval with open or closed ends; `instead` as in `check_int`."""
    number = float(value) if isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_)) else np.nan
    good = (number >= low if include_low else number > low) and (number <= high if include_high else number < high)
    if not good or not np.isfinite(number):
        if np.isinf(high):
            span = "finite" if np.isinf(low) else f"{'>=' if include_low else '>'} {low:g}"
        else:
            span = f"in {'[' if include_low else '('}{low:g}, {high:g}{']' if include_high else ')'}"
        raise InvalidParameter(name, value, f"be {instead}a number {span}")
    return number


def check_fraction(name: str, value: Any) -> float:
    """Return `value` as a float strictly between 0 and 1."""
    return check_range(name, value, 0.0, 1.0, include_low=False, include_high=False)


def word_or_range(name: str, value: Any, words: tuple[str, ...], low: float, high: float = np.inf, **ends: bool) -> Any:
    """Return the value if it is one of the words or a number in the range; the error names both."""
    if isinstance(value, str) and value in words:
        return value
    listed = " or ".join(repr(word) for word in words)
    return check_range(name, value, low, high, instead=f"{listed}, or ", **ends)


Seed: TypeAlias = "int | np.random.SeedSequence | np.random.RandomState | np.random.Generator | None"


def check_random_state(random_state: Any) -> np.random.Generator:
    """Return a Generator from None, an int >= 0, a SeedSequence, a RandomState or a Generator (returned as it is)."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**31, size=4))
    if random_state is None or isinstance(random_state, np.random.SeedSequence):
        return np.random.default_rng(random_state)
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool) and random_state >= 0:
        return np.random.default_rng(int(random_state))
    raise InvalidParameter("random_state", random_state, "be None, an integer >= 0, a RandomState or a Generator")


def optional_module(name: str, needed_for: str, install: str | None = None) -> ModuleType:
    """Import an optional library; the ImportError says what needs it and how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        sentence = f"{needed_for} needs {name}, which is not installed; pip install {install or name}."
        raise ImportError(sentence) from error
