"""What users see besides numbers: names with signatures, help texts, refusals; and how far a call is from a kernel."""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import tensorcep as tc
from tests.golden.data import cells
from tests.golden.refusals import REFUSALS, refusal_of

PACKAGE = Path(tc.__file__).parent
MODULES = (
    "datasets",
    "distributed",
    "methods",
    "metrics",
    "plots",
    "river",
    "factor_models.settings",
    "gaussian_process.settings",
    "linear.settings",
)
WIDTH = "100"


# Names and signatures.


@functools.cache
def public_names() -> dict[str, list[str]]:
    """Of every public function and class its signature and the first line of its docstring, and those of methods."""
    found = {}
    for name in sorted(tc.__all__):
        found[name] = _described(getattr(tc, name))
    for place in MODULES:
        module = importlib.import_module(f"tensorcep.{place}")
        listed = getattr(module, "__all__", None) or [n for n in vars(module) if _is_own(module, n)]
        for name in sorted(listed):
            found[f"{place}.{name}"] = _described(getattr(module, name))
    return found


def _is_own(module: Any, name: str) -> bool:
    item = getattr(module, name)
    return not name.startswith("_") and getattr(item, "__module__", "") == module.__name__ and callable(item)


def _described(item: Any) -> list[str]:
    if not callable(item):
        return [type(item).__name__]
    lines = [_signature(item), (inspect.getdoc(item) or "").partition("\n")[0]]
    if inspect.isclass(item):
        for name in sorted(dir(item)):
            own = (
                next(vars(part)[name] for part in item.__mro__ if name in vars(part)) if _inherits(item, name) else None
            )
            if isinstance(own, property):
                lines.append(f"property {name}: {(inspect.getdoc(own) or '').partition(chr(10))[0]}")
            elif own is not None and callable(getattr(item, name)):
                lines.append(f"{name}{_signature(getattr(item, name))}")
    return lines


def _inherits(item: type, name: str) -> bool:
    """Whether a public name of a class is one of this package, not of a library."""
    homes = [part for part in item.__mro__ if name in vars(part)]
    return not name.startswith("_") and bool(homes) and homes[0].__module__.startswith("tensorcep")


def _signature(item: Any) -> str:
    """The signature without quotation marks; of named tuples and scikit-learn's requests the names of parameters alone.

    How their types are spelled goes by the versions of libraries.
    """
    try:
        signature = inspect.signature(item)
        if hasattr(item, "_field_defaults") or getattr(item, "__name__", "").endswith("_request"):
            return f"({', '.join(signature.parameters)})"
        return str(signature).replace("'", "")
    except ValueError:  # an error of Python's own kind
        return "(...)"


# Help texts.


@functools.cache
def helps() -> dict[str, list[str]]:
    """The text of --help of the shell and of every command, found from the parser."""
    from tensorcep.cli.main import build_parser

    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDTH
    try:
        return {name: parser.format_help().splitlines() for name, parser in _parsers("tensorcep", build_parser())}
    finally:
        os.environ.pop("COLUMNS") if before is None else os.environ.update(COLUMNS=before)


def _parsers(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, inner in action.choices.items():
                yield from _parsers(f"{name} {word}", inner)


# How far a call is from a kernel.

TRACED: dict[str, Callable[[Any, Any], Any]] = {
    "fit": lambda data, model: tc.CPRegressor(random_state=0).fit(data.X, data.y),
    "fit by cep": lambda data, model: tc.CPRegressor(method="cep", random_state=0).fit(data.X, data.y),
    "partial_fit": lambda data, model: model.partial_fit(data.X, data.y),
    "predict": lambda data, model: model.predict(data.asked),
}


class Trace:
    """Functions, files and depth of a call in this thread, counted by `sys.setprofile`.

    A function is a code object whose file lies in the package, comprehensions, lambdas and the bodies of classes and
    modules left out; each counts once, however often it is called. The depth is the largest number of its frames,
    these alone, on the stack at once. A kernel is entered where Python calls a numba dispatcher; how many frames are
    then on the stack, the call itself being the first, is told of the first kernel and of the one that lies deepest.
    """

    def __init__(self) -> None:
        self.functions: set[Any] = set()
        self.deepest = 0
        self.first: list[str] = []
        self.last: list[str] = []
        self._stack: list[str] = []

    def heard(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event not in ("call", "return") or code.co_name.startswith("<") or not _is_of_package(code.co_filename):
            return
        if event == "call":
            self.functions.add(code)
            self._stack.append(f"{Path(code.co_filename).stem}.{code.co_name}")
            self.deepest = max(self.deepest, len(self._stack))
        elif self._stack:
            self._stack.pop()

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Trace what is called meanwhile."""
        from numba.core.registry import CPUDispatcher

        called = CPUDispatcher.__call__

        def entered(dispatcher: Any, *args: Any, **kwargs: Any) -> Any:
            self.first = self.first or list(self._stack)
            self.last = max(self.last, list(self._stack), key=len)
            return called(dispatcher, *args, **kwargs)

        before = sys.getprofile()
        CPUDispatcher.__call__ = entered
        sys.setprofile(self.heard)
        try:
            yield
        finally:
            sys.setprofile(before)
            del CPUDispatcher.__call__

    def told(self) -> dict[str, Any]:
        files = {code.co_filename for code in self.functions}
        return {
            "functions": len(self.functions),
            "files": len(files),
            "depth": self.deepest,
            "hops to the first kernel": len(self.first),
            "hops to the deepest kernel": len(self.last),
            "path to the first kernel": " > ".join(self.first),
            "path to the deepest kernel": " > ".join(self.last),
        }


@functools.cache
def _is_of_package(name: str) -> bool:
    return Path(name).is_relative_to(PACKAGE)


@functools.cache
def traces() -> dict[str, dict[str, Any]]:
    """Of four calls, each made once before, so that modules are there and kernels loaded."""
    data, found = cells("real"), {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begun = [tc.CPRegressor(2, method="cep", max_iter=6, random_state=0) for _ in range(2)]
        models = [model.partial_fit(data.X, data.y) for model in begun]
        for name, call in TRACED.items():
            call(data, models[0])
            trace = Trace()
            with trace.listening():
                call(data, models[1])
            found[name] = trace.told()
    return found


# Sections of the record: their items by name.


@functools.cache
def refused() -> dict[str, str]:
    return dict.fromkeys(REFUSALS, "")


SECTIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "names": public_names,
    "help": helps,
    "refusals": refused,
    "trace": lambda: dict.fromkeys(TRACED),
}


def names(section: str) -> list[str]:
    """The items of a section."""
    return list(SECTIONS[section]())


def item(section: str, name: str) -> Any:
    """What there is of an item now."""
    if section == "refusals":
        return refusal_of(REFUSALS[name])
    return traces()[name] if section == "trace" else SECTIONS[section]()[name]


def _rises(before: Any, now: Any) -> bool:
    return isinstance(before, int) and now > before


def moved(section: str, before: Any, now: Any) -> list[str]:
    """Sentences about an item that is not as it was; the numbers of a trace may fall."""
    if section == "trace":
        return [f"{key}: was {before[key]}, now {now[key]}" for key in before if _rises(before[key], now[key])]
    if isinstance(before, str) or isinstance(now, str):
        return [] if before == now else [f"was {before!r}\n      now {now!r}"]
    gone = [f"- {line}" for line in before if line not in now]
    come = [f"+ {line}" for line in now if line not in before]
    return gone + come or (["lines are in another order"] if before != now else [])
