"""`tensorcep recommend` and `tensorcep components`: what a fitted model says beyond single cells."""

from __future__ import annotations

import argparse
from typing import Any

from tensorcep.cli._command import (
    STDOUT,
    Command,
    add_safe_csv,
    check_output,
    load_any_model,
    load_tensor_model,
    output,
    write_csv,
)
from tensorcep.core.checks import check_file, check_fraction, check_int, fail_value

RECOMMEND = """\
Write the best rows of a mode for every combination of rows of the other modes, as csv: the modes, rank, and mean, sd,
lower and upper of the expected observation, without the noise of a single one. Cells that the model was fitted to are
left out, but for zeros that were sampled; a mode that --given fixes does not count for that, unless all are fixed. A
row of --given that the model does not know has the prior: what is best for all."""
COMPONENTS = """\
Write the weights of a mode's rows in the model's components as csv: row, component, part (the modes that it belongs
to), weight (the size of the component), and mean, sd, lower and upper of the row's weight; their norm is 1. The
component that explains most comes first. Of a model of matrices (fit --model): feature, component, and mean, sd, lower
and upper of the loadings of the matrix that --mode names."""


def _add_recommend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="file that fit wrote")
    parser.add_argument("--mode", required=True, help="mode whose rows are ranked: its name, or its position from 0")
    parser.add_argument(
        "--given", action="append", default=[], metavar="MODE=LABEL", help="a row of another mode (several times)"
    )
    parser.add_argument("-n", type=int, default=10, help="rows for each combination (default: 10)")
    parser.add_argument(
        "--by", choices=("mean", "lower", "upper", "thompson", "sd"), default="mean", help="default: mean"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true", help="cells that the model was fitted to as well")
    which.add_argument(
        "--exclude", metavar="FILE", help="leave out the cells of this file, which may have the columns of some modes"
    )
    _add_rest(parser)


def _add_components(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="file that fit or stream wrote")
    parser.add_argument("--mode", required=True, help="the mode, or matrix: its name, or its position from 0")
    _add_rest(parser)


def _add_rest(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", metavar="OUT.csv", default=STDOUT, help="csv file to write; - is stdout (default)"
    )
    parser.add_argument(
        "--coverage", type=float, default=0.9, metavar="C", help="of the interval lower to upper (default: 0.9)"
    )
    add_safe_csv(parser)


def _run_recommend(args: argparse.Namespace) -> None:
    check_int("-n", args.n)
    check_fraction("--coverage", args.coverage)
    check_output(args.output, args.model, *([] if args.exclude is None else [args.exclude]))
    model = load_tensor_model(args.model)
    given = dict(_given(model, text) for text in args.given)
    exclude = None if args.all else "seen" if args.exclude is None else _excluded(args.exclude, model)
    how = {"n": args.n, "by": args.by, "coverage": args.coverage, "exclude": exclude, "random_state": 0}
    _write(args, model.recommend(_mode(args.mode), given, **how))


def _run_components(args: argparse.Namespace) -> None:
    check_fraction("--coverage", args.coverage)
    check_output(args.output, args.model)
    _write(args, load_any_model(args.model).components(_mode(args.mode), args.coverage))


def _mode(text: str) -> str | int:
    return int(text) if text.isdecimal() else text


def _excluded(path: str, model: Any) -> Any:
    """Cells of a file: the columns that are called like modes of the model."""
    from tensorcep.cp.inputs.coordinates import names_of_modes
    from tensorcep.entries.io import Schema, format_of, read_table, read_tensor

    kind, names = format_of(check_file(path), None), names_of_modes(model.labels_)
    if kind == "npz" or None in names:
        return read_tensor(path)
    cells = read_table(path, Schema(), n_modes=len(names))
    return cells[[name for name in cells.columns if name in names]]


def _given(model: Any, text: str) -> tuple[str | int, Any]:
    """A mode and its label, or index."""
    from tensorcep.cp.inputs.coordinates import mode_of

    name, sign, label = text.partition("=")
    if not sign:
        fail_value(f"--given takes MODE=LABEL; got {text!r}.")
    mode = _mode(name)
    known = model.labels_[mode_of(model.labels_, mode)]
    if known is None:
        if not label.isdecimal():
            fail_value(f"--given {name}= must be an index counted from 0, as the model has no labels; got {label!r}.")
        return mode, int(label)
    (row,) = known.rows([label], unknown="ignore")
    return mode, _new_label(known.index, name, label) if row < 0 else known.index[int(row)]


def _new_label(known: Any, mode: str, label: str) -> Any:
    """A label that the model does not know, of the kind of those that it does."""
    import pandas as pd

    kinds: tuple[tuple[Any, Any, str], ...] = (
        (pd.api.types.is_numeric_dtype, pd.to_numeric, "number"),
        (pd.api.types.is_datetime64_any_dtype, pd.to_datetime, "time"),
    )
    for is_one, convert, kind in kinds:
        if is_one(known.dtype):
            found = convert(label, errors="coerce")
            if pd.isna(found):
                such = f"a {kind}, as the labels of the model are, such as {known[0]}"
                fail_value(f"--given {mode}= must be {such}; got {label!r}.")
            return found
    return label


def _write(args: argparse.Namespace, table: Any) -> None:
    with output(args.output) as handle:
        write_csv(handle, table, args)


RECOMMENDING = Command(
    "recommend", "MODEL --mode MODE", "rank the rows of a mode", _add_recommend, _run_recommend, RECOMMEND
)
WEIGHTS = Command(
    "components", "MODEL --mode MODE", "write a mode's weights in the components", _add_components, _run_components,
    COMPONENTS,
)  # fmt: skip
