"""Settings of the methods for probit and logistic regression, as in ``method=ConditionalEP(order=2)``; their names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tensorcep.core.checks import check_choice, check_int, check_range, word_or_range
from tensorcep.core.settings import Engines, Settings


@dataclass(repr=False, kw_only=True)
class GLMSettings(Settings):
    """Settings of a method for linear models; `full` says whether its posterior has a full covariance."""

    full: ClassVar[bool] = False


@dataclass(repr=False, kw_only=True)
class EP(GLMSettings):
    """Expectation propagation with a full covariance, O(n d^2) a sweep.

    Parameters
    ----------
    schedule : {"auto", "sequential", "parallel"}, default="auto"
        Update the posterior after every row, or once per sweep by a product of matrices (see `tensorcep.GaussianEP`);
        "auto": once per sweep, and after every row if that does not converge. The posterior is the same.
    projection : {"kl", "w2"}, default="kl"
        Onto the Gaussian of the same moments, or onto the nearest one in the L2 Wasserstein distance (quantile
        propagation).

    References
    ----------
    Minka (2001), Expectation propagation for approximate Bayesian inference; Zhang, Walder, Bonilla, Rizoiu, Xie
    (2020), Quantile propagation for Wasserstein-approximate Gaussian processes.

    Examples
    --------
    >>> from tensorcep import BayesianProbitRegression
    >>> from tensorcep.linear.settings import EP
    >>> BayesianProbitRegression(EP(schedule="parallel")).method
    EP(schedule='parallel')
    """

    name: ClassVar[str] = "ep"
    full: ClassVar[bool] = True

    schedule: str = "auto"
    projection: str = "kl"

    def check(self) -> None:
        check_choice("schedule", self.schedule, ("auto", "sequential", "parallel"))
        check_choice("projection", self.projection, ("kl", "w2"))


@dataclass(repr=False, kw_only=True)
class IS(GLMSettings):
    """Importance sampling around EP's posterior.

    Parameters
    ----------
    n_draws : int, default=20000
    proposal : {"posterior", "prior"}, default="posterior"
        "posterior" draws from EP's posterior, 10 % wider, which works in many dimensions; "prior" does not.

    Examples
    --------
    >>> from tensorcep import BayesianProbitRegression
    >>> from tensorcep.linear.settings import IS
    >>> BayesianProbitRegression(IS(n_draws=1000)).method
    IS(n_draws=1000)
    """

    name: ClassVar[str] = "is"
    full: ClassVar[bool] = True

    n_draws: int = 20_000
    proposal: str = "posterior"

    def check(self) -> None:
        check_int("n_draws", self.n_draws, 2)
        check_choice("proposal", self.proposal, ("posterior", "prior"))


@dataclass(repr=False, kw_only=True)
class Factorised(GLMSettings):
    """Settings that the factorised message-passing methods share.

    Parameters
    ----------
    damping : float in [0, 1) or "adaptive", default="adaptive"
        Fraction of the old message kept; the paper's rho is 1 - damping. "adaptive" chooses a step, and momentum, by
        the correlations of the columns of X, and shrinks the step if the changes do not fall.
    stop : {"residual", "published"}, default="residual"
        What is compared with the tolerance: the largest undamped change of a weight's posterior, in posterior standard
        deviations or as a fraction of its precision; or the published code's sum of squared changes of the messages'
        natural means over the number of rows, which shrinks with the square of the step: it stops damped runs early.
    message_precision : float, default=0
        Precision of the first messages; the published code starts at 1e-6, and puts messages of negative precision
        there, keeping their natural mean.
    """

    damping: float | str = "adaptive"
    stop: str = "residual"
    message_precision: float = 0.0

    def check(self) -> None:
        word_or_range("damping", self.damping, ("adaptive",), 0.0, 1.0, include_high=False)
        check_choice("stop", self.stop, ("residual", "published"))
        check_range("message_precision", self.message_precision, 0.0)


@dataclass(repr=False, kw_only=True)
class FactorizedEP(Factorised):
    """Expectation propagation with a factorised posterior, at a cost in proportion to the non-zeros of X.

    Parameters
    ----------
    damping, stop, message_precision
        As in `Factorised`.

    Examples
    --------
    >>> from tensorcep import BayesianProbitRegression
    >>> from tensorcep.linear.settings import FactorizedEP
    >>> BayesianProbitRegression(FactorizedEP(damping=0.5)).method
    FactorizedEP(damping=0.5)
    """

    name: ClassVar[str] = "ep-factorized"


@dataclass(repr=False, kw_only=True)
class ConditionalEP(Factorised):
    """Conditional expectation propagation (CEP).

    Parameters
    ----------
    order : {1, 2}, default=1
        Order of the expected conditional moments in the posterior variance of the other weights. As names, "cep1" and
        "cep2".
    warm_up : int, default=10
        Of the second order: sweeps of the first order before it (the published code's `cep_iter`). Far from the fixed
        point, and for posterior variances that are not small, the second order can diverge.
    damping, stop, message_precision
        As in `Factorised`.

    References
    ----------
    Wang and Zhe, Conditional Expectation Propagation.

    Examples
    --------
    >>> from tensorcep import BayesianProbitRegression
    >>> from tensorcep.linear.settings import ConditionalEP
    >>> BayesianProbitRegression(ConditionalEP(order=2)).method.name
    'cep2'
    """

    order: int = 1
    warm_up: int = 10

    @property
    def name(self) -> str:  # type: ignore[override]
        """ "cep1" or "cep2"."""
        return f"cep{self.order}"

    def check(self) -> None:
        super().check()
        check_int("order", self.order, 1, 2)
        check_int("warm_up", self.warm_up, 0)


@dataclass(repr=False, kw_only=True)
class LP(Factorised):
    """Laplace propagation: the mode and the curvature of every row's own posterior.

    Parameters
    ----------
    damping, stop, message_precision
        As in `Factorised`.

    References
    ----------
    Eskin, Smola and Vishwanathan (2004), Laplace propagation.

    Examples
    --------
    >>> from tensorcep import BayesianProbitRegression
    >>> from tensorcep.linear.settings import LP
    >>> BayesianProbitRegression(LP(damping=0.5)).method
    LP(damping=0.5)
    """

    name: ClassVar[str] = "lp"


@dataclass(repr=False, kw_only=True)
class VB(GLMSettings):
    """Mean-field variational Bayes, with a lower bound of the log evidence; it has no settings.

    Examples
    --------
    >>> from tensorcep import BayesianProbitRegression
    >>> from tensorcep.linear.settings import VB
    >>> BayesianProbitRegression(VB()).method.name
    'vb'
    """

    name: ClassVar[str] = "vb"


# What a name stands for.
GLM_METHODS: dict[str, GLMSettings] = {
    record.name: record
    for record in (EP(), FactorizedEP(), ConditionalEP(order=1), ConditionalEP(order=2), LP(), VB(), IS())
}
SETTINGS: dict[str, type[Settings]] = {type(record).__name__: type(record) for record in GLM_METHODS.values()}
ENGINES = Engines(GLM_METHODS, otherwise="ep", home="tensorcep.linear.settings", renamed={"first_order": "warm_up"})
settings_of = ENGINES.settings_of
