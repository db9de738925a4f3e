"""The demonstration behind `tensorcep demo`: held-out entries of the COVID-19 serology tensor.

The data are log-scaled and centred as they ship, so nothing is subtracted here. The estimator has its defaults. parafac
gets rank 10: with a quarter of the training entries held out, ranks 4 to 10 are as good, and higher ones are worse. It
fits by alternating least squares, filling in the unobserved cells from its last iterate; where it ends depends
on the random start, so it gets several.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tensorcep import CPRegressor, metrics
from tensorcep.core.checks import check_int
from tensorcep.core.persist.archive import atomic_write
from tensorcep.datasets import load_covid19_serology
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.plots import plot_coverage, plot_predictions

TEST_SIZE = 0.2
COVERAGE = 0.9
LEVELS = tuple(k / 20 for k in range(1, 20))
PARAFAC_STARTS, PARAFAC_RANK = 5, 10
NO_FIGURE = "not drawn; pip install 'tensorcep[plots]'"
MODEL_NAME, FIGURE_NAME = "tensorcep-demo.npz", "tensorcep-demo.png"


class Demo(NamedTuple):
    """What the demonstration found on the held-out entries."""

    train: SparseTensor
    test: SparseTensor
    model: CPRegressor
    seconds: float  # of the fit, with what had to be compiled
    rmse: float
    rmse_mean: float  # of the training mean everywhere
    rmse_parafac: np.ndarray  # of masked parafac, for each start
    coverage: float  # share of values inside their intervals of nominal coverage COVERAGE
    model_file: Path
    figure_file: Path | None  # where matplotlib is installed


def run_demo(
    output_dir: str | os.PathLike[str] = ".", *, rank: int | str = "auto", seed: int = 0, progress: bool = True
) -> Demo:
    """Hold out a fifth of the entries, fit the others, score the predictions, and write the model and a figure."""
    if rank != "auto":
        check_int("rank", rank)
    check_int("seed", seed, 0)
    folder = Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    train, test = load_covid19_serology().train_test_split(TEST_SIZE, random_state=seed)
    model = CPRegressor(rank, random_state=seed, n_jobs=-1, verbose=int(progress))
    # parafac has a process of its own: it runs beside the compiler, where this machine still has to compile
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as beside:
        parafac = beside.submit(parafac_errors, train, test, PARAFAC_RANK, seed)
        start = time.perf_counter()
        model.fit(train)
        seconds = time.perf_counter() - start
        mean = model.predict(test)
        intervals = {level: model.predict_interval(test, level) for level in LEVELS}
        model.save(folder / MODEL_NAME)
        rmse_parafac = parafac.result()
    return Demo(
        train=train,
        test=test,
        model=model,
        seconds=seconds,
        rmse=metrics.rmse(test.values, mean),
        rmse_mean=metrics.rmse(test.values, np.full(test.nnz, train.values.mean())),
        rmse_parafac=rmse_parafac,
        coverage=metrics.coverage(test.values, *intervals[COVERAGE].T),
        model_file=folder / MODEL_NAME,
        figure_file=_draw(folder / FIGURE_NAME, test, mean, intervals),
    )


def parafac_errors(train: SparseTensor, test: SparseTensor, rank: int, seed: int) -> np.ndarray:
    """RMSE on `test` of TensorLy's parafac with a mask, at its own defaults but for random starts, one per start."""
    from tensorly.decomposition import parafac

    tensor, mask = train.to_tensorly()
    errors = []
    for start in range(PARAFAC_STARTS):
        found = parafac(tensor, rank, mask=mask, init="random", random_state=seed + start)
        errors.append(metrics.rmse(test.values, SparseTensor.from_tensorly(found, coords=test.coords).values))
    return np.array(errors)


def _draw(path: Path, test: SparseTensor, mean: np.ndarray, intervals: dict[float, np.ndarray]) -> Path | None:
    """Draw the figure, without pyplot: no display is needed and the user's figures stay as they are."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(10, 4.6), layout="constrained", dpi=110)
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    plot_predictions(test.values, mean, coverage=COVERAGE, intervals=intervals[COVERAGE], ax=left)
    left.set(title=f"{test.nnz:,} held-out measurements")
    left.set(xlabel="observed (log-scaled, centred)", ylabel="predicted")
    plot_coverage(test.values, intervals, ax=right)
    right.set(title="Share of them inside their intervals")
    with atomic_write(path) as handle:
        figure.savefig(handle, format="png")
    return path


def report(demo: Demo) -> str:
    """The result as a few lines of text."""
    parafac, model = demo.rmse_parafac, demo.model
    others = len(model.column_modes_) - model.rank_
    lines = [
        f"data        COVID-19 serology, {' x '.join(map(str, demo.train.shape))} (sample x antigen x receptor)",
        f"entries     {demo.train.nnz:,} to fit, {demo.test.nnz:,} held out",
        f"model       {model.method_}, rank {model.rank_}, {others} columns of main effects and pairs of modes",
        f"fit         {model.n_iter_} sweeps, {demo.seconds:.1f} s",
        "",
        "error of the held-out entries (RMSE)",
        f"  training mean                   {demo.rmse_mean:.4f}",
        f"  TensorLy parafac, rank {PARAFAC_RANK}       {parafac.mean():.4f}   mean of {parafac.size} random starts, "
        f"{parafac.min():.4f} to {parafac.max():.4f}",
        f"  tensorcep                       {demo.rmse:.4f}",
        "",
        f"{100 * COVERAGE:g} % intervals hold {100 * demo.coverage:.1f} % of the held-out values (parafac has none)",
        "",
        f"file        {demo.model_file}",
        f"figure      {demo.figure_file or NO_FIGURE}",
    ]
    return "\n".join(lines)
