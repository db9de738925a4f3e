"""What a model says: `tensorcep predict`, `score`, `transform`, `recommend` and `components`."""

from __future__ import annotations

import argparse
import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

import tensorcep as tc
from tensorcep.cli import cells
from tensorcep.cli.options import STDOUT, check_counts_of, check_output, mode_in, output
from tensorcep.core.checks import check_choice, check_file, check_fraction, check_int, fail_value, optional_module
from tensorcep.cp.inputs.coordinates import mode_of, names_of_modes
from tensorcep.entries.io import read_table
from tensorcep.entries.io.schema import Schema, format_of


def load_model(path: str, matrices: bool = True) -> Any:
    """Read a model of a tensor or, unless the command has no answer then, of matrices; others are for Python."""
    model = tc.load(path)
    if not hasattr(type(model), "parts_") or (is_of_matrices(model) and not matrices):
        who, which = ("the command line", "tensors and of matrices") if matrices else ("this command", "tensors")
        text = f"'{path}' holds a {type(model).__name__}, and {who} serves models of {which} only"
        fail_value(f"{text}; use it from Python with tensorcep.load.")
    return model


def is_of_matrices(model: Any) -> bool:
    """Whether a model is one of matrices."""
    return hasattr(type(model), "matrix_names_")


def _position_of_matrix(args: argparse.Namespace, model: Any) -> int:
    """The number of the matrix that --matrix names, the first by default."""
    names, given = model.matrix_names_, 0 if args.matrix is None else mode_in(args.matrix)
    position = names.index(check_choice("matrix", given, names)) if isinstance(given, str) else given
    return check_int("matrix", position, 0, len(names) - 1)


def _with_results(table: pd.DataFrame, results: Any) -> pd.DataFrame:
    """The columns of modes and of results, which are told apart where they have the same name."""
    modes = list(table.columns)
    for name, values in results.items():
        table[f"predicted_{name}" if name in modes else name] = values
    return table


def run_predict(args: argparse.Namespace) -> None:
    check_fraction("--coverage", args.coverage)
    check_output(args.output, args.model, args.data)
    if args.output != STDOUT and not args.output.endswith((".csv", ".parquet")):
        fail_value(f"predictions are written as csv or parquet; got the name '{args.output}'; let it end in .csv.")
    model = load_model(args.model)
    if is_of_matrices(model):
        m = _position_of_matrix(args, model)
        part = model.parts_[m]
        queries = cells.read_queries(args.data, args, SimpleNamespace(labels_=part.labels), with_values=False)
        table, law = queries.named(), model.predictive(queries.X, m)
        results = {"probability": law.mean} if part.kind == "labels" else {"mean": law.mean, "sd": law.sd}
        if part.kind != "labels" and law.has_interval:
            results["lower"], results["upper"] = law.interval(args.coverage).T
        tables = iter([table.assign(**results)])
    else:
        tables = (prediction_table(model, piece, args.coverage) for piece in cells.query_pieces(args.data, args, model))
    first = next(tables)  # what is wrong with the first cells is said before a file is begun
    tables = itertools.chain([first], tables)
    if not args.output.endswith(".parquet"):
        cells.write_csv(args.output, args, tables)
        return
    needed = "writing parquet files", "'tensorcep[parquet]'"
    arrow, parquet = optional_module("pyarrow", *needed).Table, optional_module("pyarrow.parquet", *needed)
    schema = arrow.from_pandas(first, preserve_index=False).schema  # the types of all are those of the first
    with output(args.output) as handle, parquet.ParquetWriter(handle, schema) as writer:
        for table in tables:
            writer.write_table(arrow.from_pandas(table, schema=schema, preserve_index=False))


def prediction_table(model: Any, queries: cells.QueriedCells, coverage: float) -> pd.DataFrame:
    """The cells' columns and what the model says of them."""
    table, X, extent = queries.named(), queries.X, queries.extent
    for name in table.columns[table.dtypes == "float64"]:
        table[name] = table[name].map(repr)  # labels keep every digit
    results: dict[str, Any] = {}
    kind = model.parts_[0].kind
    if kind == "levels":
        lower, upper = model.predict_interval(X, coverage).T
        p = model.predict_proba(X)
        results["level"] = model.classes_[p.argmax(axis=1)]
        if not cells.has_words(model):  # which have no mean
            results["mean"], results["sd"] = model.expected_value(X, return_std=True)
        results |= {"lower": lower, "upper": upper}
        names = [level if isinstance(level, str) else f"{level:g}" for level in model.classes_.tolist()]
        return _with_results(table, results | {f"probability_{name}": p[:, k] for k, name in enumerate(names)})
    if kind == "labels":
        name = f"probability_{model.classes_[1]}" if cells.has_words(model) else "probability"
        results[name] = model.predict_proba(X)[:, 1]
    else:
        results["mean"] = model.predict(X, **extent)
    if model.has_uncertainty():
        if "mean" in results:
            results["sd"] = model.predict(X, return_std=True, **extent)[1]
        results["lower"], results["upper"] = model.predict_interval(X, coverage, **extent).T
    return _with_results(table, results)


def run_score(args: argparse.Namespace) -> None:
    check_counts_of(args, "top")
    check_count(args)
    check_output(args.output, args.model, args.data)
    model = load_model(args.model, matrices=False)
    table = score_table(model, read_scored(args.data, args, model))
    if args.top is not None:
        table = table.sort_values("surprise", ascending=False, kind="stable").head(args.top)
    cells.write_csv(args.output, args, [table])


def check_count(args: argparse.Namespace) -> None:
    """Refuse what does not go with --count."""
    if args.count and (args.exposure or args.n_trials):
        fail_value("--count makes counts of lines, which have no exposure or trials each; leave one of both out.")
    if args.count and args.value is not None:
        fail_value("--count says that no column is the value; leave out --value.")


def read_scored(path: str, args: argparse.Namespace, model: Any) -> cells.QueriedCells:
    """The observations of a file: its entries, or with --count the cells and how many lines each has."""
    queries = cells.read_queries(path, args, model, with_values=not args.count)
    if not args.count:
        return queries
    columns = queries.columns
    cell = columns.groupby(list(columns.columns), sort=False).ngroup().to_numpy()
    _, place, count = np.unique(cell, return_index=True, return_counts=True)
    X = queries.X[place] if hasattr(queries.X, "dtype") else queries.X.iloc[place]
    return queries._replace(X=X, y=count.astype(float), columns=columns.iloc[place])


def score_table(model: Any, queries: cells.QueriedCells) -> pd.DataFrame:
    """The cells' own columns and their scores."""
    scores = model.anomaly_score(queries.X, queries.y, **queries.extent)
    scores = scores.iloc[:, len(model.labels_) :].reset_index(drop=True)
    return _with_results(queries.named().reset_index(drop=True), scores)


def run_transform(args: argparse.Namespace) -> None:
    check_output(args.output, args.model, args.data)
    model = load_model(args.model)
    if is_of_matrices(model):
        m, first = _position_of_matrix(args, model), 0
        new = cells.matrix_of(args.data, args, model.parts_[m], new_rows=True)
        several = len(model.parts_) > 1 or not hasattr(model, "components_")
        mean, cov = model.transform({model.matrix_names_[m]: new} if several else new, return_cov=True)
        known = new.labels[0]
    else:
        if args.mode is None:
            fail_value("--mode must name the mode of the new rows, for a model of a tensor.")
        rows = model.transform(cells.read_data(args.data, args), mode=mode_in(args.mode))
        first, known, mean, cov = model.shape_[rows.mode], rows.labels, rows.mean, rows.cov
    n, K = mean.shape
    labels = np.arange(first, first + n) if known is None else np.asarray(known.index)
    columns = {"row": np.repeat(labels, K), "component": np.tile(np.arange(K), n), "mean": mean.ravel()}
    columns["sd"] = np.sqrt(np.diagonal(cov, axis1=1, axis2=2)).ravel()
    cells.write_csv(args.output, args, [pd.DataFrame(columns)])


def run_recommend(args: argparse.Namespace) -> None:
    check_int("-n", args.n)
    check_fraction("--coverage", args.coverage)
    check_output(args.output, args.model, args.exclude)
    model = load_model(args.model, matrices=False)
    given = dict(_row_of_mode(model, text) for text in args.given)
    exclude: Any = None if args.all else "seen"
    if args.exclude is not None:
        kind, names = format_of(check_file(args.exclude), None), names_of_modes(model.labels_)
        if kind == "npz" or None in names:
            exclude = tc.read_tensor(args.exclude)
        else:  # the columns that are called like modes of the model
            exclude = read_table(args.exclude, Schema(), n_modes=len(names))
            exclude = exclude[[name for name in exclude.columns if name in names]]
    how = {"n": args.n, "by": args.by, "coverage": args.coverage, "exclude": exclude, "random_state": 0}
    cells.write_csv(args.output, args, [model.recommend(mode_in(args.mode), given, **how)])


def _row_of_mode(model: Any, text: str) -> tuple[str | int, Any]:
    """A mode and its label, or index; one that the model does not know is made of the kind of those that it does."""
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
    if row >= 0:
        return mode, known.index[int(row)]
    (value,) = cells.as_labels(pd.Series([label]), known)
    if pd.isna(value) or (value == label and not pd.api.types.is_string_dtype(known.index)):
        kind = "number" if pd.api.types.is_numeric_dtype(known.index) else "time"
        such = f"a {kind}, as the labels of the model are, such as {known.index[0]}"
        fail_value(f"--given {name}= must be {such}; got {label!r}.")
    return mode, value


def run_components(args: argparse.Namespace) -> None:
    check_fraction("--coverage", args.coverage)
    check_output(args.output, args.model)
    cells.write_csv(args.output, args, [load_model(args.model).components(mode_in(args.mode), args.coverage)])
