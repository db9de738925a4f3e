"""Predictions of a fitted CP model: latent values, observations, draws, the way to a file."""

from __future__ import annotations

import itertools
import os
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tensorcep.core.checks import check_fraction, check_int, check_random_state, check_values, fail_value
from tensorcep.core.checks.messages import warn_of_infinite
from tensorcep.core.components import Components, EntryTheta
from tensorcep.core.executor import threads_of
from tensorcep.core.packing import offsets
from tensorcep.cp.estimators.arviz_export import export_draws
from tensorcep.cp.estimators.components import MADE, CPComponents
from tensorcep.cp.fit.outcome import moment_attributes
from tensorcep.cp.fitted.diagnostics import Diagnostics
from tensorcep.cp.fitted.forecast import described_rows, placed
from tensorcep.cp.fitted.predict import (
    draw,
    draw_apart,
    extended,
    latent,
    latent_quantiles,
    observed_logpdf,
    observed_moments,
    observed_quantiles,
    pairs_at,
    with_own_factors,
)
from tensorcep.cp.fitted.store import write_model
from tensorcep.cp.inputs.coordinates import (
    coords_to_predict,
    distinct_unknown_rows,
    names_of,
    packed_rows,
    refuse_others,
)
from tensorcep.cp.model.latent import latent_of_points
from tensorcep.cp.model.parameters import with_parameter
from tensorcep.cp.stream.slopes import Expected
from tensorcep.entries.tables import UNSAID, split_observed
from tensorcep.likelihoods.record import Likelihood
from tensorcep.priors.design import Design
from tensorcep.priors.deviations import drawn
from tensorcep.priors.graph import Net
from tensorcep.priors.series import Clock


class CPPredictions(CPComponents):
    """What a CP estimator can do once `posterior_` is there."""

    # Fitted attributes that are plain values, which files hold.
    _own_attributes: ClassVar[tuple[str, ...]] = (
        "method_",
        "rank_",
        "max_iter_",
        "prior_",
        "interactions_",
        "forgotten_",
    )
    _features: ClassVar[tuple[Design | None, ...]] = ()  # until a fit with some
    _series: ClassVar[tuple[Clock | Net | None, ...]] = ()  # the same
    _expected: ClassVar[Expected | None] = None  # the same
    _apart: ClassVar[tuple[str, ...]] = ()  # which of sample_weight and fixed_modes a fit had that entries do not tell
    forgotten_: ClassVar[list[dict[str, Any]]] = []  # until something is
    diagnostics_: ClassVar[Diagnostics | None] = None  # until a fit, of streams, and of files that do not have it

    def _likelihood(self) -> Likelihood:
        """That of the fitted model."""
        raise TypeError(f"{type(self).__name__} has no likelihood; use CPRegressor, CPClassifier or CPCountRegressor.")

    def _likelihoods(self) -> list[Likelihood]:
        """Those that a fit may come to, by its method."""
        return [self._asked_likelihood()]

    def _asked_likelihood(self) -> Likelihood:
        """The likelihood that a method is chosen for, after the checks of the parameters that name it."""
        return self._likelihood()

    @property
    def _origin(self) -> float:
        """What a latent value in the units of y is beside the CP sum."""
        return 0.0

    def _likelihood_of_new(self) -> Likelihood:
        """That of observations to predict; it differs from that of the fit where entries were chosen by their value."""
        return self._likelihood()

    def _source_attributes(self, source: Any, first: bool) -> dict[str, Any]:
        """Fitted attributes that hold what the source of entries knows beyond them; `first`: nothing was learned."""
        return {}

    def _set_moments(self) -> None:
        """Set what predictions need from `posterior_` and the prior of unknown rows."""
        for name in MADE:
            self.__dict__.pop(name, None)
        self.__dict__.update(moment_attributes(self.posterior_, self._unseen_mean, self._unseen_cov))

    def _rows(self, X: Any) -> np.ndarray:
        """Packed rows (n, K) of the entries X; unknown rows point at their mode's prior row."""
        check_is_fitted(self, "posterior_")
        X = self._without_extent(X)
        return packed_rows(coords_to_predict(X, self.labels_), *self._row_knowledge())

    def _extent_of(self, X: Any, given: dict[str, Any], needed: bool = False) -> np.ndarray | None:
        """Extents (n,) of entries to predict, None where they have none; `needed`: they cannot be left out."""
        refuse_others(type(self).__name__, given)
        return None

    def _without_extent(self, X: Any, given: dict[str, Any] | None = None) -> Any:
        """Entries without a column that holds extents."""
        return X

    def _at(self, X: Any) -> tuple[Components, np.ndarray]:
        """The belief, with rows of series at other times where X asks for such, and its rows (n, K) of the entries."""
        check_is_fitted(self, "posterior_")
        found = placed(self, X)
        return found.belief, found.rows(packed_rows(found.coords, *self._row_knowledge()))

    def _row_knowledge(self) -> tuple[Any, str, np.ndarray | None]:
        """What tells which rows are known."""
        return self.posterior_, self.unknown, described_rows(self)

    def has_uncertainty(self) -> bool:
        """Whether the method gave a posterior, not a point estimate.

        Examples
        --------
        >>> from tensorcep import CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
        >>> model.has_uncertainty(), model.set_params(method="wopt").fit(tensor).has_uncertainty()
        (True, False)
        """
        return self._fitted_belief().uncertain

    def _check_has_uncertainty(self, what: str) -> None:
        if not self.has_uncertainty():
            fail_value(
                f"{what} needs a posterior, but method {self.method_!r} gives a point estimate without uncertainty; "
                "fit with another method, for instance method='cep'."
            )

    def predict_latent(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and variance of the latent value (the CP sum, plus a lower limit) of each entry.

        The variance is that of the product of the factors under the posterior; it holds no observation noise. A point
        estimate has variance 0.

        Parameters
        ----------
        X : array-like of shape (n, K), SparseTensor, or DataFrame of labels

        Returns
        -------
        mean, variance : ndarray of shape (n,)

        Examples
        --------
        >>> from tensorcep import CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
        >>> mean, variance = model.predict_latent(tensor)
        >>> bool((variance < model.predict(tensor, return_std=True)[1] ** 2).all())
        True
        """
        belief, rows = self._at(X)
        with threads_of(self.n_jobs) as executor:
            mean, variance = latent(belief, rows, executor)
        return mean + self._origin, variance

    def _observed(self, X: Any, **extent: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of a new observation of each entry."""
        (belief, rows), extents = self._at(X), self._extent_of(X, extent)
        with threads_of(self.n_jobs) as executor:
            return observed_moments(self._likelihood_of_new(), belief, rows, executor, extents)

    def _predicted(self, X: Any, return_std: bool, **extent: Any) -> Any:
        if return_std:
            self._check_has_uncertainty("return_std=True")
        mean, variance = self._observed(X, **extent)
        warn_of_infinite(mean)
        return (mean, np.sqrt(variance)) if return_std else mean

    def _latent_interval(self, X: Any, coverage: float) -> np.ndarray:
        """Central posterior interval of the latent value of each entry, (n, 2)."""
        self._check_has_uncertainty("predict_interval")
        belief, rows = self._at(X)
        tail = 0.5 * (1.0 - check_fraction("coverage", coverage))
        with threads_of(self.n_jobs) as executor:
            return latent_quantiles(belief, rows, (tail, 1.0 - tail), executor)

    def _observation_interval(self, X: Any, coverage: float, **extent: Any) -> np.ndarray:
        """Central interval of a new observation of each entry, (n, 2)."""
        self._check_has_uncertainty("predict_interval")
        (belief, rows), extents = self._at(X), self._extent_of(X, extent)
        tail, likelihood = 0.5 * (1.0 - check_fraction("coverage", coverage)), self._likelihood_of_new()
        with threads_of(self.n_jobs) as executor:
            return observed_quantiles(likelihood, belief, rows, (tail, 1.0 - tail), executor, extents)

    def _coded(self, y: Any) -> Any:
        """Observations as the likelihoods know them."""
        return y

    def log_score(self, X: Any, y: Any = None, *, modes: Any = None, value: Any = UNSAID, **extent: Any) -> np.ndarray:
        """Log predictive density or mass of the observations y, (n,); of counts exposure= or n_trials= as in `fit`.

        A SparseTensor brings its values, and `modes` and `value` name columns of a table, as in `fit`.

        Examples
        --------
        >>> from tensorcep import CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
        >>> model.log_score(tensor, tensor.values).shape
        (120,)
        """
        self._fitted_belief()
        extents, X = self._extent_of(X, extent, needed=True), self._without_extent(X, extent)
        X, y = split_observed(names_of(self.labels_), X, y, modes, value)
        likelihood, (belief, rows) = self._likelihood_of_new(), self._at(X)
        values = likelihood.check_y(check_values(self._coded(y), len(rows), name="y"))
        with threads_of(self.n_jobs) as executor:
            density = observed_logpdf(likelihood, belief, rows, values, executor, extents)
        return np.asarray(density + likelihood.log_slopes(values))

    def _row_draws(
        self, n_samples: int | None, X: Any, rng: np.random.Generator, alone: bool = False
    ) -> tuple[np.ndarray, EntryTheta, np.ndarray, np.ndarray]:
        """Draws of all rows (the model's, then unknown ones), the parameter, X's latent values; and its packed rows.

        Latent values alone, without the noise of an observation, have a spread that this noise would hold.
        """
        check_is_fitted(self, "posterior_")
        found = placed(self, X, joint=True)
        belief, rows = found.belief, found.rows(packed_rows(found.coords, *self._row_knowledge()))
        n_known, n_later = sum(self.shape_), belief.mean.shape[1] - sum(self.shape_) - len(self.shape_)
        distinct, origin = distinct_unknown_rows(rows, found.coords, self.shape_, n_later)
        values, theta, which = draw_apart(belief, self._likelihood(), origin, n_samples, rng, n_known=n_known + n_later)
        f = latent_of_points(values, distinct)
        if belief.deviations is not None:
            pairs = pairs_at(belief, rows)
            new = rows[:, belief.deviations.modes[0]] >= n_known  # of such rows every one is another
            own = np.where(new, pairs[0] + distinct[:, belief.deviations.modes[0]], pairs[0])
            f = f + drawn(belief.deviations, which, own, pairs[1], rng)
        if alone and belief.doubt is not None:
            f = f + np.sqrt(belief.doubt[which])[:, None] * rng.standard_normal(f.shape)
        return values, theta, f, rows

    def _observations(
        self, f: np.ndarray, rows: np.ndarray, theta: EntryTheta, rng: np.random.Generator, extent: Any = None
    ) -> np.ndarray:
        """A new observation for each latent value f (S, n) at packed rows (n, K), with extents (n,) if it has some."""
        likelihood, parameter = with_parameter(self._likelihood_of_new(), theta.predictive())
        f, each = with_own_factors((f, np.broadcast_to(parameter.of(rows), f.shape)), likelihood, theta, rows, rng)
        f, _, each = extended(likelihood, (f, f, each), extent)
        return np.stack([likelihood.sample(rng, *pair) for pair in zip(f, each, strict=True)])

    def sample_posterior(self, n_samples: int = 1, X: Any = None, random_state: Any = None) -> Any:
        """Draw from the posterior of the factors; of a sampler's fit, draws of its chains.

        Draws of factors are aligned where they come from chains or from several fits (to the best of them); the scale
        of a component is then shared evenly by its modes.

        Parameters
        ----------
        n_samples : int
        X : entries as in `predict`, optional
        random_state : int, RandomState, Generator or None

        Returns
        -------
        list of ndarray (n_samples, n_k, R), or ndarray (n_samples, n)
            The factors of every mode, or, with X, the latent values of its entries.

        Examples
        --------
        >>> from tensorcep import CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
        >>> model.sample_posterior(5, tensor, random_state=0).shape
        (5, 120)
        """
        self._check_has_uncertainty("sample_posterior")
        rng, n = check_random_state(random_state), check_int("n_samples", n_samples)
        if X is not None:
            return self._row_draws(n, X, rng, alone=True)[2] + self._origin
        draws, *_ = draw(self._fitted_belief(), self._likelihood(), n, rng)
        draws = self._aligned_draws(draws[:, : sum(self.shape_)])
        return [draws[:, a:b] for a, b in itertools.pairwise(offsets(self.shape_))]

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = None, **extent: Any) -> np.ndarray:
        """Draw new observations of the entries X, (n_samples, n); of counts exposure= or n_trials= as in `fit`.

        Examples
        --------
        >>> from tensorcep import CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
        >>> model.sample_y(tensor, n_samples=5, random_state=0).shape
        (5, 120)
        """
        extents = self._extent_of(X, extent)
        self._check_has_uncertainty("sample_y")
        rng = check_random_state(random_state)
        _, theta, f, rows = self._row_draws(check_int("n_samples", n_samples), X, rng)
        return self._observations(f, rows, theta, rng, extents)

    def to_arviz(
        self, X: Any = None, y: Any = None, n_samples: int = 1000, random_state: Any = None, **extent: Any
    ) -> Any:
        """Draws of the posterior in the container of ArviZ (`pip install 'tensorcep[arviz]'`).

        The group "posterior" holds factor_0, factor_1, ... with one row per index (or label) of the mode, aligned as in
        `sample_posterior`, and the noise precision or dispersion where there is one. With X there is
        "posterior_predictive", and with its values "observed_data".

        Parameters
        ----------
        X : entries as in `predict`, optional
        y : array-like of shape (n,), optional
            Observed values of the entries X; a SparseTensor brings its own.
        n_samples : int, default=1000
            Draws from the posterior of a method that does not sample; they are independent, and the attribute
            "approximate" of the groups is 1. A sampler's fit gives its chains, all draws of them.
        random_state : int, RandomState, Generator or None
        **extent
            Of counts exposure= or n_trials=, as in `fit`.

        Returns
        -------
        arviz.InferenceData (ArviZ 0.x) or xarray.DataTree (ArviZ 1.x)

        Raises
        ------
        ImportError
            If ArviZ is not installed.
        ValueError
            If the method gives a point estimate, or y comes without X.

        Examples
        --------
        >>> from tensorcep import CPRegressor, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
        >>> sorted(model.to_arviz(tensor, n_samples=20, random_state=0).groups())  # doctest: +SKIP
        """
        self._check_has_uncertainty("to_arviz")
        if X is None and y is not None:
            fail_value("y must be None without X, the entries whose values it holds.")
        n = None if self._fitted_belief().n_chains else check_int("n_samples", n_samples)
        extents = None if X is None else self._extent_of(X, extent)
        return export_draws(self, X, y, n, check_random_state(random_state), extents)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one .npz file, atomically; `tensorcep.load` reads it back.

        The parameters `callbacks`, `prior`, `init` (when it is an array) and a `random_state` that is not an integer
        are not part of the file: they have done their work.

        Examples
        --------
        >>> import tempfile
        >>> from tensorcep import CPRegressor, load, simulate_cp
        >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
        >>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/model.npz")
        ...     again = load(f"{folder}/model.npz")
        ...
        >>> bool((again.predict(tensor) == model.predict(tensor)).all())
        True
        """
        check_is_fitted(self, "posterior_")
        write_model(path, self)
