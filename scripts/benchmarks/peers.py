"""Other packages beside ours: one adapter for each, on problems that both can do, in an environment that pip makes.

    python -m scripts.benchmarks.peers --problems sweeps --entries alog,1e6 --folds 1
    python -m scripts.benchmarks.peers --problems ratings --models ordinal,gaussian+features --peers smurff,myfm
    python -m scripts.benchmarks.peers --problems classes --gpy gpy-environment/bin/python --learned

sweeps       a Gibbs sweep of SMURFF (the CP model) and myFM (a factorisation machine), both with learned
             hyper-parameters, and of our samplers, on folds of Alog or simulated entries of its shape: the fastest of
             --sweeps after the first tenth, and how many of ours the peer's takes; no test entries
ratings      MovieLens 100k, stars as values and as levels, with and without features of users and items: RMSE of the
             expected star, coverage, mean log score (of a Gaussian its mass between half stars). A fold's test entries
             are those of its file, or with --cold all ratings of so many items. Peers take --peer-rank, 600 sweeps, of
             which half are left out, and features as Macau's prior or further columns
factors      BayesPy on 500 x 30 values of which half are hidden, mofapy2 on 1000 x 100 labels of which a fifth are, and
             scikit-learn's FactorAnalysis on complete values: seconds, and the error or log score of what was hidden
classes      Gaussian process classification, a tenth of the points held out, the kernel learned from 1.0 * RBF(1.0), or
             fixed at variance 4 and length scale sqrt(d): CPU seconds, log loss and evidence beside scikit-learn and,
             with --gpy, the Python of an environment that has it (1.13 needs numpy < 2 and scipy < 1.13), GPy's EP
regressions  BayesianLogisticRegression with nothing set beside scikit-learn's mode, --sizes rows x columns x share that
             is filled: CPU seconds, medians of --repeats by turns, and their ratio

MovieLens may not be passed on: put u1.test.gz to u5.test.gz and, for features, side.npz (F0 of
users, F1 of items) in `movielens100k` of the folder that TENSORCEP_DATA names. An adapter runs as `python peers.py PEER
IN.npz OUT.npz` where our package is not installed: what is not numpy is imported where it is used.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ENVIRONMENT = Path(tempfile.gettempdir()) / "tensorcep-peers"
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
Given = dict[str, Any]
Found = Iterator[tuple[str, float, dict[str, Any]]]  # metric, value, and what they are of


class Clock:
    """Wall and CPU seconds since it was made, and the wall seconds between calls of `mark`."""

    def __init__(self) -> None:
        self.marks, self.cpu = [time.perf_counter()], time.process_time()

    def mark(self, *_: Any) -> tuple[bool, None]:
        self.marks.append(time.perf_counter())
        return False, None  # for myFM: do not stop, nothing to say

    def times(self) -> Given:
        total, cpu = time.perf_counter() - self.marks[0], time.process_time() - self.cpu
        return {"sweep_seconds": np.diff(self.marks), "seconds": total, "cpu_seconds": cpu}


def smurff(given: Given) -> Given:
    """The CP model with normal priors whose hyper-parameters are drawn; its defaults where a setting is None."""
    import smurff  # type: ignore[import-not-found]

    def tensor(coords: np.ndarray, y: np.ndarray) -> Any:
        columns = [np.ascontiguousarray(column, dtype=np.int32) for column in coords.T]
        return smurff.SparseTensor((np.ascontiguousarray(y), columns), [int(n) for n in given["shape"]])

    settings = json.loads(str(given["settings"]))
    sweeps, burn_in, precision = settings["sweeps"], settings["burn_in"], settings["precision"]
    if settings["labels"]:
        noise = smurff.ProbitNoise(0.5)
    elif precision == "learned":
        noise = smurff.AdaptiveNoise(1.0, 100.0)
    else:
        noise = smurff.FixedNoise() if precision is None else smurff.FixedNoise(precision)
    known, order = _features(given), given["coords"].shape[1]
    clock = Clock()
    how = {"num_latent": settings["rank"], "num_threads": settings["threads"], "seed": settings["seed"]}
    how |= {"burnin": burn_in, "nsamples": None if sweeps is None else sweeps - burn_in, "verbose": 0, "save_freq": 0}
    session = smurff.TrainSession(priors=["macau" if k in known else "normal" for k in range(order)], **how)
    session.setTrain(tensor(given["coords"], given["y"]), noise)
    for mode, features in known.items():
        session.addSideInfo(mode, features)
    if "test_coords" in given:
        cells, cell = np.unique(given["test_coords"], axis=0, return_inverse=True)
        session.setTest(tensor(cells, np.zeros(len(cells))))
    session.init()
    while session.step() is not None:
        clock.mark()
    found = clock.times()
    if "test_coords" in given:
        predictions = {tuple(item.coords): item.pred_all for item in session.getTestPredictions()}
        latent = np.array([predictions[tuple(c)] for c in cells.tolist()]).T[:, cell]
        fixed = 5.0 if precision is None else precision  # its default
        spread = np.full(len(latent), np.nan if precision == "learned" else fixed)
        found |= _of_draws(latent, spread, settings, given["test_y"])
    return found


def myfm(given: Given) -> Given:
    """A factorisation machine: pairwise products of one-hot coded rows and their features; a prior per mode if grouped.

    Features have a prior of their own then, too.
    """
    import myfm  # type: ignore[import-not-found]
    from scipy import sparse

    settings, known, shape = json.loads(str(given["settings"])), _features(given), [int(n) for n in given["shape"]]
    first = np.concatenate([[0], np.cumsum(shape)])

    def design(coords: np.ndarray) -> Any:
        n, order = coords.shape
        where = (np.repeat(np.arange(n), order), (coords + first[:-1]).ravel())
        one_hot = sparse.csr_matrix((np.ones(n * order), where), shape=(n, first[-1]))
        return sparse.hstack([one_hot, *(features[coords[:, k]] for k, features in known.items())], format="csr")

    sweeps = settings["sweeps"]
    more: Given = {} if sweeps is None else {"n_iter": sweeps, "n_kept_samples": sweeps - settings["burn_in"]}
    if settings["grouped"]:
        more["group_shapes"] = [*shape, *(features.shape[1] for features in known.values())]
    X = design(given["coords"])
    clock = Clock()
    kind = myfm.MyFMGibbsClassifier if settings["labels"] else myfm.MyFMGibbsRegressor
    model = kind(rank=settings["rank"], random_seed=settings["seed"])
    model.fit(X, given["y"], callback=clock.mark, **more)
    found = clock.times()
    if "test_coords" in given:
        rows = design(given["test_coords"])
        squares = rows.multiply(rows).tocsr()
        latent = []
        for one in model.predictor_.samples:
            v = np.asarray(one.V)
            pairs = 0.5 * ((rows @ v) ** 2 - squares @ v**2).sum(axis=1)
            latent.append(one.w0 + rows @ np.asarray(one.w) + pairs)
        kept = np.array([item.alpha for item in model.history_.hypers[-len(latent) :]])
        found |= _of_draws(np.array(latent), kept, settings, given["test_y"])
    return found


def _features(given: Given) -> dict[int, np.ndarray]:
    """What is known of the rows of some modes."""
    return {k: given[f"features_{k}"] for k in range(given["coords"].shape[1]) if f"features_{k}" in given}


def _of_draws(latent: np.ndarray, precision: np.ndarray, settings: Given, y: np.ndarray) -> Given:
    """What draws (S, n) of latent values predict: the probability of a one, or mean, log density, new observations."""
    from scipy.special import logsumexp, ndtr

    if settings["labels"]:
        return {"predicted": ndtr(latent).mean(axis=0)}
    found: Given = {"predicted": latent.mean(axis=0)}
    if np.isfinite(precision).all():
        precision = precision[:, None]
        terms = 0.5 * np.log(precision / (2.0 * np.pi)) - 0.5 * precision * (y - latent) ** 2
        noise = np.random.default_rng(settings["seed"]).standard_normal(latent.shape) / np.sqrt(precision)
        found |= {"log_density": logsumexp(terms, axis=0) - np.log(len(terms)), "observations": latent + noise}
    return found


def bayespy(given: Given) -> Given:
    """BayesPy's principal component analysis; its start follows numpy's own random state, not the seed."""
    import bayespy.nodes as nodes  # type: ignore[import-not-found]
    from bayespy.inference import VB  # type: ignore[import-not-found]

    x, rank = given["x"], int(given["rank"])
    u = nodes.GaussianARD(0, 1, plates=(1, len(x)), shape=(rank,))
    alpha = nodes.Gamma(1e-3, 1e-3, plates=(rank,))
    v = nodes.GaussianARD(0, alpha, plates=(x.shape[1], 1), shape=(rank,))
    f = nodes.SumMultiply("d,d->", u, v)
    tau = nodes.Gamma(1e-3, 1e-3)
    y = nodes.GaussianARD(f, tau)
    y.observe(np.nan_to_num(x).T, mask=~np.isnan(x).T)
    inference = VB(y, u, v, alpha, tau)
    v.initialize_from_random()
    clock = Clock()
    inference.update(repeat=int(given["sweeps"]), tol=0.0, verbose=False)
    return {**clock.times(), "latent": np.asarray(f.get_moments()[0]).T}


def mofapy2(given: Given) -> Given:
    """MOFA with a Bernoulli view."""
    from mofapy2.run.entry_point import entry_point  # type: ignore[import-not-found]

    model: Any = entry_point()
    model.set_data_options(scale_groups=False, scale_views=False)
    model.set_data_matrix([[given["x"]]], likelihoods=["bernoulli"])
    model.set_model_options(factors=int(given["rank"]), spikeslab_weights=False, ard_weights=True)
    how = {"iter": int(given["sweeps"]), "seed": int(given["seed"]), "convergence_mode": "slow", "dropR2": None}
    model.set_train_options(**how, quiet=True, verbose=False)
    model.build()
    clock = Clock()
    model.run()
    found = clock.times()
    z, w = (model.model.nodes[name].getExpectations() for name in ("Z", "W"))
    return {**found, "latent": np.asarray(z["E"]) @ np.asarray(w[0]["E"]).T}


def gpy(given: Given) -> Given:
    """GPy's classifier by EP at an RBF kernel, which is learned if asked."""
    import GPy  # type: ignore[import-not-found]
    from GPy.inference.latent_function_inference.expectation_propagation import EP  # type: ignore[import-not-found]

    X, y = given["X"], given["y"].astype(float)[:, None]
    kernel = GPy.kern.RBF(X.shape[1], variance=float(given["variance"]), lengthscale=float(given["scale"]))
    learned = bool(given["learned"])
    # by default it moves the kernel between sweeps, and then stops far below the highest evidence
    method = EP(ep_mode="nested") if learned else EP(epsilon=1e-12)
    clock = Clock()
    model = GPy.core.GP(X, y, kernel=kernel, likelihood=GPy.likelihoods.Bernoulli(), inference_method=method)
    if learned:
        model.optimize()
    found = clock.times()
    p = model.predict(given["test_X"])[0][:, 0]
    return {**found, "evidence": float(np.squeeze(model.log_likelihood())), "p": p}


ADAPTERS = {adapter.__name__: adapter for adapter in (smurff, myfm, bayespy, mofapy2, gpy)}
SAMPLERS = ("smurff", "myfm")


def prepare(folder: Path, packages: Sequence[str]) -> Path:
    """The Python of an environment that has the packages; makes it if need be."""
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    check = [str(python), "-c", "import " + ", ".join(packages)]
    if not python.exists() or subprocess.run(check, capture_output=True, check=False).returncode:
        print(f"installing {' and '.join(packages)} into {folder}", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
    return python


def call(python: Path, peer: str, **given: Any) -> dict[str, np.ndarray]:
    """What the adapter of a peer says of the arrays that it is given, on one thread of a process of its own."""
    limits = dict.fromkeys(THREAD_VARIABLES, "1")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(source, **given)
        command = [str(python), __file__, peer, str(source), str(target)]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **limits}, check=False)
        if done.returncode:
            raise RuntimeError(f"{peer} failed: {done.stderr.strip().splitlines()[-1:]}")
        with np.load(target) as written:
            return dict(written)


class PeerSetting(NamedTuple):
    """What a sampler is given; None is its own default. `precision` "learned" is SMURFF's adaptive noise."""

    rank: int | None = None
    sweeps: int | None = None
    burn_in: int | None = None
    precision: float | str | None = None
    grouped: bool = False  # myFM: a prior for each mode


def sample(
    python: Path, peer: str, split: Any, setting: PeerSetting, *, labels: bool = False, seed: int = 1, **more: Any
) -> dict[str, np.ndarray]:
    """What SMURFF or myFM say of a `heldout.Split`, whose test entries they predict, where it has any."""
    given: Given = {"shape": split.shape, "coords": split.train.coords, "y": split.train.y, **more}
    if split.tests:
        given |= {"test_coords": split.held.coords, "test_y": split.held.y}
    settings = {**setting._asdict(), "labels": labels, "seed": seed, "threads": 1}
    return call(python, peer, settings=json.dumps(settings), **given)


def sweeps(options: argparse.Namespace) -> Found:
    """Seconds of a sweep, and how many of ours the peer's takes."""
    from scripts.benchmarks.common import paper_model
    from scripts.benchmarks.heldout import Entries, Split, splits
    from tensorcep import CPRegressor, simulate_cp

    rank = options.ranks[0]
    for name in options.entries:
        found: dict[str, list[float]] = {}
        for fold in options.folds:
            if name == "alog":
                split = splits("alog", [fold])[0]._replace(tests=[])
            else:
                unit = max(100, int(float(name)) // 1000)
                shape = (2 * unit, unit, 2 * unit)
                drawn = simulate_cp(shape, rank, int(float(name)), random_state=fold).tensor
                split = Split(name, fold, shape, Entries(drawn.coords, drawn.values), [])
            setting = PeerSetting(rank, options.sweeps, options.sweeps // 2, "learned", grouped=True)
            for who in [*options.peers_of(SAMPLERS), *options.methods]:
                if who in SAMPLERS:
                    seconds = sample(options.python([who]), who, split, setting)["sweep_seconds"]
                else:
                    how = {"method": who, "n_chains": 1, "max_iter": options.sweeps, "tol": 0.0, "shape": split.shape}
                    model = paper_model(CPRegressor, rank, **how, prior="learned", init="random", random_state=fold)
                    seconds = _quiet_fit(model, *split.train).trace_["seconds"]
                seconds = seconds[len(seconds) // 10 :]
                found.setdefault(who, []).append(float(np.min(seconds)))
                about = {"data": name, "fold": fold, "rank": rank, "method": who}
                yield "seconds_per_sweep", float(np.min(seconds)), about
        for ours in (who for who in found if who not in SAMPLERS):
            for peer in (who for who in found if who in SAMPLERS):
                times = float(np.mean(found[peer]) / np.mean(found[ours]))
                yield f"times_faster_than_{peer}", times, {"data": name, "rank": rank, "method": ours}


def _quiet_fit(model: Any, *data: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few sweeps do not converge; items that have test entries alone
        return model.fit(*data)


STARS, FOLDS, MOVIELENS = ["user", "item"], (1, 2, 3, 4, 5), "movielens100k"
EDGES, LEAST_MASS = (1.5, 2.5, 3.5, 4.5), 1e-15  # what parts real values into stars; masses below are rounding


def read_stars(where: Path, fold: int, cold: int | None, seed: int) -> list[Any]:
    """Training and test entries of a fold, or without and of so many items, users and items counted from 0."""
    import pandas as pd

    lines = {k: gzip.decompress((where / f"u{k}.test.gz").read_bytes()).decode().splitlines() for k in FOLDS}
    tables = [np.column_stack([np.loadtxt(lines[k], dtype=np.int64)[:, :3], np.full(len(lines[k]), k)]) for k in FOLDS]
    every = pd.DataFrame(np.concatenate(tables) - [1, 1, 0, 0], columns=[*STARS, "star", "fold"])
    out = every["fold"] == fold
    if cold is not None:
        out = every["item"].isin(np.random.default_rng(seed).choice(np.unique(every["item"]), cold, replace=False))
    return [every[~out], every[out]]


def star_scores(model: Any, X: np.ndarray, stars: np.ndarray) -> dict[str, float]:
    from tensorcep.metrics import coverage, rmse

    if hasattr(model, "expected_value"):
        scores = np.asarray(model.log_score(X, stars))
        return {"rmse": rmse(stars.astype(float), model.expected_value(X)), "log_score": float(scores.mean())}
    below = [model.anomaly_score(X, np.full(len(X), edge))["lower_tail"].to_numpy() for edge in EDGES]
    mass = np.diff(np.stack(below, axis=1), axis=1, prepend=0.0, append=1.0)[np.arange(len(X)), stars - 1]
    found = {"rmse": rmse(stars, model.predict(X)), "log_score": float(np.log(np.maximum(mass, LEAST_MASS)).mean())}
    return {**found, "coverage_90": coverage(stars, *model.predict_interval(X, 0.9).T)}


def ratings(options: argparse.Namespace) -> Found:
    import pandas as pd

    from scripts.benchmarks.heldout import Entries, Split
    from tensorcep import CPOrdinalClassifier, CPRegressor, Features
    from tensorcep.metrics import rmse

    where = Path(os.environ.get("TENSORCEP_DATA", ""), MOVIELENS)
    if not all((where / f"u{k}.test.gz").is_file() for k in FOLDS):
        files = f"{MOVIELENS}/u1.test.gz to u5.test.gz"
        raise SystemExit(f"no {files} in the folder that TENSORCEP_DATA names; see --help.")
    for fold in options.folds if options.cold is None else [0]:
        parts = read_stars(where, fold, options.cold, options.seed)
        parts[0] = parts[0].sample(min(options.few or len(parts[0]), len(parts[0])), random_state=fold)
        shape = tuple(1 + max(int(part[name].max()) for part in parts) for name in STARS)
        train, test = (Entries(part[STARS].to_numpy(), part["star"].to_numpy()) for part in parts)
        for name in [*options.models, *options.peers_of(SAMPLERS)]:
            about = {"data": MOVIELENS, "fold": fold, "cold": options.cold or 0, "method": name, "seed": options.seed}
            kind, features, known = *name.partition("+")[:2], []
            if features:
                with np.load(where / "side.npz", allow_pickle=False) as side:
                    known = [side["F0"], side["F1"]]
            if kind in SAMPLERS:
                setting = PeerSetting(options.peer_rank, 600, 300, "learned", grouped=True)
                split = Split(MOVIELENS, fold, shape, train, [test])
                more = {f"features_{k}": F for k, F in enumerate(known)}
                told = sample(options.python([kind]), kind, split, setting, seed=options.seed, **more)
                found = {"rmse": rmse(test.y, told["predicted"]), "cpu_seconds": float(told["cpu_seconds"])}
            else:
                prior: Any = {mode: Features(pd.DataFrame(F)) for mode, F in enumerate(known)} or "auto"
                how = {"shape": shape, "prior": prior, "random_state": options.seed, "n_jobs": 1}
                how |= {} if options.quick is None else {"method": "vmp", "rank": 1, "max_iter": options.quick}
                model = CPOrdinalClassifier(**how) if kind == "ordinal" else CPRegressor(lower_limit=None, **how)
                seconds = _cpu_of(model, *train)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)  # some items have test entries alone
                    found = {"cpu_seconds": seconds, **star_scores(model, *test)}
            yield from ((metric, value, about) for metric, value in found.items())


def factors(options: argparse.Namespace) -> Found:
    """Seconds of fits of matrices, and the error or log score of what was hidden."""
    from scipy.special import expit
    from sklearn.decomposition import FactorAnalysis

    from tensorcep import BayesianFactorAnalysis, BayesianPCA

    rng, (n, d), rank = np.random.default_rng(options.seed), options.shape, options.ranks[0]
    how: Given = {"max_iter": options.sweeps, "random_state": 0}
    f = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, d))

    def fits(models: dict[str, Any], x: np.ndarray, peer: str | None) -> Iterator[tuple[str, Any, float]]:
        for name, model in models.items():
            _quiet_fit(model, x[: rank + 2])  # compiled code is loaded
            begin = time.perf_counter()
            yield name, _quiet_fit(model, x), time.perf_counter() - begin
        for name in options.peers_of([peer] if peer else []):
            given = {"x": x, "rank": rank, "sweeps": options.sweeps, "seed": options.seed}
            found = call(options.python([name]), name, **given)
            yield name, found["latent"], float(found["seconds"])

    def filled(model: Any) -> np.ndarray:
        return model if isinstance(model, np.ndarray) else model.reconstruct()

    hidden = rng.random(f.shape) < 0.5
    x = np.where(hidden, np.nan, f + 0.5 * rng.standard_normal(f.shape))
    plain = {**how, "bias": "none", "init": "random", "tol": 0.0}
    models: dict[str, Any] = {m: BayesianPCA(rank, method=m, **plain) for m in options.factor_methods}
    for name, model, seconds in fits(models, x, "bayespy"):
        error = float(np.sqrt(np.mean((filled(model) - f)[hidden] ** 2)))
        yield "hidden rmse", error, {"data": "half hidden", "rank": rank, "method": name, "seconds": seconds}
    hidden = rng.random(f.shape) < 0.2
    labels = (rng.random(f.shape) < expit(2.5 * f)).astype(float)
    models = {m: BayesianPCA(rank, "bernoulli", m, tol=0.0, **how) for m in options.factor_methods}
    for name, model, seconds in fits(models, np.where(hidden, np.nan, labels), "mofapy2"):
        p = np.clip(expit(model) if isinstance(model, np.ndarray) else model.reconstruct(), 1e-6, 1.0 - 1e-6)
        score = float(np.mean(np.where(labels > 0.0, np.log(p), np.log1p(-p))[hidden]))
        yield "hidden log score", score, {"data": "labels", "rank": rank, "method": name, "seconds": seconds}
    complete = f + rng.uniform(0.5, 1.5, d) * rng.standard_normal(f.shape)
    models = {m: BayesianFactorAnalysis(rank, method=m, **how) for m in options.factor_methods}
    for name, model, seconds in fits({"scikit-learn": FactorAnalysis(rank), **models}, complete[::2], None):
        about = {"data": "complete", "rank": rank, "method": name, "seconds": seconds}
        yield "held-out log likelihood", float(model.score(complete[1::2])), about


def classes(options: argparse.Namespace) -> Found:
    """Fits of Gaussian processes to points with two labels."""
    from sklearn.gaussian_process import GaussianProcessClassifier as Peer
    from sklearn.gaussian_process.kernels import RBF

    from tensorcep import GaussianProcessClassifier, datasets

    for name in options.data:
        points = datasets.load_gp(name)
        X = points.X[:, points.X.std(axis=0) > 0.0]
        X, held = (X - X.mean(axis=0)) / X.std(axis=0), np.arange(len(X)) % 10 == 0
        test_X, test_y, at = X[held], points.y[held], (4.0, np.sqrt(X.shape[1]))
        X, y = X[~held], points.y[~held]
        models: dict[str, Any] = {"scikit-learn": Peer(1.0 * RBF(1.0))}
        models |= {m: GaussianProcessClassifier(1.0 * RBF(1.0), method=m) for m in options.gp_methods}
        models["fixed"] = GaussianProcessClassifier(at[0] * RBF(at[1]), optimizer=None)
        found: dict[str, dict[str, float]] = {}
        for method, model in models.items():
            _quiet_fit(model, X[::4], y[::4])  # compiled code is loaded
            seconds = np.median([_cpu_of(model, X, y) for _ in range(options.repeats)])
            p, evidence = model.predict_proba(test_X)[:, 1], model.log_marginal_likelihood_value_
            found[method] = {"cpu_seconds": seconds, "p": p, "evidence": evidence}
        starts = {"gpy fixed": (*at, False), **({"gpy": (1.0, 1.0, True)} if options.learned else {})}
        for method, start in starts.items() if options.gpy else ():
            how = dict(zip(("variance", "scale", "learned"), start, strict=True))
            found[method] = call(options.gpy, "gpy", X=X, y=y, test_X=test_X, **how)
        for method, told in found.items():
            log_loss = -np.log(np.where(test_y == 1, told["p"], 1.0 - told["p"])).mean()
            measured = {"cpu_seconds": told["cpu_seconds"], "log_loss": log_loss, "evidence": told["evidence"]}
            yield from ((metric, float(value), {"data": name, "method": method}) for metric, value in measured.items())


def _cpu_of(model: Any, *data: Any) -> float:
    begin = time.process_time()
    _quiet_fit(model, *data)
    return time.process_time() - begin


def regressions(options: argparse.Namespace) -> Found:
    """CPU seconds of the default fit and of scikit-learn's mode, and their ratio."""
    from scipy import sparse
    from sklearn.linear_model import LogisticRegression

    from tensorcep import BayesianLogisticRegression

    for size in options.sizes:
        n, d, share = (float(word) for word in size.split("x"))
        rng, n, d = np.random.default_rng(options.seed), int(n), int(d)
        per_row = max(1, round(share * d))  # normal features, the same number of them in every row
        columns = (rng.integers(d, size=n)[:, None] + rng.permutation(d)[:per_row]) % d
        start = np.arange(n + 1) * per_row
        X: Any = sparse.csr_matrix((rng.standard_normal(n * per_row), columns.ravel(), start), shape=(n, d))
        y = (rng.random(n) < 1.0 / (1.0 + np.exp(-(X @ rng.standard_normal(d))))).astype(float)
        X = X.toarray() if share == 1.0 else X
        models = (BayesianLogisticRegression(), LogisticRegression(C=1.0))
        _quiet_fit(models[0], X, y)  # compiles
        seconds = [[_cpu_of(model, X, y) for model in models] for _ in range(options.repeats)]
        ours, mode = (float(value) for value in np.median(seconds, axis=0))
        yield "cpu_seconds", ours, {"data": size, "method": "ep"}
        yield "cpu_seconds", mode, {"data": size, "method": "scikit-learn"}
        yield "ratio", ours / mode, {"data": size, "method": "ep / scikit-learn"}


PROBLEMS: dict[str, Callable[[argparse.Namespace], Found]] = {
    problem.__name__: problem for problem in (sweeps, ratings, factors, classes, regressions)
}


def main(arguments: list[str] | None = None) -> None:
    from threadpoolctl import threadpool_limits

    from scripts.benchmarks.common import numbers, parser, report, row, say, words

    names = [f"{peer}{more}" for peer in ADAPTERS for more in ("", "+features")]
    p = parser(__doc__, data="crabs,sonar,ionosphere,pima", folds="1", ranks="10", methods="gibbs", sweeps=100, seed=0)
    p.add_argument("--problems", type=words(*PROBLEMS), default=",".join(PROBLEMS), help="default: %(default)s")
    p.add_argument("--peers", type=words(*names, "none"), default="none", help="of these, beside scikit-learn")
    p.add_argument("--entries", type=words(), default="alog", help="of sweeps: alog, or numbers of simulated entries")
    p.add_argument("--models", type=words(), default="gaussian,ordinal", help="of ratings; +features of each, too")
    p.add_argument("--cold", type=int, help="of ratings: hold out all of so many items in place of a fold")
    p.add_argument("--few", type=int, help="of ratings: take only so many training entries")
    p.add_argument("--quick", type=int, help="of ratings: so many sweeps of vmp at rank 1 in place of the defaults")
    p.add_argument("--peer-rank", type=int, default=10, help="of ratings (default: %(default)s)")
    p.add_argument("--shape", type=numbers, default="1000,100", help="of factors (default: %(default)s)")
    p.add_argument("--factor-methods", type=words(), default="vb-factorized,vb", help="default: %(default)s")
    p.add_argument("--gp-methods", type=words(), default="ep", help="of ep, qp, vb, laplace (default: %(default)s)")
    p.add_argument("--gpy", type=Path, help="the Python of an environment that has GPy")
    p.add_argument("--learned", action="store_true", help="have GPy learn the kernel too, which takes it a while")
    p.add_argument("--sizes", nargs="+", default=["2000x20x1", "20000x300x1", "200000x50x1", "100000x1000x.01"])
    p.add_argument("--repeats", type=int, default=3, help="fits of which the median counts (default: %(default)s)")
    p.add_argument("--environment", type=Path, default=ENVIRONMENT, help="of peers (default: %(default)s)")
    options = p.parse_args(arguments)
    options.peers_of = lambda able: [name for name in options.peers if name.split("+")[0] in able]
    options.python = lambda packages: prepare(options.environment, packages)
    rows = []
    with threadpool_limits(limits=1, user_api="blas"):
        for problem in options.problems:
            for metric, value, about in PROBLEMS[problem](options):
                rows.append(row(metric, value, problem=problem, **about))
                say(", ".join(f"{name} {item}" for name, item in rows[-1].items()))
    report(rows, options.json)


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in ADAPTERS:
        with np.load(sys.argv[2]) as loaded:
            arrays = dict(loaded)
        np.savez(sys.argv[3], **ADAPTERS[sys.argv[1]](arrays))
    else:
        main()
