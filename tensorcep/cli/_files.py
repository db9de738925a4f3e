"""`tensorcep info` and `convert`: look into files, change their format."""

from __future__ import annotations

import argparse
import os
from typing import Any

from tensorcep.cli._command import (
    FILE_KINDS,
    Command,
    add_data_options,
    add_safe_csv,
    add_talk_options,
    check_output,
    is_of_matrices,
    load_any_model,
    read_data,
    reading_of,
    show,
    shows_progress,
)
from tensorcep.cli._lines import fit_line, health_lines, method_line, noise_lines
from tensorcep.cli._zeros import add_zeros_option, with_zeros
from tensorcep.core.checks import check_int, printable
from tensorcep.core.persist.archive import archive_kind

# info


def _add_info(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help=f"model file, or entries in {FILE_KINDS}")
    add_data_options(parser)


def _run_info(args: argparse.Namespace) -> None:
    if archive_kind(args.file) in ("tensorcep.model", "tensorcep.factor_model"):
        model = load_any_model(args.file)
        show(str(model.summary()) if is_of_matrices(model) else describe_model(model))
    else:
        from tensorcep.entries.io import value_name_of

        tensor = read_data(args.file, args)
        name = value_name_of(args.file, reading_of(args)) if os.path.isfile(args.file) else None
        show(str(tensor.info()) + ("" if name is None else f"\nvalue    {name}"))


def describe_model(model: Any) -> str:
    """A few lines about a fitted model."""
    sizes = " x ".join(map(str, model.shape_))
    named = [f"mode {k}" if found.name is None else str(found.name) for k, found in enumerate(model.labels_) if found]
    seconds = model.trace_.get("seconds")  # those of a stream are not kept
    lines = [
        f"model       {type(model).__name__}, likelihood {model._result.likelihood.name}",
        f"shape       {sizes}; {'labels of ' + ', '.join(named) if named else 'indices, no labels'}",
        f"method      {method_line(model)}",
        f"fit         {fit_line(model)}" + ("" if seconds is None else f", {seconds.sum():.2g} s in sweeps"),
    ]
    lines += [*noise_lines(model), *health_lines(model)]
    lines.append(f"settings    method {model.method}, tol {model.tol:g}")
    return printable("\n".join(lines))


# convert


def _add_convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="IN", help=f"entries in {FILE_KINDS}")
    parser.add_argument("output", metavar="OUT", help="file to write; its extension says the format")
    group = parser.add_argument_group("how to write OUT")
    group.add_argument("--out-index-base", type=int, choices=(0, 1), default=1, help="indices count from (default: 1)")
    group.add_argument("--out-no-header", action="store_true", help="csv: no line of column names")
    group.add_argument("--extended", action="store_true", help=".tns: begin with order, number of entries and sizes")
    add_safe_csv(group)
    group = parser.add_argument_group("what else to write")
    add_zeros_option(group)
    group.add_argument("--seed", type=int, default=0, help="of the zeros (default: 0)")
    add_data_options(parser)
    add_talk_options(parser)


def _run_convert(args: argparse.Namespace) -> None:
    from tensorcep.entries.io import write_tensor

    check_output(args.output, args.data)
    progress = shows_progress(args)
    check_int("--seed", args.seed, 0)
    tensor = with_zeros(read_data(args.data, args, progress), args)
    write_tensor(
        tensor,
        args.output,
        index_base=args.out_index_base,
        header=not args.out_no_header,
        extended=args.extended,
        value=args.value if args.header and args.value is not None else "y",
        safe_csv=args.safe_csv,
        verbose=progress,
    )
    if not args.quiet:
        show(f"{args.output}  {tensor!r}")


INFO = Command("info", "FILE", "describe a file of entries or a model", _add_info, _run_info)
CONVERT = Command("convert", "IN OUT", "write entries in another format", _add_convert, _run_convert)
