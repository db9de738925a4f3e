"""A fit on the workers of a scheduler whose process is killed in a sweep.

python -m helpers.ended_fit ADDRESS FOLDER METHOD SWEEP
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import tensorcep as tc

TENSOR = tc.simulate_cp((14, 12, 10), 2, 900, noise_precision=16.0, latent_sd=1.0, random_state=3).tensor


def model_of(method: str, **params: Any) -> tc.CPRegressor:
    """The model that is fitted."""
    engines: dict[str, Any] = {"gibbs": tc.Gibbs(n_chains=2), "cep": tc.CEP(n_starts=1, n_ensemble=1, anneal=2)}
    engine = engines.get(method, method)
    how = {"method": engine, "init": "random", "max_iter": 12, "interactions": "cp", "random_state": 0, "tol": 0.0}
    return tc.CPRegressor(2, **{**how, **params})


def main(address: str, folder: str, method: str, last: str) -> None:
    """Fit until this sweep, and be killed."""
    from distributed import Client

    def end(n: int, *_: Any) -> None:
        if n == int(last):
            os.kill(os.getpid(), signal.SIGKILL)

    tc.distributed.fit(model_of(method, callbacks=end), TENSOR, client=Client(address), checkpoint=folder, n_parts=2)


if __name__ == "__main__":
    main(*sys.argv[1:])
