"""Seconds of importing tensorcep and of the first fit, in fresh processes.

Import: each dependency is imported in turn and timed; then tensorcep with its estimators. "own" is the same after every
module of other packages that tensorcep loads, so what remains is tensorcep's own code.

First fit: once with an empty numba cache in a temporary folder (this compiles), then in new processes with that cache
warm; "first_over_later" is the first fit minus the fastest of the later ones. The method "auto" is the bare estimator
but for rank and sweeps, "cep" the CEP paper's model, "stream" a first batch learned by partial_fit, and "usual" four
fits in one process: by gibbs, cep and vmp, and of labels by default.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import tempfile
import time
import warnings
from typing import Any

import numpy as np

from scripts.lib.common import Row, fresh_process, paper_model, parser, report, row, say, words

DEPENDENCIES = ("numpy", "scipy", "numba", "pandas", "sklearn")
METHODS = ("auto", "cep", "stream", "usual")
ESTIMATORS = {"gaussian": "CPRegressor", "probit": "CPClassifier", "poisson": "CPCountRegressor"}

# Run with -c in a process where nothing is loaded yet; the names to import come as arguments, the last one timed alone.
IMPORTS = """
import importlib, json, sys, time
before, seconds = set(sys.modules), {}
for name in sys.argv[1:]:
    begin = time.perf_counter()
    try:
        importlib.import_module(name)
    except ImportError:
        continue
    seconds[name] = time.perf_counter() - begin
print(json.dumps({"seconds": seconds, "loaded": [name for name in sys.modules if name not in before]}))
"""


def fresh(command: list[str], cache: str | None = None) -> Any:
    """The JSON that a new Python process prints."""
    done = fresh_process(*command, **({} if cache is None else {"NUMBA_CACHE_DIR": cache}))
    done.check_returncode()
    return json.loads(done.stdout)


def import_rows(repeats: int) -> list[Row]:
    """Dependencies, tensorcep after them, and tensorcep's own modules alone: the fastest of some processes each."""
    target = "tensorcep.estimators"
    loaded = fresh(["-c", IMPORTS, target])["loaded"]
    others = [name for name in loaded if name.split(".")[0] != "tensorcep"]
    after, own, bare = [], [], []
    for _ in range(repeats):
        after.append(fresh(["-c", IMPORTS, *DEPENDENCIES, "tensorcep", target])["seconds"])
        own.append(fresh(["-c", IMPORTS, *others, target])["seconds"][target])
        bare.append(fresh(["-c", IMPORTS, target])["seconds"][target])
    rows = [_import_row(name, min(run[name] for run in after)) for name in (*DEPENDENCIES, "tensorcep")]
    rows.append(_import_row(f"{target} after these", min(run[target] for run in after)))
    rows.append(_import_row("tensorcep own", min(own)))
    rows.append(_import_row(f"{target}, with all that it needs", min(bare)))
    return rows


def _import_row(name: str, seconds: float) -> Row:
    return row("import_seconds", seconds, data=name, seconds=seconds)


def use(likelihood: str, method: str, rank: int, coords: np.ndarray, y: np.ndarray, shape: tuple[int, ...]) -> None:
    """What a process does first: fits, and predictions of the entries that were fitted."""
    import tensorcep

    estimator = getattr(tensorcep, ESTIMATORS[likelihood])
    common: dict[str, Any] = {"shape": shape, "random_state": 0}
    how = {**common, "max_iter": 5, "tol": 0.0}
    if method == "stream":
        estimator(rank, **common).partial_fit(coords, y).predict_latent(coords)
    elif method == "usual":
        for name in ("gibbs", "cep", "vmp"):
            tensorcep.CPRegressor(rank, method=name, **how).fit(coords, y).predict_latent(coords)
        tensorcep.CPClassifier(rank, **how).fit(coords, y > 0.0).predict_latent(coords)
    else:
        model = estimator(rank, **how) if method == "auto" else paper_model(estimator, rank, **how)
        model.fit(coords, y).predict_latent(coords)


def child(likelihood: str, method: str, rank: int, n: int, fits: int) -> dict[str, Any]:
    """Seconds of each fit of one likelihood in this process."""
    import tensorcep.estimators  # noqa: F401  (its import is timed by itself)

    rng = np.random.default_rng(0)
    shape = (50, 40, 30)
    coords = np.stack([rng.integers(0, size, n) for size in shape], axis=1)
    y = rng.standard_normal(n) if likelihood == "gaussian" else rng.integers(0, 2, n)
    warnings.simplefilter("ignore")  # five sweeps do not converge
    seconds = []
    for _ in range(fits):
        begin = time.perf_counter()
        use(likelihood, method, rank, coords, y, shape)
        seconds.append(time.perf_counter() - begin)
    return {"seconds": seconds}


def compiled(cache: str) -> int:
    """Compiled kernels in a cache folder."""
    return sum(name.endswith(".nbc") for _, _, names in os.walk(cache) for name in names)


def fit_rows(likelihood: str, method: str, rank: int, entries: int, repeats: int) -> list[Row]:
    """First fits with a cold and with a warm cache."""
    case = ["-m", __spec__.name, "--child", likelihood, method, str(rank), str(entries)]
    common = {"data": f"simulated {likelihood}", "rank": rank, "method": method, "entries": entries}
    with tempfile.TemporaryDirectory() as cache:
        cold = fresh([*case, "1"], cache)["seconds"][0]
        kernels = compiled(cache)
        warm = [fresh([*case, "4"], cache)["seconds"] for _ in range(repeats)]
        added = compiled(cache) - kernels
    over = min(run[0] - min(run[1:]) for run in warm)
    say(f"{likelihood} {method} rank {rank}: cold {cold:.1f} s, warm first fit {over:.2f} s over the later ones")
    values = {
        "first_fit_cold_cache": cold,
        "first_fit_warm_cache": min(run[0] for run in warm),
        "later_fit": min(min(run[1:]) for run in warm),
        "first_over_later": over,
    }
    rows = [row(metric, value, seconds=value, **common) for metric, value in values.items()]
    return [*rows, row("kernels_compiled_again", added, **common)]


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["--child"]:
        likelihood, method, rank, entries, fits = arguments[1:]
        print(json.dumps(child(likelihood, method, int(rank), int(entries), int(fits))))
        return
    p = parser(__doc__, ranks="8", methods="auto,cep")
    p.add_argument("--likelihoods", type=words(*ESTIMATORS), default="gaussian,probit,poisson")
    p.add_argument("--entries", type=int, default=5_000, help="entries of the small fit (default: %(default)s)")
    p.add_argument("--repeats", type=int, default=3, help="fresh processes of each kind, the best counts")
    p.add_argument("--only-imports", action="store_true", help="leave the fits out")
    options = p.parse_args(arguments)
    for method in options.methods:
        if method not in METHODS:
            p.error(f"argument --methods: {method!r} is not among {', '.join(METHODS)}")
    rows = import_rows(options.repeats)
    if not options.only_imports:
        for likelihood in options.likelihoods:
            for method, rank in itertools.product(options.methods, options.ranks):
                rows += fit_rows(likelihood, method, rank, options.entries, options.repeats)
    report(rows, options.json)


if __name__ == "__main__":
    main()
