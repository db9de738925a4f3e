"""Compile the usual kernels before they are needed: small fits in processes of their own, which fill a cache.

Where no compiled kernels came with the package, the very first fit on a machine waits for its kernels to be compiled;
any later one, in whatever process, loads them. ``python -m tensorcep.warming FOLDER`` fills a folder with the kernels
of every level that this processor has: a wheel is built with that of `tensorcep.core.kernel_cache.SHIPPED`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm

import tensorcep
from tensorcep.core.checks import check_choice, check_int, fail_value, warn_user
from tensorcep.core.compile import AS_PYTHON
from tensorcep.core.kernel_cache import PROBLEMS, available_levels

SHAPE, ENTRIES, SWEEPS = (12, 10, 8), 400, 8  # a fit compiles what it needs and takes no time beside that
WAIT = 0.05  # seconds between looks at the processes
CHILD = "import sys; sys.path[:] = sys.argv[2:]; from tensorcep.warming import warm; print(end=warm(sys.argv[1]))"


def _entries() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    cells = rng.choice(int(np.prod(SHAPE)), ENTRIES, replace=False)
    return np.stack(np.unravel_index(cells, SHAPE), axis=1), rng.standard_normal(ENTRIES)


# What each CP estimator takes as values, made of normal ones.
VALUES: dict[str, Callable[[Any], Any]] = {
    "CPRegressor": lambda y: y,
    "CPClassifier": lambda y: (y > 0.0).astype(int),
    "CPCountRegressor": lambda y: (y * y).round(),
    "CPOrdinalClassifier": lambda y: y.clip(-1.0, 1.0).round().astype(int),
}


def _predict(model: Any, X: Any) -> None:
    if hasattr(model, "predict_proba"):
        model.predict_proba(X)
    elif model.method_ == "wopt":  # a point estimate
        model.predict(X)
    else:
        model.predict(X, return_std=True)
        model.predict_interval(X)


def _cp(name: str, *methods: Any, **settings: Any) -> None:
    """Fits of a CP estimator by these methods, by default if none is named, and predictions of each."""
    coords, y = _entries()
    for method in methods or ("auto",):
        model = getattr(tensorcep, name)(shape=SHAPE, random_state=0, max_iter=SWEEPS, method=method, **settings)
        _predict(model.fit(coords, VALUES[name](y)), coords)


def _streams() -> None:
    coords, y = _entries()
    for name, how in (*((name, {}) for name in [*VALUES][:3]), ("CPCountRegressor", {"likelihood": "poisson"})):
        model = getattr(tensorcep, name)(shape=SHAPE, random_state=0, **how)
        for some in np.split(np.arange(len(y)), 2):
            model.partial_fit(coords[some], VALUES[name](y)[some])
        _predict(model, coords)


def _cep() -> None:
    _cp("CPClassifier", "cep")
    _cp("CPCountRegressor", "cep")
    _cp("CPClassifier", "cep", link="probit")
    _cp("CPCountRegressor", "cep", likelihood="poisson")
    _cp("CPRegressor", "cep", interactions="cp")
    _cp("CPRegressor", "cep", tensorcep.CEP(order=2), tensorcep.CEP(messages="averaged"))


def _others() -> None:
    """Methods that few ask for by name, and models that are asked for by a setting."""
    from tensorcep.cp.messages.cavities import scale_messages
    from tensorcep.kernels.rows import packed_products
    from tensorcep.kernels.slots import LANES

    # Kernels that no small fit can be made to need: safeguards, and what holds back the steps of very many counts.
    ones = np.ones((1, 1, 1, LANES))
    scale_messages(0, 1, np.ones(1), np.zeros((1, 1, LANES), np.int32), ones, ones.copy())
    packed_products(0, 1, *np.ones((3, 1, 1)))
    _cp("CPRegressor", "laplace", "wopt")
    _cp("CPClassifier", link="probit")
    _cp("CPCountRegressor", likelihood="poisson")
    _cp("CPCountRegressor", zero_inflation=True)
    for how in ({"lower_limit": -1.0}, {"noise": "entry"}, {"noise": 0}):
        _cp("CPRegressor", **how)


def _knowledge() -> None:
    """Rows of which something is known."""
    features = tensorcep.Features(np.random.default_rng(0).standard_normal((SHAPE[0], 3)))
    edges = [(i, i + 1) for i in range(SHAPE[1] - 1)]
    for prior in ({0: features}, {2: tensorcep.Series()}, {1: tensorcep.Graph(edges)}):
        _cp("CPRegressor", "auto", "vmp", prior=prior)
        _cp("CPClassifier", prior=prior)


def _matrices() -> None:
    X = np.random.default_rng(0).standard_normal((30, 6))
    X[::4, 2] = np.nan
    views = [X[:, :3], X[:, 3:]]
    how: dict[str, Any] = {"n_components": 2, "max_iter": 5, "random_state": 0}
    for name in ("BayesianPCA", "BayesianFactorAnalysis"):
        getattr(tensorcep, name)(**how).fit(X).predict_missing()
    for likelihood, cells in (("bernoulli", X > 0.0), ("negbinomial", X * X)):
        values = np.where(np.isnan(X), np.nan, np.asarray(cells, dtype=float).round())
        tensorcep.BayesianPCA(likelihood=likelihood, **how).fit(values).predict_missing()
    tensorcep.BayesianPCA(method="gibbs", **how | {"max_iter": 210}).fit(X).predict_missing()
    for name in ("GroupFactorAnalysis", "BayesianCCA"):
        getattr(tensorcep, name)(**how).fit(views).transform(views)


def _of_features(*names: str, **how: Any) -> None:
    """Fits of estimators of feature vectors, and predictions of each."""
    X = np.random.default_rng(0).standard_normal((60, 4))
    for name in names:
        model = getattr(tensorcep, name)(**how).fit(X, (X[:, 0] + X[:, 1] > 0.0).astype(int))
        (model.predict if name == "GaussianProcessCountRegressor" else model.predict_proba)(X)


def _linear() -> None:
    for method in ("cep1", "cep2", "ep", "vb"):
        _of_features("BayesianLogisticRegression", "BayesianProbitRegression", method=method)
    _of_features("BayesPointMachine")


# Those that take longest come first, so that two at a time end together.
KINDS: dict[str, Callable[[], None]] = {
    "cep": _cep,
    "streams": _streams,
    "knowledge": _knowledge,
    "regressor": lambda: _cp("CPRegressor"),
    "classifier": lambda: _cp("CPClassifier", "auto", "pg-gibbs"),
    "counts": lambda: _cp("CPCountRegressor"),
    "others": _others,
    "levels": lambda: _cp("CPOrdinalClassifier"),
    "vmp": lambda: _cp("CPRegressor", "vmp"),
    "pg-vb": lambda: _cp("CPClassifier", "pg-vb"),
    "matrices": _matrices,
    "linear": _linear,
    "gaussian-processes": lambda: _of_features("GaussianProcessClassifier", "GaussianProcessCountRegressor"),
}


def warmup(kinds: Sequence[str] | None = None, *, n_processes: int = 2, verbose: bool = False) -> dict[str, float]:
    """Compile the kernels of the usual fits into numba's cache, so that the first fit of every process is quick.

    Parameters
    ----------
    kinds : sequence of str, optional
        Among "regressor", "classifier", "counts" and "levels" (`fit` and predictions of the CP estimators by default),
        "cep", "vmp" and "pg-vb" (by these methods), "streams" (`partial_fit`), "knowledge" (features, series and
        graphs), "others" (laplace, wopt, zero inflation, limits, unequal noise), "matrices" (factor models), "linear"
        (logistic and probit regression, the Bayes point machine) and "gaussian-processes"; by default all of them.
    n_processes : int, default=2
        Kinds that are compiled at a time, each in a process of its own.
    verbose : bool, default=False
        Whether to show a progress bar.

    Returns
    -------
    dict
        Seconds of each kind by the clock. A kind that was compiled before takes those of an import and a small fit.

    Raises
    ------
    ValueError, TypeError
        If a kind is not known, or where NUMBA_DISABLE_JIT leaves nothing to compile.
    RuntimeError
        If a process fails.

    Examples
    --------
    >>> import tensorcep
    >>> sorted(tensorcep.warmup(["matrices"]))
    ['matrices']
    """
    if isinstance(kinds, str):
        raise TypeError(f"kinds must be a sequence of kinds; got {kinds!r}; pass [{kinds!r}].")
    wanted = [*KINDS] if kinds is None else [check_choice("kinds", kind, tuple(KINDS)) for kind in kinds]
    check_int("n_processes", n_processes)
    if AS_PYTHON:
        fail_value("NUMBA_DISABLE_JIT is set, so kernels run as Python and none is compiled; unset it.")
    return _run([(kind, {}) for kind in KINDS if kind in wanted], n_processes, verbose)


def _run(jobs: Sequence[tuple[str, Mapping[str, str]]], n_processes: int, verbose: bool) -> dict[str, float]:
    """Run kinds, each in a process of its own and with its own settings of the environment; seconds by the clock."""
    waiting, seconds = [*jobs], {}
    running: dict[subprocess.Popen[str], tuple[str, float]] = {}
    how: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with tqdm(total=len(jobs), desc="compiling", unit="kind", disable=not verbose) as bar:
        try:
            while waiting or running:
                while waiting and len(running) < n_processes:
                    kind, environment = waiting.pop(0)
                    command = [sys.executable, "-c", CHILD, kind, *(path or os.getcwd() for path in sys.path)]
                    process = subprocess.Popen(command, env={**os.environ, **environment}, **how)
                    running[process] = kind, time.perf_counter()
                bar.set_postfix_str(", ".join(kind for kind, _ in running.values()))
                ended = [process for process in running if process.poll() is not None]
                for process in ended:
                    kind, begin = running.pop(process)
                    out, err = (text.strip() for text in process.communicate())
                    if process.returncode:
                        last = (err.splitlines() or [f"exit code {process.returncode}"])[-1]
                        raise RuntimeError(f"the process that compiles {kind!r} failed: {last}")
                    if out:
                        lost = f"what was compiled for {kind!r} may be lost: {out}"
                        warn_user(f"{lost}; set NUMBA_CACHE_DIR to a folder that can be written.", UserWarning)
                    seconds[kind] = time.perf_counter() - begin
                    bar.update()
                if not ended:
                    time.sleep(WAIT)
        finally:
            for process in running:  # of a failure or an interrupt
                process.kill()
                process.communicate()
    return seconds


def warm(kind: str) -> str:
    """Compile one kind in this process; gives what its cache complained of. Each process of `warmup` does this."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few sweeps do not converge
        KINDS[kind]()
    return "".join(PROBLEMS)


def main() -> None:
    """Fill a folder with kernels for all levels that this processor has."""
    parser = argparse.ArgumentParser(prog="python -m tensorcep.warming", description=main.__doc__)
    parser.add_argument("folder", help="where the kernels go; those of a wheel lie in tensorcep/_compiled")
    n_cores = os.cpu_count() or 1
    parser.add_argument("--processes", type=int, default=n_cores, help="kinds at a time (default: all cores)")
    args = parser.parse_args()
    folder = str(Path(args.folder).resolve())
    levels = [{"NUMBA_CACHE_DIR": folder, "NUMBA_CPU_NAME": level} for level in available_levels()]
    _run([(kind, environment) for environment in levels for kind in KINDS], args.processes, verbose=True)


if __name__ == "__main__":
    main()
