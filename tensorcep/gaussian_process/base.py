"""What the classifier and the regressor of counts share: parameters, fits, latent values, files."""

from __future__ import annotations

import copy
import os
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import CompoundKernel
from sklearn.utils.validation import check_is_fitted, validate_data

from tensorcep.core import checks
from tensorcep.core.checks import check_int, check_random_state, check_range, fail_value, warn_user
from tensorcep.core.executor import one_blas_thread
from tensorcep.core.reporting import arviz_container
from tensorcep.core.settings import TakesMethod
from tensorcep.entries.tables import as_numbers, as_targets
from tensorcep.gaussian_process.engine import Observations, Stop, proposal_of
from tensorcep.gaussian_process.evidence import ExactEvidence, KernelSearch, TrainingPoints, at_bounds, check_kernel
from tensorcep.gaussian_process.inducing import InducingEvidence, Sparse, inducing_points
from tensorcep.gaussian_process.latent import Machine, check_exact_size, fit_exact, fit_sparse, write_machines
from tensorcep.gaussian_process.settings import ENGINES, EP, QP, GPSettings, settings_of

# What validation says of the features.
OF_FEATURES = ("n_features_in_", "feature_names_in_")
# What a fit leaves beside attributes whose names end in an underscore.
PRIVATE = ("_machines", "_X_fit", "_y_fit")
# Points whose sites are refined at a time, with inducing points.
BATCH = 4096
LARGEST_JOINT = 5000
# Of a kernel's parameter: squares and products of its exponential are still numbers.
LARGEST_LOG = 150.0


SHARED = """optimizer : {"l-bfgs"}, callable or None, default="l-bfgs"
        How the evidence is maximised: a callable as scikit-learn takes it, or not at all.
    n_restarts_optimizer : int, default=0
        Further starts, drawn from the bounds of the kernel's parameters.
    n_inducing : int, optional
        Inducing points (centres of k-means) that stand for all points: O(n n_inducing^2) instead of O(n^3) a sweep.
    power : float in (0, 1], default=1.0
        Of power EP, with n_inducing: 1 is FITC, towards 0 it is the variational VFE.
    max_iter : int, default=200
        Largest number of sweeps of a fit at one kernel.
    tol : float, default=1e-6
        Stop when no site would move a latent value by more than this many posterior standard deviations.
    random_state : int, RandomState, Generator or None, default=None
        For restarts and inducing points.
"""


@dataclass(eq=False, repr=False)
class BaseGaussianProcess(TakesMethod, BaseEstimator):  # type: ignore[misc]
    """A Gaussian process prior of a latent function, seen through a likelihood."""

    engines = ENGINES

    kernel: Any = None
    _: KW_ONLY
    method: str | GPSettings = "ep"
    optimizer: Any = "l-bfgs"
    n_restarts_optimizer: int = 0
    n_inducing: int | None = None
    power: float = 1.0
    max_iter: int = 200
    tol: float = 1e-6
    random_state: Any = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = False
        return tags

    def _read(self, X: Any, y: Any) -> tuple[Any, np.ndarray, dict[str, Any]]:
        """Checked points, and what validation says of the features."""
        stand_in = copy.copy(self)
        X, y = as_numbers(checks.check_unmasked(X, "X")), as_targets(y)
        X, y = validate_data(stand_in, X, y, dtype=np.float64, order="C")  # as files hold them
        return X, y, {name: value for name, value in vars(stand_in).items() if name in OF_FEATURES}

    def _checked(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "_machines")
        X = as_numbers(checks.check_unmasked(X, "X"))
        return np.asarray(validate_data(self, X, dtype=np.float64, order="C", reset=False))

    def _check_parameters(self, n: int | None = None) -> tuple[GPSettings, Stop, np.random.Generator]:
        """All parameters but the kernel, checked before any work; beside the number of points, if that is known."""
        settings = settings_of(self.method)
        if not callable(self.optimizer) and self.optimizer is not None:
            checks.check_choice("optimizer", self.optimizer, ("l-bfgs",))
        if check_int("n_restarts_optimizer", self.n_restarts_optimizer, 0) and self.optimizer is None:
            fail_value("n_restarts_optimizer has a meaning only with an optimizer; got optimizer=None.")
        check_range("power", self.power, 0.0, 1.0, include_low=False)
        if self.n_inducing is None:
            if self.power != 1.0:
                fail_value(f"power has a meaning only with n_inducing; got power={self.power!r} without it.")
            check_exact_size(n or 0)
        else:
            check_int("n_inducing", self.n_inducing, 1, n)
            if not isinstance(settings, EP) or isinstance(settings, QP):
                fail_value(f"method must be 'ep' with n_inducing; got {settings.name!r}.")
        stop = Stop(check_int("max_iter", self.max_iter), check_range("tol", self.tol, 0.0, include_low=False))
        return settings, stop, check_random_state(self.random_state)

    def _fit_machines(self, X: np.ndarray, targets: list[Observations], mean: float) -> tuple[Machine, ...]:
        """A latent function for each target."""
        settings, stop, rng = self._check_parameters(len(X))
        kernel = check_kernel(self.kernel, X)
        for target in targets if self.n_inducing is None else ():
            proposal_of(target, settings)  # refuses a method that the likelihood is not for
        search = KernelSearch(self.optimizer, int(self.n_restarts_optimizer), rng)
        with one_blas_thread():
            each = [TrainingPoints(X, data, mean) for data in targets]
            if self.n_inducing is None:
                return tuple(fit_exact(kernel, points, settings, stop, search) for points in each)
            sparse = Sparse(inducing_points(X, int(self.n_inducing), rng), float(self.power), BATCH)
            return tuple(fit_sparse(kernel, points, sparse, stop, search) for points in each)

    def _take(self, machines: tuple[Machine, ...], fitted: dict[str, Any]) -> None:
        """Have these fitted attributes, all at once, and none of an earlier fit."""
        kernels = [machine.kernel for machine in machines]
        kept = {name: value for name, value in vars(self).items() if not name.endswith("_") and name not in PRIVATE}
        found: dict[str, Any] = {"_machines": machines}
        found["kernel_"] = kernels[0] if len(kernels) == 1 else CompoundKernel(kernels)
        found["log_marginal_likelihood_value_"] = float(np.mean([machine.log_evidence for machine in machines]))
        found["n_iter_"] = max(machine.n_iter for machine in machines)
        self.__dict__ = kept | fitted | found | {"converged_": all(machine.converged for machine in machines)}

    def _restore(self) -> None:
        """Set what follows from the attributes in a file, and try them out."""
        names = (*PRIVATE, "classes_", "prior_mean_", *OF_FEATURES)
        self._take(self._machines, {name: value for name, value in vars(self).items() if name in names})
        # predict at one point: what a file holds may have the right names and make no sense
        mean, variance = self._latent(np.ones((1, self.n_features_in_)))
        n = len(vars(self).get("classes_", ()))
        shape = () if n in (0, 2) else (n,)  # two classes have one latent function, as counts have
        if not (np.isfinite(mean).all() and np.isfinite(variance).all()) or mean.shape[1:] != shape:
            fail_value("its arrays do not fit each other")

    def _finish(self, machines: tuple[Machine, ...], fitted: dict[str, Any], without: str = "") -> Any:
        """End a fit, with warnings of sweeps that ran out, and of parameters at a bound, but those like `without`."""
        self._take(machines, fitted)
        if not self.converged_:
            settings = settings_of(self.method)
            ep = isinstance(settings, EP)
            more = ", raise tol, or set damping in the method's settings" if ep else " or raise tol"
            stopped = f"{settings.name} stopped after max_iter={self.max_iter} sweeps before every change was below"
            warn_user(f"{stopped} tol={self.tol:g}; increase max_iter{more}.", ConvergenceWarning)
        found = dict.fromkeys(text for machine in machines for text in at_bounds(machine.kernel, without))
        if found and self.optimizer is not None:
            but = "(an upper bound of a length scale may also say that the feature has no effect)"
            what = f"the kernel was learned with {', '.join(found)}; wider bounds may find a better value {but}."
            warn_user(what, ConvergenceWarning)
        return self

    def _targets(self, y: np.ndarray) -> list[Observations]:
        """The observations of every latent function, of targets as `_y_fit` has them."""
        raise NotImplementedError

    def log_marginal_likelihood(self, theta: Any = None, eval_gradient: bool = False) -> Any:
        """The evidence of the training data at kernel parameters, and its gradient.

        Of quantile propagation it is EP's evidence, by which its kernel is learned; of variational Bayes a lower bound.
        Of several classes it is the mean of those of one class against the rest.

        Parameters
        ----------
        theta : array-like (n_kernel_params,) or (n_classes * n_kernel_params,), optional
            Logarithms of the kernel's parameters; those of the fit if left out.
        eval_gradient : bool, default=False

        Returns
        -------
        log_likelihood : float
        gradient : ndarray, if eval_gradient

        Examples
        --------
        >>> from tensorcep import GaussianProcessClassifier
        >>> model = GaussianProcessClassifier(optimizer=None).fit([[-2.0], [-1.0], [1.0], [2.0]], [0, 0, 1, 1])
        >>> round(model.log_marginal_likelihood(model.kernel_.theta), 1)
        -2.5
        """
        check_is_fitted(self, "_machines")
        if theta is None and not eval_gradient:
            return self.log_marginal_likelihood_value_
        p, n = self._machines[0].kernel.n_dims, len(self._machines)
        given = np.concatenate([m.kernel.theta for m in self._machines]) if theta is None else np.asarray(theta, float)
        if given.shape not in ((p,), (n * p,)):
            fail_value(f"theta must hold {p} numbers, or {n * p}; got shape {given.shape}.")
        if (np.abs(given) > LARGEST_LOG).any() or np.isnan(given).any():
            fail_value(f"theta must hold logarithms within {LARGEST_LOG:g} of 0; got {given.tolist()}.")
        each = np.tile(given, n).reshape(n, p) if given.shape == (p,) else given.reshape(n, p)
        settings, stop, _ = self._check_parameters(len(self._X_fit))
        evidence: Any
        found = []
        with one_blas_thread():
            for m, data, row in zip(self._machines, self._targets(self._y_fit), each, strict=True):
                points, sparse = TrainingPoints(self._X_fit, data, m.mean), Sparse(m.points, float(self.power), BATCH)
                is_exact = m.tau.size > 0
                evidence = ExactEvidence(points, settings, stop) if is_exact else InducingEvidence(points, sparse, stop)
                found.append(evidence(m.kernel.clone_with_theta(row), eval_gradient))
        value = float(np.mean([one for one, _ in found]))
        if not eval_gradient:
            return value
        gradients = np.stack([gradient for _, gradient in found]) / n
        return value, gradients.sum(axis=0) if given.shape == (p,) else gradients.ravel()

    def latent_mean_and_variance(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and variance of the latent function at each row of X, (n,), or (n, n_classes) for several.

        Examples
        --------
        >>> from tensorcep import GaussianProcessClassifier
        >>> X, y = [[-2.0], [-1.0], [0.5], [1.0], [2.0]], [0, 0, 1, 0, 1]
        >>> model = GaussianProcessClassifier(optimizer=None).fit(X, y)
        >>> mean, variance = model.latent_mean_and_variance(X)
        >>> bool(((0 < variance) & (variance < 1)).all())
        True
        """
        return self._latent(self._checked(X))

    def _latent(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with one_blas_thread():
            mean, variance = zip(*(machine.latent(X) for machine in self._machines), strict=True)
        if len(mean) == 1:
            return mean[0], variance[0]
        return np.stack(mean, axis=1), np.stack(variance, axis=1)

    def _latent_draws(self, X: np.ndarray, n_samples: int, rng: np.random.Generator) -> np.ndarray:
        """Joint draws of the latent functions, (machines, n, n_samples)."""
        check_int("n_samples", n_samples)
        if len(X) > LARGEST_JOINT:
            fail_value(f"X must have at most {LARGEST_JOINT} rows for joint draws; got {len(X)}; draw them in parts.")
        with one_blas_thread():
            return np.stack([machine.draws(X, n_samples, rng) for machine in self._machines])

    def _observed(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draws of observations from those of latent functions, (n, n_samples)."""
        raise NotImplementedError

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draw observations at the rows of X, (n, n_samples), whose latent values are drawn jointly.

        Examples
        --------
        >>> from tensorcep import GaussianProcessClassifier
        >>> X, y = [[-2.0], [-1.0], [0.5], [1.0], [2.0]], [0, 0, 1, 0, 1]
        >>> model = GaussianProcessClassifier(optimizer=None).fit(X, y)
        >>> model.sample_y(X, n_samples=3).shape
        (5, 3)
        """
        rng = check_random_state(random_state)
        return self._observed(self._latent_draws(self._checked(X), n_samples, rng), rng)

    def to_arviz(self, X: Any, y: Any = None, *, n_samples: int = 1000, random_state: Any = 0) -> Any:
        """Draws of the latent function and of observations at the rows of X, in the container of ArviZ.

        Parameters
        ----------
        X : array-like (n_samples, n_features)
        y : array-like (n_samples,), optional
            What was observed there.
        n_samples : int, default=1000
        random_state : int, RandomState, Generator or None, default=0

        Returns
        -------
        InferenceData, or DataTree from ArviZ 1 on
            With the groups "posterior" and "posterior_predictive", and "observed_data".

        Raises
        ------
        ImportError
            If ArviZ is not installed.

        Examples
        --------
        >>> from tensorcep import GaussianProcessClassifier
        >>> X, y = [[-2.0], [-1.0], [0.5], [1.0], [2.0]], [0, 0, 1, 0, 1]
        >>> model = GaussianProcessClassifier(optimizer=None).fit(X, y)
        >>> sorted(model.to_arviz(X, n_samples=20).groups())  # doctest: +SKIP
        """
        rng, X = check_random_state(random_state), self._checked(X)
        f = self._latent_draws(X, n_samples, rng)
        new = self._observed(f, rng)
        several = len(f) > 1
        dims = ("chain", "draw", "point", *(("class",) if several else ()))
        latent = f.transpose(2, 1, 0)[None] if several else f[0].T[None]
        groups: dict[str, Any] = {"posterior": {"f": (dims, latent)}}
        groups["posterior_predictive"] = {"y": (("chain", "draw", "point"), new.T[None])}
        if y is not None:
            given = np.asarray(checks.check_unmasked(y, "y"))
            if given.shape != (len(X),):
                fail_value(f"y must hold one value for each of the {len(X)} rows of X; got shape {given.shape}.")
            groups["observed_data"] = {"y": (("point",), given)}
        coords = {"class": self.classes_} if several else {}
        return arviz_container(groups, coords, settings_of(self.method).name, approximate=True)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file that `tensorcep.load` reads; kernels are written by name and parameters.

        The file holds the training points (or the inducing ones, and the training points too), whose covariances
        predictions are made of. Nothing in it is pickled, and nothing is fitted again.

        Raises
        ------
        ValueError, FileNotFoundError, IsADirectoryError
            If the folder does not exist, the path is a folder, or a kernel is none of scikit-learn's own.

        Examples
        --------
        >>> import tempfile
        >>> from tensorcep import GaussianProcessClassifier, load
        >>> X, y = [[-2.0], [-1.0], [0.5], [1.0], [2.0]], [0, 0, 1, 0, 1]
        >>> model = GaussianProcessClassifier(optimizer=None).fit(X, y)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/model.npz")
        ...     again = load(f"{folder}/model.npz")
        ...
        >>> bool((again.predict_proba(X) == model.predict_proba(X)).all())
        True
        """
        check_is_fitted(self, "_machines")
        write_machines(path, self)
