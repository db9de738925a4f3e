"""Fits GPy's classifier by EP, in an environment that has it: python gpy.py gpy IN.npz OUT.npz

IN.npz holds X, y (0 and 1), test_X, variance and scale of an RBF kernel, and whether they are learned. OUT.npz holds
the processor's seconds of the fit, the evidence and the probabilities of a 1 at the test points.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

EPSILON = 1e-12


def fit(given: dict[str, Any]) -> dict[str, Any]:
    """Fit one model."""
    import GPy  # type: ignore[import-not-found]
    from GPy.inference.latent_function_inference.expectation_propagation import EP  # type: ignore[import-not-found]

    X, y = given["X"], given["y"].astype(float)[:, None]
    kernel = GPy.kern.RBF(X.shape[1], variance=float(given["variance"]), lengthscale=float(given["scale"]))
    learned = bool(given["learned"])
    # by default it moves the kernel between sweeps, and then stops far below the highest evidence
    method = EP(ep_mode="nested") if learned else EP(epsilon=EPSILON)
    begin = time.process_time()
    model = GPy.core.GP(X, y, kernel=kernel, likelihood=GPy.likelihoods.Bernoulli(), inference_method=method)
    if learned:
        model.optimize()
    seconds = time.process_time() - begin
    p = model.predict(given["test_X"])[0][:, 0]
    return {"seconds": seconds, "evidence": float(np.squeeze(model.log_likelihood())), "p": p}


def main() -> None:
    """Read, fit, write."""
    source, target = sys.argv[2:]
    with np.load(source) as archive:
        given = dict(archive)
    np.savez(target, **fit(given))


if __name__ == "__main__":
    main()
