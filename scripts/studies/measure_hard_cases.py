"""Cases in which a default once failed without a word: what it gives now, beside what is attainable.

values, labels: entries of a zero-mean CP tensor of rank 8, by default and by engines that are named; RMSE of new
observations (noise .5), AUC. offsets: the largest change of a prediction, in standard deviations of the values, when a
constant is added to all. few: 394 entries of rank 2 by three seeds of a sampler; RMSE of the truth. stream: values of
either sign in batches. intervals: share of unobserved latent values inside their 90 % intervals, 60 cells of real
values and 1,800 labels at the right rank. counts: 70,000 cells of mean 8.5. one-class: what the refusal says. rows:
100,000 entries with 50,000 rows; peak memory of the whole process. ten-million: 1e7 entries with 35,000 rows (about
eight minutes and 4 GB). `asked` is what a row should reach: its measure has to be at most that, coverage and AUC at
least. Every case has a process of its own.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import poisson
from sklearn.exceptions import ConvergenceWarning

from scripts.lib.children import in_child
from scripts.lib.common import Row, numbers, paper_model, parser, report, row, say, table, words
from scripts.lib.coverage import FIT_SEED, latent_of
from scripts.lib.memory import resident
from tensorcep import CPClassifier, CPCountRegressor, CPRegressor, SparseTensor, metrics, simulate_cp
from tensorcep.cp.simulate import CPSimulation

TEST = 20_000  # entries that are kept for the test
SMALL, LARGE = (300, 200, 100), (500, 300, 200)
DEFAULT = ("default", None)


def split(simulated: CPSimulation, n: int) -> tuple[SparseTensor, np.ndarray, np.ndarray]:
    """The first n entries, which are in random order, and coordinates and values of the others."""
    coords, values = simulated.tensor.coords, simulated.tensor.values
    return SparseTensor(coords[:n], values[:n], simulated.tensor.shape), coords[n:], values[n:]


def fitted(model: Any, train: SparseTensor) -> tuple[Any, float]:
    """The fitted model and its CPU seconds."""
    begin = time.process_time()
    model.fit(train)
    return model, time.process_time() - begin


def named(estimator: Any, engine: tuple[str, int | None], seed: int, **others: Any) -> Any:
    """The default, or an engine at its rank."""
    name, rank = engine
    return estimator(**({} if name == "default" else {"rank": rank, "method": name}), random_state=seed, **others)


def values(seed: int, scale: float) -> list[Row]:
    """Real values by default and by named engines."""
    rows = []
    for n, asked in ((100_000, 0.5225), (200_000, 0.515)):
        n = max(400, int(n * scale))
        test = min(TEST, n)
        simulated = simulate_cp(LARGE, 8, n + test, noise_precision=4.0, latent_sd=1.0, random_state=seed)
        train, coords, y = split(simulated, n)
        for engine in (DEFAULT, ("cep", 12), ("vmp", 8), ("cep", 8), ("gibbs", 8)):
            model, seconds = fitted(named(CPRegressor, engine, seed), train)
            about = {"data": f"values {n}", "method": " ".join(map(str, filter(None, engine))), "seed": seed}
            rows.append(row("rmse", metrics.rmse(y, model.predict(coords)), **about, seconds=seconds, asked=asked))
        rows.append(row("rmse", metrics.rmse(y, simulated.latent[n:]), data=f"values {n}", method="truth", seed=seed))
    return rows


def labels(seed: int, scale: float) -> list[Row]:
    """Labels, the logistic of twice a latent value of standard deviation 1."""
    rows = []
    for shape, n, asked in ((SMALL, 100_000, 0.815), (LARGE, 100_000, 0.755), (LARGE, 200_000, 0.817)):
        n = max(400, int(n * scale))
        test = min(TEST, n)
        simulated = simulate_cp(shape, 8, n + test, likelihood="logit", latent_sd=2.0, random_state=seed)
        train, coords, y = split(simulated, n)
        name = f"labels {n}, {shape[0]} rows"
        for engine in (DEFAULT, ("pg-vb", 12), ("cep", 12), ("pg-gibbs", 12)):
            model, seconds = fitted(named(CPClassifier, engine, seed, link="logit"), train)
            auc = metrics.auc(y, model.predict_proba(coords)[:, 1])
            about = {"data": name, "method": " ".join(map(str, filter(None, engine))), "seed": seed}
            rows.append(row("auc", auc, **about, seconds=seconds, asked=asked))
        rows.append(row("auc", metrics.auc(y, simulated.latent[n:]), data=name, method="truth", seed=seed))
    return rows


def offsets(seed: int, scale: float) -> list[Row]:
    """The same predictions whatever constant is added."""
    simulated = simulate_cp((60, 40, 20), 3, max(400, int(8_000 * scale)), noise_precision=4.0, random_state=seed)
    tensor, rows = simulated.tensor, []
    for engine in (("cep", 3), ("vmp", 3), DEFAULT, ("gibbs", 3)):
        before = named(CPRegressor, engine, seed).fit(tensor).predict(tensor.coords)
        for constant in (100.0, 1_000.0, 10_000.0):
            moved = SparseTensor(tensor.coords, tensor.values + constant, tensor.shape)
            after = named(CPRegressor, engine, seed).fit(moved).predict(tensor.coords) - constant
            change = float(np.max(np.abs(after - before)) / tensor.values.std())
            rows.append(row("largest change", change, data=f"y + {constant:g}", method=engine[0], seed=seed))
    return rows


def few(seed: int, scale: float) -> list[Row]:
    """394 entries of rank 2, noise .2, by three seeds of the sampler."""
    simulated = simulate_cp((12, 10, 8), 2, 500, noise_precision=25.0, intercept=3.0, random_state=seed)
    train, coords, _ = split(simulated, 394)
    truth, rows = simulated.latent[394:], []
    for chain in range(3):
        model, seconds = fitted(CPRegressor(rank=2, method="gibbs", random_state=chain), train)
        error = metrics.rmse(truth, model.predict(coords))
        rows.append(row("rmse of truth", error, data="394 entries", method="gibbs 2", seed=chain, seconds=seconds))
    return rows


def stream(seed: int, scale: float) -> list[Row]:
    """40,000 values of either sign in batches of 2,000, prior by default."""
    n, size = (max(400, int(part * scale)) for part in (40_000, 2_000))
    simulated = simulate_cp((200, 100, 24), 3, n + 4_000, noise_precision=10.0, latent_sd=1.0, random_state=seed)
    train, coords, y = split(simulated, n)
    model = CPRegressor(rank=3, random_state=seed)
    begin = time.process_time()
    for a in range(0, n, size):
        model.partial_fit(SparseTensor(train.coords[a : a + size], train.values[a : a + size], train.shape))
    about = {"data": "stream", "method": "default", "seed": seed, "seconds": time.process_time() - begin}
    truth = {"data": "stream", "method": "truth", "seed": seed}
    return [
        row("rmse", metrics.rmse(y, model.predict(coords)), **about, asked=0.32),
        row("rmse", metrics.rmse(y, simulated.latent[n:]), **truth),
    ]


def intervals(seed: int, scale: float) -> list[Row]:
    """90 % intervals of latent values that were not observed: the paper's settings, the right rank."""
    rows = []
    cases: tuple[tuple[Any, ...], ...] = (
        (CPRegressor, "gaussian", (6, 5, 4), 2, 60, ("cep", "gibbs"), max(2, int(30 * scale)), "true"),
        (CPClassifier, "logit", (25, 20, 12), 4, 1_800, ("cep", "pg-gibbs"), max(2, int(6 * scale)), "learned"),
    )
    for estimator, likelihood, shape, rank, n, methods, sets, prior in cases:
        for method in methods:
            inside, told = [], 0
            for k in range(seed, seed + sets):
                simulated = simulate_cp(shape, rank, n, likelihood=likelihood, random_state=k)
                coords = simulated.tensor.sample_zeros(min(60, n), random_state=k).coords
                truth = latent_of(simulated, coords)
                own = {"prior": simulated.prior} if prior == "true" else {}
                sweeps = 600 if "gibbs" in method else 200
                link = {"link": "logit"} if likelihood == "logit" else {}
                model = paper_model(
                    estimator, rank, **{"method": method, "random_state": FIT_SEED + k, **own, **link}, max_iter=sweeps
                ).fit(simulated.tensor)
                mean, variance = model.predict_latent(coords)
                inside += list(np.abs(truth - mean) <= 1.6449 * np.sqrt(variance))
                told += "narrow" in str(model.diagnostics_)
            about = {"data": f"{n} {likelihood}", "method": f"{method} {rank}", "sets": sets, "told_too_narrow": told}
            rows.append(row("inside 90 %", float(np.mean(inside)), **about))
    return rows


def counts(seed: int, scale: float) -> list[Row]:
    """70,000 counts of mean 8.5 by default, beside the truth's log score."""
    n = max(400, int(70_000 * scale))
    simulated = simulate_cp(
        (400, 100, 24), 4, n + min(n, TEST), likelihood="poisson", latent_sd=0.6, intercept=2.0, random_state=seed
    )
    train, coords, y = split(simulated, n)
    model, seconds = fitted(CPCountRegressor(random_state=seed), train)
    about = {"data": f"counts of mean {y.mean():.1f}", "seed": seed}
    score = float(np.mean(model.log_score(coords, y)))
    best = poisson.logpmf(y, np.exp(simulated.latent[n:]))
    return [
        row("log score", score, **about, method="default", seconds=seconds, asked="10 CPU s"),
        row("log score", float(np.mean(best)), **about, method="truth"),
    ]


def one_class(seed: int, scale: float) -> list[Row]:
    """What a fit of labels that are all the same says."""
    tensor = simulate_cp((20, 10, 5), 1, 300, random_state=seed).tensor
    same = SparseTensor(tensor.coords, np.ones(300), tensor.shape)
    try:
        CPClassifier().fit(same)
    except ValueError as error:
        return [row("refused", 1.0, data="one class", says=str(error))]
    return [row("refused", 0.0, data="one class")]


def positive(shape: tuple[int, ...], n: int, seed: int) -> tuple[SparseTensor, np.ndarray, np.ndarray, float]:
    """Entries of four positive components with noise of half their sd; entries to test on; the sd of the noise."""
    rng = np.random.default_rng(seed)
    factors = [rng.gamma(4.0, 0.25, size=(rows, 4)) for rows in shape]
    test = min(n, 10 * TEST)
    places = [rng.integers(0, rows, n + test + n // 500) for rows in shape]
    cells = rng.permutation(np.unique(np.ravel_multi_index(places, shape)))[: n + test]
    coords = np.stack(np.unravel_index(cells, shape), axis=1)
    latent = np.prod([factor[coords[:, k]] for k, factor in enumerate(factors)], axis=0).sum(axis=1)
    noise = 0.5 * float(latent.std())
    y = latent + rng.normal(0.0, noise, len(latent))
    return SparseTensor(coords[:n], y[:n], shape), coords[n:], y[n:], noise


def many_rows(seed: int, scale: float, shape: tuple[int, ...] = (30_000, 15_000, 5_000), n: int = 100_000) -> list[Row]:
    """A default fit of entries that spread over many rows: memory of the whole process."""
    train, coords, y, noise = positive(shape, max(400, int(n * scale)), seed)
    wall = time.perf_counter()
    model, seconds = fitted(CPRegressor(random_state=seed, n_jobs=2), train)
    wall = time.perf_counter() - wall
    error = metrics.rmse(y, model.predict(coords))
    about = {"data": f"{train.nnz} entries, {sum(shape)} rows", "method": "default", "seed": seed}
    return [
        row("rmse", error, **about, seconds=seconds, wall=wall, noise=noise, sd=float(y.std())),
        row("GB", resident("VmHWM") / 1e9, **about, asked=1.0 if n == 100_000 else 24.0),
    ]


def ten_million(seed: int, scale: float) -> list[Row]:
    """1e7 entries with 35,000 rows by default."""
    return many_rows(seed, scale, (20_000, 10_000, 5_000), 10_000_000)


CASES: dict[str, Callable[[int, float], list[Row]]] = {
    "values": values,
    "labels": labels,
    "offsets": offsets,
    "few": few,
    "stream": stream,
    "intervals": intervals,
    "counts": counts,
    "one-class": one_class,
    "rows": many_rows,
    "ten-million": ten_million,
}


def measured(name: str, seed: int, scale: float) -> list[Row]:
    """Rows of one case, in this process; what fits warn of is not what is measured."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "[0-9]+ of [0-9]+ entries touch rows", UserWarning)
        return CASES[name](seed, scale)


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    p = parser(__doc__)
    usual = ",".join(name for name in CASES if name != "ten-million")
    p.add_argument(
        "--cases", type=words(*CASES), default=usual, help=f"of {','.join(CASES)} (default: all but the last)"
    )
    p.add_argument("--seeds", type=numbers, default="0,1", help="of data and fits (default: %(default)s)")
    p.add_argument("--scale", type=float, default=1.0, help="times as many entries, for a try (default: %(default)s)")
    p.add_argument("--gigabytes", type=float, default=24.0, help="most address space of a case (default: %(default)s)")
    options: argparse.Namespace = p.parse_args(arguments)
    rows = []
    for name in options.cases:
        for seed in options.seeds:
            outcome = in_child(measured, (name, seed, options.scale), 7_200.0, options.gigabytes)
            own = outcome.value if outcome.status == "ok" else [row("failed", None, data=name, says=outcome.status)]
            say(f"{name} seed {seed}: {outcome.status}\n{table(own)}")  # a long run may be ended before the last case
            rows += own
    report(rows, options.json)


if __name__ == "__main__":
    main()
