"""What a model says: `tensorcep predict`, `score`, `transform`, `recommend` and `components`."""

from __future__ import annotations

import argparse
import itertools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

import tensorcep as tc
from tensorcep.cli import options
from tensorcep.cli.options import STDOUT, Command, check_output, mode_in, output, write_csv
from tensorcep.core.checks import check_file, check_fraction, check_int, fail_value

if TYPE_CHECKING:
    import pandas as pd

    from tensorcep.cli.cells import QueriedCells


def load_model(path: str, matrices: bool = True) -> Any:
    """Read a model of a tensor or, unless the command has no answer then, of matrices; others are for Python."""
    model = tc.load(path)
    if not hasattr(type(model), "parts_") or (is_of_matrices(model) and not matrices):
        serves = (
            "the command line serves models of tensors and of matrices"
            if matrices
            else "this command serves models of tensors"
        )
        fail_value(
            f"'{path}' holds a {type(model).__name__}, and {serves} only; use it from Python with tensorcep.load."
        )
    return model


def is_of_matrices(model: Any) -> bool:
    """Whether a model is one of matrices."""
    return hasattr(type(model), "matrix_names_")


def _write(args: argparse.Namespace, table: pd.DataFrame) -> None:
    with output(args.output) as handle:
        write_csv(handle, table, args)


def _with_results(table: pd.DataFrame, results: Any) -> pd.DataFrame:
    """The columns of modes and of results, which are told apart where they have the same name."""
    modes = list(table.columns)
    for name, values in results.items():
        table[f"predicted_{name}" if name in modes else name] = values
    return table


PREDICT = """\
Predict the cells of DATA and write them as csv, or parquet: the mode columns of DATA, and

  mean, sd, lower, upper       real values and counts: of a new observation
  probability, lower, upper    labels: of a 1, and bounds of the probability; of
                               words probability_yes, the second of no and yes
  level, mean, sd, lower,      levels: the most probable one, and what is known
  upper, probability_1, ...    of a new observation

A point estimate (fit --method wopt) has the first column only. A model of matrices (fit --model) has mean, sd, lower
and upper of real values, mean and sd of counts, and probability of labels.

DATA is read as for fit, except that it needs no values and that cells may repeat. Columns of a csv or parquet file that
carry the names of the model's modes are taken by name. Cells in rows without training data get the prior."""


def _add_predict(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="file that fit wrote")
    parser.add_argument("data", metavar="DATA", help="file of the cells to predict, a folder, or a pattern in quotes")
    options.add(parser, "predict.output", "coverage", "safe_csv", "matrix")
    options.add_data(parser, fixed_rows=True, extents=True)


def _run_predict(args: argparse.Namespace) -> None:
    check_fraction("--coverage", args.coverage)
    check_output(args.output, args.model, args.data)
    if args.output != STDOUT and not args.output.endswith((".csv", ".parquet")):
        fail_value(f"predictions are written as csv or parquet; got the name '{args.output}'; let it end in .csv.")
    from tensorcep.cli.cells import query_pieces, write_parquet

    model = load_model(args.model)
    if is_of_matrices(model):
        tables = iter([_cells_of_matrix(args, model)])
    else:
        tables = (prediction_table(model, piece, args.coverage) for piece in query_pieces(args.data, args, model))
    first = next(tables)  # what is wrong with the first cells is said before a file is begun
    with output(args.output) as handle:
        every = itertools.chain([first], tables)
        if args.output.endswith(".parquet"):
            write_parquet(handle, every)
        else:
            for n, table in enumerate(every):
                write_csv(handle, table, args, header=n == 0)


def prediction_table(model: Any, cells: QueriedCells, coverage: float) -> pd.DataFrame:
    """The cells' columns and what the model says of them."""
    from tensorcep.cli.cells import has_words

    table, X, extent = cells.named(), cells.X, cells.extent
    for name in table.columns[table.dtypes == "float64"]:
        table[name] = table[name].map(repr)  # labels keep every digit
    results: dict[str, Any] = {}
    kind = model.parts_[0].kind
    if kind == "levels":
        return _with_results(table, _of_levels(model, X, coverage))
    if kind == "labels":
        name = f"probability_{model.classes_[1]}" if has_words(model) else "probability"
        results[name] = model.predict_proba(X)[:, 1]
    else:
        results["mean"] = model.predict(X, **extent)
    if model.has_uncertainty():
        if "mean" in results:
            results["sd"] = model.predict(X, return_std=True, **extent)[1]
        results["lower"], results["upper"] = model.predict_interval(X, coverage, **extent).T
    return _with_results(table, results)


def _of_levels(model: Any, X: Any, coverage: float) -> dict[str, Any]:
    """What a model of ordered levels says; those that are words have no mean."""
    from tensorcep.cli.cells import has_words

    lower, upper = model.predict_interval(X, coverage).T
    p = model.predict_proba(X)
    results = {"level": model.classes_[p.argmax(axis=1)]}
    if not has_words(model):
        results["mean"], results["sd"] = model.expected_value(X, return_std=True)
    results |= {"lower": lower, "upper": upper}
    names = [level if isinstance(level, str) else f"{level:g}" for level in model.classes_.tolist()]
    return results | {f"probability_{name}": p[:, k] for k, name in enumerate(names)}


def _cells_of_matrix(args: argparse.Namespace, model: Any) -> pd.DataFrame:
    """The cells of a file and what a model of matrices says of them."""
    from tensorcep.cli.cells import position_of_matrix, read_queries

    m = position_of_matrix(args, model)
    part = model.parts_[m]
    cells = read_queries(args.data, args, SimpleNamespace(labels_=part.labels), with_values=False)
    table, law = cells.named(), model.predictive(cells.X, m)
    if part.kind == "labels":
        return table.assign(probability=law.mean)
    table = table.assign(mean=law.mean, sd=law.sd)
    if not law.has_interval:
        return table
    lower, upper = law.interval(args.coverage).T
    return table.assign(lower=lower, upper=upper)


SCORE = """\
Score how odd the observations in DATA are under the model, and write them as csv: the mode columns of DATA, and

  value                     what was observed
  mean, sd                  of a new observation
  surprise                  minus its log predictive density or mass, in nats
  lower_tail, upper_tail    probability of an observation as low, or as high
  unseen                    whether a row of the cell had no training data

DATA is read as for predict, and must hold values; with --count a line is an event, and the value of a cell is the
number of its lines."""


def _add_score(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="file that fit or stream wrote")
    parser.add_argument("data", metavar="DATA", help="file of observations")
    options.add(parser, "csv.output", "safe_csv", "top", "count")
    options.add_data(parser, fixed_rows=True, extents=True)


def _run_score(args: argparse.Namespace) -> None:
    options.check_counts_of(args, "top")
    check_count(args)
    check_output(args.output, args.model, args.data)
    model = load_model(args.model, matrices=False)
    table = score_table(model, read_scored(args.data, args, model))
    if args.top is not None:
        table = table.sort_values("surprise", ascending=False, kind="stable").head(args.top)
    _write(args, table)


def check_count(args: argparse.Namespace) -> None:
    """Refuse what does not go with --count."""
    if args.count and (args.exposure or args.n_trials):
        fail_value("--count makes counts of lines, which have no exposure or trials each; leave one of both out.")
    if args.count and args.value is not None:
        fail_value("--count says that no column is the value; leave out --value.")


def read_scored(path: str, args: argparse.Namespace, model: Any) -> QueriedCells:
    """The observations of a file: its entries, or with --count the cells and how many lines each has."""
    from tensorcep.cli.cells import read_queries

    queries = read_queries(path, args, model, with_values=not args.count)
    if not args.count:
        return queries
    columns = queries.columns
    cell = columns.groupby(list(columns.columns), sort=False).ngroup().to_numpy()
    _, place, count = np.unique(cell, return_index=True, return_counts=True)
    X = queries.X[place] if hasattr(queries.X, "dtype") else queries.X.iloc[place]
    return queries._replace(X=X, y=count.astype(float), columns=columns.iloc[place])


def score_table(model: Any, cells: QueriedCells) -> pd.DataFrame:
    """The cells' own columns and their scores."""
    scores = model.anomaly_score(cells.X, cells.y, **cells.extent)
    scores = scores.iloc[:, len(model.labels_) :].reset_index(drop=True)
    return _with_results(cells.named().reset_index(drop=True), scores)


TRANSFORM = """\
Place new rows among those of a fitted model, everything else as it was fitted, and write them as csv: row, component,
mean and sd.

Of a model of a tensor the entries of DATA are of new rows of the mode that --mode names. Of a model of matrices (fit
--model) they are new rows of a matrix, whose columns the model knows."""


def _add_transform(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="file that fit wrote")
    parser.add_argument("data", metavar="DATA", help="file of the entries of the new rows")
    options.add(parser, "csv.output", "safe_csv", "transform.mode", "matrix", "wide")
    options.add_data(parser)


def _run_transform(args: argparse.Namespace) -> None:
    import pandas as pd

    check_output(args.output, args.model, args.data)
    model = load_model(args.model)
    labels, mean, cov = _rows_of_matrix(args, model) if is_of_matrices(model) else _rows_of_tensor(args, model)
    n, K = mean.shape
    columns = {"row": np.repeat(np.asarray(labels), K), "component": np.tile(np.arange(K), n), "mean": mean.ravel()}
    _write(args, pd.DataFrame({**columns, "sd": np.sqrt(np.diagonal(cov, axis1=1, axis2=2)).ravel()}))


def _rows_of_tensor(args: argparse.Namespace, model: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    """Labels, means and covariances of new rows of a mode."""
    from tensorcep.cli.cells import read_data

    if args.mode is None:
        fail_value("--mode must name the mode of the new rows, for a model of a tensor.")
    rows = model.transform(read_data(args.data, args), mode=mode_in(args.mode))
    first = model.shape_[rows.mode]
    labels = np.arange(first, first + len(rows)) if rows.labels is None else rows.labels.index
    return labels, rows.mean, rows.cov


def _rows_of_matrix(args: argparse.Namespace, model: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    """Labels, means and covariances of new rows of a matrix."""
    from tensorcep.cli.cells import new_matrix, position_of_matrix

    m = position_of_matrix(args, model)
    new = new_matrix(args.data, args, model.parts_[m])
    several = len(model.parts_) > 1 or not hasattr(model, "components_")
    mean, cov = model.transform({model.matrix_names_[m]: new} if several else new, return_cov=True)
    return np.arange(len(mean)) if new.labels[0] is None else new.labels[0].index, mean, cov


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
    options.add(parser, "recommend.mode", required=True)
    options.add(parser, "given", "recommend.by")
    parser.add_argument("-n", type=int, default=10, help="rows for each combination (default: 10)")
    options.add(parser.add_mutually_exclusive_group(), "all", "exclude")
    options.add(parser, "csv.output", "coverage", "safe_csv")


def _run_recommend(args: argparse.Namespace) -> None:
    check_int("-n", args.n)
    check_fraction("--coverage", args.coverage)
    check_output(args.output, args.model, args.exclude)
    model = load_model(args.model, matrices=False)
    given = dict(_row_of_mode(model, text) for text in args.given)
    exclude = None if args.all else "seen" if args.exclude is None else _excluded(args.exclude, model)
    how = {"n": args.n, "by": args.by, "coverage": args.coverage, "exclude": exclude, "random_state": 0}
    _write(args, model.recommend(mode_in(args.mode), given, **how))


def _excluded(path: str, model: Any) -> Any:
    """Cells of a file: the columns that are called like modes of the model."""
    from tensorcep.cp.inputs.coordinates import names_of_modes
    from tensorcep.entries.io import Schema, format_of, read_table

    kind, names = format_of(check_file(path), None), names_of_modes(model.labels_)
    if kind == "npz" or None in names:
        return tc.read_tensor(path)
    cells = read_table(path, Schema(), n_modes=len(names))
    return cells[[name for name in cells.columns if name in names]]


def _row_of_mode(model: Any, text: str) -> tuple[str | int, Any]:
    """A mode and its label, or index."""
    from tensorcep.cp.inputs.coordinates import mode_of

    name, sign, label = text.partition("=")
    if not sign:
        fail_value(f"--given takes MODE=LABEL; got {text!r}.")
    mode = mode_in(name)
    known = model.labels_[mode_of(model.labels_, mode)]
    if known is None:
        if not label.isdecimal():
            fail_value(f"--given {name}= must be an index counted from 0, as the model has no labels; got {label!r}.")
        return mode, int(label)
    (row,) = known.rows([label], unknown="ignore")
    return mode, _new_label(known, name, label) if row < 0 else known.index[int(row)]


def _new_label(known: tc.Labels, mode: str, label: str) -> Any:
    """A label that the model does not know, of the kind of those that it does."""
    import pandas as pd

    from tensorcep.cli.cells import as_labels

    (value,) = as_labels(pd.Series([label]), known)
    if pd.isna(value) or (value == label and not pd.api.types.is_string_dtype(known.index)):
        kind = "number" if pd.api.types.is_numeric_dtype(known.index) else "time"
        such = f"a {kind}, as the labels of the model are, such as {known.index[0]}"
        fail_value(f"--given {mode}= must be {such}; got {label!r}.")
    return value


def _add_components(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="file that fit or stream wrote")
    options.add(parser, "mode", required=True)
    options.add(parser, "csv.output", "coverage", "safe_csv")


def _run_components(args: argparse.Namespace) -> None:
    check_fraction("--coverage", args.coverage)
    check_output(args.output, args.model)
    _write(args, load_model(args.model).components(mode_in(args.mode), args.coverage))


COMMANDS = (
    Command("predict", "MODEL DATA", "predict cells, with their uncertainty", _add_predict, _run_predict, PREDICT),
    Command("score", "MODEL DATA", "score how odd observations are", _add_score, _run_score, SCORE),
    Command("recommend", "MODEL --mode MODE", "rank the rows of a mode", _add_recommend, _run_recommend, RECOMMEND),
    Command("components", "MODEL --mode MODE", "write a mode's weights", _add_components, _run_components, COMPONENTS),
    Command("transform", "MODEL DATA", "place new rows in a model", _add_transform, _run_transform, TRANSFORM),
)
