"""Runs BayesPy or mofapy2 on one matrix, in an environment that has it: python factor.py PEER IN.npz OUT.npz.

The input holds x (NaN where missing), rank, sweeps and seed; the output the expected latent values and the seconds.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np


def bayespy(x: np.ndarray, rank: int, sweeps: int, seed: int) -> tuple[np.ndarray, float]:
    """BayesPy's principal component analysis; its start follows numpy's own random state, not the seed."""
    import bayespy.nodes as nodes  # type: ignore[import-not-found]
    from bayespy.inference import VB  # type: ignore[import-not-found]

    D, N = x.shape[1], x.shape[0]
    u = nodes.GaussianARD(0, 1, plates=(1, N), shape=(rank,))
    alpha = nodes.Gamma(1e-3, 1e-3, plates=(rank,))
    v = nodes.GaussianARD(0, alpha, plates=(D, 1), shape=(rank,))
    f = nodes.SumMultiply("d,d->", u, v)
    tau = nodes.Gamma(1e-3, 1e-3)
    y = nodes.GaussianARD(f, tau)
    y.observe(np.nan_to_num(x).T, mask=~np.isnan(x).T)
    inference = VB(y, u, v, alpha, tau)
    v.initialize_from_random()
    begin = time.perf_counter()
    inference.update(repeat=sweeps, tol=0.0, verbose=False)
    seconds = time.perf_counter() - begin
    return np.asarray(f.get_moments()[0]).T, seconds


def mofapy2(x: np.ndarray, rank: int, sweeps: int, seed: int) -> tuple[np.ndarray, float]:
    """MOFA with a Bernoulli view."""
    from mofapy2.run.entry_point import entry_point  # type: ignore[import-not-found]

    model: Any = entry_point()
    model.set_data_options(scale_groups=False, scale_views=False)
    model.set_data_matrix([[x]], likelihoods=["bernoulli"])
    model.set_model_options(factors=rank, spikeslab_weights=False, ard_weights=True)
    model.set_train_options(iter=sweeps, convergence_mode="slow", dropR2=None, seed=seed, quiet=True, verbose=False)
    model.build()
    begin = time.perf_counter()
    model.run()
    seconds = time.perf_counter() - begin
    z, w = (model.model.nodes[name].getExpectations() for name in ("Z", "W"))
    return np.asarray(z["E"]) @ np.asarray(w[0]["E"]).T, seconds


if __name__ == "__main__":
    given = np.load(sys.argv[2])
    arguments = (given["x"], int(given["rank"]), int(given["sweeps"]), int(given["seed"]))
    latent, taken = {"bayespy": bayespy, "mofapy2": mofapy2}[sys.argv[1]](*arguments)
    np.savez(sys.argv[3], latent=latent, seconds=taken)
