"""What the CP estimators share: their parameters, and fitting in three steps, plan, run, assign."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import pandas as pd

from tensorcep.core.belief import GammaNoise
from tensorcep.core.settings import Settings, TakesMethod
from tensorcep.core.sweep_tasks import CallbackSupportMixin, begin_fit, end_fit, with_callbacks
from tensorcep.cp.estimators.blocks import Blocks
from tensorcep.cp.estimators.effects import Effects
from tensorcep.cp.estimators.folding import Folding
from tensorcep.cp.estimators.forgetting import Forgetting
from tensorcep.cp.estimators.reading import Reading
from tensorcep.cp.estimators.recommending import Recommending
from tensorcep.cp.estimators.spotting import Spotting
from tensorcep.cp.estimators.streaming import StreamingCP
from tensorcep.cp.fit.diagnose import diagnose, warn_of_health, with_calibrated
from tensorcep.cp.fit.outcome import fitted_attributes, fitted_cells, sampled_cells, warn_of_no_convergence
from tensorcep.cp.fit.refit import Kept, fixed_fit, runner_from_some
from tensorcep.cp.fit.run import run_plan
from tensorcep.cp.inputs.coordinates import Entries, refuse_others, training_entries, warn_of_labels
from tensorcep.cp.inputs.weights import weighted_entries
from tensorcep.cp.model.problem import Uneven
from tensorcep.cp.plan.auto import check_parameters
from tensorcep.cp.plan.resolve import FitPlan, plan_fit
from tensorcep.cp.plan.storage import check_alone, checked_place, entries_of_files, laid
from tensorcep.cp.settings.registry import ENGINES
from tensorcep.cp.targets.base import Chosen
from tensorcep.cp.workers.fitting import OnWorkers, fit_on_workers
from tensorcep.entries.io.columns import are_files
from tensorcep.entries.tables import UNSAID, column_apart, is_of, split_given, warn_of_modes
from tensorcep.entries.tensor import SparseTensor
from tensorcep.likelihoods.record import Likelihood
from tensorcep.priors.fixed import Prior


@dataclass(eq=False, repr=False)
class BaseCP(
    TakesMethod,
    CallbackSupportMixin,  # type: ignore[misc]
    Blocks,
    Effects,
    Folding,
    Forgetting,
    Reading,
    Recommending,
    Spotting,
    StreamingCP,
):
    """Common part of the CP estimators. Entries are samples: X holds integer coordinates (N, K), y their values.

    The fields are the parameters, of which the constructor is made; scikit-learn reads them from its signature.
    """

    engines = ENGINES

    rank: int | str = "auto"
    _: KW_ONLY
    method: str | Settings = "auto"
    prior: Prior | Mapping[Any, Any] | str = "auto"
    prior_scale: float | str = "auto"
    prior_mean: float | str = "uniform"
    interactions: str | dict[str, int] = "auto"
    max_iter: int | str = "auto"
    tol: float = 3e-3
    init: Any = "auto"
    shape: tuple[int, ...] | None = None
    unknown: str = "prior"
    forget: float = 0.0
    revisit: int = 0
    n_jobs: int | None = None
    random_state: Any = None
    verbose: int = 0
    callbacks: Any = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False  # rows of X are coordinates of entries, not feature vectors
        tags.non_deterministic = self.random_state is None
        return tags

    def _check_parameters(self) -> None:
        """Refuse parameters that no fit takes, whatever the entries: files may hold any."""
        check_parameters(self)

    def _decide_likelihood(
        self,
        y: np.ndarray,
        chosen: Chosen,
        coords: np.ndarray,
        extent: np.ndarray | None = None,
        weight: np.ndarray | None = None,
    ) -> tuple[Likelihood, dict[str, Any]]:
        """The likelihood of a fit to y at coords (n, K), by weights, and fitted attributes that say so."""
        return self._asked_likelihood(), {}

    def _checked_targets(self, y: np.ndarray, likelihood: Likelihood) -> np.ndarray:
        """Values as the likelihood has them."""
        return likelihood.check_y(y)

    def _decide_noise(self, labels: Any, chosen: Chosen, streaming: bool) -> tuple[Uneven | None, dict[str, Any]]:
        """How the noise of a fit differs, None where it does not, and the fitted attributes that say so."""
        return None, {}

    def _is_wild(self, values: np.ndarray) -> bool:
        """Whether one of the values could decide all of a fit by chains."""
        return False

    def _noise_prior(self, y: np.ndarray, weight: np.ndarray | None = None) -> GammaNoise | None:
        return None

    def _intercept(self, y: np.ndarray, likelihood: Likelihood, weight: np.ndarray | None = None) -> float:
        """Latent value that every entry would have if they did not differ, where main effects need one to start at."""
        return 0.0

    def _latent_guess(self, y: np.ndarray, likelihood: Likelihood, weight: np.ndarray | None = None) -> np.ndarray:
        """What the latent values that belong to y may be, (n,), from which scales are taken."""
        return y

    def _auto_scale(self, y: np.ndarray, order: int, rank: int, weight: np.ndarray | None = None) -> float:
        """Prior standard deviation of a factor element when prior_scale="auto"."""
        return 1.0

    def _training_entries(self, X: Any, y: Any) -> tuple[Entries, dict[str, Any]]:
        """Checked entries with values as likelihoods know them, and fitted attributes that say how they were coded."""
        return training_entries(X, y, self.shape), {}

    def _split_extents(self, X: Any, given: dict[str, Any], call: str = "fit") -> tuple[Any, Any, str | None]:
        """X without a column of exposures, these, and that column; None where there are none."""
        refuse_others(f"{type(self).__name__}.{call}", given)
        return X, None, None

    def _checked_extents(self, extents: Any, n: int) -> np.ndarray | None:
        """The extents of n values, None where they have none."""
        return None

    def _in_units(
        self, extents: np.ndarray | None, column: str | None, goes_on: bool, weight: np.ndarray | None = None
    ) -> tuple[np.ndarray | None, dict[str, Any]]:
        """What the fit gets of extents, by weights, and attributes that tell of it; it may go on from another."""
        return None, {}

    def _knowing(self, coding: dict[str, Any]) -> BaseCP:
        """The estimator as the plan of a fit sees it; what says how its entries are coded may be needed there."""
        return self

    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        modes: Any = None,
        value: Any = UNSAID,
        warm_start: bool = False,
        fixed_modes: Any = None,
        sample_weight: Any = None,
        scratch: Any = None,
        memory: Any = None,
        warm_start_fraction: float | None = None,
        **others: Any,
    ) -> Any:
        """Fit the factors to observed entries.

        A fit that is refused, interrupted or ended by an exception leaves the model as it was.

        Parameters
        ----------
        X : array-like of shape (N, K) of integers, SparseTensor, table, or files
            Coordinates of the entries, counted from 0. A SparseTensor brings its values, shape and labels. A table has
            one line per entry, and columns of labels: a DataFrame of pandas or polars, a Table of pyarrow, a list of
            dicts, or a DataArray of xarray, whose dimensions are the modes; labels in the index are columns after
            ``reset_index()``, a wide table after ``melt()``. A cell that occurs twice was observed twice; a
            `SparseTensor` merges such. Files are a path, a folder, a pattern such as ``data/*.parquet``, or a list of
            these: .tns, csv and parquet, read some lines at a time; labels are those of all files, sorted.
            A dask.dataframe is read by the workers of the active client, which do the work of every method but "wopt",
            too (`tensorcep.distributed.fit`).
        y : array-like of shape (N,)
            Values of the entries; left out with a SparseTensor, and where `value` names their column.
        modes : list of column names, optional
            Of a table: the modes; default: all columns but the value. Others are ignored.
        value : column name or None, optional
            Of a table: the value. None where a line is an event: the value of a cell is the number of its lines, and
            cells without lines are unobserved. Of files the last column, unless it is named.
        warm_start : bool, default=False
            Whether to start at the factors of the earlier fit of this estimator, if there is one with as many columns;
            rows are matched by their labels.
        fixed_modes : name or position of a mode, or list of them, optional
            Modes whose rows stay as they are in the earlier fit of this estimator, with what is not known of them; the
            rows of the other modes are learned from these entries alone, from where they are. Columns, prior and level
            are those of the earlier fit. Samplers take the earlier draws of the rows one after the other. Not for
            "wopt".
        sample_weight : array-like of shape (N,) or column name, optional
            How much each entry counts: the power to which its likelihood is taken. Whole numbers are entries that are
            given so many times (0: not at all). Others are powers of what the method puts in the likelihood's place;
            "gibbs" takes them for real values without a limit, and for counts. Starts, hold-outs and choices are told
            by the entries that weigh a tenth of the usual weight or more, up to which half of all weight lies.
        scratch : folder, optional
            Where files without names are to lie instead of memory, for methods that need no message of every entry and
            one noise: "gibbs", "vmp", "pg-gibbs", "pg-vb", ``CEP(messages="averaged")``. Of real values a sweep reads
            4 K^2 bytes per entry from front to back, if single precision holds them; others take 100 more, 16 of them
            in every mode's order. Bits are those of memory; of more than a million entries, a sample tells the start.
        memory : str or number, optional
            How much memory the fit may take, such as "8GB" or 2e9. It is added up from the numbers of entries, rows and
            columns before any work: if all fit, they lie in memory; otherwise on `scratch`, or the fit is refused.
        warm_start_fraction : float, optional
            Share of the entries, chosen by a hash of their cells, that are fitted first; the fit to all of them starts
            at those rows (a sampler at those of a mean-field fit).
        **others
            Refused.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            On input or parameters that are not allowed, before any work.
        FloatingPointError
            If the result is not finite.

        Examples
        --------
        >>> import pandas as pd
        >>> from tensorcep import CPRegressor
        >>> cells = [(f"u{a}", f"i{b}", a * b / 5 + (a + b) % 3 / 9) for a in range(6) for b in range(6)]
        >>> table = pd.DataFrame(cells, columns=["user", "item", "stars"])
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(table, value="stars")
        >>> model.labels_[0].name, round(float(model.predict(pd.DataFrame({"user": ["u5"], "item": ["i5"]}))[0]))
        ('user', 5)
        """
        if is_of(X, "dask"):
            check_alone("a table of Dask", {"scratch": scratch, "memory": memory})
            rest = {"warm_start": warm_start, "fixed_modes": fixed_modes, "sample_weight": sample_weight, **others}
            return fit_on_workers(self, X, y, OnWorkers(), strict=False, modes=modes, value=value, **rest)
        begin_fit(self, X, y)
        given = (X, y)
        if isinstance(sample_weight, str):
            X, sample_weight = column_apart(X, "sample_weight", sample_weight)
        X, extents, column = self._split_extents(X, others)
        alone = {"fixed_modes": fixed_modes, "sample_weight": sample_weight}
        place = checked_place(self, scratch, memory, alone if scratch is None else alone | others)
        if are_files(X) and y is None:
            entries, coding = entries_of_files(self, X, modes, value, place)
        else:
            X, y = split_given(X, y, modes, value)
            entries, coding = self._training_entries(X, y)
            if modes is None and isinstance(X, pd.DataFrame):
                warn_of_modes(entries[3], len(entries[1]), self.prior)
        extents = self._checked_extents(extents, len(entries[1]))
        weighted = weighted_entries(laid(self, entries, place), sample_weight, extents)
        entries, power, extents = weighted if extents is None else self._summed(weighted)
        extent, about = self._in_units(extents, column, fixed_modes is not None, power)
        apart = ("sample_weight",) * (power is not None) + ("fixed_modes",) * (fixed_modes is not None)
        coding = coding | about | {"_apart": apart}
        runner, plan = self._runner(entries, warm_start), None
        if warm_start_fraction is not None:
            check_alone("warm_start_fraction=", {**alone, "warm_start": warm_start or None})
            runner = runner_from_some(self, entries, coding, X, warm_start_fraction, place.limit, run_plan)
        if fixed_modes is not None:
            entries, plan, runner = fixed_fit(self, entries, coding, X, fixed_modes, extent, power)
        elif power is not None or extent is not None:
            plan = plan_fit(self._knowing(coding), entries, X, extent=extent, power=power)
        try:
            self._fit_entries(entries, coding, X, runner, plan, place.limit)
        finally:
            place.end()
        end_fit(self, *given)
        return self

    def _fit_entries(
        self,
        entries: Entries,
        coding: dict[str, Any],
        source: Any,
        runner: Any,
        plan: FitPlan | None = None,
        limit: float | None = None,
    ) -> None:
        """Plan a fit, run it by ``runner(plan)``, and set all attributes.

        A plan that is given has fixed modes or weights, without which messages mean nothing: none are kept.
        """
        is_given = plan is not None
        plan = plan_fit(self._knowing(coding), entries, source, limit=limit) if plan is None else plan
        warn_of_labels(entries[3])
        keeps = bool(getattr(plan.work.settings, "keep_messages", False)) and not is_given
        if keeps:
            work = plan.work
            plan = plan._replace(work=work._replace(members=1, starts=work.starts[: len(work.starts) // work.members]))
        result = runner(plan.work)
        plan = plan.of(result)
        attributes = fitted_attributes(plan, result)
        if keeps:
            order = plan.work.problem.entries.permutation
            attributes["_kept"] = Kept(entries[0][order], entries[1][order], source, result.state)
        result = result._replace(state=plan.work.method.ended(result.state))
        health = diagnose(self, plan.work, result, attributes["_belief"])
        attributes, health = with_calibrated(self, plan.work, result, attributes, health)
        result = result._replace(state=None)  # states hold all messages and draws
        drawn = isinstance(source, SparseTensor) and source.sampled is not None
        attributes |= {"_cells": fitted_cells(plan), "_sampled": sampled_cells(source, plan.labels) if drawn else None}
        self._assign({**attributes, **coding, "diagnostics_": health})
        warn_of_no_convergence(plan.work, result)
        warn_of_health(plan.work, result, health)
