"""`forget_entries` and `forget_rows` of the CP estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tensorcep.core.checks import check_flag, check_not_empty, fail_value
from tensorcep.cp.estimators.predictions import CPPredictions
from tensorcep.cp.fit.outcome import lines_among
from tensorcep.cp.fit.refit import Kept, runner_of
from tensorcep.cp.fit.run import run_plan
from tensorcep.cp.inputs.coordinates import Entries, coords_to_predict, mode_of, names_of, rows_of, rows_of_column
from tensorcep.cp.inputs.side_information import described, lost_knowledge, word_of
from tensorcep.cp.model.columns import free_columns
from tensorcep.cp.stream.unlearn import forget_in_stream
from tensorcep.entries.labels import Labels
from tensorcep.entries.tables import as_frame
from tensorcep.entries.tensor import SparseTensor
from tensorcep.priors.graph import Net


class Forgetting(CPPredictions):
    """How a fitted CP estimator loses what entries told it, and how another fit begins with what it knows."""

    _unseen_mean: np.ndarray
    _cells: np.ndarray | None = None
    _sampled: np.ndarray | None = None
    _kept: Kept | None = None

    def forget_entries(self, X: Any, *, data: Any = None, y: Any = None, partly: bool = False) -> Any:
        """Remove entries from a fit, as if they had never been there.

        After a fit by ``CEP(keep_messages=True)`` the messages of the entries are divided out, and sweeps go on until
        `tol`: the result is that of a fit without them, as far as the tolerance and the choice of a start go. Of any
        other fit the entries are needed (`data`), and it is done again without these, from the factors as they are.
        Levels, scales and the rank are those that a fit without them would choose.

        A stream forgets what it keeps: all entries while it is beginning, or with ``revisit=`` those of its reservoir,
        whose messages are divided out before the others of the reservoir are learned again. Where the reservoir holds
        every entry, that is the stream of those that are left, with the level, the scale and the prior that its first
        batch chose.

        Parameters
        ----------
        X : table, coordinates or SparseTensor
            The cells; a table may name some modes only: all entries that match are removed.
        data, y : entries of the fit and their values, where it kept no messages
        partly : bool, default=False
            Of a stream whose reservoir holds only some of its entries: forget as far as that reaches. What entries said
            that are not held stays; the record says so (``"whole": False``).

        Returns
        -------
        self
            With one more record in `forgotten_`: what was removed, how, and how many entries are left.

        Raises
        ------
        ValueError
            If no entry matches, none would be left, the entries of the fit are not known or are not those that are
            given, or the fit had weights that are no whole numbers, or fixed modes.

        Examples
        --------
        >>> from tensorcep import CEP, CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPRegressor(1, method=CEP(keep_messages=True), random_state=0).fit(tensor)
        >>> model.forget_entries(tensor.coords[:3]).forgotten_[0]["entries_left"]
        117
        """
        if self._is_stream(data, partly):
            modes, cells = self._named_cells(X)
            return forget_in_stream(self, lambda at: lines_among(at[:, modes], cells), {"rows": {}}, None, partly)
        coords, values, kept, source = self._entries_of_fit(data, y)
        modes, cells = self._named_cells(X)
        gone = lines_among(coords[:, modes], cells)
        said = {"entries": int(gone.sum()), "rows": {}}
        return self._refit_without(gone, (coords, values, self.shape_, self.labels_), kept, source, said)

    def forget_rows(self, mode: Any, rows: Any, *, data: Any = None, y: Any = None, partly: bool = False) -> Any:
        """Remove rows of a mode, such as a user, with all their entries; see `forget_entries`.

        Parameters
        ----------
        mode : name or position
        rows : label or index, or a list of them
            They are no rows of the model any more; of indices those that follow move up.
        data, y, partly : as in `forget_entries`

        Returns
        -------
        self

        Examples
        --------
        >>> from tensorcep import CEP, CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPRegressor(1, method=CEP(keep_messages=True), random_state=0).fit(tensor)
        >>> model.forget_rows(0, 3).forgotten_[0]["rows"]
        {'mode_0': [3]}
        """
        k = mode_of(self.labels_, mode)
        if self._features and self._features[k] is not None:
            fail_value(
                f"forget_rows cannot drop rows of mode {names_of(self.labels_)[k]!r}, which has features; take them "
                "out of its Features and of the entries, and fit again."
            )
        known = self._series[k] if self._series else None
        if known is not None:
            where = "of its Graph and of the entries" if isinstance(known, Net) else "of the entries"
            fail_value(
                f"forget_rows cannot drop rows of mode {names_of(self.labels_)[k]!r}, which is {word_of(known)}; take "
                f"them out {where}, and fit again."
            )
        is_stream = self._is_stream(data, partly)
        dropped = np.unique(rows_of(self.labels_, self.shape_, k, rows))
        left = np.setdiff1d(np.arange(self.shape_[k]), dropped)
        check_not_empty(len(left), f"mode {names_of(self.labels_)[k]!r} without these rows")
        if is_stream:
            rows_said = {"rows": {str(names_of(self.labels_)[k]): self._named_rows(k, dropped)}}
            return forget_in_stream(self, lambda at: np.isin(at[:, k], dropped), rows_said, (k, dropped), partly)
        coords, values, kept, source = self._entries_of_fit(data, y)
        place = np.full(self.shape_[k], -1)
        place[left] = np.arange(len(left))
        moved = coords.copy()
        moved[:, k] = place[coords[:, k]]
        labels, known = list(self.labels_), self.labels_[k]
        if known is not None:
            labels[k] = Labels(known.index[left], name=known.name)
        shape = tuple(len(left) if j == k else n for j, n in enumerate(self.shape_))
        gone = moved[:, k] < 0
        said = {"entries": int(gone.sum()), "rows": {str(names_of(self.labels_)[k]): self._named_rows(k, dropped)}}
        means = np.delete(self._aligned.mean, self._layout().rows[k].start + dropped, axis=0)
        sampled = self._sampled
        if sampled is not None:
            sampled = np.column_stack([place[at] if j == k else at for j, at in enumerate(sampled.T)])
            sampled = sampled[sampled[:, k] >= 0].astype(np.int32)
        return self._refit_without(gone, (moved, values, shape, tuple(labels)), kept, source, said, means, sampled)

    def _is_stream(self, data: Any, partly: bool) -> bool:
        """Whether the model learns from a stream, from whose own entries it forgets."""
        self._fitted_belief()
        is_stream = "_stream" in vars(self) and data is None
        if check_flag("partly", partly) and not is_stream:
            fail_value("partly=True is for streams without data=; leave it out.")
        return is_stream

    def _named_rows(self, k: int, rows: np.ndarray) -> list[Any]:
        """Rows of mode k as an audit record names them."""
        known = self.labels_[k]
        return list(rows.tolist() if known is None else known.index[rows].astype(str).tolist())

    def _entries_of_fit(self, data: Any, y: Any) -> tuple[np.ndarray, np.ndarray, Kept | None, Any]:
        """Coordinates and values of the fit's entries, as far as rows are known, and what was kept."""
        self._fitted_belief()
        if getattr(self, "_extent_unit", None) is not None:
            fail_value("entries of a fit with exposure= or n_trials= cannot be forgotten; fit the others, with theirs.")
        if self._apart:
            had = " and ".join(f"{name}=" for name in self._apart)
            fail_value(f"the fit had {had}, which a fit without some entries would lose; fit the others, with {had}.")
        if self._kept is not None and data is None:
            return self._kept.coords, self._kept.values, self._kept, self._kept.source
        if data is None:
            fail_value(
                "the fit kept neither entries nor messages: fit with method=CEP(keep_messages=True), or pass the "
                "entries of the fit as data=, from which the model is then fitted again."
            )
        table = as_frame(data)
        values = data.values if y is None and isinstance(data, SparseTensor) else y
        if values is None:
            fail_value("data= needs the values of its entries: pass y, or a SparseTensor.")
        coords = coords_to_predict(table, self.labels_)
        known = ((coords >= 0) & (coords < self.shape_)).all(axis=1)
        self._check_entries_of_fit(coords[known])
        return coords[known], np.asarray(self._coded(values), dtype=np.float64)[known], None, data

    def _check_entries_of_fit(self, coords: np.ndarray) -> None:
        """Refuse entries that are none of the fit's, by their cells and their number, as far as these are known.

        Raises
        ------
        ValueError
        """
        n, cells = int(self.n_samples_seen_), self._cells
        if "_stream" in vars(self) or n == 0:  # of files of the first format the number is not known
            return
        what = "data= must hold the entries of the fit, without those that were forgotten since"
        if cells is not None:
            others, lost = ~lines_among(coords, cells), ~lines_among(cells, coords)
            if others.any() or lost.any():
                fail_value(
                    f"{what}; got {int(others.sum())} entries of other cells, and none of {int(lost.sum())} of the "
                    f"{len(cells)} cells of the fit; pass these, or fit again."
                )
        if len(coords) != n and (cells is None or len(cells) <= n):  # rows that with_rows added are not counted
            fail_value(
                f"{what}, {n} in all, each as often as its sample_weight said; got {len(coords)}; pass these, or fit "
                "again."
            )

    def _named_cells(self, X: Any) -> tuple[list[int], np.ndarray]:
        """The modes that cells are named by, and their rows there."""
        table, names = as_frame(X), names_of(self.labels_)
        if not isinstance(table, pd.DataFrame):
            return list(range(len(names))), coords_to_predict(table, self.labels_)
        modes = [j for j, name in enumerate(names) if name in table.columns]
        if not modes:
            columns, wanted = (", ".join(map(repr, listed)) for listed in (table.columns, names))
            fail_value(f"X must have a column of at least one of the modes {wanted}; got {columns}.")
        return modes, np.stack([rows_of_column(self.labels_, j, table[names[j]]) for j in modes], axis=1)

    def _refit_without(
        self,
        gone: np.ndarray,
        entries: Entries,
        kept: Kept | None,
        source: Any,
        said: dict[str, Any],
        means: np.ndarray | None = None,
        sampled: np.ndarray | None = None,
    ) -> Any:
        """Fit the entries that are left, from what the model knows."""
        if not gone.any() and not said["rows"]:
            fail_value("none of these cells is among the entries of the fit; nothing was forgotten.")
        if gone.all():
            fail_value("these are all entries of the fit; there must be one left.")
        lost = lost_knowledge(self)
        if lost is not None:
            fail_value(lost)
        coords, values, shape, labels = entries
        start = self._aligned.mean if means is None else means
        free = free_columns(self.interactions_, len(self.shape_))
        runner = runner_of(kept, ~gone, (start, free), run_plan)
        before = list(self.forgotten_)
        left: Entries = (coords[~gone], values[~gone], shape, labels)
        self._fit_entries(left, {"_sampled": self._sampled if sampled is None else sampled}, source, runner)
        how = "messages divided out" if kept is not None else "fitted again from the factors"
        record = {**said, "how": how, "sweeps": int(self.n_iter_), "entries_left": int((~gone).sum())}
        self.__dict__["forgotten_"] = [*before, record]
        return self

    def _runner(self, entries: Entries, warm_start: bool) -> Any:
        """What runs the plan of a fit: with `warm_start` from the factors of the earlier fit, if there is one."""
        check_flag("warm_start", warm_start)
        if not warm_start or "posterior_" not in vars(self):
            return run_plan
        shape, labels, *_ = described(self.prior, entries[2], entries[3])
        free = free_columns(self.interactions_, len(self.shape_))
        return runner_of(None, np.zeros(0, dtype=bool), (self._rows_at(shape, labels), free), run_plan)

    def _rows_at(self, shape: tuple[int, ...], labels: tuple[Labels | None, ...]) -> np.ndarray:
        """Means (n_rows, R) of the rows of other entries: those that are known, and the prior's for the others."""
        mean, parts = self._aligned.mean, []
        for k, own in enumerate(self._layout().rows):
            theirs, mine = labels[k], self.labels_[k]
            if theirs is not None and mine is not None:
                place = mine.rows(theirs.index, unknown="ignore")
            else:
                place = np.where(np.arange(shape[k]) < self.shape_[k], np.arange(shape[k]), -1)
            parts.append(np.where(place[:, None] >= 0, mean[own][place], self._unseen_mean[k]))
        return np.concatenate(parts)

    def _fit_entries(
        self, entries: Entries, coding: dict[str, Any], source: Any, runner: Any, plan: Any = None, limit: Any = None
    ) -> None:
        raise TypeError(f"{type(self).__name__} cannot be fitted.")
