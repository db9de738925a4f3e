"""Classes and levels that a file writes as words, such as yes and no."""

from __future__ import annotations

import argparse
import itertools
import os
from typing import TYPE_CHECKING, Any

from tensorcep.cli._command import reading_of
from tensorcep.core.checks import check_file, fail_value

if TYPE_CHECKING:
    import pandas as pd

    from tensorcep.entries.tensor import SparseTensor

OF_WORDS = ("probit", "logit", "ordinal")
LOOKED_AT = 1000  # lines that tell whether a column holds words


def add_levels_option(group: Any) -> None:
    """Add --levels."""
    group.add_argument(
        "--levels",
        type=lambda text: [word.strip() for word in text.split(",")],
        metavar="A,B,C",
        help="for ordinal: the levels in their order, where they are words (default: that of the alphabet)",
    )


def cells_of_words(path: str, args: argparse.Namespace) -> tuple[SparseTensor, pd.DataFrame, Any] | None:
    """The cells of a file whose values are words: as a tensor of their numbers, as a table, and the words.

    None where the values are numbers, or the likelihood is not one of classes.

    Raises
    ------
    ValueError
        If a cell occurs twice, or a word is none of --levels.
    """
    if args.levels is not None and args.likelihood != "ordinal":
        fail_value(f"--levels is for --likelihood ordinal; got {args.likelihood or 'gaussian'}; leave it out.")
    words = None if args.likelihood not in OF_WORDS or args.count or not os.path.isfile(path) else _words_in(path, args)
    if words is None:
        if args.levels is not None:
            fail_value(f"--levels is for values that are words; those of '{path}' are numbers; leave it out.")
        return None
    if args.duplicates in ("mean", "sum"):
        fail_value(f"--duplicates {args.duplicates} is for numbers; '{path}' has words; give last, or mend the file.")
    import pandas as pd

    from tensorcep.entries.io import format_of
    from tensorcep.entries.spelling import numbers_of
    from tensorcep.entries.tensor import SparseTensor

    frame, modes, value = words
    known = args.levels or sorted(frame[value].unique())
    codes = pd.Categorical(frame[value], categories=known).codes
    if (codes < 0).any():
        fail_value(f"'{path}' has the level {frame[value][codes < 0].iloc[0]!r}, which is none of --levels; add it.")
    is_text = format_of(path, args.format) == "csv"
    cells = {name: numbers_of(frame[name]) if is_text else frame[name] for name in modes}
    coded = pd.DataFrame(cells).assign(**{value: codes.astype(float)})
    tensor = SparseTensor.from_pandas(coded, modes, value, duplicates=args.duplicates)
    y = pd.Categorical.from_codes(tensor.values.astype(int), pd.Index(known), ordered=True)
    return tensor, tensor.to_pandas(value=value)[modes], y if args.levels else y.astype(object)


def _words_in(path: str, args: argparse.Namespace) -> tuple[pd.DataFrame, list[Any], Any] | None:
    """The lines of a table, its modes and its value, if this is of words."""
    from tensorcep.entries.io import columns_of, format_of, read_cells
    from tensorcep.entries.io.layout import MISSING, chosen_columns

    how, names = reading_of(args), columns_of(path, args.format, reading_of(args))
    if names is None or how.labels is False:
        return None
    modes, value = chosen_columns(path, names, how.modes, how.value)
    kind = format_of(check_file(path), args.format)
    if kind == "csv" and not any(map(is_word, itertools.islice(_values_in(path, args, names.index(value)), LOOKED_AT))):
        return None
    frame = read_cells(path, kind, 0, how)
    missing = frame[value].isna() | frame[value].isin(MISSING)
    if missing.any() and not args.drop_missing:
        fail_value(
            f"column {value!r} of '{path}' has {int(missing.sum())} missing words; --drop-missing leaves them out."
        )
    frame = frame[~missing].reset_index(drop=True)
    return (frame, modes, value) if frame[value].map(is_word).any() and len(frame) else None


def _values_in(path: str, args: argparse.Namespace, field: int) -> Any:
    from tensorcep.entries.io.lines import open_lines, rows
    from tensorcep.entries.io.read import cells_layout

    layout = cells_layout(path, path, reading_of(args))
    with open_lines(path, coding=layout.coding) as lines:
        for _, fields in rows(itertools.islice(lines, layout.skip, None), layout.separator, None):
            yield fields[field] if field < len(fields) else ""


def is_word(cell: Any) -> bool:
    """Whether a cell holds text that is neither a number nor missing."""
    from tensorcep.entries.io.layout import MISSING
    from tensorcep.entries.io.lines import number_in

    return isinstance(cell, str) and number_in(cell) is None and number_in(cell, ",") is None and cell not in MISSING


def has_words(model: Any) -> bool:
    """Whether the classes or levels of a model are words."""
    return hasattr(model, "classes_") and isinstance(model.classes_.tolist()[0], str)
