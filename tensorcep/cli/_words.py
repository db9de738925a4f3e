"""Classes and levels that a file writes as words, such as yes and no."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tensorcep.cli._command import reading_of
from tensorcep.core.checks import fail_value

if TYPE_CHECKING:
    import pandas as pd

    from tensorcep.entries.sparse_tensor import SparseTensor

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


def cells_of_words(
    path: str, args: argparse.Namespace, classes: list[str] | None = None
) -> tuple[SparseTensor, pd.DataFrame, Any] | None:
    """The cells of a file whose values are words: as a tensor of their numbers, as a table, and the words.

    None where the values are numbers, or the likelihood is not one of classes. `classes` are those of an earlier file,
    in the order of their numbers.

    Raises
    ------
    ValueError
        If a cell occurs twice, or a word is none of --levels, or of the classes.
    """
    if args.levels is not None and args.likelihood != "ordinal":
        fail_value(f"--levels is for --likelihood ordinal; got {args.likelihood or 'gaussian'}; leave it out.")
    words = _words_in(path, args)
    if words is None:
        if args.levels is not None:
            fail_value(f"--levels is for values that are words; those of '{path}' are numbers; leave it out.")
        if classes is not None:
            fail_value(f"'{path}' must hold the words {' and '.join(map(repr, classes))}; got numbers.")
        return None
    if args.duplicates in ("mean", "sum"):
        fail_value(f"--duplicates {args.duplicates} is for numbers; '{path}' has words; give last, or mend the file.")
    import pandas as pd

    from tensorcep.entries.io import format_of
    from tensorcep.entries.labels import numbers_of
    from tensorcep.entries.sparse_tensor import SparseTensor

    frame, modes, value = words
    known = args.levels or classes or sorted(frame[value].unique())
    codes = pd.Categorical(frame[value], categories=known).codes
    if (codes < 0).any():
        of = "--levels; add it" if args.levels else f"{', '.join(map(repr, known))}; mend it"
        fail_value(f"'{path}' has the level {frame[value][codes < 0].iloc[0]!r}, which is none of {of}.")
    is_text = format_of(path, args.format) == "csv"
    cells = {name: numbers_of(frame[name]) if is_text else frame[name] for name in modes}
    coded = pd.DataFrame(cells).assign(**{value: codes.astype(float)})
    tensor = SparseTensor.from_pandas(coded, modes, value, duplicates=args.duplicates)
    y = pd.Categorical.from_codes(tensor.values.astype(int), pd.Index(known), ordered=True)
    return tensor, tensor.to_pandas(value=value)[modes], y if args.levels else y.astype(object)


def tensors_of_words(paths: Sequence[str], args: argparse.Namespace, model: Any) -> list[SparseTensor] | None:
    """The cells of several files as tensors of the numbers of the first one's words; None where it has numbers."""
    first = cells_of_words(paths[0], args)
    if first is None:
        return None
    classes = model._target().entries(*first[1:], model.shape)[1]["_classes"]
    others = [cells_of_words(path, args, classes) for path in paths[1:]]
    return [found[0] for found in (first, *others) if found is not None]


def columns_of_words(path: str, args: argparse.Namespace) -> tuple[list[Any], Any] | None:
    """The modes and the value of a table, if this is of words, as far as its first lines tell."""
    from tensorcep.entries.io import chosen_columns, columns_of, read_tables

    how = reading_of(args)
    if args.likelihood not in OF_WORDS or how.value is None or how.labels is False or not os.path.isfile(path):
        return None
    names = columns_of(path, how)
    if names is None:
        return None
    modes, value = chosen_columns(path, names, how)
    first = next(read_tables(path, how, lines=LOOKED_AT), None)
    return (modes, value) if first is not None and any(map(is_word, first[value])) else None


def _words_in(path: str, args: argparse.Namespace) -> tuple[pd.DataFrame, list[Any], Any] | None:
    """The lines of a table, its modes and its value, if this is of words."""
    from tensorcep.entries.io import MISSING, read_table

    found = columns_of_words(path, args)
    if found is None:
        return None
    frame, (modes, value) = read_table(path, reading_of(args)), found
    missing = frame[value].isna() | frame[value].isin(MISSING)
    if missing.any() and not args.drop_missing:
        fail_value(
            f"column {value!r} of '{path}' has {int(missing.sum())} missing words; --drop-missing leaves them out."
        )
    frame = frame[~missing].reset_index(drop=True)
    return frame, modes, value


def is_word(cell: Any) -> bool:
    """Whether a cell holds text that is neither a number nor missing."""
    from tensorcep.entries.io import MISSING, number_in

    return isinstance(cell, str) and number_in(cell) is None and number_in(cell, ",") is None and cell not in MISSING


def has_words(model: Any) -> bool:
    """Whether the classes or levels of a model are words."""
    return hasattr(model, "classes_") and isinstance(model.classes_.tolist()[0], str)
