"""Files and the program: `tensorcep info`, `convert`, `split`, `datasets`, `report`, `demo` and `warmup`."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

import tensorcep as tc
from tensorcep.cli import options
from tensorcep.cli.fit import fit_line, health_lines, method_line, noise_lines
from tensorcep.cli.options import Command, check_output, mode_in, output, say, show, shows_progress
from tensorcep.cli.predict import is_of_matrices, load_model
from tensorcep.core.checks import check_choice, check_columns, check_fraction, check_int, fail_value, printable
from tensorcep.core.persist.archive import archive_kind

if TYPE_CHECKING:
    import pandas as pd

# info


def _add_info(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help=f"model file, or entries in {options.FILE_KINDS}")
    options.add_data(parser)


def _run_info(args: argparse.Namespace) -> None:
    if archive_kind(args.file) in ("tensorcep.model", "tensorcep.factor_model"):
        model = load_model(args.file)
        show(str(model.summary()) if is_of_matrices(model) else _describe_model(model))
        return
    from tensorcep.cli.cells import read_data, value_column

    tensor, name = read_data(args.file, args), value_column(args.file, args)
    show(str(tensor.info()) + ("" if name is None else f"\nvalue    {name}"))


def _describe_model(model: Any) -> str:
    """A few lines about a fitted model."""
    sizes = " x ".join(map(str, model.shape_))
    named = [f"mode {k}" if one.name is None else str(one.name) for k, one in enumerate(model.labels_) if one]
    seconds = model.trace_.get("seconds")  # those of a stream are not kept
    lines = [
        f"model       {type(model).__name__}, likelihood {model.likelihood_}",
        f"shape       {sizes}; {'labels of ' + ', '.join(named) if named else 'indices, no labels'}",
        f"method      {method_line(model)}",
        f"fit         {fit_line(model)}" + ("" if seconds is None else f", {seconds.sum():.2g} s in sweeps"),
    ]
    lines += [*noise_lines(model), *health_lines(model)]
    lines.append(f"settings    method {model.method}, tol {model.tol:g}")
    return printable("\n".join(lines))


def _add_convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="IN", help=f"entries in {options.FILE_KINDS}")
    parser.add_argument("output", metavar="OUT", help="file to write; its extension says the format")
    options.add_talk(parser)
    group = parser.add_argument_group("how to write OUT")
    options.add(group, "out_index_base", "out_no_header", "extended", "safe_csv", "zeros", "seed")
    options.add_data(parser)


def _run_convert(args: argparse.Namespace) -> None:
    from tensorcep.cli.cells import read_data, with_zeros

    check_output(args.output, args.data)
    check_int("--seed", args.seed, 0)
    progress = shows_progress(args)
    tensor = with_zeros(read_data(args.data, args, progress), args)
    how: dict[str, Any] = {"index_base": args.out_index_base, "header": not args.out_no_header}
    how["value"] = args.value if args.header and args.value is not None else "y"
    how |= {"extended": args.extended, "safe_csv": args.safe_csv, "verbose": progress}
    tc.write_tensor(tensor, args.output, **how)
    if not args.quiet:
        show(f"{args.output}  {tensor!r}")


SPLIT = """\
Write a part of the entries of IN to TEST and the others to TRAIN. What is held out says --by:

  entry   entries at random
  time    those of the last times, by the mode or column --times; one time stays together
  row     some entries of each row of --mode, such as each user, but not all: the last
          ones where --times says when, or random ones
  group   rows of --mode with all their entries

--test-size is a share (of entries; of group, of rows), or a whole number: of entries, times, entries of each row, rows.
Files of csv and parquet keep their header, all their columns and the order of their lines, those of csv also their
separator, if it is a single character."""


def _add_split(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="IN", help=f"entries in {options.FILE_KINDS}")
    parser.add_argument("train", metavar="TRAIN", help="file for the entries to fit")
    parser.add_argument("test", metavar="TEST", help="file for the entries held out")
    options.add(parser, "split.by", "split.mode", "times", "test_size", "seed", "safe_csv")
    options.add_talk(parser)
    options.add_data(parser)


def _run_split(args: argparse.Namespace) -> None:
    from tensorcep.cli.cells import changed, read_data
    from tensorcep.entries.splitting import held_out, way_of

    if isinstance(args.test_size, int):
        check_int("--test-size", args.test_size)
    else:
        check_fraction("--test-size", args.test_size)
    check_output(args.train, args.data)
    check_output(args.test, args.data, args.train)
    table = _lines_of(args)
    # Lines are not merged: what is bought again later is held out, too.
    again = table is not None and args.by != "entry" and not args.count
    how = changed(args, duplicates="last" if again else args.duplicates)
    tensor = read_data(args.data, how, shows_progress(args))
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
        if table is not None:
            _write_lines(path, table.iloc[rows], args)
        else:
            value = args.value if args.header and args.value is not None else "count" if args.count else "y"
            part = tensor.select(rows)
            tc.write_tensor(part, path, index_base=args.index_base, value=value, safe_csv=args.safe_csv)
        if not args.quiet:
            show(f"{path}  {tensor.select(rows)!r}" if n == tensor.nnz else f"{path}  {len(rows):,} lines")


def _lines_of(args: argparse.Namespace) -> pd.DataFrame | None:
    """The lines of a table, csv as text; None where the parts are no lines of the same kind of file."""
    from tensorcep.cli.cells import reading_of
    from tensorcep.entries.io import format_of, read_table

    kinds = {format_of(path, args.format) for path in (args.data, args.train, args.test)}
    merged = args.duplicates != "error" or (args.count and args.by == "entry")
    if len(kinds) > 1 or merged or not os.path.isfile(args.data):
        return None
    return read_table(args.data, reading_of(args)) if kinds in ({"csv"}, {"parquet"}) else None


def _write_lines(path: str, table: pd.DataFrame, args: argparse.Namespace) -> None:
    """Write lines of a table as they were read."""
    from tensorcep.cli.cells import reading_of
    from tensorcep.entries.io import escaped, format_of, separator_of, text_file

    if format_of(path, args.format) == "parquet":
        with output(path) as handle:
            table.to_parquet(handle, index=False)
        return
    separator = separator_of(args.data, reading_of(args))
    with text_file(path) as handle:
        shown = escaped(table) if args.safe_csv else table
        shown.to_csv(handle, sep=separator, index=False, header=args.header, lineterminator="\n")


DATASETS = f"""\
Without NAME, list the data sets. With NAME, download the files that are not there yet. With NAME and -o, write its
entries to a file ({options.WRITTEN_KINDS}). Downloads are kept in the folder that
TENSORCEP_DATA names, or in the cache of pooch."""


def _add_datasets(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="one of those that the list shows")
    options.add(parser, "output", "part", "fold", "safe_csv")


def _run_datasets(args: argparse.Namespace) -> None:
    if args.name is None:
        if args.output or args.part or args.fold:
            fail_value("--output, --part and --fold need the NAME of a data set; give one.")
        print("\n".join(_dataset_line(item) for item in tc.datasets.available()))
        return
    check_choice("NAME", args.name, tc.datasets.CATALOGUE)
    if (args.part or args.fold) and (args.output is None or args.name not in {"alog", "enron", "dblp"}):
        fail_value("--part and --fold have a meaning only with --output, for alog, enron and dblp; leave them out.")
    if args.output is not None:
        check_output(args.output)
        tensor = _load_part(args.name, args.part or "train", 1 if args.fold is None else args.fold)
        tc.write_tensor(tensor, args.output, safe_csv=args.safe_csv)
        show(f"{args.output}  {tensor!r}")
        return
    files = [file for file in tc.datasets.registry() if file.startswith(f"{args.name}/")]
    if not files:
        show(f"{args.name} ships with TensorLy: nothing to download; write it to a file with -o")
    for file in files:
        show(str(tc.datasets.fetch(file)))


def _load_part(name: str, part: str, fold: int) -> tc.SparseTensor:
    """One tensor of a data set; `part` and `fold` are ignored where there is only one."""
    if name in ("covid19_serology", "il2"):
        return tc.datasets.load_il2() if name == "il2" else tc.datasets.load_covid19_serology()
    if name == "dblp":
        dblp = tc.datasets.load_dblp()
        return dblp.train if part == "train" else dblp.tests[check_int("--fold", fold, 1, len(dblp.tests)) - 1]
    check_int("--fold", fold, 1, tc.datasets.N_FOLDS)
    halves = tc.datasets.load_alog(fold) if name == "alog" else tc.datasets.load_enron(fold)
    return halves.train if part == "train" else halves.test


def _dataset_line(item: tc.datasets.DatasetInfo) -> str:
    where = f"{item.size / 1e6:.1f} MB, {'fetched' if item.cached else 'to download'}" if item.size else "with TensorLy"
    return f"{item.name:17} {where:21} {item.description}"


REPORT = """\
Write one HTML page about a model, with all figures in it: what was fitted and how far it is to be believed, the
variance that components explain, their weights with intervals, the rows of the largest weights, how the fit went; with
--data, entries as fit takes them, also the gaps of the data and the residuals by row. Models of matrices have the
scores of their rows, too; of several matrices --data is given once for each, in the order of the fit."""


def _add_report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="file that fit or stream wrote")
    options.add(parser, "output", required=True)
    options.add(parser, "report.data", "wide")
    options.add_data(parser)


def _run_report(args: argparse.Namespace) -> None:
    check_output(args.output, args.model, *args.data)
    options.figure_module()
    from tensorcep.plots.report import report

    model = load_model(args.model)
    data = _data_of_report(model, args)
    with output(args.output) as handle:
        handle.write(report(model, data).encode("utf-8"))


def _data_of_report(model: Any, args: argparse.Namespace) -> Any:
    """The entries of --data, as the model has them; None without."""
    from tensorcep.cli.cells import matrix_of_fit, read_data

    of_matrices = is_of_matrices(model)
    wanted = len(model.matrix_names_) if of_matrices else 1
    if len(args.data) not in (0, wanted):
        fail_value(
            f"--data must be given {wanted} time{'s' * (wanted > 1)}, one for each matrix; got {len(args.data)}."
        )
    if not args.data:
        return None
    if not of_matrices:
        return read_data(args.data[0], args)
    return [matrix_of_fit(path, args, part) for path, part in zip(args.data, model.parts_, strict=True)]


DEMO = """\
Hold out a fifth of the COVID-19 serology tensor (it ships with TensorLy: nothing is downloaded), fit the rest, and
compare the predictions with the training mean and with TensorLy's masked parafac. Writes the model and a figure."""
WARMUP = """\
Compile the usual kernels into a cache on the disk (NUMBA_CACHE_DIR), so that the first fit of every process is quick;
a wheel brings most of them. KIND is regressor, classifier, counts or levels (fits by default), cep, vmp or pg-vb (fits
by these methods), streams, knowledge (features, series, graphs), others, matrices, linear or gaussian-processes;
without any, all of them."""


def _add_demo(parser: argparse.ArgumentParser) -> None:
    options.add(parser, "output_dir", "rank", "seed", "quiet")


def _run_demo(args: argparse.Namespace) -> None:
    if args.rank != "auto":
        check_int("--rank", args.rank)
    check_int("--seed", args.seed, 0)
    from tensorcep.demo import report, run_demo

    if not args.quiet:
        say(
            "fitting (about 10 seconds on two free cores; without compiled kernels it compiles for about 10 more), "
            "then scoring"
        )
    print(report(run_demo(args.output_dir, rank=args.rank, seed=args.seed, progress=not args.quiet)))


def _add_warmup(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kinds", metavar="KIND", nargs="*", help="what to compile (default: everything)")
    options.add(parser, "processes")
    options.add_talk(parser)


def _run_warmup(args: argparse.Namespace) -> None:
    check_int("--processes", args.processes)
    seconds = tc.warmup(args.kinds or None, n_processes=args.processes, verbose=bool(shows_progress(args)))
    if not args.quiet:
        for kind, each in seconds.items():
            say(f"{kind}: {each:.1f} s")


REPORTING = Command("report", "MODEL -o OUT.html", "write a page about a model", _add_report, _run_report, REPORT)
COMMANDS = (
    Command("info", "FILE", "describe a file of entries or a model", _add_info, _run_info),
    Command("convert", "IN OUT", "write entries in another format", _add_convert, _run_convert),
    Command("split", "IN TRAIN TEST", "hold out a part of the entries", _add_split, _run_split, SPLIT),
    Command("datasets", "[NAME]", "list or fetch published data sets", _add_datasets, _run_datasets, DATASETS),
    Command("demo", "", "see it work on real data, in half a minute", _add_demo, _run_demo, DEMO),
    Command("warmup", "[KIND ...]", "compile the usual kernels beforehand", _add_warmup, _run_warmup, WARMUP),
)
