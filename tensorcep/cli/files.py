"""Files and the program: `tensorcep info`, `convert`, `split`, `datasets`, `report`, `demo` and `warmup`."""

from __future__ import annotations

import argparse
import os
from typing import Any

import tensorcep as tc
from tensorcep.cli.cells import changed, matrix_of, read_data, reading_of, value_column, value_to_write, with_zeros
from tensorcep.cli.fit import fit_line, health_lines, method_line, noise_lines
from tensorcep.cli.options import check_figure, check_output, mode_in, output, say, show, shows_progress
from tensorcep.cli.predict import is_of_matrices, load_model
from tensorcep.core.checks import check_choice, check_columns, check_fraction, check_int, fail_value
from tensorcep.core.persist.archive import archive_kind
from tensorcep.entries.io.files import escaped, read_table, separator_of, text_file
from tensorcep.entries.io.schema import format_of
from tensorcep.entries.splitting import held_out, way_of


def run_info(args: argparse.Namespace) -> None:
    if archive_kind(args.file) not in ("tensorcep.model", "tensorcep.factor_model"):
        tensor, name = read_data(args.file, args), value_column(args.file, args)
        show(str(tensor.info()) + ("" if name is None else f"\nvalue    {name}"))
        return
    model = load_model(args.file)
    if is_of_matrices(model):
        show(str(model.summary()))
        return
    sizes = " x ".join(map(str, model.shape_))
    named = [f"mode {k}" if one.name is None else str(one.name) for k, one in enumerate(model.labels_) if one]
    seconds = model.trace_.get("seconds")  # those of a stream are not kept
    lines = [
        f"model       {type(model).__name__}, likelihood {model.likelihood_}",
        f"shape       {sizes}; {'labels of ' + ', '.join(named) if named else 'indices, no labels'}",
        f"method      {method_line(model)}",
        f"fit         {fit_line(model)}" + ("" if seconds is None else f", {seconds.sum():.2g} s in sweeps"),
    ]
    lines += [*noise_lines(model), *health_lines(model), f"settings    method {model.method}, tol {model.tol:g}"]
    show("\n".join(lines))


def run_convert(args: argparse.Namespace) -> None:
    check_output(args.output, args.data)
    check_int("--seed", args.seed, 0)
    progress = shows_progress(args)
    tensor = with_zeros(read_data(args.data, args, progress), args)
    how: dict[str, Any] = {"index_base": args.out_index_base, "header": not args.out_no_header}
    how |= {"value": value_to_write(args), "extended": args.extended, "safe_csv": args.safe_csv, "verbose": progress}
    tc.write_tensor(tensor, args.output, **how)
    if not args.quiet:
        show(f"{args.output}  {tensor!r}")


def run_split(args: argparse.Namespace) -> None:
    if isinstance(args.test_size, int):
        check_int("--test-size", args.test_size)
    else:
        check_fraction("--test-size", args.test_size)
    check_output(args.train, args.data)
    check_output(args.test, args.data, args.train)
    kinds = {format_of(path, args.format) for path in (args.data, args.train, args.test)}
    merged = args.duplicates != "error" or (args.count and args.by == "entry")
    table: Any = None  # its lines, csv as text, where the parts are lines of the same kind of file
    if kinds in ({"csv"}, {"parquet"}) and not merged and os.path.isfile(args.data):
        table = read_table(args.data, reading_of(args))
    # Lines are not merged: what is bought again later is held out, too.
    again = table is not None and args.by != "entry" and not args.count
    tensor = read_data(args.data, changed(args, duplicates="last") if again else args, shows_progress(args))
    if tensor.nnz < 2:
        fail_value(f"'{args.data}' must hold at least two entries to be split; got {tensor.nnz}.")
    if table is not None and args.by == "entry" and len(table) != tensor.nnz:
        table = None

    def column_of(name: Any) -> Any:
        if name is None or table is None:
            return (tensor.values if table is None else table.index) if name is None else tensor._column(mode_in(name))
        named = dict(zip([str(column).strip() for column in table.columns], table.columns, strict=True))
        check_columns(list(named), [name], f"'{args.data}'")
        return table[named[name]]

    n = tensor.nnz if table is None else len(table)
    parts = held_out(way_of(args.by, args.mode, args.times, column_of), n, args.test_size, args.seed)
    for path, rows in zip((args.train, args.test), parts, strict=True):
        if table is not None and format_of(path, args.format) == "parquet":
            with output(path) as handle:
                table.iloc[rows].to_parquet(handle, index=False)
        elif table is not None:
            how = {"sep": separator_of(args.data, reading_of(args)), "header": args.header, "lineterminator": "\n"}
            lines = escaped(table.iloc[rows]) if args.safe_csv else table.iloc[rows]
            with text_file(path) as text:
                lines.to_csv(text, index=False, **how)
        else:
            how = {"index_base": args.index_base, "value": value_to_write(args), "safe_csv": args.safe_csv}
            tc.write_tensor(tensor.select(rows), path, **how)
        if not args.quiet:
            show(f"{path}  {tensor.select(rows)!r}" if n == tensor.nnz else f"{path}  {len(rows):,} lines")


def run_datasets(args: argparse.Namespace) -> None:
    name, sets = args.name, tc.datasets
    whole = {"covid19_serology": sets.load_covid19_serology, "il2": sets.load_il2}
    in_folds = {"alog": sets.load_alog, "enron": sets.load_enron}
    if name is None:
        if args.output or args.part or args.fold:
            fail_value("--output, --part and --fold need the NAME of a data set; give one.")
        for item in sets.available():
            there = f"{item.size / 1e6:.1f} MB, {'fetched' if item.cached else 'to download'}"
            there = there if item.size else "with TensorLy" if item.name in whole else "in the package"
            print(f"{item.name:17} {there:21} {item.description}")
        return
    check_choice("NAME", name, sets.CATALOGUE)
    if (args.part or args.fold) and (args.output is None or name not in (*in_folds, "dblp")):
        fail_value("--part and --fold have a meaning only with --output, for alog, enron and dblp; leave them out.")
    if args.output is None:
        files = [file for file in sets.registry() if file.startswith(f"{name}/")]
        if not files:
            where = "ships with TensorLy" if name in whole else "is part of the package"
            show(f"{name} {where}: nothing to download" + "; write it to a file with -o" * (name in whole))
        for file in files:
            show(str(sets.fetch(file)))
        return
    if name not in (*whole, *in_folds, "dblp"):
        fail_value(f"--output is for tensors, and {name} has points; load it from Python, by tensorcep.datasets.")
    check_output(args.output)
    fold, of_test = 1 if args.fold is None else args.fold, args.part == "test"
    if name in whole:
        tensor = whole[name]()
    elif name == "dblp":
        dblp = sets.load_dblp()
        tensor = dblp.tests[check_int("--fold", fold, 1, len(dblp.tests)) - 1] if of_test else dblp.train
    else:
        halves = in_folds[name](check_int("--fold", fold, 1, sets.N_FOLDS))
        tensor = halves.test if of_test else halves.train
    tc.write_tensor(tensor, args.output, safe_csv=args.safe_csv)
    show(f"{args.output}  {tensor!r}")


def run_report(args: argparse.Namespace) -> None:
    check_figure(args.output, args.model, *args.data)
    model = load_model(args.model)
    of_matrices = is_of_matrices(model)
    wanted = len(model.matrix_names_) if of_matrices else 1
    if len(args.data) not in (0, wanted):
        times = f"{wanted} time{'s' * (wanted > 1)}, one for each matrix"
        fail_value(f"--data must be given {times}; got {len(args.data)}.")
    data: Any = None
    if args.data and of_matrices:
        data = [matrix_of(path, args, part) for path, part in zip(args.data, model.parts_, strict=True)]
    elif args.data:
        data = read_data(args.data[0], args)
    with output(args.output) as handle:
        handle.write(tc.plots.report(model, data).encode("utf-8"))


def run_demo(args: argparse.Namespace) -> None:
    if args.rank != "auto":
        check_int("--rank", args.rank)
    check_int("--seed", args.seed, 0)
    from tensorcep import demo  # heavy, for this command alone

    if not args.quiet:
        about = "about 10 seconds on two free cores; without compiled kernels it compiles for about 10 more"
        say(f"fitting ({about}), then scoring")
    print(demo.report(demo.run_demo(args.output_dir, rank=args.rank, seed=args.seed, progress=not args.quiet)))


def run_warmup(args: argparse.Namespace) -> None:
    check_int("--processes", args.processes)
    seconds = tc.warmup(args.kinds or None, n_processes=args.processes, verbose=bool(shows_progress(args)))
    if not args.quiet:
        for kind, each in seconds.items():
            say(f"{kind}: {each:.1f} s")
