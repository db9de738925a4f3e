"""What it is worth to know that rows follow each other: gaps and forecasts with and without `Series`.

Birmingham's car parks (30 x 77 days x 18 half-hours) as in the protocol of transdim: 40 or 60 % of the cells are
missing at random, 40 % of the days of each car park are, or the last 7 days are to be forecast, beside the mean of the
same weekday, the week before and, with `--peers`, a seasonal ARIMA of every car park and half-hour (statsmodels); with
the model "local" every car park also deviates by itself along the days; "power" has no series, but a power of the
values that entries left out choose. "day-by-day": a stream learns four weeks, and then a day at a time, each of which
it forecasts before; "last-week": the same of the last 7 days alone, with the model "chosen", too, whose rank and
interactions are those of the least RMSE on the days before. New York's taxi trips (30 x 30 x 96 hours, counts): a fifth
of the cells is held out at random. Both files come from the repository transdim (MIT licence); `--folder` says where
they are. "simulated" needs no file.

Nothing is chosen by the scores of the cells that they are of: the model is the default (of streams with main effects),
and the series are those that the calendar gives.
"""

from __future__ import annotations

import argparse
import os
import resource
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.io import loadmat

from scripts.lib.common import Row, parser, report, row, say, words
from scripts.lib.peers import arima
from scripts.lib.peers.environment import prepare, run_worker
from tensorcep import CPCountRegressor, CPRegressor, Series

DAYS_AHEAD, WEEK, DAY, BEGIN = 7, 7, 24, 28
# Of the model "chosen".
TRIED = [(8, "main+cp"), (12, "main+cp"), (16, "main+cp"), (20, "main+cp"), (8, "all"), (12, "all")]
CASES = {
    "simulated": ("random-40", "forecast", "day-by-day", "last-week"),
    "birmingham": ("random-40", "random-60", "days-40", "forecast", "day-by-day", "last-week"),
    "taxi": ("held-out-20",),
}


def tensor_of(name: str, options: argparse.Namespace) -> np.ndarray:
    """The values of a data set, nan where there are none."""
    if name == "simulated":
        rng, n = np.random.default_rng(0), 5 * WEEK
        week = np.repeat(rng.normal(0.0, 1.0, (1, WEEK)), 5, axis=0).ravel()
        day = np.cumsum(rng.normal(0.0, 0.3, n)) + week
        park, hour = rng.gamma(4.0, size=8), 2.0 + np.sin(np.linspace(0.0, np.pi, 6))
        return park[:, None, None] * (10.0 + day[:, None]) * hour + rng.normal(0.0, 2.0, (8, n, 6))
    file = {"birmingham": "birmingham.mat", "taxi": "nyc-taxi.mat"}[name]
    found = loadmat(Path(options.folder) / file)
    values = np.asarray(found[next(key for key in found if not key.startswith("__"))], dtype=float)
    return np.where(values == 0.0, np.nan, values) if name == "birmingham" else values[:, :, : 4 * DAY]


def is_hidden(case: str, shape: tuple[int, ...]) -> np.ndarray:
    """Which cells are not shown, as the protocol draws them."""
    if case == "forecast":
        return np.broadcast_to(np.arange(shape[1])[:, None] >= shape[1] - DAYS_AHEAD, shape)
    if case == "held-out-20":
        return np.random.default_rng(0).random(shape) >= 0.8
    kind, rate = case.split("-")
    state = np.random.RandomState(1000)
    drawn = state.rand(*shape) if kind == "random" else state.rand(*shape[:2])[:, :, None]
    return np.broadcast_to(np.round(drawn + 0.5 - int(rate) / 100) == 0.0, shape)


def model_of(name: str, kind: str, options: argparse.Namespace) -> Any:
    """The default model, with what the calendar says or without; "local": every car park deviates by itself, too.

    "power": without it, of a power of the values.
    """
    how: dict[str, Any] = {"random_state": options.seed}
    if options.sweeps:
        how["max_iter"] = options.sweeps
    if name == "taxi":
        return CPCountRegressor(**how, prior="auto" if kind in ("plain", "power") else {2: Series(period=DAY)})
    if kind == "power":
        return CPRegressor(**how, power="auto")
    local = 0 if kind == "local" else None
    return CPRegressor(**how, prior="auto" if kind == "plain" else {1: Series(period=WEEK, local=local), 2: Series()})


def scores(
    y: np.ndarray, mean: np.ndarray, interval: np.ndarray | None = None, log_score: np.ndarray | None = None
) -> dict[str, float]:
    """RMSE, MAE, MAPE of cells that are not zero, and coverage and log score where there are some."""
    some = y != 0.0
    found = {
        "rmse": float(np.sqrt(np.mean((y - mean) ** 2))),
        "mae": float(np.mean(np.abs(y - mean))),
        "mape": float(np.mean(np.abs(1.0 - mean[some] / y[some]))),
    }
    if interval is not None and log_score is not None:
        found["coverage 90"] = float(np.mean((interval[:, 0] <= y) & (y <= interval[:, 1])))
        found["log score"] = float(log_score.mean())
    return found


def measure(name: str, case: str, kind: str, options: argparse.Namespace) -> dict[str, float]:
    """Scores of one fit on the cells that it was not shown."""
    values = tensor_of(name, options)
    hidden, known = is_hidden(case, values.shape), ~np.isnan(values)
    train, test = np.argwhere(known & ~hidden), np.argwhere(known & hidden)
    y, held = (values[tuple(cells.T)] for cells in (train, test))
    start = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = model_of(name, kind, options).fit(train, y)
        seconds = resource.getrusage(resource.RUSAGE_SELF).ru_utime - start
        found = scores(held, model.predict(test), model.predict_interval(test), model.log_score(test, held))
    return {**found, "cpu_s": seconds}


class Told(NamedTuple):
    """Values that a stream forecast, its means, intervals and log scores, all in the order of their days."""

    day: np.ndarray
    y: np.ndarray
    mean: np.ndarray
    interval: np.ndarray
    log_score: np.ndarray

    def scores(self, some: np.ndarray) -> dict[str, float]:
        """Of some of the values, (n,) bool."""
        return scores(*(part[some] for part in self[1:]))


def by_day(
    name: str, kind: str, options: argparse.Namespace, rank: Any = "auto", parts: str = "main+cp"
) -> tuple[Told, float]:
    """A stream's forecasts of each day after the first ones, and seconds."""
    values = tensor_of(name, options)
    cells = np.argwhere(~np.isnan(values))
    y, day = values[tuple(cells.T)], cells[:, 1]
    local = 0 if kind == "local" else None
    prior = "learned" if kind == "plain" else {1: Series(period=WEEK, local=local), 2: Series()}
    model, told = CPRegressor(rank=rank, interactions=parts, prior=prior, random_state=options.seed), []
    start = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.partial_fit(cells[day < BEGIN], y[day < BEGIN])
        for d in np.unique(day[day >= BEGIN]):
            X, own = cells[day == d], y[day == d]
            forecast = model.predict(X), model.predict_interval(X), model.log_score(X, own)
            told.append(Told(day[day == d], own, *forecast))
            model.partial_fit(X, own)
    seconds = resource.getrusage(resource.RUSAGE_SELF).ru_utime - start
    return Told(*(np.concatenate(part) for part in zip(*told, strict=True))), seconds


def in_last_week(name: str, kind: str, options: argparse.Namespace) -> dict[str, float]:
    """Scores of a stream's forecasts of each of the last days; "chosen": at what was best on those before."""
    last = tensor_of(name, options).shape[1] - DAYS_AHEAD
    known: Any = TRIED if kind == "chosen" else [("auto", "main+cp")]
    tried = {how: by_day(name, kind, options, *how) for how in known}
    early = {how: told.day < last for how, (told, _) in tried.items()}  # none in a short table
    before = {how: told.scores(early[how])["rmse"] if early[how].any() else np.nan for how, (told, _) in tried.items()}
    best = min(before, key=lambda how: before[how])
    say(f"{name} {kind}: of " + ", ".join(f"{how} {value:.4g}" for how, value in before.items()))
    told, seconds = tried[best]
    chosen_by = {"rmse before": before[best]} if early[best].any() else {}
    return {**told.scores(told.day >= last), **chosen_by, "cpu_s": seconds}


def same_weekday(name: str, options: argparse.Namespace) -> dict[str, float]:
    """Scores of the mean of the same weekday and hour of a car park, as a forecast."""
    values = tensor_of(name, options)
    hidden = is_hidden("forecast", values.shape)
    shown = np.where(hidden, np.nan, values)
    weekday = np.arange(values.shape[1]) % WEEK
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        means = np.stack([np.nanmean(shown[:, weekday == w], axis=1) for w in range(WEEK)], axis=1)[:, weekday]
    test = hidden & ~np.isnan(values) & ~np.isnan(means)
    return scores(values[test], means[test])


def last_week(name: str, options: argparse.Namespace) -> dict[str, float]:
    """Scores of the values of the week before, as a forecast."""
    values = tensor_of(name, options)
    before, after = values[:, -DAYS_AHEAD - WEEK : -DAYS_AHEAD], values[:, -DAYS_AHEAD:]
    test = ~np.isnan(after) & ~np.isnan(before)
    return scores(after[test], before[test])


def by_arima(name: str, options: argparse.Namespace, daily: bool = False) -> dict[str, float]:
    """Scores of forecasts by a seasonal ARIMA of every car park and half-hour; `daily`: each day from those before."""
    values = tensor_of(name, options)
    series = values.transpose(0, 2, 1).reshape(-1, values.shape[1])
    shown, after = series[:, :-DAYS_AHEAD], series[:, -DAYS_AHEAD:]
    python, given = prepare(options.environment, ["statsmodels"]), {"series": shown, "season": WEEK}
    how = {"steps": DAYS_AHEAD, "coverage": 0.9, "later": after if daily else after[:, :0]}
    found = run_worker(python, Path(arima.__file__), "arima", 1, **how, **given)
    test = ~np.isnan(after) & ~np.isnan(found["mean"])
    y, (lower, upper) = after[test], np.moveaxis(found["limits"][test], -1, 0)
    inside = float(np.mean((lower <= y) & (y <= upper)))
    return {**scores(y, found["mean"][test]), "coverage 90": inside, "cpu_s": float(found["seconds"])}


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    p = parser(__doc__, data=["birmingham", "taxi"], sweeps=0, seed=0)
    p.add_argument("--cases", type=words(*{c for own in CASES.values() for c in own}), default=None)
    p.add_argument("--models", type=words("plain", "series", "local", "power", "chosen"), default=["plain", "series"])
    p.add_argument("--folder", default=os.path.join(os.environ.get("TENSORCEP_DATA", "data"), "traffic"))
    p.add_argument("--peers", action="store_true", help="forecast by ARIMA too")
    p.add_argument("--environment", type=Path, default=Path(".peers"), help="where its packages are, or will be")
    options = p.parse_args(arguments)
    rows: list[Row] = []
    for name in options.data:
        for case in CASES[name]:
            if options.cases and case not in options.cases:
                continue
            if case == "day-by-day":
                kinds = [kind for kind in options.models if kind in ("plain", "series", "local")]
                told = {kind: by_day(name, kind, options) for kind in kinds}
                tried = {kind: {**own.scores(own.day >= 0), "cpu_s": s} for kind, (own, s) in told.items()}
            elif case == "last-week":
                kinds = [kind for kind in options.models if kind != "power"]
                tried = {kind: in_last_week(name, kind, options) for kind in kinds}
            else:
                tried = {kind: measure(name, case, kind, options) for kind in options.models if kind != "chosen"}
            if case in ("forecast", "last-week"):
                tried["same weekday"] = same_weekday(name, options)
                tried["week before"] = last_week(name, options)
                if options.peers:
                    tried["arima"] = by_arima(name, options, daily=case == "last-week")
            for kind, found in tried.items():
                rows += [row(metric, value, data=name, case=case, model=kind) for metric, value in found.items()]
                say(f"{name} {case} {kind}: " + ", ".join(f"{key} {value:.4g}" for key, value in found.items()))
    report(rows, options.json)


if __name__ == "__main__":
    main()
