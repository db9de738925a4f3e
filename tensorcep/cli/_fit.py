"""`tensorcep fit`: entries in, model file out."""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

from tensorcep.cli._command import (
    FILE_KINDS,
    Command,
    add_data_options,
    add_talk_options,
    check_output,
    described,
    show,
    shows_progress,
)
from tensorcep.cli._extents import add_extent_options, check_extents, given_extents, read_with_extents
from tensorcep.cli._knowledge import add_knowledge_options, knowledge_of
from tensorcep.cli._likelihoods import LIKELIHOODS, add_special_options, default_likelihood, special_params
from tensorcep.cli._lines import fit_line, health_lines, hint_line, method_line, noise_lines
from tensorcep.cli._matrices import add_matrix_options, fit_matrices
from tensorcep.cli._numbers import damping_of, threads_of, whole_or_auto
from tensorcep.cli._places import add_place_options, check_place, files_of_place, is_placed
from tensorcep.cli._words import add_levels_option, cells_of_words
from tensorcep.cli._workers import add_worker_options, fit_on_workers, has_workers
from tensorcep.cli._zeros import add_zeros_option, with_zeros
from tensorcep.core.checks import check_choice, check_int, check_range, fail_value
from tensorcep.cp.settings.base import PRESETS
from tensorcep.cp.settings.registry import SETTINGS

DESCRIPTION = f"""\
Fit a CP decomposition to the entries of DATA ({FILE_KINDS}) and write it to MODEL.

DATA holds one line per observed entry: one column per mode, and the value. A cell that is not there is unobserved, not
zero. The likelihood is gaussian unless you say otherwise: it is not guessed from the values."""

# Options that are settings of a method.
SETTINGS_GIVEN = ("schedule", "damping", "dtype")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA", help="file of the entries to fit, a folder, or a pattern in quotes")
    parser.add_argument("-o", "--output", metavar="MODEL", required=True, help="file to write, usually .npz")
    add_model_options(parser)
    add_matrix_options(parser)
    group = add_inference_options(parser)
    add_method_option(group)
    group.add_argument("--schedule", choices=("modewise", "parallel"), help="of cep and laplace (default: modewise)")
    group.add_argument(
        "--damping",
        type=damping_of,
        metavar="D",
        help="of cep and laplace: share of the old message that is kept, 0 <= D < 1, or auto, or adaptive "
        "(default: auto)",
    )
    group.add_argument(
        "--dtype", choices=("float64", "float32"), help="of the messages of cep and laplace (default: float64)"
    )
    add_zeros_option(parser)
    add_place_options(parser)
    add_worker_options(parser)
    add_extent_options(parser)
    add_data_options(parser)
    add_talk_options(parser)


def add_model_options(parser: argparse.ArgumentParser, *, rank: bool = True) -> None:
    """Add --likelihood, what only some likelihoods have and, for a command that is told the rank, --rank."""
    group = parser.add_argument_group("model")
    if rank:
        add_rank_option(group)
    group.add_argument(
        "--likelihood",
        choices=LIKELIHOODS,
        help="gaussian: real values (default); probit, logit: labels 0/1, or two words; poisson, negbinomial: counts; "
        "counts: the one of these two that they ask for; binomial: successes of trials; ordinal: ordered levels such "
        "as stars",
    )
    add_structure_options(group)
    add_special_options(group)
    group.add_argument(
        "--noise",
        default="one",
        metavar="N",
        help="for real values: one; a mode, by name or position from 0, whose rows have a noise each; entry: Student's "
        "t; or auto: the one of these that predicts entries left out best (default: one)",
    )
    add_levels_option(group)


def add_rank_option(group: Any) -> None:
    """Add --rank."""
    group.add_argument(
        "--rank",
        type=whole_or_auto,
        default="auto",
        metavar="R",
        help="number of components, or auto: by the numbers of entries and rows, 3 to 20; more where entries left "
        "out ask for them (default: auto)",
    )


def add_structure_options(group: Any) -> None:
    """Add --prior, what is known of rows, and --interactions."""
    group.add_argument(
        "--prior",
        choices=("auto", "fixed", "learned", "ard"),
        default="auto",
        help="of the components; auto: learned, by the methods that can (default: auto)",
    )
    add_knowledge_options(group)
    group.add_argument(
        "--interactions",
        choices=("auto", *PRESETS),
        default="auto",
        help="what an entry is a sum of; auto: main effects, pairs of modes and components for samplers and "
        "wopt, fewer for other methods (default: auto)",
    )


def add_method_option(group: Any) -> None:
    """Add --method."""
    group.add_argument(
        "--method",
        default="auto",
        help="inference method, such as gibbs, cep, vmp or wopt; auto: gibbs (pg-gibbs for logit) where it fits, vmp "
        "for more than 100,000 counts, otherwise cep (default: auto)",
    )


def add_inference_options(parser: argparse.ArgumentParser) -> Any:
    """Add what all methods have in common; returns the group."""
    group = parser.add_argument_group("inference")
    group.add_argument(
        "--max-iter",
        type=whole_or_auto,
        default="auto",
        metavar="N",
        help="most sweeps, or auto: 200, and 150 to 1000 by samplers such as gibbs (default: auto)",
    )
    group.add_argument(
        "--tol", type=float, default=3e-3, help="stop at this relative change of the latent means (default: 0.003)"
    )
    group.add_argument("--seed", type=int, default=0, help="of the random start (default: 0)")
    group.add_argument(
        "--threads", type=threads_of, default=-1, metavar="N", help="default: all processors; no effect on the result"
    )
    return group


def check_options(args: argparse.Namespace) -> None:
    """Check what the estimator checks too, but only once the data are read, and under other names."""
    check_whole_or_auto("--rank", args.rank)
    check_whole_or_auto("--max-iter", args.max_iter)
    check_int("--seed", args.seed, 0)
    check_range("--tol", args.tol, 0.0)
    special_params(args)


def check_whole_or_auto(option: str, value: Any) -> None:
    """Check a number that may be "auto"."""
    if value != "auto":
        check_int(option, value)


def run(args: argparse.Namespace) -> None:
    from tensorcep.cli._input import digests_of_files
    from tensorcep.cp.estimators.store import write_model

    check_output(args.output, args.data, *args.also)
    check_options(args)
    check_place(args)
    check_extents(args)
    if args.zeros is not None and given_extents(args):
        fail_value("--zeros adds cells without exposure or trials; leave it out, or write these zeros to the file.")
    if args.model != "cp" or args.also:
        fit_matrices(args)
        return
    if isinstance(args.damping, float):
        check_range("--damping", args.damping, 0.0, 1.0, include_high=False)
    method = method_of(args)
    progress = shows_progress(args)
    model = estimator_of(args, method=method, verbose=progress)
    if has_workers(args):
        learned = []  # what workers read does not come here
        seconds = fit_on_workers(args, model, lambda: _read(args, progress)[0])
    else:
        data, extent = _read(args, progress)
        learned = digests_of_files(_files_of(args.data), args.format)
        place = {name: getattr(args, name) for name in ("scratch", "memory")}
        start = time.perf_counter()
        model.fit(data, **place, **extent)
        seconds = time.perf_counter() - start
    write_model(args.output, model, {"learned": learned})
    if not args.quiet:
        show(f"method      {method_line(model)}")
        show(f"fit         {fit_line(model)}, {seconds:.1f} s")
        hint = hint_line(args.method, model.method_, seconds)
        for line in [*noise_lines(model), *(health_lines(model) if args.verbose else ()), *([hint] if hint else ())]:
            show(line)
        show(f"model       {args.output}")


def _files_of(path: str) -> list[str]:
    """The files that a name, a folder or a pattern stands for."""
    from tensorcep.entries.io import files_of

    return [path] if os.path.isfile(path) else files_of(path)


def _read(args: argparse.Namespace, progress: int) -> tuple[Any, dict[str, Any]]:
    """The entries, or files that are read some lines at a time, and what `fit` takes beside them; both are told of."""
    placed = is_placed(args) and not has_workers(args)
    words = None if placed or has_workers(args) or given_extents(args) else cells_of_words(args.data, args)
    if words is not None:
        if not args.quiet:
            show(f"data        {described(words[0], args.data, args)}\nlikelihood  {args.likelihood}")
        return words[1], {"y": words[2]}
    data, extent = (files_of_place(args), {}) if placed else read_with_extents(args.data, args, progress)
    data = data if placed else with_zeros(data, args)
    if not args.quiet:
        show(f"data        {args.data if placed else described(data, args.data, args)}")
        show(f"likelihood  {args.likelihood or default_likelihood(data)}")
    return data, extent


def method_of(args: argparse.Namespace) -> Any:
    """The method, with the settings that were given; cep has them if it is left open.

    Raises
    ------
    ValueError
        If the method has no such setting.
    """
    given = {name: getattr(args, name) for name in SETTINGS_GIVEN if getattr(args, name) is not None}
    if not given:
        return args.method
    engine = SETTINGS["cep" if args.method == "auto" else check_choice("--method", args.method, ("auto", *SETTINGS))]
    for name in given:
        if name not in engine().get_params():
            takers = " or ".join(taker for taker in ("cep", "laplace") if name in SETTINGS[taker]().get_params())
            fail_value(f"--{name} is for --method {takers}; got {args.method}; leave it out.")
    return engine(**given)


def estimator_of(args: argparse.Namespace, **params: Any) -> Any:
    """The estimator that the options of model and inference describe, with further parameters."""
    from tensorcep.estimators import ESTIMATORS

    name, _ = LIKELIHOODS[args.likelihood or "gaussian"]
    params |= {**knowledge_of(args), "interactions": args.interactions, **special_params(args)}
    return ESTIMATORS[name](
        args.rank, max_iter=args.max_iter, tol=args.tol, random_state=args.seed, n_jobs=args.threads, **params
    )


COMMAND = Command("fit", "DATA -o MODEL", "fit a model to the entries of a file", add_arguments, run, DESCRIPTION)
