"""Settings of an engine as a record, and what estimators of every family have: a method, scores, shared docstrings.

Values are checked, and they print, clone and pickle as parameters. A module of settings imports no engine, so that
naming a method loads no compiled code.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, cast

from tensorcep.core.checks import check_choice, check_unmasked, fail_value


@dataclass(repr=False, kw_only=True)
class Settings:
    """Settings of one engine: ``method=CEP(damping=0.5)`` says which engine, and how it is to work.

    Two records are equal when they are of one engine and all their values are. `get_params` and `set_params` are those
    of scikit-learn: records are cloned with the estimator, and searches over parameters reach ``method__damping``.

    Attributes
    ----------
    name : str
        What the method is called where a name is enough.
    needs : mapping
        Of capabilities of the method (`tensorcep.core.loop.Capabilities`), the settings that they need.
    """

    name: ClassVar[str]
    needs: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Refuse values that are not allowed, by one sentence that names the first of them."""

    def changed(self) -> dict[str, Any]:
        """Return the settings that are not the default."""
        usual = {field.name: field.default for field in fields(self)}
        return {name: value for name, value in self.get_params().items() if value != usual[name]}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.changed().items())})"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all settings by name; `deep` is for scikit-learn and changes nothing.

        Examples
        --------
        >>> from tensorcep import CEP
        >>> CEP(damping=0.5).get_params()["damping"]
        0.5
        """
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def set_params(self, **params: Any) -> Any:
        """Set some settings, all of them or, if a name or a value is not allowed, none; returns self.

        Examples
        --------
        >>> from tensorcep import CEP
        >>> CEP().set_params(damping=0.5)
        CEP(damping=0.5)
        """
        known = self.get_params()
        for name in params:
            if name not in known:
                fail_value(f"{type(self).__name__} has no setting {name!r}; it has {', '.join(known)}.")
        for name, value in replace(self, **params).get_params().items():
            setattr(self, name, value)
        return self


def lacking(settings: Settings, capability: str) -> dict[str, Any]:
    """The settings that must be others for a capability, with the values that it needs."""
    needed = settings.needs.get(capability, {})
    return {name: value for name, value in needed.items() if getattr(settings, name) != value}


Record = TypeVar("Record", bound=Settings)


@dataclass(frozen=True)
class Engines(Generic[Record]):
    """The methods of a family of models."""

    records: Mapping[str, Record]  # the settings that a method's name stands for
    otherwise: str  # the method that errors name where no other fits
    home: str = ""  # the module that has the records, as errors tell it; "" where they are names of the package itself
    # Parameters that estimators once had, and that are settings of the method; `method_options` held several
    moved: tuple[str, ...] = ("method_options",)
    renamed: Mapping[str, str] = field(default_factory=dict)  # settings that these parameters called otherwise

    def settings_of(self, method: Any) -> Record:
        """The settings of a method that is given by name, or as a record of settings, which is checked."""
        if isinstance(method, type) and issubclass(method, Settings):
            fail_value(f"method must be a name or a record of settings; got the class; write {method.__name__}().")
        if not isinstance(method, Settings):
            return replace(self.records[check_choice("method", method, self.records)])
        if not isinstance(method, tuple(type(record) for record in self.records.values())):
            listed = ", ".join(dict.fromkeys(f"{type(record).__name__}()" for record in self.records.values()))
            fail_value(f"method must be one of {listed}, from {self.home or 'tensorcep'}; got another {method!r}.")
        method.check()
        return cast(Record, method)

    def named(self, method: Any) -> Settings:
        """The record that `method` is, or is the name of; otherwise one to give as an example."""
        if isinstance(method, Settings):
            return method
        return self.records[method if isinstance(method, str) and method in self.records else self.otherwise]

    def refuse_old(self, estimator: str, params: dict[str, Any], method: Any) -> None:
        """Refuse parameters that are settings of the method now, by a TypeError that says how they are written."""
        old = [name for name in params if name in self.moved]
        if not old:
            return
        own = params.get("method_options")
        given = {name: params[name] for name in old if name != "method_options"}
        given |= own if isinstance(own, dict) else {}
        values = {self.renamed.get(name, name): value for name, value in given.items()}
        asked = self.named(method)
        candidates: tuple[Settings, ...] = (asked, *self.records.values(), self.records[self.otherwise])
        record = next((one for one in candidates if values.keys() <= one.get_params().keys()), asked)
        listed = ", ".join(f"{name}={value!r}" for name, value in {**record.changed(), **values}.items())
        what, are = ("parameter", "it is a setting") if len(old) == 1 else ("parameters", "they are settings")
        raise TypeError(
            f"{estimator} has no {what} {', '.join(map(repr, old))}; {are} of the method now"
            f"{self.home and f', from {self.home}'}: method={type(record).__name__}({listed})."
        )


class _OfInit:
    """The signature of a class's `__init__`, which Python 3.10 would take from `__new__`."""

    def __get__(self, instance: Any, owner: type) -> inspect.Signature:
        parameters = inspect.signature(owner.__init__).parameters  # type: ignore[misc]
        return inspect.Signature(list(parameters.values())[1:])


class TakesMethod:
    """An estimator, by inheritance beside it, whose `method` is a name or a record; its signature is `__init__`'s."""

    __signature__ = _OfInit()

    engines: ClassVar[Engines[Any]]

    def __new__(cls, *args: Any, **params: Any) -> Any:
        cls.engines.refuse_old(cls.__name__, params, params.get("method", args[0] if args else None))
        return super().__new__(cls)

    def set_params(self, **params: Any) -> Any:
        """Set parameters, ``method__damping`` and its like in the settings of the method too; returns self.

        Raises
        ------
        TypeError
            If the method is a name, so that there are no settings to set.
        ValueError
            If there is no such parameter, or a setting has a value that is not allowed.

        Examples
        --------
        >>> from tensorcep import CEP, CPRegressor
        >>> CPRegressor(method=CEP()).set_params(method__damping=0.5).method
        CEP(damping=0.5)
        """
        method = params.get("method", self.method)  # type: ignore[attr-defined]
        self.engines.refuse_old(type(self).__name__, params, method)
        inner = [name for name in params if name.startswith("method__")]
        if inner and not isinstance(method, Settings):
            example = f"{type(self.engines.named(method)).__name__}({inner[0].removeprefix('method__')}=...)"
            such = f"such as method={example}; got method={method!r}"
            raise TypeError(f"{inner[0]} needs a method with settings, {such}.")
        return super().set_params(**params)  # type: ignore[misc]


class ScoresUnmasked:
    """Stands before scikit-learn's mixin among the bases of an estimator, whose `score` it calls."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Mean accuracy of a classifier, R2 of a regressor, as scikit-learn defines them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        float

        Raises
        ------
        ValueError
            If numbers of y or of the weights are masked.

        Examples
        --------
        >>> from tensorcep import BayesianLogisticRegression
        >>> X, y = [[-2.0], [-1.0], [1.0], [2.0]], [0, 0, 1, 1]
        >>> BayesianLogisticRegression().fit(X, y).score(X, y)
        1.0
        """
        given = check_unmasked(y, "y"), check_unmasked(sample_weight, "sample_weight")
        return float(super().score(X, *given))  # type: ignore[misc]


def fill_docstring(cls: type, texts: Mapping[str, str]) -> None:
    """Put texts, indented as there, for the words that hold their place in a class's docstring, which 3.13 dedents."""
    documentation = inspect.cleandoc(cls.__doc__ or "")  # python -OO has none
    for word, text in texts.items():
        documentation = documentation.replace(word, text.strip().replace("\n    ", "\n"))
    cls.__doc__ = documentation


class Documented(NamedTuple):
    """What a docstring says of a parameter: its type as it stands there, and its text."""

    type: str = ""
    text: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """The words in the set that the type begins with."""
        found = re.match(r"\{+([^{}]*)\}", self.type)
        return tuple(word.strip(' "') for word in found[1].split(",")) if found else ()

    @property
    def default(self) -> str:
        """The default as it stands there, without quotation marks; empty where there is none."""
        found = re.search(r"default=(.*)$", self.type)
        return found[1].strip('"') if found else ""

    @property
    def summary(self) -> str:
        """The first sentence of the text, without its full stop."""
        found = re.match(r'(.+?)\.(?= ["A-Z]|$)', self.text)
        return found[1] if found else self.text


def documented(parameters: str) -> dict[str, Documented]:
    """What a section of parameters in the style of numpydoc, or a docstring with one, says of each of them."""
    pattern = r"^(\w[\w., ]*) : (.+)\n((?: {4}.*\n)+)"
    found = re.findall(pattern, f"{inspect.cleandoc(parameters)}\n", re.MULTILINE)
    return {name: Documented(kind, " ".join(text.split())) for names, kind, text in found for name in names.split(", ")}
