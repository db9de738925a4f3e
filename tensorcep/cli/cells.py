"""Files to entries, matrices and cells to predict, as the options describe them. Heavy: loaded once a command runs."""

from __future__ import annotations

import argparse
import hashlib
import itertools
import math
import os
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tensorcep.cli.options import EXTENTS, STDOUT, is_given, option_of, output
from tensorcep.core.checks import check_columns, check_file, check_mode_count, fail_value
from tensorcep.core.fitted import Part
from tensorcep.cp.inputs.coordinates import matching_modes, names_of_modes
from tensorcep.entries.io import files
from tensorcep.entries.io.chunks import files_of
from tensorcep.entries.io.lines import UNDECODED, comma_hint, number_in, open_binary, open_lines
from tensorcep.entries.io.schema import LAST, MISSING, Schema, chosen_columns, format_of
from tensorcep.entries.labels import Labels, number_of, numbers_of
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.likelihoods import words_of

TABLES = ("csv", "parquet")  # files with further columns
MOST_ZEROS = 10**8  # more absent cells are not all written down
LOOKED_AT = 1000  # lines that tell whether a column holds words
# Lines that are predicted at a time; a file of no more bytes is read whole, so that it has its warnings once.
LINES, WHOLE = 1 << 17, 1 << 24
BLOCK = 1 << 20  # bytes that a checksum takes at a time


def reading_of(args: argparse.Namespace) -> Schema:
    """How the options say that a file is to be read."""
    names = ("index_base", "header", "labels", "sep", "decimal", "encoding", "drop_missing", "format")
    value = None if getattr(args, "count", False) else LAST if args.value is None else _column(args.value, args)
    modes = None if args.modes is None else [_column(name, args) for name in args.modes]
    how = {name: getattr(args, name) for name in names}
    return Schema(modes=modes, value=value, shape=getattr(args, "shape", None), **how)


def _column(name: str, args: argparse.Namespace) -> str | int:
    """A column's name, or its position where there is no header."""
    if args.header:
        return name
    if not name.isdecimal():
        fail_value(f"without a header a column is its position from 0; got {name!r}; give a number.")
    return int(name)


def changed(args: argparse.Namespace, **values: Any) -> argparse.Namespace:
    """The same options with other values."""
    return argparse.Namespace(**{**vars(args), **values})


def read_data(path: str, args: argparse.Namespace, verbose: int = 0) -> SparseTensor:
    """The entries of a file."""
    return files.read_entries(path, reading_of(args), args.duplicates, verbose)[0]


def described(tensor: SparseTensor) -> str:
    """What was read, in a line."""
    return repr(tensor).removeprefix("<SparseTensor ").removesuffix(">")


def value_column(path: str, args: argparse.Namespace) -> Any:
    """The column of a file that was taken for the value; None where there is none."""
    return files.value_name_of(path, reading_of(args)) if os.path.isfile(path) else None


def value_to_write(args: argparse.Namespace) -> str:
    """What the values that were read are called where they are written: as in their file, or count, or y."""
    name = args.value or value_column(args.data, args) if args.header and not args.count else None
    return ("count" if args.count else "y") if name is None else str(name)


def is_one_file(path: str) -> bool:
    """Whether it is no folder and no pattern."""
    return not os.path.isdir(path) and (os.path.exists(path) or not set(path) & set("*?["))


def with_zeros(tensor: SparseTensor, args: argparse.Namespace) -> SparseTensor:
    """The entries, and the zeros that --zeros asks for."""
    if args.zeros is None:
        return tensor
    word, size = args.zeros
    absent = math.prod(tensor.shape) - tensor.nnz
    n = absent if word == "all" else round(size * tensor.nnz) if word == "x" else int(size)
    if n > absent:
        fail_value(f"--zeros must be at most the {absent} cells without an entry; got {n}; give all, or fewer.")
    if n > MOST_ZEROS:
        mend = "give a number, such as 3x the number of entries."
        fail_value(f"--zeros would add {n} entries, more than {MOST_ZEROS}; {mend}")
    return tensor.with_zeros(n, random_state=args.seed)


class Witness:
    """Checksums of the lines of files up to a position that moves on, so that a run goes on with the same input."""

    def __init__(self, paths: Sequence[str], format: str | None) -> None:
        self._paths, self._format = paths, format
        self._whole: list[list[int | str]] = []
        self._begin()

    def _begin(self) -> None:
        """Begin with the file that follows those that were read whole."""
        self._count, self._sha = 0, hashlib.sha256()
        n = len(self._whole)
        self._lines = _lines_of(self._paths[n], self._format) if n < len(self._paths) else iter(())

    def _advance(self, count: int | None) -> list[int | str]:
        for line in itertools.islice(self._lines, count):
            self._sha.update(line)
            self._count += 1
        return [self._count, self._sha.hexdigest()]

    def until(self, file: int, line: int) -> list[list[int | str]]:
        """Number and checksum of the lines of each file that was begun, where so many were read whole and so far."""
        while len(self._whole) < file:
            self._whole.append(self._advance(None))
            self._begin()
        return [*self._whole, self._advance(line - self._count)] if file < len(self._paths) else self._whole

    def check(self, read: Sequence[Sequence[int | str]], file: int, line: int) -> None:
        """Refuse files that do not begin with what was read of them; the error names the first one."""
        for path, (n, sha), (count, found) in zip(self._paths, read, self.until(file, line), strict=False):
            if sha != found:
                what = f"{count} lines where {n}" if count != n else f"other lines among the first {n} than"
                fail_value(f"'{path}' has {what} were learned; give the same file to resume, or start anew.")


def digests_of_files(paths: Sequence[str], format: str | None) -> list[list[Any]]:
    """Name, number of lines and checksum of each file; a pipe, which cannot be read twice, has none."""
    whole = [path for path in paths if path != STDOUT and os.path.isfile(path)]
    read = [_plain_digest(path, format) or Witness([path], format).until(1, 0)[0] for path in whole]
    return [[os.path.basename(path), *digest] for path, digest in zip(whole, read, strict=True)]


def _plain_digest(path: str, format: str | None) -> list[Any] | None:
    """What `Witness` says of a whole file of text whose lines end as its own do, by blocks; None of other files."""
    if format_of(path, format) not in ("csv", "tns"):
        return None
    sha, count, end = hashlib.sha256(), 0, b"\n"
    with open_binary(path) as handle:
        while block := handle.read(BLOCK):
            if b"\r" in block or block.startswith(BOM_UTF8):
                return None
            sha.update(block)
            count, end = count + block.count(b"\n"), block[-1:]
    if end != b"\n":
        sha.update(b"\n")
    return [count + (end != b"\n"), sha.hexdigest()]


def _lines_of(path: str, format: str | None) -> Iterator[bytes]:
    """Lines, whose ends do not count, since one more may have come: of a pipe, which cannot be read twice, none."""
    if path == STDOUT or not os.path.isfile(path):
        return
    if format_of(path, format) in ("parquet", "npz"):  # it cannot grow, and counts as one line
        with open(path, "rb") as handle:
            sha = hashlib.sha256()
            while block := handle.read(BLOCK):
                sha.update(block)
            yield sha.digest()
        return
    with open_lines(path) as lines:
        for text in lines:
            yield text.rstrip("\r\n").encode(errors=UNDECODED) + b"\n"


def given_extents(args: argparse.Namespace) -> dict[str, str]:
    """The columns beside the value that hold exposures or numbers of trials, by the name of what they hold."""
    return {name: getattr(args, name) for name in EXTENTS if is_given(args, name)}


def read_with_extents(path: str, args: argparse.Namespace, verbose: int) -> tuple[SparseTensor, dict[str, np.ndarray]]:
    """The entries of a file, and what `fit` takes beside them."""
    extents = given_extents(args)
    for option in map(option_of, extents):
        if args.count:
            fail_value(f"{option} needs a column of counts beside it; got none; give --value.")
        if path == STDOUT or format_of(check_file(path), args.format) not in TABLES or not args.header:
            kinds = "give a csv or parquet file with a header"
            fail_value(f"{option} names a column, which '{path}' has none of; {kinds}.")
    how = reading_of(args)._replace(extras=tuple(extents.values()))
    tensor, extras = files.read_entries(path, how, args.duplicates, verbose)
    return tensor, {name: extras[column] for name, column in extents.items()}


def cells_of_words(
    path: str, args: argparse.Namespace, classes: list[str] | None = None
) -> tuple[SparseTensor, pd.DataFrame, Any] | None:
    """The cells of a file of words as a tensor of their numbers and as a table, and the words; None of other files."""
    columns = columns_of_words(path, args)
    if columns is None:
        if args.levels is not None:
            fail_value(f"--levels is for values that are words; those of '{path}' are numbers; leave it out.")
        if classes is not None:
            fail_value(f"'{path}' must hold the words {' and '.join(map(repr, classes))}; got numbers.")
        return None
    if args.duplicates in ("mean", "sum"):
        fail_value(f"--duplicates {args.duplicates} is for numbers; '{path}' has words; give last, or mend the file.")
    modes, value = columns
    kind = format_of(path, args.format)
    frame = files.read_table(path, reading_of(args))
    missing = frame[value].isna() | frame[value].isin(MISSING)
    if missing.any() and not args.drop_missing:
        fail_value(f"column {value!r} of '{path}' has {missing.sum()} missing words; --drop-missing leaves them out.")
    frame = frame[~missing].reset_index(drop=True)
    known = args.levels or classes or sorted(frame[value].unique())  # `classes`: those of an earlier file
    codes = pd.Categorical(frame[value], categories=known).codes
    if (codes < 0).any():
        of = "--levels; add it" if args.levels else f"{', '.join(map(repr, known))}; mend it"
        fail_value(f"'{path}' has the level {frame[value][codes < 0].iloc[0]!r}, which is none of {of}.")
    cells = {name: numbers_of(frame[name]) if kind == "csv" else frame[name] for name in modes}
    coded = pd.DataFrame(cells).assign(**{value: codes.astype(float)})
    tensor = SparseTensor.from_pandas(coded, modes, value, duplicates=args.duplicates)
    y = pd.Categorical.from_codes(tensor.values.astype(int), pd.Index(known), ordered=True)
    return tensor, tensor.to_pandas(value=value)[modes], y if args.levels else y.astype(object)


def columns_of_words(path: str, args: argparse.Namespace) -> tuple[list[Any], Any] | None:
    """The modes and the value of a table, if this is of words, as far as its first lines tell."""
    how = reading_of(args)
    if args.likelihood not in words_of("labels", "levels") or how.value is None or how.labels is False:
        return None
    names = files.columns_of(path, how) if os.path.isfile(path) else None
    if names is None:
        return None
    modes, value = chosen_columns(path, names, how)
    column = next(files.read_tables(path, how, lines=LOOKED_AT))[value]
    text = (cell for cell in column if isinstance(cell, str) and cell not in MISSING)
    is_word = any(number_in(cell) is None and number_in(cell, ",") is None for cell in text)
    return (modes, value) if is_word else None


def has_words(model: Any) -> bool:
    """Whether the classes or levels of a model are words."""
    return hasattr(model, "classes_") and isinstance(model.classes_.tolist()[0], str)


def matrix_in(path: str, args: argparse.Namespace, progress: int = 0) -> SparseTensor:
    """The matrix that a file holds: as entries of rows, columns and values, or as a line per row and a column each."""
    wide = args.wide
    if wide is None and args.modes is None and args.value is None and not args.count:
        names = files.columns_of(path, reading_of(args))
        wide = names is not None and len(names) != 3
    if not wide:
        tensor = read_data(path, args, progress)
        if tensor.order != 2:
            fail_value(f"'{path}' must hold rows, columns and values to be a matrix; it has {tensor.order} modes.")
        return tensor
    kind = format_of(check_file(path), args.format)
    if kind not in TABLES or args.modes is not None or args.value is not None:
        text = f"--wide is for all columns of a csv or parquet file; got '{path}', or --modes or --value"
        fail_value(f"{text}; leave it out.")
    table = files.read_table(path, reading_of(args))
    if args.decimal != "." and kind == "csv":
        table = table.apply(lambda column: column.str.replace(args.decimal, ".", regex=False))
    first, row_labels = table.columns[0], None  # labels of the rows, if that column has no name, or text
    if not str(first).strip() or not pd.api.types.is_numeric_dtype(typed(table[first])):
        row_labels = Labels(numbers_of(table[first]) if kind == "csv" else table[first].to_numpy())
        row_labels = Labels(row_labels.index.rename(str(first).strip() or None))
        table = table.drop(columns=first)
    columns = {name: typed(table[name]) for name in table}
    for name, column in columns.items():
        if not pd.api.types.is_numeric_dtype(column):
            text = next(cell for cell in column if pd.isna(pd.to_numeric(cell, errors="coerce")) and not pd.isna(cell))
            hint = comma_hint(text, args.decimal)
            fail_value(f"column {name!r} of '{path}' has {text!r}, which is not a number; leave that column out{hint}.")
    matrix = pd.DataFrame(columns).to_numpy(dtype=np.float64, na_value=np.nan)
    observed = np.argwhere(~np.isnan(matrix))
    labels = [row_labels, Labels(list(columns))]
    return SparseTensor.from_coo(observed, matrix[tuple(observed.T)], matrix.shape, labels=labels)


def typed(column: pd.Series) -> pd.Series:
    """A column of text as numbers where all of it are; what is not known is missing."""
    if not pd.api.types.is_string_dtype(column.dtype):
        return column
    known = column.astype(object).where(~column.isin(MISSING), None)
    numbers = pd.to_numeric(known, errors="coerce")
    return numbers if (numbers.notna() | known.isna()).all() else known


def matrix_of(path: str, args: argparse.Namespace, part: Part, new_rows: bool = False) -> SparseTensor:
    """Entries of a file as cells of a matrix of the fit that it knows; or of new rows, whose columns it must know."""
    tensor = matrix_in(path, args)
    coords, (rows, columns) = tensor.coords.copy(), part.labels
    shape = (tensor.shape[0] if new_rows else int(part.shape[0]), int(part.shape[1]))
    for k in (1,) if new_rows else (0, 1):
        known, labels = part.labels[k], tensor.labels[k]
        if (known is None) != (labels is None):
            what = f"the {'columns' if new_rows else 'modes'} of '{path}'"
            fail_value(f"{what} must be {'labels' if labels is None else 'indices'}, as in the fit.")
        if known is not None and labels is not None:  # numbers as the fit has them
            found = known.rows(labels.index) if new_rows else known.rows(labels.index, unknown="ignore")
            coords[:, k] = found[coords[:, k]]
    inside = ((coords >= 0) & (coords < shape)).all(axis=1)
    if new_rows and not inside.all():
        fail_value(f"'{path}' must have columns up to {shape[1]}, as in the fit; got {int(np.max(coords[:, 1])) + 1}.")
    return SparseTensor(coords[inside], tensor.values[inside], shape, (tensor.labels[0] if new_rows else rows, columns))


# Cells to predict, with or without values, matched to the rows that a model knows. Unlike `read_tensor` this takes
# files without a value column, keeps repeated cells and the order of the lines, and reads a mode column as the model
# has it: its labels where the model knows labels, indices where it does not.


class QueriedCells(NamedTuple):
    """Cells to predict, as the methods of a model take them."""

    X: Any  # coordinates, or a DataFrame of labels
    y: Any  # values, or None
    columns: pd.DataFrame  # of the modes, as the file has them
    extent: dict[str, Any]  # exposures or numbers of trials

    def named(self) -> pd.DataFrame:
        """The mode columns with names for results."""
        names = [f"mode_{name}" if isinstance(name, int) else name for name in self.columns.columns]
        return self.columns.set_axis(names, axis=1)


def read_queries(path: str, args: argparse.Namespace, model: Any, with_values: bool) -> QueriedCells:
    """Read the cells of a file for a fitted model."""
    (cells,) = _read_pieces(path, args, model, with_values, None)
    return cells


def query_pieces(path: str, args: argparse.Namespace, model: Any) -> Iterator[QueriedCells]:
    """The cells of a file, a folder or a pattern; of large tables some lines at a time."""
    for file in [path] if is_one_file(path) else files_of(path):
        is_table = format_of(check_file(file), args.format) in TABLES and os.path.isfile(file)
        large = is_table and os.path.getsize(file) > WHOLE
        yield from _read_pieces(file, args, model, False, LINES if large else None)


def _read_pieces(
    path: str, args: argparse.Namespace, model: Any, with_values: bool, lines: int | None
) -> Iterator[QueriedCells]:
    """The cells of a file, so many lines at a time; None: all."""
    labelled, extents = [labels is not None for labels in model.labels_], given_extents(args)
    if args.labels and not any(labelled):
        fail_value("the model was fitted to indices and knows no labels; leave out --labels.")
    labelled = [False] * len(labelled) if args.labels is False else labelled
    kind = format_of(check_file(path), args.format)
    if kind in ("tns", "mtx") and any(labelled):
        what = f"'{path}' holds indices, but the model knows its rows by labels; give a csv, parquet or npz file"
        fail_value(f"{what}, or --no-labels if the indices are the model's row numbers.")
    if kind not in TABLES and extents:
        fail_value(f"{option_of(next(iter(extents)))} names a column, which '{path}' has none of; give a csv file.")
    if kind == "npz":
        cells, y = _read_npz(path, args, model, labelled)
        yield QueriedCells(_matched(path, cells, model, labelled, args.index_base), y, cells, {})
        return
    start = 0
    for frame in files.read_tables(path, reading_of(args), lines=lines, n_modes=len(labelled), with_values=with_values):
        frame.index = pd.RangeIndex(start, start := start + len(frame))  # so that errors name the file's rows
        if kind in TABLES:
            cells, y, extent = _chosen(path, frame, args, model, with_values)
        else:
            cells, y, extent = frame.iloc[:, : len(labelled)], frame["value"].to_numpy() if with_values else None, {}
        X = _matched(path, cells, model, labelled, args.index_base)
        yield QueriedCells(X, y, cells.reset_index(drop=True), extent)


def write_csv(path: str, args: argparse.Namespace, tables: Iterable[pd.DataFrame]) -> None:
    """Write tables of results one after the other as csv, as --safe-csv says."""
    with output(path) as handle:
        for n, table in enumerate(tables):
            shown = files.escaped(table) if args.safe_csv else table
            shown.to_csv(handle, index=False, header=n == 0, float_format="%.8g", lineterminator="\n")


def _read_npz(path: str, args: argparse.Namespace, model: Any, labelled: list[bool]) -> tuple[pd.DataFrame, Any]:
    tensor = files.read_tensor(path, format="npz")
    check_mode_count(tensor.shape, len(labelled), f"'{path}' must have")
    chosen = list(range(len(labelled)))
    if any(labelled):
        chosen = matching_modes(names_of_modes(model.labels_), names_of_modes(tensor.labels), X=f"'{path}'")
    columns = tensor.to_pandas(value="value").drop(columns="value").iloc[:, chosen]
    for k, by_label in zip(chosen, labelled, strict=True):
        labels = tensor.labels[k]
        if by_label and labels is None:
            fail_value(f"mode {k} of '{path}' has no labels, but the model knows its rows by labels; add them.")
        if labels is not None and not by_label and args.labels is not False:
            what = f"mode {k} of '{path}' has labels, but the model was fitted to indices"
            fail_value(f"{what}; give --no-labels if the rows of both are in the same order.")
        if not by_label:
            columns.isetitem(chosen.index(k), tensor.coords[:, k] + args.index_base)
    return columns, tensor.values


def _chosen(
    path: str, frame: pd.DataFrame, args: argparse.Namespace, model: Any, with_values: bool
) -> tuple[pd.DataFrame, Any, dict[str, Any]]:
    """The mode columns of a table, its values where they are wanted, and its extents."""
    extents, known = given_extents(args), names_of_modes(model.labels_)
    check_columns(list(frame.columns), list(extents.values()), f"'{path}'")
    names: list[Any] = [name for name in frame.columns if name not in extents.values()]
    value: Any = None if args.value is None else _column(args.value, args)
    modes: Any = reading_of(args).modes
    if modes is None and None not in known and set(known) <= set(names):
        modes = list(known)
    elif modes is None and None not in known and args.header and args.labels is not False:
        columns, wanted = (", ".join(map(str, listed)) for listed in (names, known))
        what = f"the columns {columns} of '{path}' are not the modes {wanted} of the model"
        fail_value(f"{what}; rename them, or say with --modes which they are.")
    if modes is None:  # the model has no names, or the file none or row numbers
        modes = [name for name in names if name != value]
        if value is None and len(modes) == len(known) + 1:
            modes = modes[:-1]
    check_columns(names, [*modes, *([] if value is None else [value])], f"'{path}'")
    if len(modes) != len(known):  # as --modes has it
        what = f"'{path}' must have {len(known)} mode columns like the model{' and a value' if with_values else ''}"
        fail_value(f"{what}; got the columns {', '.join(map(str, names))}; name them with --modes.")
    rest = [name for name in names if name not in modes]
    if with_values and value is None and not rest:
        fail_value(f"'{path}' has no column left for the value beside the modes {', '.join(map(str, modes))}.")
    value = None if not with_values else rest[-1] if value is None else value
    if args.drop_missing and value is not None:
        frame = frame[~(frame[value].isna() | frame[value].isin(MISSING))]
    numbers = {name: _finite(path, frame[column], args.decimal) for name, column in extents.items()}
    if value is None or has_words(model):
        return frame[modes], None if value is None else frame[value].astype(object).to_numpy(), numbers
    return frame[modes], _finite(path, frame[value], args.decimal), numbers


def _finite(path: str, column: pd.Series, decimal: str = ".") -> np.ndarray:
    """The numbers of a column."""
    if decimal != "." and pd.api.types.is_string_dtype(column.dtype):
        column = column.str.replace(decimal, ".", regex=False)
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64)
    if not np.isfinite(numbers).all():
        n = int(np.argmin(np.isfinite(numbers)))
        where, hint = f"column {column.name!r} of '{path}'", comma_hint(column.iloc[n], decimal)
        got = f"{column.iloc[n]!r} in row {column.index[n] + 1}"
        fail_value(f"{where} must hold finite numbers; got {got}; mend it{hint}.")
    return numbers


def _matched(path: str, columns: pd.DataFrame, model: Any, labelled: list[bool], base: int) -> Any:
    """What the model's predict takes: coordinates from 0, or a DataFrame where it knows labels."""
    matched: list[Any] = []
    for name, known, by_label in zip(columns.columns, model.labels_, labelled, strict=True):
        if by_label:
            matched.append(as_labels(columns[name], known).reset_index(drop=True))
            continue
        at: Any = as_rows(path, columns[name], base)
        if known is not None:  # None, which is no label, for rows that the model does not have
            inside = at < len(known)
            at = pd.Series(known.index.take(np.where(inside, at, 0))).astype(object).where(inside, None)
        matched.append(at)
    if all(known is None for known in model.labels_):
        return np.stack(matched, axis=1)
    names = names_of_modes(model.labels_)
    return pd.DataFrame(dict(enumerate(matched))).set_axis(range(len(names)) if None in names else names, axis=1)


def as_rows(path: str, column: pd.Series, base: int) -> np.ndarray:
    """Indices of a file as numbers of rows from 0."""
    numbers = _finite(path, column)
    bad = (numbers != np.floor(numbers)) | (numbers < base)
    if bad.any():
        n = int(np.argmax(bad))
        what = f"column {column.name!r} of '{path}' must hold indices that count from {base}; got {column.iloc[n]!r}"
        hint = "; give --index-base 0 if it counts from 0" if numbers[n] == 0 else ""
        fail_value(f"{what} in row {column.index[n] + 1}{hint}.")
    return numbers.astype(np.int64) - base


def as_labels(column: pd.Series, labels: Labels) -> pd.Series:
    """A column as labels of the model's kind: text as times or as numbers, numbers as text."""
    # The rows may all be new, so that the column alone does not tell what its text means. What is no time is not known.
    dtype, is_text = labels.index.dtype, pd.api.types.is_string_dtype(column.dtype)
    if is_text and pd.api.types.is_datetime64_any_dtype(dtype):
        return pd.to_datetime(column, errors="coerce", utc=isinstance(dtype, pd.DatetimeTZDtype))
    if is_text and pd.api.types.is_any_real_numeric_dtype(dtype):
        codes, distinct = pd.factorize(column)
        numbers = [number_of(text) for text in distinct]
        made = [text if number is None else number for text, number in zip(distinct, numbers, strict=True)]
        kinds = {type(label) for label in made}
        return pd.Series(np.array(made, dtype=None if len(kinds) == 1 else object)[codes], name=column.name)
    if pd.api.types.is_any_real_numeric_dtype(column.dtype) and pd.api.types.is_string_dtype(labels.index):
        return column.map(str)
    return column
