"""`tensorcep fit`: entries in, model file out; and the estimator that options of models describe."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import tensorcep as tc
from tensorcep.cli import cells, options
from tensorcep.cli.options import STDOUT, check_output, is_given, mode_in, option_of, show, shows_progress
from tensorcep.core.arrays import bytes_of
from tensorcep.core.checks import check_choice, check_file, check_int, fail_value, word_or_range
from tensorcep.core.cluster import dask_module
from tensorcep.cp.estimators.base import spec_of
from tensorcep.cp.estimators.store import write_model
from tensorcep.cp.inputs.coordinates import mode_of
from tensorcep.cp.methods import METHODS
from tensorcep.cp.plan.spec import check_parameters
from tensorcep.cp.settings import SETTINGS
from tensorcep.entries.io import read_table
from tensorcep.entries.io.chunks import Files, files_of
from tensorcep.entries.io.schema import Schema, format_of
from tensorcep.entries.labels import numbers_of
from tensorcep.factor_models.sites import LIKELIHOODS, augmentation_of
from tensorcep.likelihoods import ALIASES, words_of
from tensorcep.priors.series import KINDS

MOST_LEVELS = 20  # from more different values on they are none
# The estimators of tensors by what they observe, and the parameter that takes the word of a likelihood.
ESTIMATOR_OF = {
    "values": ("CPRegressor", None),
    "labels": ("CPClassifier", "link"),
    "counts": ("CPCountRegressor", "likelihood"),
    "levels": ("CPOrdinalClassifier", None),
}
# Options that are parameters of all estimators; those of some, with what their data are; all that are of some data.
PASSED = ("rank", "interactions", "max_iter", "tol", "forget", "revisit")
SPECIAL = dict.fromkeys(("lower_limit", "upper_limit", "power", "noise"), "real values")
SPECIAL |= {"zero_rate": "labels", "zero_inflation": "counts"}
ONLY_FOR = {**SPECIAL, "exposure": "counts", "n_trials": "--likelihood binomial", "levels": "--likelihood ordinal"}
# What is known of rows: the options and examples of them.
KNOWLEDGE = {"features": "item=items.csv", "series": "day=ou", "graph": "sensor=roads.csv"}
# The models of matrices, and what they do not have.
MODELS = {
    "pca": "BayesianPCA",
    "fa": "BayesianFactorAnalysis",
    "gfa": "GroupFactorAnalysis",
    "cmf": "CollectiveMatrixFactorization",
}
FOR_TENSORS = ("prior", "interactions", *KNOWLEDGE, *ONLY_FOR, "zeros", *options.MESSAGES)
OF_MATRICES = {ALIASES.get(name, name): name for name in LIKELIHOODS}  # words of --likelihood, and what they call them
# The mean-field method beside a sampler, and the seconds of a fit from which one is told of it.
QUICKER, LONG = {"gibbs": "vmp", "pg-gibbs": "pg-vb"}, 10.0
COLUMNS = {"main": "per mode", "pair": "per pair of modes", "cp": "of all modes"}  # how many there are of each part


def run_fit(args: argparse.Namespace) -> None:
    check_output(args.output, args.data, *args.also)
    check_likelihood(args)
    _check_place(args)
    if args.zeros is not None and (args.exposure or args.n_trials):
        fail_value("--zeros adds cells without exposure or trials; leave it out, or write these zeros to the file.")
    if args.model != "cp" or args.also:
        _fit_matrices(args)
        return
    method, settings = args.method, {name: getattr(args, name) for name in options.MESSAGES if is_given(args, name)}
    if settings:  # those of cep, if the method is left open
        engine = SETTINGS["cep" if method == "auto" else check_choice("--method", method, ("auto", *SETTINGS))]
        for name in settings:
            if name not in engine().get_params():
                takers = " or ".join(taker for taker, record in SETTINGS.items() if name in record().get_params())
                fail_value(f"--{name} is for --method {takers}; got {method}; leave it out.")
        method = engine(**settings)
    model = estimator_of(args, method=method, verbose=shows_progress(args))
    learned = []  # what workers read does not come here
    if has_workers(args):
        seconds = _fit_on_workers(args, model)
    else:
        data, extent = _read(args)
        learned = cells.digests_of_files(files_of(args.data), args.format)
        start = time.perf_counter()
        model.fit(data, scratch=args.scratch, memory=args.memory, **extent)
        seconds = time.perf_counter() - start
    write_model(args.output, model, {"learned": learned})
    if not args.quiet:
        show(f"method      {method_line(model)}\nfit         {fit_line(model)}, {seconds:.1f} s")
        hint = hint_line(args.method, model.method_, seconds)
        for line in (*noise_lines(model), *(health_lines(model) if args.verbose else ()), *filter(None, [hint])):
            show(line)
        show(f"model       {args.output}")


def _read(args: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    """The entries, or files that are read some lines at a time, and what `fit` takes beside them; both are told of."""
    extent: dict[str, Any] = {}
    if _is_placed(args) and not has_workers(args):
        data: Any = Files(files_of(args.data), cells.reading_of(args), distinct=True)
        tensor, text = data, args.data
    else:
        alone = has_workers(args) or cells.given_extents(args)
        words = None if alone else cells.cells_of_words(args.data, args)
        if words is not None:
            tensor, data, extent["y"] = words
        else:
            tensor, extent = cells.read_with_extents(args.data, args, shows_progress(args))
            data = tensor = cells.with_zeros(tensor, args)
        name = cells.value_column(args.data, args)
        text = cells.described(tensor) + ("" if name is None else f", value {name}")
    if not args.quiet:
        show(f"data        {text}\nlikelihood  {args.likelihood or default_likelihood(tensor)}")
    return data, extent


def default_likelihood(tensor: Any) -> str:
    """The default, and a hint where the values look like something else; files of any size are not looked at."""
    text, y = "gaussian (the default)", getattr(tensor, "values", None)
    if y is None:
        return text
    if ((y == 0) | (y == 1)).all():
        return f"{text}; every value is 0 or 1: for labels say --likelihood probit"
    if ((y >= 0) & (y == y.round())).all():
        levels = " and for levels such as stars --likelihood ordinal" if len(np.unique(y)) <= MOST_LEVELS else ""
        return f"{text}; every value is a whole number >= 0: for counts say --likelihood counts{levels}"
    return text


def _is_placed(args: argparse.Namespace) -> bool:
    """Whether the data are read some lines at a time: they are asked to be, or no one file has that name."""
    return args.scratch is not None or args.memory is not None or not cells.is_one_file(args.data)


def _check_place(args: argparse.Namespace) -> None:
    """Refuse, before any work, what does not go with data read some lines at a time."""
    if args.memory is not None:
        bytes_of("--memory", args.memory)
    placed, matrices = args.scratch is not None or args.memory is not None, args.model != "cp" or args.also
    if placed and matrices:
        fail_value("--scratch and --memory are for one tensor (--model cp); leave them out.")
    workers = has_workers(args)
    if workers and placed:
        text = "--scratch and --memory are for a fit in this process; got --dask-local or --dask-scheduler"
        fail_value(f"{text}; leave them out.")
    if workers or not _is_placed(args):
        return
    if matrices:
        fail_value(f"--model {args.model} takes files by their names; got {args.data!r}; name one file.")
    whole = "is for one file that is read whole"
    for name in ("zeros", "count", "shape", "exposure"):
        if is_given(args, name):
            fail_value(f"{option_of(name)} {whole}; leave it out, or --scratch and --memory.")
    if args.duplicates != "error":
        got = "got --scratch, --memory or several files; merge the cells before."
        fail_value(f"--duplicates {args.duplicates} {whole}; {got}")


def has_workers(args: argparse.Namespace) -> bool:
    """Whether workers are asked for, of which there is at least one; refuses a checkpoint without them."""
    options.check_counts_of(args, "dask_local")
    asked = args.dask_local is not None or args.dask_scheduler is not None
    if args.checkpoint is not None and not asked:
        fail_value("--checkpoint is for --dask-local and --dask-scheduler; give one of them, or leave it out.")
    return asked


def _fit_on_workers(args: argparse.Namespace, model: Any) -> float:
    """Fit on the workers that the options name, which end with the fit if they began with it; gives its seconds."""
    by_workers = args.data.endswith(".parquet") and not cells.is_one_file(args.data)  # they read several files
    how: dict[str, Any] = {}
    data = None if by_workers else _read(args)[0]
    dask = dask_module("a fit on workers")
    with contextlib.ExitStack() as stack:
        address = args.dask_scheduler
        if args.dask_local is not None:
            local = dask.LocalCluster(n_workers=args.dask_local, threads_per_worker=1, dashboard_address=":0")
            address = stack.enter_context(local)
        try:
            client = stack.enter_context(dask.Client(address))
        except (OSError, ValueError, TimeoutError) as error:
            raise OSError(f"no scheduler answers at {address}; check the address, and that it runs.") from error
        if not args.quiet:
            n = len(client.scheduler_info(n_workers=-1)["workers"])
            print(f"workers     {n}, dashboard at {client.dashboard_link}", flush=True)
        start = time.perf_counter()
        if by_workers:
            data = importlib.import_module("dask.dataframe").read_parquet(args.data)
            names = list(data.columns)
            value = None if args.count else args.value or names[-1]
            how = {"modes": args.modes or [name for name in names if name != value], "value": value}
        tc.distributed.fit(model, data, client=client, checkpoint=args.checkpoint, **how)
        return time.perf_counter() - start


def kind_of(word: str) -> str:
    """What a likelihood is of: "values", "labels", "counts" or "levels"."""
    return next(kind for kind in ESTIMATOR_OF if word in words_of(kind))


def check_likelihood(args: argparse.Namespace) -> None:
    """Refuse what the likelihood does not have."""
    word = args.likelihood or "gaussian"
    data = {"values": "real values", "levels": "--likelihood ordinal"}.get(kind_of(word), kind_of(word))
    data = "--likelihood binomial" if word == "binomial" else data
    for name, only in ONLY_FOR.items():
        if is_given(args, name) and data != only:
            fail_value(f"{option_of(name)} is for {only}; got --likelihood {word}; leave it out.")


def estimator_of(args: argparse.Namespace, **params: Any) -> Any:
    """The estimator that the options of model and inference describe, with further parameters, all of them checked."""
    check_likelihood(args)
    check_int("--seed", args.seed, 0)
    word = args.likelihood or "gaussian"
    name, parameter = ESTIMATOR_OF[kind_of(word)]
    params |= {passed: getattr(args, passed) for passed in PASSED if hasattr(args, passed)}
    params |= {"prior": knowledge_of(args), "random_state": args.seed, "n_jobs": args.threads}
    if parameter is not None and word != "counts":
        params[parameter] = word
    params |= {special: getattr(args, special) for special in SPECIAL if is_given(args, special)}
    if "zero_rate" in params:
        word_or_range("zero_rate", params["zero_rate"], ("auto",), 0.0, 1.0, include_low=False)
    if params.get("lower_limit") == "none":
        params["lower_limit"] = None
    model = getattr(tc, name)(**params)
    check_parameters(spec_of(model))
    return model


def knowledge_of(args: argparse.Namespace) -> Any:
    """The parameter `prior`: a word, or what the options know of modes."""
    pairs = [(option, text) for option in KNOWLEDGE for text in getattr(args, option)]
    if not pairs:
        return args.prior
    if args.prior not in ("auto", "learned"):
        listed = " and ".join(dict.fromkeys(f"--{option}" for option, _ in pairs))
        fail_value(f"--prior {args.prior} does not go with {listed}, which are learned; leave one of them out.")
    known: dict[Any, Any] = {}
    for option, text in pairs:
        name, _, value = text.partition("=")
        if not name or (option != "series" and not value):
            takes = "MODE[=WORDS]" if option == "series" else "MODE=FILE"
            fail_value(f"--{option} takes {takes}, such as {KNOWLEDGE[option]}; got {text!r}.")
        mode = mode_in(name)
        if mode in known:
            fail_value(f"--features, --series and --graph say one thing of a mode; got two of {name!r}; leave one out.")
        known[mode] = _series(value, text) if option == "series" else _from_file(option, mode, value, args)
    return known


def _series(words: str, text: str) -> tc.Series:
    """A series of these words."""
    how: dict[str, Any] = {}
    for word in (part.strip() for part in words.split(",") if part.strip()):
        name, _, value = word.partition("=")
        if word in KINDS:
            name, value = "kind", word
        elif word == "cyclic":
            value = word
        elif name not in ("period", "local") or not value:
            known = "auto, ou or rw; cyclic; period=LENGTH; local=MODE"
            fail_value(f"--series knows the words {known}; got {word!r} in {text!r}.")
        if name in how:
            fail_value(f"--series takes one {name}; got another, {word!r}, in {text!r}.")
        how[name] = value
    if "period" in how:
        with contextlib.suppress(ValueError):  # text such as 7D
            how["period"] = float(how["period"])
    if "local" in how:
        how["local"] = mode_in(how["local"])
    return tc.Series(**{**how, "cyclic": "cyclic" in how})


def _from_file(option: str, mode: int | str, path: str, args: argparse.Namespace) -> Any:
    """Features or a graph, of rows as the file of entries will have them."""
    if format_of(check_file(path), None) not in cells.TABLES:
        fail_value(f"--{option} reads csv and parquet files; got '{path}'; convert it.")
    table = read_table(path, Schema())
    # Whether the mode's rows have labels, which only a tensor in an npz file says by itself.
    data = getattr(args, "data", None) or args.train
    first = data if isinstance(data, str) else data[0]
    kind = args.format or "csv" if first == STDOUT else format_of(files_of(first)[0], args.format)
    labelled = kind != "tns" and bool(args.header if args.labels is None else args.labels)
    if kind == "npz":
        labels = tc.read_tensor(first, format=kind).labels
        labelled = labels[mode_of(labels, mode)] is not None
    base = None if labelled else int(args.index_base)
    if option == "features":
        if table.shape[1] < 2 or not len(table):
            fail_value(f"--features needs lines of a row and its features; '{path}' has {table.shape[1]} columns.")
        of_rows = mode if mode in table.columns else table.columns[0]
        rows = _rows(table[of_rows], path, base, args)
        features = table.drop(columns=of_rows).apply(cells.typed)
        return tc.Features(features.set_axis(pd.Index(rows), axis=0))
    if table.shape[1] not in (2, 3) or not len(table):
        fail_value(f"--graph needs two columns of rows, and perhaps one of weights; '{path}' has {table.shape[1]}.")
    both = pd.concat([table.iloc[:, 0], table.iloc[:, 1]]).rename(table.columns[0])
    ends = _rows(both, path, base, args).reshape(2, -1)
    edges = pd.DataFrame({"from": ends[0], "to": ends[1]}).infer_objects()
    return tc.Graph(edges if table.shape[1] == 2 else edges.assign(weight=table.iloc[:, 2].to_numpy()))


def _rows(column: pd.Series, path: str, base: int | None, args: argparse.Namespace) -> np.ndarray:
    """Labels as those of the entries are, (n,); numbers of rows from 0 where the entries have indices from `base`."""
    column = column.reset_index(drop=True)
    if base is not None:
        return cells.as_rows(path, column, base)
    # A stream keeps labels of text files as text, as a later line may hold any.
    stays = isinstance(getattr(args, "data", None), list) or not pd.api.types.is_string_dtype(column.dtype)
    rows = np.asarray(column if stays else numbers_of(column))
    return rows if rows.dtype != object else np.where(rows == "", np.array(None), rows)


def matrix_model(args: argparse.Namespace, **how: Any) -> Any:
    """The estimator of matrices that the options describe; of what is its default the model has its own."""
    how |= {"random_state": args.seed, "n_jobs": args.threads, "verbose": shows_progress(args)}
    how |= {name: getattr(args, name) for name in ("max_iter", "tol") if is_given(args, name)}
    return getattr(tc, MODELS[args.model])(n_components=args.rank, **how)


def check_no_tensor(args: argparse.Namespace, *names: str) -> None:
    """Refuse options that models of matrices do not have; some have limits of values."""
    for name in (*FOR_TENSORS, *names):
        if is_given(args, name) and (name != "lower_limit" or name in names):
            fail_value(f"{option_of(name)} is for --model cp; got {args.model}; leave it out.")


def _fit_matrices(args: argparse.Namespace) -> None:
    several = args.model in ("gfa", "cmf")
    if args.also and not several:
        got = "" if args.model == "cp" else f" got {args.model};"
        fail_value(f"--also is for --model gfa and cmf;{got} leave it out.")
    check_no_tensor(args)
    if is_given(args, "lower_limit") and not several:
        fail_value(f"--lower-limit is for --model cp, gfa and cmf; got {args.model}; leave it out.")
    known, names = OF_MATRICES, list[str]()
    tensors, likelihoods = [], []
    for path in (args.data, *args.also):
        word, reading = args.likelihood or "gaussian", args
        if names:  # a file that --also names
            before, _, named = path.rpartition("=")
            path, word = (before, named) if named in known else (path, word)
            reading = cells.changed(args, modes=None, value=None, count=False, format=None)
        if word not in known:
            fail_value(f"--model {args.model} knows the likelihoods {', '.join(known)}; got {word}.")
        names.append(Path(path).name.partition(".")[0])
        tensors.append(cells.matrix_in(path, reading, shows_progress(args)))
        likelihoods.append(known[word])
    if not args.quiet:
        for name, tensor, likelihood in zip(names, tensors, likelihoods, strict=True):
            show(f"data        {name}: {cells.described(tensor)}, {likelihood}")
    how: dict[str, Any] = {"method": args.method} if is_given(args, "method") else {}
    how |= {"lower_limit": args.lower_limit} if isinstance(args.lower_limit, float) else {}
    matrices: Any = tensors[0]
    if args.model == "pca":
        how |= {"likelihood": likelihoods[0], "augmentation": augmentation_of(likelihoods[0])}
    elif args.model == "fa" and likelihoods[0] != "gaussian":
        fail_value(f"--model fa is for real values; got {args.likelihood}; use pca.")
    elif args.model == "gfa":
        how["likelihood"] = likelihoods
        matrices = dict(zip(names, _shared(tensors, [("rows", f"columns of {name}") for name in names]), strict=True))
    elif args.model == "cmf":
        entities = []
        for name, tensor in zip(names, tensors, strict=True):
            if any(labels is None or labels.name is None for labels in tensor.labels):
                called = f"which say what they are; '{name}' has none."
                fail_value(f"--model cmf needs columns of labels with names, {called}")
            entities.append([str(labels.name) for labels in tensor.labels if labels is not None])
        how["relations"] = [(*pair, likelihood) for pair, likelihood in zip(entities, likelihoods, strict=True)]
        matrices = _shared(tensors, entities)
    model = matrix_model(args, **how)
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


def _shared(tensors: Sequence[tc.SparseTensor], entities: Sequence[Sequence[str]]) -> list[tc.SparseTensor]:
    """The matrices with the same rows for the same entity: all labels that one of them has."""
    known: dict[str, tc.Labels | None] = {}
    sizes: dict[str, int] = {}
    for tensor, pair in zip(tensors, entities, strict=True):
        for name, labels, size in zip(pair, tensor.labels, tensor.shape, strict=True):
            before = known.get(name, labels)
            if (before is None) != (labels is None):
                fail_value(f"the {name} must have labels in all files, or indices in all of them.")
            known[name] = every = None if before is None or labels is None else before.extended(labels.index)
            sizes[name] = max(size, sizes.get(name, 0)) if every is None else len(every)
    result = []
    for tensor, pair in zip(tensors, entities, strict=True):
        coords, names = tensor.coords.copy(), tuple(known[name] for name in pair)
        for k, (labels, every) in enumerate(zip(tensor.labels, names, strict=True)):
            if labels is not None and every is not None:
                coords[:, k] = every.rows(labels.index)[coords[:, k]]
        result.append(tc.SparseTensor(coords, tensor.values, tuple(sizes[name] for name in pair), names))
    return result


def fit_line(model: Any) -> str:
    """How the fit ended; a sampler makes all its sweeps, whatever they change."""
    if METHODS[model.method_].capabilities.sampler:
        return f"{model.n_iter_} sweeps of every chain"
    ending = "converged" if model.converged_ else "not converged"
    changes = model.trace_.get("change", ())
    return f"{model.n_iter_} sweeps, {ending}" + (f" (last change {changes[-1]:.1e})" if len(changes) else "")


def method_line(model: Any) -> str:
    """What "auto" came to."""
    columns = ", ".join(f"{n} {COLUMNS[name]}" for name, n in model.interactions_.items() if n)
    return f"{model.method_}, rank {model.rank_}, {model.prior_} prior; columns: {columns}"


def hint_line(method: Any, fitted: str, seconds: float) -> str | None:
    """What would be faster than a sampler that nobody asked for; None where a fit did not take long."""
    quick = QUICKER.get(fitted) if method in (None, "auto") and seconds > LONG else None
    return None if quick is None else f"hint        --method {quick} (mean field) takes a fraction of the time"


def noise_lines(model: Any) -> list[str]:
    """What is known of noise and limit of real values, or of dispersion and structural zeros of counts."""
    lines = []
    if getattr(model, "zero_share_", None) is not None:
        share, sd = 100.0 * model.zero_share_, 100.0 * model.zero_share_std_
        lines = [f"zeros       {share:.3g} % of the cells are 0 whatever their mean (+- {sd:.2g} %)"]
    if getattr(model, "dispersion_", None) is not None:
        return [*lines, f"dispersion  r = {np.mean(model.dispersion_):.4g}; the variance of a count is mu + mu^2 / r"]
    if hasattr(model, "thresholds_"):
        cuts = ", ".join(f"{cut:.3g}" for cut in model.thresholds_)
        return [f"thresholds  {cuts} between the levels {', '.join(map(str, model.classes_.tolist()))}"]
    if not hasattr(model, "noise_precision_"):
        return lines
    known = {} if model.diagnostics_ is None else model.diagnostics_.lines()
    lines = [f"noise       {known.get('noise', f'standard deviation {model.noise_precision_**-0.5:.4g}')}"]
    if getattr(model, "power_", 1.0) != 1.0:
        what = f"values to the power {model.power_:g}" if model.power_ else "logarithms of values"
        lines.append(f"power       {what} are Gaussian")
    for name, side in (("lower_limit_", "below"), ("upper_limit_", "above")):
        limit = getattr(model, name, None)
        lines += [] if limit is None else [f"limit       values at or {side} {limit:g} are censored there"]
    return lines


def health_lines(model: Any) -> list[str]:
    """How far the fit is to be believed, but for what the other lines say."""
    lines = {} if model.diagnostics_ is None else model.diagnostics_.lines()
    return [f"{name:<12}{text}" for name, text in lines.items() if name not in ("sweeps", "noise")]
