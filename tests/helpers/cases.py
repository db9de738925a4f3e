"""Cases of one promise in one test: as `pytest.mark.parametrize`, for siblings that are cheap and need no id of theirs.

    @each("rank", [1, 7, 8, 9])
    def test_sums_are_those_of_numpy(rank, rng): ...

A case that fails is named, and the others run all the same. Each has what a test of its own would have: a fresh
generator, an empty folder, patches that end with it; other fixtures are shared.
"""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Test = Callable[..., None]


def each(names: str | Sequence[str], values: Iterable[Any]) -> Callable[[Test], Test]:
    """Have a test run once for every value; decorators on top of each other run it for every combination."""
    columns = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = [dict(zip(columns, value if len(columns) > 1 else (value,), strict=True)) for value in values]

    def decorate(test: Test) -> Test:
        plain, inner = getattr(test, "_cases", (test, [{}]))
        cases = [{**outer, **more} for outer, more in itertools.product(rows, inner)]
        if not cases:
            raise ValueError(f"no cases of {', '.join(columns)}")
        parameters = inspect.signature(plain).parameters
        fixtures = [parameter for name, parameter in parameters.items() if name not in cases[0]]

        @functools.wraps(plain)
        def over_all(*, subtests: pytest.Subtests, **shared: Any) -> None:
            for number, case in enumerate(cases):
                title = ", ".join(f"{name}={_short(value)}" for name, value in case.items())
                with subtests.test(title), _fresh(shared, number) as own:
                    plain(**case, **own)

        more = inspect.Parameter("subtests", inspect.Parameter.KEYWORD_ONLY)
        rest = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in fixtures]
        vars(over_all).update(vars(test), __signature__=inspect.Signature([*rest, more]), _cases=(plain, cases))
        return over_all

    return decorate


def _short(value: Any) -> str:
    text = getattr(value, "__name__", None) or getattr(value, "name", None) or repr(value)
    return " ".join(str(text)[:60].split())


@contextmanager
def _fresh(fixtures: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """Fixtures as the first case finds them."""
    own = dict(fixtures)
    for name, value in fixtures.items():
        if isinstance(value, np.random.Generator):
            own[name] = copy.deepcopy(value)
        elif name == "tmp_path":
            own[name] = Path(value) / str(number)
            own[name].mkdir()
    if "monkeypatch" in own:
        with own["monkeypatch"].context() as own["monkeypatch"]:
            yield own
    else:
        yield own
