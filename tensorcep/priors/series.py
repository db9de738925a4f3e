"""Rows of a mode that follow each other in time, as a user says it, and where they lie on the axis of a fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd

from tensorcep.core.checks import check_choice, check_flag, fail_value
from tensorcep.core.persist.records import Sized
from tensorcep.priors.features import Mode

KINDS = ("auto", "ou", "rw")
MOST_STEPS = 1e12  # steps of a circle, at most: beside longer ones steps are lost in rounding
# Phases of a season, at most, and the share of a step within which two phases are one.
MOST_PHASES, SAME_PHASE = 400, 1e-6
MOST_PAIRS = 1_000_000  # distinct distances of neighbours times phases
READ = "numbers, Timestamps, Timedeltas, dates or Periods"
# Text that is a month or a day, as ISO 8601 writes it, perhaps with a time.
ZONED = r".*[T ].*(Z|[+-]\d\d(:?\d\d)?)$"
ISO = r"\d{4}-\d\d(-\d\d([T ].*)?)?$"


@dataclass(frozen=True, repr=False, eq=False)
class Series:
    """Rows of a mode that drift: ``CPRegressor(prior={"day": Series()})``.

    Each column of the factors, main effects included, follows an Ornstein-Uhlenbeck process along the labels of the
    mode, which need not have equal steps; its mean, scale and length are learned, column by column. Rows between others
    and beyond the last one, with or without entries, are predicted from their neighbours: forecasts spread as far as
    the process does. Labels are numbers, Timestamps, Timedeltas, dates, Periods, or text of numbers or of dates such as
    2024-01-31; rows without labels count from 0.

    In a stream every batch takes what its rows say into account, of earlier times too: all rows of the mode are
    smoothed, and the drift is learned on, at a cost that grows with their number. Later labels are added as they come.

    Parameters
    ----------
    kind : {"auto", "ou", "rw"}, default="auto"
        "ou": an Ornstein-Uhlenbeck process, of equal steps an AR(1), of any length up to that of a random walk. "rw": a
        random walk from a start that may be anywhere. "auto": as "ou", or rows that do not depend on each other.
    period : number, str or Timedelta, optional
        Of a season: rows that are a whole number of periods apart share a level, which is learned. In units of the
        labels, of Periods in their number; of Timestamps a Timedelta or text such as "7D".
    cyclic : bool, default=False
        Whether the axis is a circle, as hours of the day are. Its length is `period`, by default the range of the
        labels and one step; there is then no other season.
    order : sequence of labels, optional
        All labels in their order, for labels that do not tell it themselves, such as the categories of a column.
    local : name or position of another mode, optional
        Whose rows deviate along the axis, each by itself: ``{"day": Series(local="park")}`` adds to the latent value a
        process of the same kind for every park, about 0, apart from what all parks share. Its scale and length are
        learned, one of each for all rows; days that a park lacks are filled from its own other days. For "cep",
        "gibbs", "pg-gibbs", "vmp" and "pg-vb", and in streams, which smooth all pairs of a park and a day after each
        batch; of one mode of a fit, not of a circle. Where columns of the factors say the same already, predictions may
        lose by it.

    Examples
    --------
    >>> from tensorcep import Series
    >>> Series(period="7D", local="park")
    Series(period='7D', local='park')
    """

    kind: str = "auto"
    period: Any = None
    cyclic: bool = False
    order: Sequence[Any] | None = None
    local: Any = None

    def __repr__(self) -> str:
        said = [(field.name, getattr(self, field.name), field.default) for field in fields(self)]
        given = [(name, value) for name, value, usual in said if type(value) is not type(usual) or value != usual]
        return f"Series({', '.join(f'{name}={value!r}' for name, value in given)})"


class Clock(NamedTuple):
    """Where the rows of a mode lie on its axis, in steps: the least distance of two rows is 1."""

    kind: str  # see `Series`
    reads: str  # what labels are: "row", "number", "time", "delta", "order", or the frequency of Periods
    step: float  # the unit in that of the labels; of times in seconds
    period: float  # of the season; 0 where there is none
    circle: float  # the length of the axis where it is a circle; 0 where it is none
    order: tuple[Any, ...]  # the labels in order, if they were given
    times: Annotated[np.ndarray, Sized("_")]  # (n,)
    phases: Annotated[np.ndarray, Sized("_")]  # (P,): the phases of a season that occur; one, 0, without a season
    # (n,) int64: of rows that follow each other within groups alone, about 0, the group of each; they are in the order
    # of these and of their times. Empty for others.
    groups: Annotated[np.ndarray, Sized("_", "i")] = np.zeros(0, dtype=np.int64)

    def at(self, which: np.ndarray) -> np.ndarray:
        """The times (q,) of some rows (n,) bool; in groups these and the times, (q, 2)."""
        times = self.times[which]
        return np.stack([self.groups[which], times], axis=1) if len(self.groups) else times

    @property
    def seasonal(self) -> bool:
        return self.period > 0.0

    def phase_of(self, times: np.ndarray) -> np.ndarray:
        """Which of the phases times have, (n,); -1 where it is none of them."""
        if not self.seasonal:
            return np.zeros(len(times), dtype=np.int64)
        apart = np.abs(np.mod(times, self.period)[:, None] - self.phases)
        apart = np.minimum(apart, self.period - apart)
        best = np.argmin(apart, axis=1)
        return np.where(apart[np.arange(len(times)), best] <= SAME_PHASE, best, -1)

    def times_of(self, labels: pd.Index) -> np.ndarray:
        """The times of labels; nan of those that are none."""
        read, raw = _read(labels, self.order)
        return raw / self.step if read == self.reads else np.full(len(labels), np.nan)

    def with_times(self, times: np.ndarray, labels: Sequence[Any], what: str) -> Clock:
        """The axis with new rows at times (q,); refused without a time, at that of another row, or beyond a circle."""
        if not np.isfinite(times).all():
            bad = labels[int(np.argmin(np.isfinite(times)))]
            fail_value(f"{what} needs labels that are times as those before them; got {bad!r}.")
        both = np.append(self.times, times)
        first = np.unique(both, return_index=True)[1]
        if len(first) < len(both):
            bad = labels[int(np.setdiff1d(np.arange(len(both)), first)[0]) - len(self.times)]
            fail_value(f"{what} needs rows at times of their own; got {bad!r}, at the time of another row.")
        if self.circle and not self.circle > float(both.max() - both.min()):
            fail_value(f"{what} is cyclic; its labels must lie within one period, of {self.circle * self.step:g}.")
        clock = self._replace(times=both)
        for time in times[self.phase_of(times) < 0].tolist():
            if clock.phase_of(np.array([time]))[0] < 0:
                clock = clock._replace(phases=np.append(clock.phases, time % self.period))
        if len(clock.phases) > MOST_PHASES:
            fail_value(f"{what} has {len(clock.phases)} phases in its period, at most {MOST_PHASES} can be learned.")
        return clock


def clock(series: Series, mode: Mode) -> Clock:
    """The axis of a mode."""
    what = f"Series of mode {mode.name!r}"
    check_choice(f"kind of the {what}", series.kind, KINDS)
    check_flag(f"cyclic of the {what}", series.cyclic)
    order: tuple[Any, ...] = ()
    if series.order is not None:
        index = pd.Index(series.order, tupleize_cols=False)
        if mode.labels is None or not index.is_unique:
            odd = "labels more than once" if mode.labels is not None else "no labels in that mode"
            fail_value(f"order of the {what} must list the labels of the mode, each once; got {odd}.")
        order = tuple(index.tolist())
        if not all(isinstance(item, (str, int, float)) for item in order):
            fail_value(f"order of the {what} must hold text or numbers; other labels tell their order themselves.")
        lost = mode.labels.index[index.get_indexer(mode.labels.index) < 0].tolist()
        if lost:
            fail_value(f"order of the {what} must list all labels of the mode; {lost[0]!r} is missing.")
    if mode.labels is None:
        read, raw = "row", np.arange(mode.size, dtype=np.float64)
    else:
        read, raw = _read(mode.labels.index, order)
        if not np.isfinite(raw).all():
            bad = mode.labels.index[~np.isfinite(raw)].tolist()[0]
            fail_value(f"{what} needs labels that are {READ}, or its order=; got {bad!r}.")
    distinct = np.unique(raw)
    if len(distinct) < max(2, len(raw)):
        got = f"got {len(raw)} labels at {len(distinct)} times, as float64 holds them"
        mend = "subtract a start from large numbers, and take coarser steps of times"
        fail_value(f"{what} needs at least 2 rows, each at a time of its own; {got}; {mend}.")
    step = float(np.diff(distinct).min())
    period = _checked_period(series.period, read, what) / step
    times, circle = raw / step, 0.0
    if series.cyclic:
        span = float(times.max() - times.min())
        circle, period = period or span + 1.0, 0.0
        if not circle > span:
            range_of = f"the range of its labels, {span:g} of their steps"
            fail_value(f"{what} is cyclic, and its period must be more than {range_of}; got {circle:g}.")
        if circle > MOST_STEPS:
            fail_value(f"{what} is cyclic, and its period must be at most {MOST_STEPS:g} steps; got {circle:g}.")
    phases = np.zeros(1)
    if period > 0.0:
        phase = np.sort(np.mod(times, period))
        phases = phase[np.append(True, np.diff(phase) > SAME_PHASE)]
        if len(phases) > 1 and period - phases[-1] + phases[0] <= SAME_PHASE:
            phases = phases[:-1]
        if len(phases) > MOST_PHASES:
            most = f"at most {MOST_PHASES} can be learned; round labels."
            fail_value(f"{what} has {len(phases)} phases in its period, {most}")
        if len(phases) == len(times):
            fail_value(f"{what} has no two rows of the same phase; give a shorter period, or none.")
    if len(phases) * len(np.unique(np.diff(np.sort(times)))) > MOST_PAIRS:
        fail_value(f"{what} has a season, but too many steps of different lengths for one; round its labels.")
    return Clock(series.kind, read, step, period, circle, order, times, phases)


def _checked_period(period: Any, read: str, what: str) -> float:
    """The period in the unit of the labels; 0 for none."""
    if period is None:
        return 0.0
    if read in ("time", "delta"):
        try:
            if isinstance(period, (int, float)):
                raise ValueError
            found = float(pd.Timedelta(period).total_seconds())
        except ValueError:
            fail_value(f"period of the {what} must be a Timedelta, or text such as '7D'; got {period!r}.")
    elif isinstance(period, (int, float, np.integer, np.floating)) and not isinstance(period, bool):
        found = float(period)
    else:
        fail_value(f"period of the {what} must be a number; got {period!r}.")
    if not (np.isfinite(found) and found > 0.0):
        fail_value(f"period of the {what} must be above 0; got {period!r}.")
    return found


def _read(labels: pd.Index, order: tuple[Any, ...]) -> tuple[str, np.ndarray]:
    """What labels are, and their numbers, nan of those that have none; of times in seconds."""
    if order:
        place = pd.Index(order, tupleize_cols=False).get_indexer(labels).astype(np.float64)
        return "order", np.where(place < 0, np.nan, place)
    if isinstance(labels.dtype, pd.PeriodDtype):
        return f"period {labels.dtype.freq.freqstr}", np.asarray(pd.PeriodIndex(labels).asi8, dtype=np.float64)
    kind = pd.api.types.infer_dtype(labels)
    if kind in ("date", "datetime", "datetime64"):
        return "time", _seconds(pd.DatetimeIndex(pd.to_datetime(labels, utc=True)))
    if kind in ("timedelta", "timedelta64"):
        return "delta", pd.TimedeltaIndex(pd.to_timedelta(labels)).total_seconds().to_numpy(dtype=np.float64)
    if pd.api.types.is_numeric_dtype(labels.dtype) and not pd.api.types.is_bool_dtype(labels.dtype):
        return "number", labels.to_numpy(dtype=np.float64)
    if kind != "string":
        return "text", np.full(len(labels), np.nan)
    text = pd.Series(labels.to_numpy(dtype=object))  # such as csv files hold
    numbers = pd.to_numeric(text, errors="coerce").to_numpy(dtype=np.float64)
    if np.isfinite(numbers).any():
        return "number", np.where(np.isfinite(numbers), numbers, np.nan)
    times = pd.to_datetime(text.where(text.str.match(ISO)), format="ISO8601", errors="coerce", utc=True)
    if not times.notna().any():
        return "text", numbers
    zoned = text.str.match(ZONED).to_numpy(dtype=bool)
    if zoned.any() and not zoned.all():
        both = f"{text[zoned].iloc[0]!r} and {text[~zoned].iloc[0]!r}; give all of them one, or none"
        fail_value(f"labels must be times with a time zone or times without one; got both, {both}.")
    return "time", _seconds(pd.DatetimeIndex(times))


def _seconds(times: pd.DatetimeIndex) -> np.ndarray:
    """Seconds since 1970 of times in UTC; those that nanoseconds do not reach, such as the year 9999, too."""
    try:
        apart = times - pd.Timestamp(0, tz="UTC")
    except (pd.errors.OutOfBoundsDatetime, OverflowError):
        apart = times.as_unit("us") - pd.Timestamp(0, tz="UTC").as_unit("us")
    return np.asarray(apart.total_seconds(), dtype=np.float64)
