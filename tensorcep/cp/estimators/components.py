"""What the components of a fitted model look like: their share of the latent values, order, signs, and a table."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from tensorcep.core.checks import fail_value, warn_user
from tensorcep.core.components import Components
from tensorcep.core.diagnostics import bulk_size, r_hat, tail_size
from tensorcep.core.packing import unpack
from tensorcep.cp.fitted.alignment import (
    Aligned,
    Layout,
    align,
    aligned_rows,
    covariances,
    layout_of,
    reference_from,
    relevance,
    shared_scales,
    signs,
)
from tensorcep.cp.inputs.coordinates import mode_of
from tensorcep.cp.model.columns import free_columns, modes_of_columns

# A component whose mean square is below this share of the largest one's is switched off.
NEGLIGIBLE = 1e-3
# The share of like draws up to which components say little of the fit, and the mean square, in posterior variances,
# from which on their latent values are not those of the predictions.
MAJORITY, BEYOND = 0.5, 1.0
# Attributes that are made of the belief when somebody asks for them, and then kept.
MADE = ("_aligned", "factors_", "factor_covs_", "feature_effects_")


def columns_table(values: dict[str, np.ndarray], columns: list[int], index: Any) -> pd.DataFrame:
    """Some columns of arrays (n_k, R), one row per row of the mode; column labels (component, name of the array)."""
    labels = pd.MultiIndex.from_product([columns, list(values)], names=["component", None])
    each = np.stack([array[:, columns] for array in values.values()], axis=2)
    return pd.DataFrame(each.reshape(len(each), -1), index=index, columns=labels)


class CPComponents(BaseEstimator):  # type: ignore[misc]
    """What a fitted CP estimator says of its components.

    All of it is made when somebody asks for it. Draws, and the members of a mixture, are aligned first.
    """

    _belief: Components

    def _fitted_belief(self) -> Components:
        check_is_fitted(self, "posterior_")
        return self._belief

    @cached_property
    def _aligned(self) -> Aligned:
        """Moments of the rows: of aligned draws, or those of the (best) posterior or estimate."""
        belief, layout = self._fitted_belief(), self._layout()
        rows, variance = belief.mean[:, : sum(self.shape_)], np.zeros(())
        if belief.n_chains:
            found = align(rows, layout)
            self._warn_of_unlike(found)
            return found
        if belief.cov is not None:
            diagonal = np.cumsum(np.arange(1, rows.shape[2] + 1)) - 1
            variance = belief.cov[0, : rows.shape[1], diagonal].T
        reference = rows[0] if belief.size == 1 else reference_from(rows[0], layout)
        return Aligned(
            reference, rows[0], np.broadcast_to(variance, rows[0].shape), np.ones(rows.shape[2]), np.ones(1, dtype=bool)
        )

    def _layout(self) -> Layout:
        return layout_of(self.shape_, self.column_modes_, self.posterior_.seen)

    def _warn_of_unlike(self, found: Aligned) -> None:
        worst = found.unlike(self._layout())
        if worst.size:
            which = "cosine with their mean: " + ", ".join(f"{r} ({found.congruence[r]:.2f})" for r in worst[:3])
        elif found.apart > BEYOND:
            which = f"their latent values are {found.apart**0.5:.1f} standard deviations from the predicted ones"
        elif found.alike <= MAJORITY:
            which = f"{100 * found.alike:.0f} % of them are like a typical one"
        else:
            return
        parts, mean_field = self.interactions_, "pg-vb" if self.method_ == "pg-gibbs" else "vmp"
        cures = "a lower rank, " if self.rank_ > 1 else ""
        cures += "interactions='cp', " if parts["main"] or parts["pair"] else ""
        warn_user(
            f"the draws of {self.method_!r} do not agree on the components even after alignment ({which}), so that "
            f"factors_ and what is made of it mean little; take {cures}more sweeps (max_iter), or "
            f"method={mean_field!r}, or use predictions alone.",
            UserWarning,
        )

    def _aligned_draws(self, draws: np.ndarray, rows: slice = slice(None)) -> np.ndarray:
        """Some rows of draws (n, n_rows, R) of the factors, aligned where the belief has several components."""
        if self._fitted_belief().size == 1:
            return draws[:, rows]
        return aligned_rows(draws, self._aligned.reference, self._layout(), rows)

    @cached_property
    def factors_(self) -> list[np.ndarray]:
        """Posterior means of the factors, (n_k, R) per mode."""
        return [self._aligned.mean[own].copy() for own in self._layout().rows]

    @cached_property
    def factor_covs_(self) -> list[np.ndarray]:
        """Posterior covariances of the rows, (n_k, R, R) per mode."""
        belief, found, layout = self._fitted_belief(), self._aligned, self._layout()
        if belief.n_chains:
            return list(covariances(belief.mean[:, : sum(self.shape_)], found, layout))
        if belief.cov is not None:
            return [unpack(belief.cov[0, own], self.posterior_.rank) for own in layout.rows]
        return [np.zeros((own.stop - own.start, *2 * (self.posterior_.rank,))) for own in layout.rows]

    @property
    def congruence_(self) -> np.ndarray:
        """How alike the aligned draws' components are, (R,): the mean cosine with their reference; 1 without draws."""
        return self._aligned.congruence.copy()

    @property
    def weights_(self) -> np.ndarray:
        """Sizes of the components whose modes have norm 1, (R,), the largest first: the weights of `to_tensorly`."""
        return np.asarray(self.to_tensorly().weights)

    def to_tensorly(self) -> Any:
        """The posterior means as a TensorLy CPTensor: factors with columns of norm 1, the largest weight first.

        It has all columns: main effects and pairs are components whose other modes are constant. Its full tensor is
        that of the latent values at the posterior means of the factors: of real values, `level_` (and a limit, if there
        is one) plus this tensor is the mean of `predict_latent`, which without a limit or a power is `predict`. They
        differ by what the factors of a component share beyond their means: nothing in the posterior of "cep" or "vmp"
        (with ``n_ensemble`` it is that of the best fit), and in a sampler's, where all is well, less than a posterior
        standard deviation; a warning says where it is more, or where half of the draws have other components.

        Examples
        --------
        >>> from tensorcep import CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
        >>> weights, factors = model.set_params(interactions="cp").fit(tensor).to_tensorly()
        >>> [factor.shape for factor in factors]
        [(8, 1), (6, 1), (4, 1)]
        """
        from tensorly.cp_tensor import CPTensor

        check_is_fitted(self, "posterior_")
        norms = np.stack([np.linalg.norm(factor, axis=0) for factor in self.factors_])
        weights = norms.prod(axis=0)
        order = np.argsort(-weights, kind="stable")
        safe = np.where(norms > 0.0, norms, 1.0)
        return CPTensor((weights[order], [(f / n)[:, order] for f, n in zip(self.factors_, safe, strict=True)]))

    @property
    def column_modes_(self) -> list[tuple[int, ...]]:
        """The modes that each column of the factors belongs to; in the others it is 1."""
        check_is_fitted(self, "posterior_")
        return modes_of_columns(free_columns(self.interactions_, len(self.shape_)))

    @property
    def relevance_(self) -> np.ndarray:
        """Share of each component in the mean square of the latent values, (R,); of a main effect, in its variance."""
        return relevance(self._aligned.mean, self._layout())

    @property
    def n_components_(self) -> int:
        """Number of components that are not switched off; main effects, which are no components, do not count."""
        several = np.array([len(modes) > 1 for modes in self.column_modes_])
        shares = self.relevance_[several]
        return int(np.count_nonzero(shares > NEGLIGIBLE * shares.max(initial=0.0)))

    @property
    def lower_bound_(self) -> float:
        """Lower bound of the log evidence after the last sweep; only methods that compute one have the attribute."""
        check_is_fitted(self, "posterior_")
        bounds = self.trace_["lower_bound"]
        if "member" in self.trace_:  # of a mixture it is that of the best fit, which comes first
            bounds = bounds[self.trace_["member"] == 0]
        bound = float(bounds[-1])
        if np.isnan(bound):
            raise AttributeError(f"method {self.method_!r} gives no lower bound of the evidence.")
        return bound

    def components_frame(self, mode: Any) -> pd.DataFrame:
        """Means and standard deviations of the factors of a mode, the most relevant component first.

        The scale of a component is shared evenly: its factors have the same root mean square in all its modes. All of
        them but the first are turned so that their large values are positive; products stay as they are. Columns that
        are held at 1 are left out. A main effect of the first mode holds the constant of all.

        Parameters
        ----------
        mode : name or position

        Returns
        -------
        DataFrame
            A row per row of the mode, with its label if there is one; columns (component, "mean" or "sd").

        Examples
        --------
        >>> from tensorcep import CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
        >>> model.components_frame(0).shape
        (8, 4)
        """
        k, columns, index = self._columns_of(mode)
        found, layout = self._aligned, self._layout()
        scale = shared_scales(found.mean, layout)[k] * signs(self.factors_, self.column_modes_)[k]
        own = layout.rows[k]
        values = {"mean": found.mean[own] * scale, "sd": np.sqrt(found.variance[own]) * np.abs(scale)}
        return columns_table(values, columns, index)

    def _columns_of(self, mode: Any) -> tuple[int, list[int], Any]:
        """A mode, its columns, the most relevant first, and the labels of its rows."""
        check_is_fitted(self, "posterior_")
        k = mode_of(self.labels_, mode)
        order = np.argsort(-self.relevance_, kind="stable")
        columns = [int(r) for r in order if k in self.column_modes_[r]]
        return k, columns, None if self.labels_[k] is None else self.labels_[k].index

    def factor_diagnostics(self, mode: Any) -> pd.DataFrame:
        """R-hat and effective sample sizes of the aligned factors of a mode, for methods that draw chains.

        Parameters
        ----------
        mode : name or position

        Returns
        -------
        DataFrame
            A row per row of the mode, as in `components_frame`; columns (component, "r_hat", "bulk_size" or
            "tail_size"). R-hat is near 1 (below 1.01, as a rule) where the chains agree.

        Raises
        ------
        ValueError
            If the method draws no chains.

        Examples
        --------
        >>> from tensorcep import CPRegressor, Gibbs, simulate_cp
        >>> tensor = simulate_cp((6, 5), 1, 30, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPRegressor(1, method=Gibbs(n_chains=2), interactions="cp", max_iter=150, random_state=0)
        >>> model = model.fit(tensor)
        >>> model.factor_diagnostics(0).columns.tolist()
        [(0, 'r_hat'), (0, 'bulk_size'), (0, 'tail_size')]
        """
        k, columns, index = self._columns_of(mode)
        belief = self._fitted_belief()
        if not belief.n_chains:
            fail_value(f"factor_diagnostics needs chains, but method {self.method_!r} draws none; use method='gibbs'.")
        draws = self._aligned_draws(belief.mean[:, : sum(self.shape_)], self._layout().rows[k])
        chains = draws.reshape(belief.n_chains, -1, *draws.shape[1:])
        values = {"r_hat": r_hat(chains), "bulk_size": bulk_size(chains), "tail_size": tail_size(chains)}
        return columns_table(values, columns, index)
