"""Principal component analysis and factor analysis with priors, missing cells, and binary or count data."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorcep.core.checks import check_choice, check_range, fail_value
from tensorcep.factor_models.base import BasePCA
from tensorcep.factor_models.fit import AUGMENTATIONS, BIASES, LIKELIHOODS, Link
from tensorcep.factor_models.read import Matrix

_SHARED = """n_components : int, optional
        Number of components K; by default 10, or the smaller side of the matrix.
    method : {"vb-factorized", "vb", "gibbs"}, default="vb-factorized"
        Fully factorised variational inference, the same with a joint Gaussian per row and per column, or sampling.
    ard : bool, default=True
        Learn a precision for every component, so that those not needed vanish.
    bias : {"column", "row", "both", "none"}, default="column"
        Offsets in the latent value.
    absent : {"missing", "zero"}, default="missing"
        What cells that a sparse matrix does not store are. Zeros are stored: the matrix becomes a dense one.
    init : {"svd", "random"}, default="svd"
        Start at a truncated singular value decomposition, or at random.
    max_iter : int, default=500
    tol : float, default=1e-4
        Stop when the latent means change by less than this fraction of their size.
    method_options : dict, optional
        Settings that only this method has, by name.
    n_jobs : int, optional
        Threads for lists of cells; the result does not depend on it. Dense matrices use BLAS on one thread.
    random_state : int, RandomState, Generator or None
    verbose : int, default=0

    Attributes
    ----------
    components_ : ndarray (K, n_features)
        Posterior means of the loadings, in the order of their variance.
    scores_ : ndarray (n_samples, K)
        Posterior means of the training rows' scores.
    explained_variance_ : ndarray (K,)
        Expected variance of the latent values that a component explains, summed over features.
    relevance_ : ndarray (K,)
        Prior variance of a component's loadings, 1 / E[alpha_k].
    mean_ : ndarray (n_features,)
        Column biases, 0 where there are none.
    noise_variance_ : float, ndarray or None
    dispersion_ : ndarray or None
    lower_bound_ : float
        Of the log evidence; nan for samplers.
    n_iter_, converged_ : int, bool
    trace_ : dict of ndarray
"""


class BayesianPCA(BasePCA):
    """Principal component analysis of real, binary or count matrices with missing cells.

    Real data have one noise variance; binary cells are Bernoulli(logistic(f)), counts negative binomial with
    probability logistic(f) and dispersion r (or Poisson with rate log(1 + e^f), only under Boehning's bound), where
    f_ij = u_i . v_j + bias_j. Memory: some ten arrays of the size of a dense matrix, or of the list of observed cells.

    Parameters
    ----------
    likelihood : {"gaussian", "bernoulli", "negbinomial", "poisson"}, default="gaussian"
    augmentation : {"direct", "noise", "boehning"}, default="direct"
        For data that are not Gaussian: Polya-Gamma variables on f, or on f plus a Gaussian noise in every cell; or
        Boehning's bound, for comparison.
    dispersion : {"column", "row", "all"} or float, default="column"
        What has a dispersion r of its own, or its value where it is known.
    {shared}
    """

    def __init__(
        self,
        n_components: int | None = None,
        likelihood: str = "gaussian",
        method: str = "vb-factorized",
        augmentation: str = "direct",
        ard: bool = True,
        *,
        bias: str = "column",
        dispersion: str | float = "column",
        absent: str = "missing",
        init: str = "svd",
        max_iter: int = 500,
        tol: float = 1e-4,
        method_options: dict[str, Any] | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.n_components = n_components
        self.likelihood = likelihood
        self.method = method
        self.augmentation = augmentation
        self.ard = ard
        self.bias = bias
        self.dispersion = dispersion
        self.absent = absent
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.method_options = method_options
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _likelihood(self) -> str:
        return check_choice("likelihood", self.likelihood, LIKELIHOODS)

    def _link(self, matrix: Matrix) -> Link:
        likelihood = self._likelihood()
        augmentation = check_choice("augmentation", self.augmentation, AUGMENTATIONS)
        bias = check_choice("bias", self.bias, BIASES)
        if likelihood == "gaussian":
            return Link(matrix, 0, 1, likelihood, bias=bias)
        if (likelihood, augmentation) == ("negbinomial", "boehning") or (
            likelihood == "poisson" and augmentation != "boehning"
        ):
            fail_value(
                f"likelihood {likelihood!r} does not go with augmentation {augmentation!r}; Boehning's bound is for "
                "'bernoulli' and 'poisson', the Polya-Gamma ones for 'bernoulli' and 'negbinomial'."
            )
        groups, known = "all", None
        if likelihood == "negbinomial":
            groups, known = self._dispersion()
        return Link(matrix, 0, 1, likelihood, augmentation, bias, groups, known)

    def _dispersion(self) -> tuple[str, np.ndarray | None]:
        if isinstance(self.dispersion, str):
            return check_choice("dispersion", self.dispersion, ("all", "row", "column")), None
        return "all", np.array([check_range("dispersion", self.dispersion, 0.0, include_low=False)])


class BayesianFactorAnalysis(BasePCA):
    """Factor analysis: Gaussian data with missing cells and a noise variance for every feature.

    Parameters
    ----------
    {shared}
    """

    _noise_groups = "column"

    def __init__(
        self,
        n_components: int | None = None,
        method: str = "vb-factorized",
        ard: bool = True,
        *,
        bias: str = "column",
        absent: str = "missing",
        init: str = "svd",
        max_iter: int = 500,
        tol: float = 1e-4,
        method_options: dict[str, Any] | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.n_components = n_components
        self.method = method
        self.ard = ard
        self.bias = bias
        self.absent = absent
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.method_options = method_options
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose


for _class in (BayesianPCA, BayesianFactorAnalysis):
    _class.__doc__ = (_class.__doc__ or "").replace("{shared}", _SHARED.strip())
