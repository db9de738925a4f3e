"""Principal component analysis and factor analysis with priors, missing cells, and binary or count data."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np

from tensorcep.core.checks import check_choice, check_range
from tensorcep.core.docs import fill_docstring
from tensorcep.core.settings import Settings
from tensorcep.factor_models.base_one import BasePCA
from tensorcep.factor_models.kinds import AUGMENTATIONS, augmentation_of
from tensorcep.factor_models.layout import Link, no_data

NOTHING = no_data((1, 1))  # in place of the matrix while a fit is planned

_SHARED = """n_components : int or "auto", default="auto"
        Number of components K. By "auto" the fit starts from many, as the shape allows, at most 40 (fewer above a
        million cells), and keeps those that say something.
    method : {"vb", "vb-factorized", "gibbs"} or a record of settings, default="vb"
        Variational inference with a joint Gaussian per row and per column, the same fully factorised, or sampling. A
        record of `tensorcep.factor_models.settings` says how: ``FactorisedVB(step=0.3)``, ``VB()``,
        ``Gibbs(burn_in=100, thin=2)``.
    ard : bool, default=True
        Learn a precision for every component, so that those not needed vanish.
    bias : {"column", "row", "both", "none"}, default="column"
        Offsets in the latent value.
    standardize : bool, default=True
        Fit real columns less their means (where columns have offsets) and divided by their standard deviations, so
        that units do not matter; results are in the units of the data.
    absent : {"missing", "zero"}, default="missing"
        What cells that a sparse matrix does not store are. Zeros are stored: the matrix becomes a dense one.
    init : {"svd", "random"}, default="svd"
        Start at a truncated singular value decomposition, or at random.
    max_iter : int, default=500
    tol : float, default=1e-3
        Stop when the latent means change by less than this fraction of their size.
    n_jobs : int, optional
        Threads for lists of cells; the result does not depend on it. Dense matrices use BLAS on one thread.
    random_state : int, RandomState, Generator or None
    verbose : int, default=0
    row_prior : Features or Series, optional
        What is known of the rows beside their cells, for method="vb" in `fit`. `Features`: scores are a linear map of
        the features and noise, and both are learned. `Series`: every score follows an Ornstein-Uhlenbeck
        process along the labels of the rows (a dynamic factor model), whose length is learned. Rows without cells are
        predicted from it: append rows of missing cells to X for forecasts, or for rows of which features alone are
        known. Rows that were not in the X of `fit` are refused.

    Attributes
    ----------
    n_components_ : int
    components_ : ndarray (K, n_features)
        Posterior means of the loadings, in the order of their variance with columns on their own scales.
    scores_ : ndarray (n_samples, K)
        Posterior means of the training rows' scores.
    weights_ : ndarray (K,)
        Sizes of the components whose scores and loadings have norm 1.
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
    feature_effects_ : DataFrame or None
        How scores depend on features of rows: columns feature, component, mean and sd, the surest first.
    lengths_ : ndarray (K,) or None
        Lengths of the processes of a series, in steps, the least distance of two rows; 0 where rows do not depend on
        each other.
"""


@dataclass(eq=False, repr=False)
class BayesianPCA(BasePCA):
    """Principal component analysis of real, binary or count matrices with missing cells.

    Real data have a noise variance for every column, or one for all; binary cells are Bernoulli(logistic(f)), or
    Bernoulli(Phi(f)) by "probit", counts
    negative binomial with probability logistic(f) and dispersion r (or Poisson with rate log(1 + e^f), under
    Boehning's bound), where f_ij = u_i . v_j + bias_j. Memory: some ten arrays of the size of a dense matrix, or of the
    list of observed cells; for dense real data some three by method "vb".

    Parameters
    ----------
    likelihood : {"gaussian", "bernoulli", "probit", "negbinomial", "poisson"}, default="gaussian"
    augmentation : {"direct", "noise", "boehning"}, default="direct"
        For data that are not Gaussian: Polya-Gamma variables on f, or on f plus a Gaussian noise in every cell; or
        Boehning's bound, for comparison. Poisson counts have that alone, which "direct" then stands for.
    dispersion : {"column", "row", "all"} or float, default="column"
        What has a dispersion r of its own, or its value where it is known.
    noise : {"column", "all"}, default="column"
        What has a noise variance of its own in real data: every column, or all of them one, in units of their scales.
    {shared}

    Examples
    --------
    >>> import numpy as np
    >>> from tensorcep import BayesianPCA
    >>> X = np.outer([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, -1.0, 0.5]) + np.eye(6, 3)
    >>> X[0, 2] = np.nan
    >>> model = BayesianPCA(1, random_state=0).fit(X)
    >>> model.predict_missing().shape, model.transform(X[:2]).shape
    ((6, 3), (2, 1))
    >>> from tensorcep import Series
    >>> ahead = np.vstack([X, np.full((1, 3), np.nan)])
    >>> BayesianPCA(1, row_prior=Series(), random_state=0).fit(ahead).reconstruct()[-1].shape
    (3,)
    """

    likelihood: str = "gaussian"
    method: str | Settings = "vb"
    augmentation: str = "direct"
    ard: bool = True
    _: KW_ONLY
    dispersion: str | float = "column"
    noise: str = "column"

    def _planned_link(self) -> Link:
        bias, noise = self._checked_bias(), check_choice("noise", self.noise, ("column", "all"))
        augmentation = check_choice("augmentation", self.augmentation, AUGMENTATIONS)
        if self.likelihood == "gaussian":  # which no augmentation concerns
            return Link(NOTHING, 0, 1, "gaussian", bias=bias, groups=noise)
        alone = augmentation_of(self.likelihood)  # the direct one, if there is that
        link = Link(NOTHING, 0, 1, self.likelihood, alone if augmentation == "direct" else augmentation, bias)
        if link.kind.theta != "r":
            return link
        groups, known = self._dispersion()
        return link._replace(groups=groups, known_r=known)

    def _dispersion(self) -> tuple[str, np.ndarray | None]:
        if isinstance(self.dispersion, str):
            return check_choice("dispersion", self.dispersion, ("all", "row", "column")), None
        return "all", np.array([check_range("dispersion", self.dispersion, 0.0, include_low=False)])


@dataclass(eq=False, repr=False)
class BayesianFactorAnalysis(BasePCA):
    """Factor analysis: Gaussian data with missing cells and a noise variance for every feature.

    Parameters
    ----------
    {shared}

    Examples
    --------
    >>> import numpy as np
    >>> from tensorcep import BayesianFactorAnalysis
    >>> X = np.outer([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, -1.0, 0.5]) + np.eye(6, 3)
    >>> BayesianFactorAnalysis(1, random_state=0).fit(X).transform(X).shape
    (6, 1)
    """

    method: str | Settings = "vb"
    ard: bool = True

    def _planned_link(self) -> Link:
        return Link(NOTHING, 0, 1, "gaussian", bias=self._checked_bias(), groups="column")


for _class in (BayesianPCA, BayesianFactorAnalysis):
    fill_docstring(_class, {"{shared}": _SHARED})
