"""Inference methods for the CP model by name, which of them can do what, and the refusal of what one cannot."""

from __future__ import annotations

from typing import Any

from tensorcep.core.checks import check_choice, fail_value
from tensorcep.core.loop import AnyMethod
from tensorcep.core.settings import Settings, lacking
from tensorcep.cp.cep.method import CEP
from tensorcep.cp.gibbs.method import GIBBS, PG_GIBBS
from tensorcep.cp.laplace import LAPLACE
from tensorcep.cp.meanfield.method import PG_VB, VMP
from tensorcep.cp.settings import SETTINGS
from tensorcep.cp.wopt import WOPT
from tensorcep.likelihoods.base import Likelihood

METHODS: dict[str, AnyMethod] = {method.name: method for method in (CEP, LAPLACE, VMP, WOPT, GIBBS, PG_VB, PG_GIBBS)}


def methods_with(capability: str, about: Any = None, likelihood: Likelihood | None = None) -> list[str]:
    """The names of methods that have a capability, as `about` asks of it; of those that serve a likelihood."""
    serving = [one for one in METHODS.values() if likelihood is None or not one.lacks(likelihood)]
    about = likelihood if about is None else about
    return [one.name for one in serving if not capability or one.capabilities.has(capability, about)]


def is_able(method: str | Settings, capability: str, likelihood: Likelihood) -> bool:
    """Whether a method, with these settings if they are given, serves a likelihood and has a capability for it."""
    return why_unable(method, capability, "", likelihood) is None


def why_unable(
    method: str | Settings,
    capability: str,  # one of `Capabilities`, or "", which asks for nothing but that the method serves the likelihood
    cannot: str,  # what is said of the method, from its verb on: "cannot take noise='entry'"
    likelihood: Likelihood | None = None,
    about: Any = None,  # what a rule is asked of, by default the likelihood
    instead: str = "",  # what may be changed beside the method
) -> str | None:
    """What a method, or these settings of it, cannot do, in a sentence that names what can; None if it can."""
    name = method if isinstance(method, str) else method.name
    able = methods_with(capability, about, likelihood)
    others_needed = {} if isinstance(method, str) or name not in able else lacking(method, capability)
    if name in able and not others_needed:
        return None
    given = f" with {listed({one: getattr(method, one) for one in others_needed})}" if others_needed else ""
    # others by their names, or by settings where the usual ones lack it
    usual = [(one, SETTINGS[one](), lacking(SETTINGS[one](), capability)) for one in able if one != name]
    others = ", ".join(repr(record.set_params(**needed) if needed else one) for one, record, needed in usual)
    ways = [listed(others_needed), instead, f"one of the methods [{others}]" if others else ""]
    use = ", or ".join(filter(None, ways))
    return f"method {name!r}{given} {cannot}" + (f"; use {use}" if use else "")


def refuse_unable(method: str | Settings, capability: str, cannot: str, *rest: Any, **how: Any) -> None:
    """Refuse what a method cannot do, as `why_unable` says it."""
    sentence = why_unable(method, capability, cannot, *rest, **how)
    if sentence is not None:
        fail_value(f"{sentence}.")


def listed(values: dict[str, Any]) -> str:
    """Settings as they are written in a call."""
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def proposes_rows(name: str, likelihood: Likelihood) -> bool:
    """Whether a method is a sampler that may turn rows down, since no variable makes entries Gaussian."""
    return METHODS[name].capabilities.proposes_rows(likelihood)


def quick_method(likelihood: Likelihood) -> AnyMethod | None:
    """The method of quick fits that go before others, or beside them; None where no such method serves."""
    return next((METHODS[name] for name in methods_with("quick", likelihood=likelihood)), None)


def get_method(name: str, likelihood: Likelihood, learning: bool = False, rows: str | None = None) -> AnyMethod:
    """The method called `name`, after checking that it can use the likelihood and, if asked to, learn the prior."""
    method = METHODS[check_choice("method", name, METHODS)]
    missing = method.lacks(likelihood)
    if missing:
        needs = f"needs {', '.join(missing)}, which the likelihood {likelihood.name!r} does not have"
        refuse_unable(name, "", needs, likelihood)
    if rows is not None:  # what the prior knows of rows, in words
        refuse_unable(name, "side_information", f"cannot take {rows} as a prior", likelihood)
    if learning and not method.capabilities.learns_prior:
        refuse_unable(name, "learns_prior", "cannot learn the prior", likelihood, instead="prior='fixed'")
    return method
