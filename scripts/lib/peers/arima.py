"""Forecasts of series by seasonal ARIMA, in an environment with statsmodels: python arima.py arima IN.npz OUT.npz

IN.npz holds series (n, T), NaN where there is no value, the season, the steps ahead and a coverage; and `later`
(n, steps), values that arrive one after the other, each of which is forecast before, or no columns. OUT.npz holds means
(n, steps), limits (n, steps, 2) and the processor's seconds. Every series has a model of its own, (1, 0, 1) with
a season (0, 1, 1), the airline model's season beside an autoregression; a Kalman filter takes what is missing.
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

import numpy as np


def forecast(
    series: np.ndarray, later: np.ndarray, season: int, steps: int, coverage: float
) -> tuple[np.ndarray, np.ndarray]:
    """Means (steps,) and limits (steps, 2) of what follows a series (T,); NaN where it holds too little.

    Of values that arrive later, (steps,), each is forecast from those before it, with the parameters of the series.
    """
    from statsmodels.tsa.statespace.sarimax import SARIMAX  # type: ignore[import-not-found]

    if np.isfinite(series).sum() <= 2 * season:
        return np.full(steps, np.nan), np.full((steps, 2), np.nan)
    model = SARIMAX(series, order=(1, 0, 1), seasonal_order=(0, 1, 1, season))
    fit, told = model.fit(disp=False, maxiter=200), []
    for value in later:
        told.append(_of(fit.get_forecast(1), coverage))
        fit = fit.append([value])
    if not told:
        return _of(fit.get_forecast(steps), coverage)
    mean, limits = (np.concatenate(part) for part in zip(*told, strict=True))
    return mean, limits


def _of(found: Any, coverage: float) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(found.predicted_mean), np.asarray(found.conf_int(alpha=1.0 - coverage))


def main() -> None:
    """Read, forecast, write."""
    source, target = sys.argv[2:]
    with np.load(source) as archive:
        series, later, season, steps, coverage = (
            archive[name] for name in ("series", "later", "season", "steps", "coverage")
        )
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # optimisers that stop early
        how = int(season), int(steps), float(coverage)
        found = [forecast(*lines, *how) for lines in zip(series, later, strict=True)]
    mean, limits = (np.array(part) for part in zip(*found, strict=True))
    np.savez(target, mean=mean, limits=limits, seconds=time.process_time() - begin)


if __name__ == "__main__":
    main()
