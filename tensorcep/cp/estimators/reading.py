"""`components`, `variance_explained` and `summary` of the CP estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from tensorcep.core.checks import check_fraction, check_int, check_values, fail_value
from tensorcep.core.diagnostics import bulk_size, r_hat
from tensorcep.core.summary import Summary
from tensorcep.cp.estimators.predictions import CPPredictions
from tensorcep.cp.fitted.alignment import mean_squares, signs
from tensorcep.cp.fitted.predict import latent_components
from tensorcep.cp.inputs.coordinates import labels_at, mode_of, names_of
from tensorcep.entries.tables import UNSAID, as_frame, split_like
from tensorcep.entries.tensor import SparseTensor


class Reading(CPPredictions):
    """What a fitted CP estimator tells of itself."""

    def _columns_by_size(self) -> tuple[np.ndarray, np.ndarray]:
        """The columns by their mean squares, the largest first, and these (R,)."""
        squares = mean_squares(self._aligned.mean, self._layout())
        return np.argsort(-squares, kind="stable"), squares

    def _part_name(self, r: int) -> str:
        modes, names = self.column_modes_[r], names_of(self.labels_)
        several = len(modes) == len(names) and len(modes) > 1
        return "all modes" if several else " x ".join(str(names[k]) for k in modes)

    def components(self, mode: Any, coverage: float = 0.9) -> pd.DataFrame:
        """The weights of a mode's rows in its components, as a tidy table.

        Draws are aligned first. The means of a component's weights have norm 1 in every mode, its size is `weight`;
        components come in the order of the variance that they explain. Products keep their signs.

        Parameters
        ----------
        mode : name or position
        coverage : float, default=0.9
            Of the interval lower to upper, that of a Gaussian.

        Returns
        -------
        DataFrame
            A row per row of the mode and component: a column of the mode, component (its column in `factors_`), part,
            weight, mean, sd, lower and upper.

        Examples
        --------
        >>> import pandas as pd
        >>> from tensorcep import CPRegressor
        >>> cells = [(f"u{a}", f"i{b}", a * b / 5 + (a + b) % 3 / 9) for a in range(6) for b in range(6)]
        >>> table = pd.DataFrame(cells, columns=["user", "item", "stars"])
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(table, value="stars")
        >>> model.components("item").shape[0] >= 4
        True
        """
        k, z = mode_of(self.labels_, mode), float(ndtri(0.5 + 0.5 * check_fraction("coverage", coverage)))
        found, layout = self._aligned, self._layout()
        own, turn = layout.rows[k], signs(self.factors_, self.column_modes_)[k]
        norms = np.stack([np.linalg.norm(found.mean[rows], axis=0) for rows in layout.rows])
        safe, name = np.where(norms > 0.0, norms, 1.0), names_of(self.labels_)[k]
        rows = labels_at(self.labels_, k, np.arange(self.shape_[k]))
        parts = []
        for r in (int(r) for r in self._columns_by_size()[0] if k in self.column_modes_[int(r)]):
            mean = turn[r] * found.mean[own, r] / safe[k, r]
            sd = np.sqrt(found.variance[own, r]) / safe[k, r]
            weight = float(norms[list(self.column_modes_[r]), r].prod())
            named = {name: rows, "component": r, "part": self._part_name(r), "weight": weight}
            parts.append(
                pd.DataFrame({**named, "mean": mean, "sd": sd, "lower": mean - z * sd, "upper": mean + z * sd})
            )
        return pd.concat(parts, ignore_index=True)

    def variance_explained(
        self, X: Any = None, y: Any = None, *, modes: Any = None, value: Any = UNSAID
    ) -> pd.DataFrame:
        """What each component explains, the largest first.

        Parameters
        ----------
        X, y, modes, value : entries with values as in `fit`, optional
            Where they are given, the share of the variance of y that is explained when components join one by one.

        Returns
        -------
        DataFrame
            A row per column of `factors_`: component, part (the modes that it belongs to), share in the mean square of
            the latent values (of a main effect in their variance), for real values share_of_all, with the noise, and
            with X r2 and cumulative: the gain in the share of the variance of y that is explained, and their sum.
            Components are not orthogonal, so that shares need not add up to what all of them explain.

        Examples
        --------
        >>> import pandas as pd
        >>> from tensorcep import CPRegressor
        >>> cells = [(f"u{a}", f"i{b}", a * b / 5 + (a + b) % 3 / 9) for a in range(6) for b in range(6)]
        >>> table = pd.DataFrame(cells, columns=["user", "item", "stars"])
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(table, value="stars")
        >>> bool(model.variance_explained(table, value="stars").shape[0] > 0)
        True
        """
        order, squares = self._columns_by_size()
        total = max(float(squares.sum()), np.finfo(float).tiny)
        frame = pd.DataFrame({"component": order, "part": [self._part_name(int(r)) for r in order]})
        frame["share"] = squares[order] / total
        if hasattr(self, "noise_precision_"):
            frame["share_of_all"] = squares[order] / (total + 1.0 / self.noise_precision_)
        if X is None:
            return frame
        X = as_frame(X)
        if isinstance(X, pd.DataFrame):
            X, y = split_like(names_of(self.labels_), X, y, modes, value)
        y = X.values if y is None and isinstance(X, SparseTensor) else y
        rows = self._rows(X)
        cumulative = self._joined_r2(rows, check_values(self._coded(y), len(rows), name="y"), order)
        return frame.assign(r2=np.diff(cumulative, prepend=0.0), cumulative=cumulative)

    def _joined_r2(self, rows: np.ndarray, y: np.ndarray, order: np.ndarray) -> np.ndarray:
        """Share of the variance of y that the first 1, 2, ... columns explain, constants aside, (R,)."""
        free = np.array([[k in modes for modes in self.column_modes_] for k in range(len(self.shape_))])
        means = np.concatenate([self._aligned.mean, np.where(free, 0.0, 1.0)])  # a row that is not known adds nothing
        left, explained = y - y.mean(), np.empty(len(order))
        f = np.zeros(len(y))
        for place, r in enumerate(order):
            f += np.prod(means[rows, r], axis=1)
            rest = left - (f - f.mean())
            total, open_ = float(left @ left), float(rest @ rest)
            explained[place] = 1.0 - open_ / total if total > 0.0 else float(open_ == 0.0)  # as scikit-learn's R2
        return explained

    def summary(self, n_rows: int = 5, n_components: int = 6) -> Summary:
        """What was fitted, how far it is to be believed, and what its components look like.

        Parameters
        ----------
        n_rows : int, default=5
            Rows of the largest weights that are listed for each component.
        n_components : int, default=6
            Components that are listed, main effects included.

        Returns
        -------
        Summary
            Printed it is text; a notebook shows it as HTML, and so does ``to_html()``.

        Examples
        --------
        >>> import pandas as pd
        >>> from tensorcep import CPRegressor
        >>> cells = [(f"u{a}", f"i{b}", a * b / 5 + (a + b) % 3 / 9) for a in range(6) for b in range(6)]
        >>> table = pd.DataFrame(cells, columns=["user", "item", "stars"])
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(table, value="stars")
        >>> print(str(model.summary()).splitlines()[0][:11])
        CPRegressor
        """
        n_rows, n_components = check_int("n_rows", n_rows), check_int("n_components", n_components)
        names, health = names_of(self.labels_), self.diagnostics_
        sizes = " x ".join(f"{n} {name}" for n, name in zip(self.shape_, names, strict=True))
        facts = {
            "model": f"{type(self).__name__}, likelihood {self._likelihood().name}",
            "entries": f"{self.n_samples_seen_:,} of {sizes}",
            "method": f"{self.method_}, rank {self.rank_}, prior {self.prior_}, columns {self._columns_text()}",
            "sweeps": f"{self.n_iter_} {'' if self.converged_ else 'not '}converged ({self.method_})",
        }
        facts |= {} if health is None else health.lines()
        facts["sweeps"] += self._seconds()
        explained = self.variance_explained()
        top = explained.head(n_components)
        tables = {f"Variance explained by {len(top)} of {len(explained)} components": top}
        for name in names:
            tables[f"Largest weights of {name}"] = self._largest(name, top["component"].tolist(), n_rows)
        return Summary(
            f"{type(self).__name__} of {sizes}", facts, {t: table for t, table in tables.items() if len(table)}
        )

    def _columns_text(self) -> str:
        return ", ".join(f"{n} {part}" for part, n in self.interactions_.items() if n)

    def _seconds(self) -> str:
        return f", {self.trace_['seconds'].sum():.2g} s" if "seconds" in self.trace_ else ""

    def _largest(self, mode: Any, chosen: list[int], n_rows: int) -> pd.DataFrame:
        """A row per component: its rows of the largest weights, with their standard deviations."""
        table = self.components(mode)
        name, lines = table.columns[0], []
        for r in chosen:
            own = table[table["component"] == r]
            own = own.iloc[np.argsort(-own["mean"].abs().to_numpy(), kind="stable")[:n_rows]]
            if len(own):
                said = [
                    f"{row} {m:+.2g} ± {s:.1g}" for row, m, s in zip(own[name], own["mean"], own["sd"], strict=True)
                ]
                lines.append({"component": r, "part": own["part"].iloc[0], "rows": ", ".join(said)})
        return pd.DataFrame(lines)

    def chain_diagnostics(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """R-hat and effective sample size (bulk) of the latent value of each entry, for methods that draw chains.

        Parameters
        ----------
        X : entries as in `predict`

        Returns
        -------
        r_hat, effective_size : ndarray of shape (n,)
            R-hat is near 1 (below 1.01, as a rule) where the chains agree.

        Raises
        ------
        ValueError
            If the method draws no chains.

        Examples
        --------
        >>> from tensorcep import CPRegressor, Gibbs, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> method = Gibbs(n_chains=2, weights="equal")
        >>> model = CPRegressor(1, method=method, interactions="cp", max_iter=60, random_state=0).fit(tensor)
        >>> r_hat, effective_size = model.chain_diagnostics(tensor.coords[:3])
        >>> r_hat.shape
        (3,)
        """
        belief = self._fitted_belief()
        if not belief.n_chains:
            fail_value(f"chain_diagnostics needs chains, but method {self.method_!r} draws none; use method='gibbs'.")
        draws = self._chain_draws(X)
        return r_hat(draws), bulk_size(draws)

    def _chain_draws(self, X: Any) -> np.ndarray:
        """The latent values of entries in all draws, (chains, draws, n)."""
        belief, rows = self._at(X)
        f, _ = latent_components(belief, rows)  # a pair without entries at its mean given those with some
        return f.reshape(belief.n_chains, -1, len(rows)) + self._origin
