"""Seconds of importing tensorcep, and of the first fit of a machine and of a process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

FIT = """
import time, warnings
import numpy as np, tensorcep as tc
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
coords, y = np.stack([rng.integers(0, n, 5000) for n in (50, 40, 30)], axis=1), rng.standard_normal(5000)
how = {"shape": (50, 40, 30), "random_state": 0}
fits = {
    "default": lambda: tc.CPRegressor(8, max_iter=5, tol=0.0, **how).fit(coords, y),
    "cep": lambda: tc.CPRegressor(8, method="cep", max_iter=5, tol=0.0, **how).fit(coords, y),
    "labels": lambda: tc.CPClassifier(8, max_iter=5, tol=0.0, **how).fit(coords, y > 0.0),
    "stream": lambda: tc.CPRegressor(8, **how).partial_fit(coords, y),
}
seconds = []
for _ in range(FITS):
    begin = time.perf_counter()
    fits[WHAT]().predict_latent(coords)
    seconds.append(time.perf_counter() - begin)
print(seconds[0] - min(seconds[1:]) if FITS > 1 else seconds[0])
"""


def timeraw_import() -> str:
    """All of it, with what it depends on."""
    return "import tensorcep.estimators"


def timeraw_import_of_dependencies() -> str:
    """What it depends on alone."""
    return "import numpy, scipy.special, numba, pandas, sklearn.base"


class FirstFit:
    """What is compiled is kept; later processes load it."""

    params = (["default", "cep", "labels", "stream"],)
    param_names = ("fit",)
    unit = "s"
    timeout = 900

    def track_of_machine(self, what: str) -> float:
        """With nothing compiled."""
        with tempfile.TemporaryDirectory() as cache:
            return self._seconds(what, 1, cache)

    def track_of_process(self, what: str) -> float:
        """Beyond a later fit, with everything compiled."""
        with tempfile.TemporaryDirectory() as cache:
            self._seconds(what, 1, cache)
            return self._seconds(what, 4, cache)

    def _seconds(self, what: str, fits: int, cache: str) -> float:
        code = FIT.replace("WHAT", repr(what)).replace("FITS", str(fits))
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=environment)
        return float(done.stdout)
