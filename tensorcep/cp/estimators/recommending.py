"""`recommend`, `similar` and `explain` of the CP estimators."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtri

from tensorcep.core.checks import (
    check_choice,
    check_fraction,
    check_int,
    check_random_state,
    fail_value,
    warn_user,
)
from tensorcep.core.components import Components
from tensorcep.core.executor import threads_of
from tensorcep.core.packing import offsets
from tensorcep.cp.estimators.predictions import CPPredictions
from tensorcep.cp.fit.outcome import lines_among
from tensorcep.cp.fitted.explain import parts_of_entry
from tensorcep.cp.fitted.forecast import described_rows, placed
from tensorcep.cp.fitted.predict import draw, knowledge, latent
from tensorcep.cp.fitted.recommend import Ranked, best_rows, cosines, drawn_cosines, matches
from tensorcep.cp.inputs.coordinates import (
    are_several,
    by_mode,
    coords_to_predict,
    labels_at,
    listed_rows,
    mode_of,
    names_of,
    rows_of,
    rows_of_column,
)
from tensorcep.cp.inputs.side_information import check_no_deviations
from tensorcep.entries.tables import as_frame
from tensorcep.entries.tensor import SparseTensor

# Of so many rows for each one that is wanted the cosine is averaged over draws; the means choose them.
CANDIDATES = 4
RANKINGS = ("mean", "lower", "upper", "thompson", "sd")


class Combined(NamedTuple):
    """The rows of every mode that are combined.

    Attributes
    ----------
    belief : Components
        With rows of series at other times, where they are asked for.
    rows : list of (n,) int64
        Rows of each mode; -1 of those that the model does not know.
    packed : list of (n,) int64
        Rows of the belief.
    shown : list of (n,) arrays or Index
        What they are called.
    fixed : set of int
        The modes that are held at one row.
    """

    belief: Components
    rows: list[np.ndarray]
    packed: list[np.ndarray]
    shown: list[Any]
    fixed: set[int]


class Recommending(CPPredictions):
    """What a fitted CP estimator says of the rows of one mode beside each other."""

    _cells: np.ndarray | None = None
    _sampled: np.ndarray | None = None

    def recommend(
        self,
        mode: Any,
        given: Any = None,
        n: int = 10,
        exclude: Any = "seen",
        by: str = "mean",
        coverage: float = 0.9,
        random_state: Any = None,
    ) -> pd.DataFrame:
        """The best rows of a mode, for every combination of rows of the other modes.

        Parameters
        ----------
        mode : name or position
            The mode whose rows are ranked.
        given : dict, optional
            Rows of other modes by the mode's name or position. One label (or index) is a setting that all results
            share, a list of them restricts the combinations. Rows that the model does not know are as in `predict`:
            they have the prior, or are refused, by the parameter `unknown`; of a `Series` they are forecast.
        n : int, default=10
            The most rows for each combination.
        exclude : "seen", None, table, coordinates or SparseTensor, default="seen"
            Cells not to recommend. "seen": those that were observed, which are the cells of the fit without the zeros
            that `SparseTensor.sample_zeros` or `with_zeros` drew; a mode that `given` fixes to one label does not
            count, so that an item that a user rated in March is not recommended for April either, unless all modes are
            given. A table may have the columns of some modes, the ranked one among them.
        by : {"mean", "lower", "upper", "thompson", "sd"}, default="mean"
            Rank by the mean of the latent value, by a careful or a hopeful end of its interval (the mean -+ as many
            standard deviations as a Gaussian interval has), by one draw from the posterior, or by its standard
            deviation: what is known least, such as the experiment to do next.
        coverage : float, default=0.9
            Of the interval.
        random_state : int, RandomState, Generator or None
            Of the draw.

        Returns
        -------
        DataFrame
            A row per combination and rank: columns of the modes, rank, and of the expected observation mean, sd, lower
            and upper: what is known of it, without the noise of a single one. (Of labels and counts the order of the
            latent means may differ a little from that of the expected observations.)

        Raises
        ------
        ValueError
            If a mode is not known, or a label where `unknown` is "error", the model does not know which cells it was
            fitted to, or `by` needs an uncertainty that the method does not give.

        Examples
        --------
        >>> import pandas as pd
        >>> from tensorcep import CPRegressor
        >>> cells = [(f"u{a}", f"i{b}", a * b / 5 + (a + b) % 3 / 9) for a in range(6) for b in range(6)]
        >>> table = pd.DataFrame(cells, columns=["user", "item", "stars"])
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(table, value="stars")
        >>> model.recommend("item", given={"user": "u5"}, n=2, exclude=None)["item"].tolist()
        ['i5', 'i4']
        """
        by, n = check_choice("by", by, RANKINGS), check_int("n", n)
        tail = 0.5 * (1.0 - check_fraction("coverage", coverage))
        if by != "mean":
            self._check_has_uncertainty(f"by={by!r}")
        k = mode_of(self.labels_, mode)
        check_no_deviations(self._fitted_belief(), f"recommend of mode {mode!r}", k)
        chosen = self._combinations(k, by_mode(self.labels_, given))
        belief = chosen.belief
        left_out = self._left_out(exclude, k, chosen)
        z = {"lower": float(ndtri(tail)), "upper": -float(ndtri(tail)), "sd": np.inf}.get(by, 0.0)
        first = offsets(self.shape_)
        others = tuple(own for j, own in enumerate(chosen.packed) if j != k)
        ranked = Ranked(slice(int(first[k]), int(first[k + 1])), others, left_out, z)
        used = belief
        if by == "thompson":
            used = Components(draw(belief, self._likelihood(), 1, check_random_state(random_state))[0])
        with threads_of(self.n_jobs) as executor:
            best = best_rows(used, ranked, n, executor)
        return self._ranked_frame(k, chosen, ranked, best, coverage)

    def _combinations(self, k: int, given: dict[int, Any]) -> Combined:
        """The rows of every mode that are combined."""
        if k in given:
            fail_value(f"given must not name the mode that is ranked, {names_of(self.labels_)[k]!r}; use exclude.")
        first, total = offsets(self.shape_), sum(self.shape_)
        rows = [np.arange(size) for size in self.shape_]
        packed = [own + start for own, start in zip(rows, first, strict=False)]
        shown = [labels_at(self.labels_, j, own) for j, own in enumerate(rows)]
        listed = {j: listed_rows(value) for j, value in given.items()}
        fixed = {j for j, value in given.items() if not are_several(value)}
        belief = self._fitted_belief()
        if not all(listed.values()) or not listed:
            for j in listed:
                rows[j] = packed[j] = rows[j][:0]
            return Combined(belief, rows, packed, shown, fixed)
        found = placed(self, self._lines_of(listed))
        described, unknown = described_rows(self), []
        known = self.posterior_.seen if described is None else self.posterior_.seen | described
        for j, given_rows in listed.items():
            at, later = found.coords[: len(given_rows), j], found.later[: len(given_rows), j]
            beyond = (at < 0) | (at >= self.shape_[j])
            own = np.where(beyond, total + j, at + first[j])
            unseen = beyond | ((later < 0) & ~known[np.where(beyond, 0, own)])
            unknown += [(names_of(self.labels_)[j], given_rows[i]) for i in np.flatnonzero(unseen)]
            packed[j] = np.where(later >= 0, later, own)
            rows[j] = np.where(beyond | (later >= 0), -1, at)
            is_new = (rows[j] < 0).any()
            shown[j] = pd.Index(given_rows, tupleize_cols=False) if is_new else labels_at(self.labels_, j, rows[j])
        self._say_of_unknown(unknown, sum(map(len, listed.values())))
        return Combined(found.belief, rows, packed, shown, fixed)

    def _lines_of(self, listed: dict[int, list[Any]]) -> Any:
        """Cells in whose first lines each of these modes has its rows, as `predict` takes them."""
        n, names, columns = max(map(len, listed.values())), names_of(self.labels_), []
        for j, known in enumerate(self.labels_):
            items = listed.get(j, [0 if known is None else known.index[0]])
            if known is None:
                items = [check_int(f"a row of mode {names[j]!r}", item, 0) for item in items]
            columns.append(pd.Index(items, tupleize_cols=False).take(np.arange(n) % len(items)))
        if all(known is None for known in self.labels_):
            return np.stack([np.asarray(column) for column in columns], axis=1)
        return pd.DataFrame(dict(enumerate(columns))).set_axis(names, axis=1)

    def _say_of_unknown(self, unknown: list[tuple[Any, Any]], n: int) -> None:
        """Warn of given rows of which nothing is known, or refuse them."""
        if not unknown:
            return
        what = f"{len(unknown)} of {n} rows in given= have no training entries (the first is {unknown[0][1]!r} of mode "
        what += f"{unknown[0][0]!r})"
        if self.unknown == "error":
            fail_value(f'{what}; fit with such rows, or set unknown="prior".')
        warn_user(f"{what}; their prior is used.", UserWarning)

    def _left_out(self, exclude: Any, k: int, chosen: Combined) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What `Ranked` has as left_out."""
        rows, fixed = chosen.rows, chosen.fixed
        modes, cells = list(range(len(self.shape_))), np.zeros((0, len(self.shape_)), dtype=np.int64)
        if isinstance(exclude, str):
            check_choice("exclude", exclude, ("seen",))
            if self._cells is None:
                fail_value(
                    "exclude='seen' needs the cells of the fit, which streams, fits on scratch and files of earlier "
                    "versions do not keep; pass them as exclude=, or None."
                )
            if len(fixed) < len(modes) - 1:
                modes = [j for j in modes if j not in fixed]
            seen = self._cells if self._sampled is None else self._cells[~lines_among(self._cells, self._sampled)]
            cells = seen[:, modes].astype(np.int64)
        elif exclude is not None:
            modes, cells = self._cells_of(exclude, k)
        kept = (cells >= 0).all(axis=1) & (cells < np.array(self.shape_)[modes]).all(axis=1)
        for j, column in zip(modes, cells.T, strict=True):
            if j != k:
                kept &= np.isin(column, rows[j])
        return _matched(cells[kept], modes, k, rows, self.shape_)

    def _cells_of(self, exclude: Any, k: int) -> tuple[list[int], np.ndarray]:
        """The modes that a table of cells names, and its rows there; -1 where one is not known."""
        table = as_frame(exclude)
        if not isinstance(table, (pd.DataFrame, SparseTensor)) and np.ndim(table) != 2:
            name = names_of(self.labels_)[k]
            fail_value(f"exclude must be cells: a table with a column {name!r}, or rows of all modes; got {exclude!r}.")
        if not isinstance(table, pd.DataFrame):
            return list(range(len(self.shape_))), coords_to_predict(exclude, self.labels_)
        names = names_of(self.labels_)
        modes = [j for j, name in enumerate(names) if name in table.columns]
        if k not in modes:
            fail_value(f"exclude must have a column {names[k]!r}; got {', '.join(map(repr, table.columns))}.")
        return modes, np.stack([rows_of_column(self.labels_, j, table[names[j]]) for j in modes], axis=1)

    def _ranked_frame(
        self, k: int, chosen: Combined, ranked: Ranked, best: np.ndarray, coverage: float
    ) -> pd.DataFrame:
        """The rows of `recommend`."""
        query, place = np.nonzero(best >= 0)
        rows = np.insert(ranked.rows_of(query), k, best[query, place] + ranked.candidates.start, axis=1)
        known = knowledge(self._likelihood_of_new(), chosen.belief, rows, coverage)
        names = names_of(self.labels_)
        where = list(np.unravel_index(query, ranked.sizes)) if ranked.sizes else []
        where.insert(k, best[query, place])
        columns = {name: shown.take(at) for name, shown, at in zip(names, chosen.shown, where, strict=True)}
        frame = pd.DataFrame({**columns, "rank": place + 1, "mean": known.mean})
        if self.has_uncertainty():
            frame = frame.assign(sd=known.sd, lower=known.lower, upper=known.upper)
        return frame

    def similar(self, mode: Any, row: Any, n: int = 10, coverage: float = 0.9, random_state: Any = 0) -> pd.DataFrame:
        """The rows of a mode that are most like one of them.

        Two rows are alike as their effects are on all combinations of the other modes' rows: the cosine of what sets
        each of them apart from the average row. It does not depend on how components are ordered, scaled or rotated.

        Parameters
        ----------
        mode : name or position
        row : label or index
        n : int, default=10
        coverage : float, default=0.9
            Of the interval of the cosine.
        random_state : int, RandomState, Generator or None, default=0
            Of the draws of Gaussian rows that the interval is taken from.

        Returns
        -------
        DataFrame
            Columns of the mode, rank, cosine (the mean over draws), sd, lower and upper.

        Examples
        --------
        >>> import pandas as pd
        >>> from tensorcep import CPRegressor
        >>> cells = [(f"u{a}", f"i{b}", a * b / 5 + (a + b) % 3 / 9) for a in range(6) for b in range(6)]
        >>> table = pd.DataFrame(cells, columns=["user", "item", "stars"])
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(table, value="stars")
        >>> model.similar("item", "i5", n=1)["item"].tolist()
        ['i4']
        """
        n, tail = check_int("n", n), 0.5 * (1.0 - check_fraction("coverage", coverage))
        belief, layout, k = self._fitted_belief(), self._layout(), mode_of(self.labels_, mode)
        if are_several(row):
            fail_value(
                f"row must be one row of mode {names_of(self.labels_)[k]!r}; got {row!r}; call similar for each."
            )
        (own,) = rows_of(self.labels_, self.shape_, k, row)
        first = layout.rows[k].start
        each = cosines(belief, layout, k, first + int(own))
        each[own] = -np.inf
        best = np.argsort(-each, kind="stable")[: min(CANDIDATES * n, len(each) - 1)]
        draws = drawn_cosines(belief, layout, k, first + int(own), first + best, check_random_state(random_state))
        order = np.argsort(-draws.mean(axis=0), kind="stable")[:n]
        best, draws = best[order], draws[:, order]
        name = names_of(self.labels_)[k]
        frame = pd.DataFrame({name: labels_at(self.labels_, k, best), "rank": np.arange(1, len(best) + 1)})
        frame["cosine"] = draws.mean(axis=0)
        if self.has_uncertainty():
            lower, upper = np.quantile(draws, [tail, 1.0 - tail], axis=0)
            frame = frame.assign(sd=draws.std(axis=0), lower=lower, upper=upper)
        return frame

    def explain(self, cell: Any = None, **modes: Any) -> pd.DataFrame:
        """The latent value of one cell as the sum of its parts.

        Parameters
        ----------
        cell : dict or sequence of rows, optional
            The label (or index) of every mode.
        **modes
            The same by the modes' names: ``explain(user="u1", item="i2")``.

        Returns
        -------
        DataFrame
            One row per part: the level, main effects of modes, pairs of modes and components of all modes, as far as
            the model has them, and in the end their sum, which is the latent value (`predict_latent`). Columns part,
            mean and sd. Main effects and pairs are centred, so that the level holds what all rows share.

        Raises
        ------
        ValueError
            If a mode is missing, or a label is not known.

        Examples
        --------
        >>> import pandas as pd
        >>> from tensorcep import CPRegressor
        >>> cells = [(f"u{a}", f"i{b}", a * b / 5 + (a + b) % 3 / 9) for a in range(6) for b in range(6)]
        >>> table = pd.DataFrame(cells, columns=["user", "item", "stars"])
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(table, value="stars")
        >>> parts = model.explain(user="u5", item="i5")
        >>> len(parts) > 1
        True
        """
        belief, names = self._fitted_belief(), names_of(self.labels_)
        if cell is not None and not isinstance(cell, dict):
            if isinstance(cell, (str, pd.DataFrame)) or len(cell) != len(names):
                got = f"a DataFrame of {len(cell)} lines" if isinstance(cell, pd.DataFrame) else repr(cell)
                fail_value(f"explain takes one cell, a row for each of the {len(names)} modes, or a dict; got {got}.")
            cell = dict(zip(range(len(names)), cell, strict=True))
        given = by_mode(self.labels_, {**(cell or {}), **modes})
        missing = [names[k] for k in range(len(names)) if k not in given]
        if missing:
            fail_value(f"explain needs a row of every mode; there is none of {', '.join(map(repr, missing))}.")
        first = offsets(self.shape_)
        rows = np.array([first[k] + rows_of(self.labels_, self.shape_, k, given[k])[0] for k in range(len(names))])
        parts = parts_of_entry(belief, self._layout(), rows, self._aligned.reference)
        titles = [part.title(names) for part in parts]
        mean, variance = latent(belief, rows[None])
        means = [part.mean + (self._origin if not part.modes else 0.0) for part in parts]
        frame = pd.DataFrame({"part": [*titles, "sum"], "mean": [*means, float(mean[0]) + self._origin]})
        if self.has_uncertainty():
            frame["sd"] = [*(part.sd for part in parts), float(np.sqrt(variance[0]))]
        return frame


def _matched(
    cells: np.ndarray, modes: list[int], k: int, rows: list[np.ndarray], shape: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The candidates that each combination leaves out; modes that `cells` does not have are of no account."""
    compared = [j for j in modes if j != k]
    others = [j for j in range(len(shape)) if j != k]
    sizes = [len(rows[j]) for j in others]
    queries = np.zeros(int(np.prod(sizes)), dtype=np.int64)
    keys = np.zeros(len(cells), dtype=np.int64)
    at = np.unravel_index(np.arange(len(queries)), sizes) if sizes else ()
    for j in compared:
        # A row that the model does not know, -1, has no cells.
        queries = queries * (shape[j] + 1) + rows[j][at[others.index(j)]] + 1
        keys = keys * (shape[j] + 1) + cells[:, modes.index(j)] + 1
    return matches(queries, keys, cells[:, modes.index(k)])
