"""Settings of the methods for probit and logistic regression, as in ``method=ConditionalEP(order=2)``; their names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NoReturn

from tensorcep.core.checks import check_choice, check_int, check_range, fail_value, word_or_range
from tensorcep.core.settings import Settings


@dataclass(repr=False, kw_only=True)
class GLMSettings(Settings):
    """Settings of a method for linear models; `full` says whether its posterior has a full covariance."""

    full: ClassVar[bool] = False


@dataclass(repr=False, kw_only=True)
class EP(GLMSettings):
    """Expectation propagation with a full covariance, O(n d^2) a sweep.

    Parameters
    ----------
    schedule : {"sequential", "parallel"}, default="sequential"
        Update the posterior after every row, or once per sweep (see `tensorcep.GaussianEP`).

    References
    ----------
    Minka (2001), Expectation propagation for approximate Bayesian inference.
    """

    name: ClassVar[str] = "ep"
    full: ClassVar[bool] = True

    schedule: str = "sequential"

    def check(self) -> None:
        check_choice("schedule", self.schedule, ("sequential", "parallel"))


@dataclass(repr=False, kw_only=True)
class IS(GLMSettings):
    """Importance sampling around EP's posterior.

    Parameters
    ----------
    n_draws : int, default=20000
    proposal : {"posterior", "prior"}, default="posterior"
        "posterior" draws from EP's posterior, 10 % wider, which works in many dimensions; "prior" does not.
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
    """

    name: ClassVar[str] = "lp"


@dataclass(repr=False, kw_only=True)
class VB(GLMSettings):
    """Mean-field variational Bayes, with a lower bound of the log evidence; it has no settings."""

    name: ClassVar[str] = "vb"


# What a name stands for.
GLM_METHODS: dict[str, GLMSettings] = {
    record.name: record
    for record in (EP(), FactorizedEP(), ConditionalEP(order=1), ConditionalEP(order=2), LP(), VB(), IS())
}
SETTINGS: dict[str, type[Settings]] = {type(record).__name__: type(record) for record in GLM_METHODS.values()}


def settings_of(method: Any) -> GLMSettings:
    """The settings of a method that is given by name, or as a record of settings.

    Raises
    ------
    ValueError
        If it is neither, or a setting has a value that is not allowed.
    """
    if isinstance(method, type) and issubclass(method, GLMSettings):
        fail_value(f"method must be a name or a record of settings; got the class; write {method.__name__}().")
    if not isinstance(method, GLMSettings):
        return GLM_METHODS[check_choice("method", method, GLM_METHODS)]
    method.check()
    return method


# Settings that version 0.1 called otherwise.
RENAMED = {"first_order": "warm_up"}


def refuse_method_options(estimator: str, method: Any, own: Any) -> NoReturn:
    """Say how settings of the method are written, which version 0.1 kept in a dict beside its name.

    Raises
    ------
    TypeError
        Always.
    """
    record = method if isinstance(method, GLMSettings) else GLM_METHODS.get(str(method), GLM_METHODS["ep"])
    given: dict[str, Any] = own if isinstance(own, dict) else {}
    values = {RENAMED.get(name, name): value for name, value in given.items()}
    listed = ", ".join(f"{name}={value!r}" for name, value in {**record.changed(), **values}.items())
    raise TypeError(
        f"{estimator} has no parameter 'method_options'; they are settings of the method now, from "
        f"tensorcep.linear.settings: method={type(record).__name__}({listed})."
    )


def params_of_file(params: dict[str, Any]) -> dict[str, Any]:
    """The parameters of an estimator in a file; see `refuse_method_options` for those of version 0.1."""
    given = dict(params)
    own = given.pop("method_options", None)
    if own:
        record = settings_of(given["method"])
        known = record.get_params()
        values = {RENAMED.get(name, name): value for name, value in own.items()}
        given["method"] = replace(record, **{name: value for name, value in values.items() if name in known})
    return given
