"""`predict_block` of the CP estimators: predictions of all combinations of rows of some modes, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from tensorcep.core.checks import check_not_empty, fail_value
from tensorcep.core.executor import threads_of
from tensorcep.cp.estimators.predictions import CPPredictions
from tensorcep.cp.fitted.predict import observed_moments
from tensorcep.cp.inputs.coordinates import by_mode, labels_at, mode_of, names_of, packed_rows, rows_of

# Cells that are predicted at a time, and at most.
CELLS, MOST = 1 << 20, 1 << 31


class Blocks(CPPredictions):
    """What a fitted CP estimator says of rectangular blocks of cells."""

    def predict_block(self, given: Mapping[Any, Any] | None = None, modes: Any = None, return_std: bool = False) -> Any:
        """Predictive means of every combination of rows of some modes, the others being given.

        Parameters
        ----------
        given : dict of mode to one label or index, optional
            The row of every mode that is not in the block.
        modes : list of modes, or dict of mode to rows, optional
            The modes of the block, the last one along the columns; a dict says which rows, None standing for all of
            them. Default: all modes that are not given, with all their rows.
        return_std : bool, default=False
            Also return the standard deviations of new observations.

        Returns
        -------
        DataFrame, or a pair of them
            A line for each combination of rows of all modes but the last, a column for each of its rows. Of labels the
            probabilities of the second class.

        Raises
        ------
        ValueError
            If a mode is in both or in none, a label is not known, or the model is of ordered levels.

        Examples
        --------
        >>> from tensorcep import CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
        >>> model.predict_block(given={2: 3}).shape
        (8, 6)
        """
        self._fitted_belief()
        if self._likelihood().levels is not None:
            fail_value(
                "predict_block is for real values, labels and counts; of ordered levels use predict_proba or "
                "expected_value of the cells."
            )
        if return_std:
            self._check_has_uncertainty("return_std=True")
        rows = self._block_rows(given, modes)
        sizes = [len(rows[k]) for k in rows]
        if np.prod([float(n) for n in sizes]) > MOST:
            fail_value(f"a block may have 2**31 cells; got {' x '.join(map(str, sizes))}; give fewer rows.")
        mean, variance = self._of_cells(rows)
        names = names_of(self.labels_)
        shown = [k for k in rows if given is None or k not in by_mode(self.labels_, given)]
        *lead, last = [pd.Index(labels_at(self.labels_, k, rows[k]), name=names[k]) for k in shown]
        index: Any = pd.MultiIndex.from_product(lead) if len(lead) > 1 else lead[0] if lead else pd.RangeIndex(1)
        frames = [pd.DataFrame(x.reshape(-1, len(last)), index, last) for x in (mean, np.sqrt(variance))]
        return tuple(frames) if return_std else frames[0]

    def _block_rows(self, given: Mapping[Any, Any] | None, modes: Any) -> dict[int, np.ndarray]:
        """The rows of every mode: first those that are given, one each, then those of the block in their order."""
        fixed = by_mode(self.labels_, given)
        wanted = modes if isinstance(modes, Mapping) else None
        if modes is None:
            modes = [name for k, name in enumerate(names_of(self.labels_)) if k not in fixed]
        modes = [modes] if isinstance(modes, (str, int)) else list(modes)
        check_not_empty(len(modes), "a block without modes")
        chosen = {mode_of(self.labels_, mode): None if wanted is None else wanted[mode] for mode in modes}
        twice, none = set(chosen) & set(fixed), set(range(len(self.shape_))) - set(chosen) - set(fixed)
        if twice or none or len(chosen) < len(modes):
            fail_value(f"every mode must be in given or in modes, once; got given={given!r}, modes={modes!r}.")
        rows = {k: rows_of(self.labels_, self.shape_, k, [row]) for k, row in fixed.items()}
        for k, some in chosen.items():
            every = np.arange(self.shape_[k]) if some is None else rows_of(self.labels_, self.shape_, k, some)
            check_not_empty(len(every), f"mode {names_of(self.labels_)[k]!r} of the block")
            rows[k] = every
        return rows

    def _of_cells(self, rows: dict[int, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances of all combinations of these rows, the last mode fastest, some at a time."""
        sizes = tuple(len(own) for own in rows.values())
        n = int(np.prod(sizes))
        mean, variance = np.empty(n), np.empty(n)
        with threads_of(self.n_jobs) as executor:
            for first in range(0, n, CELLS):
                part = slice(first, min(n, first + CELLS))
                places = np.unravel_index(np.arange(part.start, part.stop), sizes)
                coords = np.empty((part.stop - part.start, len(sizes)), dtype=np.int64)
                for (k, own), at in zip(rows.items(), places, strict=True):
                    coords[:, k] = own[at]
                packed = packed_rows(coords, *self._row_knowledge())
                mean[part], variance[part] = observed_moments(
                    self._likelihood_of_new(), self._fitted_belief(), packed, executor
                )
        return mean, variance
