"""What is known of the rows of a mode, in the shell: files of features and of edges, and modes that are series."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensorcep.cli._command import STDOUT
from tensorcep.core.checks import check_file, fail_value

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from tensorcep.priors.series import Series

# The options, and what each takes.
TAKES = {"features": "MODE=FILE", "series": "MODE[=WORDS]", "graph": "MODE=FILE"}
SERIES_WORDS = "auto, ou or rw; cyclic; period=LENGTH; local=MODE"


def add_knowledge_options(group: Any) -> None:
    """Add --features, --series and --graph."""
    group.add_argument(
        "--features",
        action="append",
        default=[],
        metavar=TAKES["features"],
        help="what is known of the rows of a mode (by name, or position from 0): a csv or parquet file of the row (the "
        "column called like the mode, or the first one) and its features, numbers or text, such as item=items.csv; "
        "rows without entries are predicted from them (for several modes several times)",
    )
    group.add_argument(
        "--series",
        action="append",
        default=[],
        metavar=TAKES["series"],
        help="a mode whose rows follow each other in time: numbers, or dates such as 2024-01-31. Words between commas: "
        "auto (default), ou (Ornstein-Uhlenbeck; of equal steps an AR(1)) or rw (random walk); period=LENGTH of a "
        "season, 7D for dates; cyclic, of hours of the day; local=MODE, whose rows deviate each by itself. Such as "
        "day or day=rw,period=7",
    )
    group.add_argument(
        "--graph",
        action="append",
        default=[],
        metavar=TAKES["graph"],
        help="rows of a mode that are neighbours: a csv or parquet file of edges, two columns of rows and perhaps a "
        "weight, such as sensor=roads.csv",
    )


def knowledge_of(args: argparse.Namespace) -> dict[str, Any]:
    """The parameter `prior`: a word, or what the options know of modes.

    Raises
    ------
    FileNotFoundError, ValueError
        If an option is not written as it should be, or a file cannot be read.
    """
    given = [(option, text) for option in TAKES for text in getattr(args, option)]
    if not given:
        return {"prior": args.prior}
    if args.prior not in ("auto", "learned"):
        listed = " and ".join(dict.fromkeys(f"--{option}" for option, _ in given))
        fail_value(f"--prior {args.prior} does not go with {listed}, which are learned; leave one of them out.")
    known: dict[Any, Any] = {}
    for option, text in given:
        name, _, said = text.partition("=")
        if not name or (option != "series" and not said):
            example = {"features": "item=items.csv", "series": "day=ou", "graph": "sensor=roads.csv"}[option]
            fail_value(f"--{option} takes {TAKES[option]}, such as {example}; got {text!r}.")
        mode = _mode(name)
        if mode in known:
            fail_value(f"--features, --series and --graph say one thing of a mode; got two of {name!r}; leave one out.")
        known[mode] = _series(said, text) if option == "series" else _from_file(option, mode, said, args)
    return {"prior": known}


def digests_of(args: argparse.Namespace) -> list[str]:
    """What the options say, with checksums of the files they name: a run that is resumed must say the same.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    """
    import hashlib

    found = [f"--series {text}" for text in args.series]
    for option in ("features", "graph"):
        for text in getattr(args, option):
            content = Path(check_file(text.partition("=")[2])).read_bytes()
            found.append(f"--{option} {text} (sha256 {hashlib.sha256(content).hexdigest()[:16]})")
    return found


def _series(said: str, text: str) -> Series:
    """A series of these words."""
    from tensorcep.priors.series import KINDS, Series

    how: dict[str, Any] = {}
    for word in (part.strip() for part in said.split(",") if part.strip()):
        name, _, value = word.partition("=")
        if word in KINDS:
            name, value = "kind", word
        elif word == "cyclic":
            value = word
        elif name not in ("period", "local") or not value:
            fail_value(f"--series knows the words {SERIES_WORDS}; got {word!r} in {text!r}.")
        if name in how:
            fail_value(f"--series takes one {name}; got another, {word!r}, in {text!r}.")
        how[name] = value
    if "period" in how:
        how["period"] = _length(how["period"])
    if "local" in how:
        how["local"] = _mode(how["local"])
    return Series(**{**how, "cyclic": "cyclic" in how})


def _length(text: str) -> float | str:
    """A number, or text such as 7D."""
    try:
        return float(text)
    except ValueError:
        return text


def _mode(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _from_file(option: str, mode: int | str, path: str, args: argparse.Namespace) -> Any:
    """Features or a graph, of rows as the file of entries will have them."""
    import pandas as pd

    from tensorcep.priors.features import Features
    from tensorcep.priors.graph import Graph

    table = _table(option, path)
    base = None if _is_labelled(mode, args) else int(args.index_base)
    if option == "features":
        if table.shape[1] < 2 or not len(table):
            fail_value(f"--features needs lines of a row and its features; '{path}' has {table.shape[1]} columns.")
        of_rows = mode if mode in table.columns else table.columns[0]
        rows = _rows(table[of_rows], path, base, args)
        features = table.drop(columns=of_rows).apply(typed)
        return Features(features.set_axis(pd.Index(rows), axis=0))
    if table.shape[1] not in (2, 3) or not len(table):
        fail_value(f"--graph needs two columns of rows, and perhaps one of weights; '{path}' has {table.shape[1]}.")
    ends = _rows(pd.concat([table.iloc[:, 0], table.iloc[:, 1]]), path, base, args).reshape(2, -1)
    edges = pd.DataFrame({"from": ends[0], "to": ends[1]}).infer_objects()
    return Graph(edges if table.shape[1] == 2 else edges.assign(weight=table.iloc[:, 2].to_numpy()))


def _table(option: str, path: str) -> pd.DataFrame:
    """All columns of a file; those of csv files are text."""
    from tensorcep.entries.io import Schema, format_of, read_table

    kind = format_of(check_file(path), None)
    if kind not in ("csv", "parquet"):
        fail_value(f"--{option} reads csv and parquet files; got '{path}'; convert it.")
    return read_table(path, Schema())


def _rows(column: pd.Series, path: str, base: int | None, args: argparse.Namespace) -> np.ndarray:
    """Labels as those of the entries are, (n,); numbers of rows from 0 where the entries have indices from `base`."""
    import numpy as np
    import pandas as pd

    from tensorcep.entries.labels import numbers_of

    column = column.reset_index(drop=True)
    # A stream keeps labels of text files as text, as a later line may hold any.
    stays = base is None and isinstance(getattr(args, "data", None), list)
    text = pd.api.types.is_string_dtype(column.dtype)
    found = np.asarray(column if stays or not text else numbers_of(column))
    if base is None:
        return found if found.dtype != object else np.where(found == "", np.array(None), found)
    if found.dtype.kind not in "iu" or (len(found) and int(found.min()) < base):
        bad = next((item for item in found.tolist() if not isinstance(item, int) or item < base), None)
        fail_value(f"the rows of '{path}' must be indices that count from {base}, as the entries are; got {bad!r}.")
    return found - base


def typed(column: pd.Series) -> pd.Series:
    """A column of text as numbers where all of it are; what is not known is missing."""
    import pandas as pd

    from tensorcep.entries.io import MISSING

    if not pd.api.types.is_string_dtype(column.dtype):
        return column
    said = column.astype(object).where(~column.isin(MISSING), None)
    numbers = pd.to_numeric(said, errors="coerce")
    return numbers if (numbers.notna() | said.isna()).all() else said


def _is_labelled(mode: int | str, args: argparse.Namespace) -> bool:
    """Whether the rows of a mode will have labels, which only a tensor in an npz file says by itself."""
    from tensorcep.cp.inputs.coordinates import mode_of
    from tensorcep.entries.io import files_of, format_of, read_tensor

    data = getattr(args, "data", None) or args.train
    first = data if isinstance(data, str) else data[0]
    kind = args.format or "csv" if first == STDOUT else format_of(files_of(first)[0], args.format)
    if kind == "npz":
        labels = read_tensor(first, format=kind).labels
        return labels[mode_of(labels, mode)] is not None
    return kind != "tns" and bool(args.header if args.labels is None else args.labels)
