"""Times SMURFF and myFM on one fold: run by scripts/bench_peers.py in an environment of their own.

    python _peers.py FOLD.npz PEER RANK SWEEPS THREADS

FOLD.npz holds shape, coords, y, test_coords and test_y. Prints a JSON object: seconds of every sweep without test
entries, and the RMSE of the mean prediction over the second half of the sweeps of another run.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np


def smurff_session(fold: Any, rank: int, sweeps: int, threads: int, with_test: bool) -> Any:
    """A BPMF session (normal priors with learned hyper-parameters), noise inferred."""
    import smurff

    def tensor(coords: np.ndarray, y: np.ndarray) -> Any:
        columns = [np.ascontiguousarray(column, dtype=np.int32) for column in coords.T]
        return smurff.SparseTensor((np.ascontiguousarray(y), columns), [int(n) for n in fold["shape"]])

    session = smurff.TrainSession(
        priors=["normal"] * fold["coords"].shape[1],
        num_latent=rank,
        num_threads=threads,
        burnin=sweeps // 2,
        nsamples=sweeps - sweeps // 2,
        seed=1,
        verbose=0,
        save_freq=0,
    )
    session.setTrain(tensor(fold["coords"], fold["y"]), smurff.AdaptiveNoise(1.0, 100.0))
    if with_test:
        session.setTest(tensor(fold["test_coords"], fold["test_y"]))
    return session


def time_smurff(fold: Any, rank: int, sweeps: int, threads: int) -> tuple[list[float], float]:
    """Seconds of every sweep, and the RMSE."""
    session, seconds = smurff_session(fold, rank, sweeps, threads, False), []
    session.init()
    for _ in range(sweeps):
        begin = time.perf_counter()
        session.step()
        seconds.append(time.perf_counter() - begin)
    scored = smurff_session(fold, rank, sweeps, threads, True)
    scored.run()
    return seconds, float(scored.getRmseAvg())


def time_myfm(fold: Any, rank: int, sweeps: int, threads: int) -> tuple[list[float], float]:
    """Seconds of every sweep, and the RMSE. A factorisation machine: pairwise products of one-hot coded rows."""
    import myfm
    from scipy import sparse

    first = np.concatenate([[0], np.cumsum(fold["shape"])])

    def one_hot(coords: np.ndarray) -> Any:
        n, order = coords.shape
        where = (np.repeat(np.arange(n), order), (coords + first[:-1]).ravel())
        return sparse.csr_matrix((np.ones(n * order), where), shape=(n, first[-1]))

    marks = [time.perf_counter()]

    def mark(*_: Any) -> tuple[bool, None]:
        marks.append(time.perf_counter())
        return False, None

    model = myfm.MyFMGibbsRegressor(rank=rank, random_seed=1)
    model.fit(
        one_hot(fold["coords"]),
        fold["y"],
        n_iter=sweeps,
        n_kept_samples=sweeps - sweeps // 2,
        group_shapes=[int(n) for n in fold["shape"]],
        callback=mark,
    )
    predicted = model.predict(one_hot(fold["test_coords"]))
    return list(np.diff(marks)), float(np.sqrt(np.mean((fold["test_y"] - predicted) ** 2)))


PEERS = {"smurff": time_smurff, "myfm": time_myfm}


def main() -> None:
    """Run from the command line."""
    path, peer, *sizes = sys.argv[1:]
    seconds, error = PEERS[peer](np.load(path), *map(int, sizes))
    print(json.dumps({"seconds": seconds, "rmse": error}))


if __name__ == "__main__":
    main()
