"""What the CP estimators share: their parameters, and fitting in three steps, plan, run, assign."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from tensorcep.core.belief import GammaNoise
from tensorcep.core.loop import run
from tensorcep.core.settings import Settings
from tensorcep.cp.estimators.defaults import Chosen
from tensorcep.cp.estimators.entries import training_entries
from tensorcep.cp.estimators.fitted import fitted_attributes, warn_of_no_convergence
from tensorcep.cp.estimators.old_params import refuse_old_names
from tensorcep.cp.estimators.plan import plan_fit
from tensorcep.cp.estimators.streaming import StreamingCP
from tensorcep.cp.settings.names import SETTINGS
from tensorcep.cp.settings.passing import CEP
from tensorcep.cp.starts import run_from_starts
from tensorcep.likelihoods.record import Likelihood
from tensorcep.priors.fixed import Prior


@dataclass(eq=False, repr=False)
class BaseCP(StreamingCP):
    """Common part of the CP estimators. Entries are samples: X holds integer coordinates (N, K), y their values.

    The fields are the parameters, of which the constructor is made; scikit-learn reads them from its signature.
    """

    rank: int | str = "auto"
    _: KW_ONLY
    method: str | Settings = "auto"
    prior: Prior | str = "auto"
    prior_scale: float | str = "auto"
    prior_mean: float | str = "uniform"
    interactions: str | dict[str, int] = "auto"
    max_iter: int | str = "auto"
    tol: float = 3e-3
    init: Any = "random"
    shape: tuple[int, ...] | None = None
    unknown: str = "prior"
    forget: float = 0.0
    revisit: int = 0
    n_jobs: int | None = None
    random_state: Any = None
    verbose: int = 0
    callbacks: Any = None

    def __new__(cls, *args: Any, **params: Any) -> Any:
        refuse_old_names(cls.__name__, params, params.get("method", "auto"))
        return super().__new__(cls)

    def set_params(self, **params: Any) -> Any:
        """Set parameters, ``method__damping`` and its like in the settings of the method too; returns self.

        Raises
        ------
        TypeError
            If the method is a name, so that there are no settings to set.
        ValueError
            If there is no such parameter, or a setting has a value that is not allowed.
        """
        method = params.get("method", self.method)
        refuse_old_names(type(self).__name__, params, method)
        inner = [name for name in params if name.startswith("method__")]
        if inner and not isinstance(method, Settings):
            setting = inner[0].removeprefix("method__")
            engine = SETTINGS.get(method, CEP).__name__ if isinstance(method, str) else CEP.__name__
            raise TypeError(
                f"{inner[0]} needs a method with settings, such as method={engine}({setting}=...); "
                f"got method={method!r}."
            )
        return super().set_params(**params)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False  # rows of X are coordinates of entries, not feature vectors
        tags.non_deterministic = self.random_state is None
        return tags

    def _decide_likelihood(
        self, y: np.ndarray, chosen: Chosen, coords: np.ndarray
    ) -> tuple[Likelihood, dict[str, Any]]:
        """The likelihood of a fit to y at coords (n, K), and the fitted attributes that say what was decided."""
        return self._asked_likelihood(), {}

    def _checked_targets(self, y: np.ndarray, likelihood: Likelihood) -> np.ndarray:
        """Values as the likelihood has them."""
        return likelihood.check_y(y)

    def _noise_prior(self, y: np.ndarray) -> GammaNoise | None:
        return None

    def _intercept(self, y: np.ndarray, likelihood: Likelihood) -> float:
        """Latent value that every entry would have if they did not differ, where main effects need one to start at."""
        return 0.0

    def _latent_guess(self, y: np.ndarray, likelihood: Likelihood) -> np.ndarray:
        """What the latent values that belong to y may be, (n,), from which scales are taken."""
        return y

    def _auto_scale(self, y: np.ndarray, order: int, rank: int) -> float:
        """Prior standard deviation of a factor element when prior_scale="auto"."""
        return 1.0

    def fit(self, X: Any, y: Any = None) -> Any:
        """Fit the factors to observed entries.

        A fit that is refused, interrupted or ended by an exception leaves the model as it was.

        Parameters
        ----------
        X : array-like of shape (N, K) of integers, or SparseTensor
            Coordinates of the entries, counted from 0. A SparseTensor brings its values, shape and labels.
        y : array-like of shape (N,)
            Values of the entries; left out with a SparseTensor.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            On input or parameters that are not allowed, before any work.
        FloatingPointError
            If the result is not finite.
        """
        plan = plan_fit(self, training_entries(X, y, self.shape), X)
        work = plan.work
        result = run(work.method, work.problem, work.settings, **work.how) if work.is_one_run else run_from_starts(work)
        self._assign(fitted_attributes(plan, result))
        warn_of_no_convergence(work, result)
        return self
