"""Models of matrices on the command line: files of entries to views or relations, fits, and predictions of cells."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tensorcep.cli._command import read_data, reading_of, show, shows_progress
from tensorcep.cli._knowledge import typed
from tensorcep.core.checks import check_file, fail_value

if TYPE_CHECKING:
    import pandas as pd

    from tensorcep.entries.labels import Labels
    from tensorcep.entries.sparse_tensor import SparseTensor

MODELS = {
    "pca": "BayesianPCA",
    "fa": "BayesianFactorAnalysis",
    "gfa": "GroupFactorAnalysis",
    "cmf": "CollectiveMatrixFactorization",
}
# --likelihood -> what models of matrices call it
KINDS = {
    "gaussian": "gaussian",
    "logit": "bernoulli",
    "probit": "probit",
    "negbinomial": "negbinomial",
    "poisson": "poisson",
}
LABELS = ("bernoulli", "probit")
# Options of models of tensors, with their defaults.
FOR_TENSORS: dict[str, Any] = {
    "upper_limit": None,
    "power": None,
    "prior": "auto",
    "interactions": "auto",
    "features": [],
    "series": [],
    "graph": [],
    "zero_rate": None,
    "noise": "one",
    "exposure": None,
    "n_trials": None,
    "schedule": None,
    "damping": None,
    "dtype": None,
    "zeros": None,
}
TOL = 3e-3  # the default of the command, in place of which each model has its own


class MatrixFile(NamedTuple):
    """A file of one matrix: its name, its entries, and its likelihood."""

    name: str
    tensor: SparseTensor
    likelihood: str


def add_matrix_options(parser: argparse.ArgumentParser) -> None:
    """Add --model and --also."""
    group = parser.add_argument_group("models of matrices")
    group.add_argument(
        "--model",
        choices=("cp", *MODELS),
        default="cp",
        help="cp: a tensor (default). Of a matrix of rows, columns and values: pca, fa (factor analysis). Of several, "
        "with --also: gfa, views of the same rows; cmf, matrices whose rows and columns are what their columns of "
        "labels are called. Their likelihoods: gaussian, logit, probit, negbinomial, poisson",
    )
    add_wide_option(group)
    group.add_argument(
        "--also",
        action="append",
        default=[],
        metavar="FILE[=LIKELIHOOD]",
        help="for gfa and cmf: the entries of one more matrix (several times)",
    )


def add_wide_option(group: Any) -> None:
    """Add --wide, of commands that read matrices."""
    group.add_argument(
        "--wide",
        action=argparse.BooleanOptionalAction,
        help="csv and parquet files hold a matrix as it is: a line per row, a column per variable, empty cells for "
        "what is missing, and perhaps labels of the rows first (default: where there are not just three columns)",
    )


def fit_matrices(args: argparse.Namespace) -> None:
    """Fit the model of matrices that the options describe, and write it.

    Raises
    ------
    ValueError
        If an option is for tensors, or a file holds no matrix.
    """
    _check(args)
    progress = shows_progress(args)
    given = [_read(path, args, number, progress) for number, path in enumerate([args.data, *args.also])]
    if not args.quiet:
        for one in given:
            described = repr(one.tensor).removeprefix("<SparseTensor ").removesuffix(">")
            show(f"data        {one.name}: {described}, {one.likelihood}")
    model, matrices = _model_of(args, given, progress)
    start = time.perf_counter()
    model.fit(matrices)
    seconds = time.perf_counter() - start
    model.save(args.output)
    if not args.quiet:
        ending = "converged" if model.converged_ else "not converged"
        show(f"components  {model.n_components_}")
        for name, shares in model.variance_explained().iterrows():
            show(f"explained   {name}: {100 * shares.sum():.3g} %")
        show(f"fit         {model.n_iter_} sweeps, {ending}, {seconds:.1f} s\nmodel       {args.output}")


def _check(args: argparse.Namespace) -> None:
    if args.model == "cp":
        fail_value("--also is for --model gfa and cmf; leave it out.")
    if args.also and args.model not in ("gfa", "cmf"):
        fail_value(f"--also is for --model gfa and cmf; got {args.model}; leave it out.")
    for name, default in FOR_TENSORS.items():
        if getattr(args, name) != default:
            fail_value(f"--{name.replace('_', '-')} is for --model cp; got {args.model}; leave it out.")
    if args.lower_limit != "auto" and args.model not in ("gfa", "cmf"):
        fail_value(f"--lower-limit is for --model cp, gfa and cmf; got {args.model}; leave it out.")


def _read(path: str, args: argparse.Namespace, number: int, progress: int) -> MatrixFile:
    """The matrix of DATA (number 0), or of a file that --also names."""
    word = args.likelihood or "gaussian"
    if number:
        path, sign, said = path.rpartition("=") if path.rpartition("=")[2] in KINDS else (path, "", "")
        word = said if sign else word
        args = argparse.Namespace(**{**vars(args), "modes": None, "value": None, "count": False, "format": None})
    if word not in KINDS:
        fail_value(f"--model {args.model} knows the likelihoods {', '.join(KINDS)}; got {word}.")
    tensor = matrix_in(path, args, progress)
    return MatrixFile(Path(path).name.partition(".")[0], tensor, KINDS[word])


def matrix_in(path: str, args: argparse.Namespace, progress: int = 0) -> SparseTensor:
    """The matrix that a file holds: as entries of rows, columns and values, or as it is.

    Raises
    ------
    ValueError
        If it holds neither.
    """
    from tensorcep.entries.io import columns_of

    wide = args.wide
    if wide is None and args.modes is None and args.value is None and not args.count:
        names = columns_of(path, reading_of(args))
        wide = names is not None and len(names) != 3
    if wide:
        return wide_matrix(path, args)
    tensor = read_data(path, args, progress)
    if tensor.order != 2:
        fail_value(f"'{path}' must hold rows, columns and values to be a matrix; it has {tensor.order} modes.")
    return tensor


def wide_matrix(path: str, args: argparse.Namespace) -> SparseTensor:
    """The matrix of a table with a line per row and a column per variable.

    The first column holds labels of the rows where it has no name, or text.

    Raises
    ------
    ValueError
        If another column holds what is no number.
    """
    import pandas as pd

    from tensorcep.entries.io import comma_hint, format_of, read_table
    from tensorcep.entries.labels import Labels, numbers_of
    from tensorcep.entries.sparse_tensor import SparseTensor

    kind = format_of(check_file(path), args.format)
    if kind not in ("csv", "parquet") or args.modes is not None or args.value is not None:
        fail_value(
            f"--wide is for all columns of a csv or parquet file; got '{path}', or --modes or --value; leave it out."
        )
    table = read_table(path, reading_of(args))
    if args.decimal != "." and kind == "csv":
        table = table.apply(lambda column: column.str.replace(args.decimal, ".", regex=False))
    first, rows = table.columns[0], None
    if not str(first).strip() or not pd.api.types.is_numeric_dtype(typed(table[first])):
        rows = Labels(numbers_of(table[first]) if kind == "csv" else table[first].to_numpy())
        rows = Labels(rows.index.rename(str(first).strip() or None))
        table = table.drop(columns=first)
    columns = {name: typed(table[name]) for name in table}
    for name, column in columns.items():
        if not pd.api.types.is_numeric_dtype(column):
            text = next(cell for cell in column if pd.isna(pd.to_numeric(cell, errors="coerce")) and not pd.isna(cell))
            hint = comma_hint(text, args.decimal)
            fail_value(f"column {name!r} of '{path}' has {text!r}, which is not a number; leave that column out{hint}.")
    matrix = pd.DataFrame(columns).to_numpy(dtype=np.float64, na_value=np.nan)
    observed = np.argwhere(~np.isnan(matrix))
    known = [rows, Labels(list(columns))]
    return SparseTensor.from_coo(observed, matrix[tuple(observed.T)], matrix.shape, labels=known)


def _model_of(args: argparse.Namespace, given: list[MatrixFile], progress: int) -> tuple[Any, Any]:
    """The estimator, and what it is fitted to."""
    from tensorcep.estimators import FACTOR_MODELS
    from tensorcep.factor_models.sites import augmentation_of

    how: dict[str, Any] = {"random_state": args.seed, "n_jobs": args.threads, "verbose": progress}
    for name, value, default in (
        ("max_iter", args.max_iter, "auto"),
        ("method", args.method, "auto"),
        ("tol", args.tol, TOL),
    ):
        if value != default:
            how[name] = value
    cls = FACTOR_MODELS[MODELS[args.model]]
    if args.model in ("pca", "fa"):
        if args.model == "pca":
            how |= {"likelihood": given[0].likelihood, "augmentation": augmentation_of(given[0].likelihood)}
        elif given[0].likelihood != "gaussian":
            fail_value(f"--model fa is for real values; got {args.likelihood}; use pca.")
        return cls(n_components=args.rank, **how), given[0].tensor
    how["n_components"] = args.rank
    how |= {"lower_limit": args.lower_limit} if isinstance(args.lower_limit, float) else {}
    if args.model == "gfa":
        tensors = _shared([one.tensor for one in given], [("rows", f"columns of {one.name}") for one in given])
        likelihoods = [one.likelihood for one in given]
        return cls(likelihood=likelihoods, **how), dict(zip([one.name for one in given], tensors, strict=True))
    entities = [_entities(one) for one in given]
    relations = [(*pair, one.likelihood) for pair, one in zip(entities, given, strict=True)]
    return cls(relations, **how), _shared([one.tensor for one in given], entities)


def _entities(given: MatrixFile) -> tuple[str, str]:
    """What the rows and the columns of a matrix are: the names of its modes."""
    row, col = (None if found is None else found.name for found in given.tensor.labels)
    if row is None or col is None:
        fail_value(f"--model cmf needs columns of labels with names, which say what they are; '{given.name}' has none.")
    return str(row), str(col)


def _shared(tensors: list[SparseTensor], entities: list[tuple[str, str]]) -> list[SparseTensor]:
    """The matrices with the same rows for the same entity: all labels that one of them has."""
    from tensorcep.entries.sparse_tensor import SparseTensor

    known: dict[str, Labels | None] = {}
    sizes: dict[str, int] = {}
    for tensor, pair in zip(tensors, entities, strict=True):
        for name, labels, size in zip(pair, tensor.labels, tensor.shape, strict=True):
            before = known.get(name, labels)
            if (before is None) != (labels is None):
                fail_value(f"the {name} must have labels in all files, or indices in all of them.")
            known[name] = None if before is None or labels is None else _joined(before, labels)
            sizes[name] = max(size, sizes.get(name, 0))
    result = []
    for tensor, pair in zip(tensors, entities, strict=True):
        coords, names = tensor.coords.copy(), [known[name] for name in pair]
        for k, (own, every) in enumerate(zip(tensor.labels, names, strict=True)):
            if own is not None and every is not None:
                coords[:, k] = every.rows(own.index)[coords[:, k]]
        shape = [sizes[name] if every is None else len(every) for name, every in zip(pair, names, strict=True)]
        result.append(SparseTensor(coords, tensor.values, tuple(shape), tuple(names)))
    return result


def _joined(known: Labels, more: Labels) -> Labels:
    new = known.rows(more.index, unknown="ignore") < 0
    return known.extended(more.index[new]) if new.any() else known


class CellReading(NamedTuple):
    """What reading cells needs to know of a model."""

    labels_: tuple[Any, ...]


def which_matrix(args: argparse.Namespace) -> Any:
    """The matrix that --matrix names, the first by default."""
    return 0 if args.matrix is None else int(args.matrix) if args.matrix.isdecimal() else args.matrix


def predicted_cells(args: argparse.Namespace, model: Any) -> pd.DataFrame:
    """The cells of a file and what a model of matrices says of them."""
    from scipy.special import ndtri

    from tensorcep.cli._queries import read_queries

    m = model._position(which_matrix(args))
    link = model._links[m]
    known = CellReading((model._entity_labels[link.row], model._entity_labels[link.col]))
    queries = read_queries(args.data, args, known, with_values=False)
    mean, sd = model.predict_cells(queries.X, m, return_std=True)
    table = queries.columns.copy()
    table.columns = [f"mode_{name}" if isinstance(name, int) else name for name in table.columns]
    if link.likelihood in LABELS:
        return table.assign(probability=mean)
    table = table.assign(mean=mean, sd=sd)
    if link.likelihood != "gaussian":
        return table
    half = ndtri(0.5 + 0.5 * args.coverage) * sd
    lower = mean - half
    if link.limit is not None:
        lower = np.maximum(lower, link.limit[model._cells_of(queries.X, m)[:, 1]])
    return table.assign(lower=lower, upper=mean + half)


def matrix_of_fit(path: str, args: argparse.Namespace, model: Any, m: int) -> SparseTensor:
    """Entries of a file as cells of matrix m of the fit; those of rows and columns that it does not know are left out.

    Raises
    ------
    ValueError
        If the file holds no matrix, or indices for labels.
    """
    from tensorcep.entries.sparse_tensor import SparseTensor

    tensor, link = matrix_in(path, args), model._links[m]
    coords, labels = tensor.coords.copy(), [model._entity_labels[e] for e in (link.row, link.col)]
    for k, (known, own) in enumerate(zip(labels, tensor.labels, strict=True)):
        if (known is None) != (own is None):
            fail_value(f"the modes of '{path}' must be {'labels' if own is None else 'indices'}, as in the fit.")
        if known is not None and own is not None:
            coords[:, k] = known.rows(own.index, unknown="ignore")[coords[:, k]]
    shape = tuple(int(n) for n in link.matrix.cells.shape)
    known_cells = ((coords >= 0) & (coords < shape)).all(axis=1)
    return SparseTensor(coords[known_cells], tensor.values[known_cells], shape, tuple(labels))


def new_matrix(path: str, args: argparse.Namespace, model: Any, m: int) -> SparseTensor:
    """New rows of matrix m from a file, with the model's columns."""
    from tensorcep.entries.sparse_tensor import SparseTensor

    tensor, link = matrix_in(path, args), model._links[m]
    known, own = model._entity_labels[link.col], tensor.labels[1]
    coords = tensor.coords.copy()
    if (known is None) != (own is None):
        fail_value(f"the columns of '{path}' must be {'labels' if own is None else 'indices'}, as in the fit.")
    if known is not None and own is not None:
        coords[:, 1] = known.rows(own.index)[coords[:, 1]]
    width = link.matrix.cells.shape[1]
    if (coords[:, 1] >= width).any():
        fail_value(f"'{path}' must have columns up to {width}, as in the fit; got {int(np.max(coords[:, 1])) + 1}.")
    return SparseTensor(coords, tensor.values, (tensor.shape[0], width), (tensor.labels[0], known))
