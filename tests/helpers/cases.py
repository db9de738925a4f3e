"""Cases of one promise in one test: cheap and alike, told by their values where they fail."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

Test = Callable[..., None]


def each(names: str | Sequence[str], cases: Iterable[Any]) -> Callable[[Test], Test]:
    """As `pytest.mark.parametrize`, but one test of all cases, each a subtest; several of them multiply.

    Every case has a generator `rng` in its first state, a `monkeypatch` that is undone after it and a `tmp_path` of its
    own, as a test has; other fixtures are shared by the cases.
    """
    columns = [names] if isinstance(names, str) else list(names)
    rows = [dict(zip(columns, [case] if isinstance(names, str) else case, strict=True)) for case in cases]

    def decorate(test: Test) -> Test:
        plain, inner = getattr(test, "cases", (test, [{}]))
        every = [{**outer, **more} for outer in rows for more in inner]
        if not every:
            raise ValueError(f"no cases of {', '.join(columns)}")
        signature = inspect.signature(plain)
        kept = [found for name, found in signature.parameters.items() if name not in every[0]]

        @functools.wraps(test)
        def over_all(*, subtests: pytest.Subtests, **fixtures: Any) -> None:
            for number, row in enumerate(every):
                told = ", ".join(f"{name}={value!r:.60}" for name, value in row.items())
                with subtests.test(told), pytest.MonkeyPatch.context() as patch:
                    plain(**_of_its_own(fixtures, number, patch), **row)

        own = inspect.Parameter("subtests", inspect.Parameter.KEYWORD_ONLY)
        over_all.__signature__ = signature.replace(parameters=[*kept, own])
        over_all.cases = plain, every
        return over_all

    return decorate


def _of_its_own(fixtures: dict[str, Any], number: int, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    own = dict(fixtures)
    if "rng" in own:
        own["rng"] = copy.deepcopy(own["rng"])
    if "monkeypatch" in own:
        own["monkeypatch"] = patch
    if "tmp_path" in own:
        own["tmp_path"] = own["tmp_path"] / str(number)
        own["tmp_path"].mkdir()
    return own
