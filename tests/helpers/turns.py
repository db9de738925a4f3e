"""Cases that are turns of one test: as `pytest.mark.parametrize`, for siblings that are cheap and need no id of theirs.

    @in_turn("rank", [1, 7, 8, 9])
    def test_sums_are_those_of_numpy(rank, rng): ...

A turn that fails is named, and the others are made all the same. Each has what a case of its own would have: a fresh
generator, an empty folder, patches that end with it.
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


def in_turn(names: str | Sequence[str], values: Iterable[Any]) -> Callable[[Test], Test]:
    """Have a test run once for every value; decorators on top of each other run it for every combination."""
    each = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    turns = [dict(zip(each, value if len(each) > 1 else (value,), strict=True)) for value in values]

    def decorate(test: Test) -> Test:
        plain, inner = getattr(test, "_turns", (test, [{}]))
        every = [{**one, **other} for one, other in itertools.product(turns, inner)]
        parameters = inspect.signature(plain).parameters
        given = set(every[0])
        fixtures = [parameter for name, parameter in parameters.items() if name not in given]

        @functools.wraps(plain)
        def whole(*, subtests: pytest.Subtests, **found: Any) -> None:
            for number, turn in enumerate(every):
                said = ", ".join(f"{name}={short(value)}" for name, value in turn.items())
                with subtests.test(said), afresh(found, number) as own:
                    plain(**turn, **own)

        more = inspect.Parameter("subtests", inspect.Parameter.KEYWORD_ONLY)
        rest = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in fixtures]
        vars(whole).update(vars(test), __signature__=inspect.Signature([*rest, more]), _turns=(plain, every))
        return whole

    return decorate


def short(value: Any) -> str:
    """A value, shortly."""
    text = getattr(value, "__name__", None) or getattr(value, "name", None) or repr(value)
    return " ".join(str(text)[:60].split())


@contextmanager
def afresh(fixtures: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """Fixtures as the first turn finds them."""
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
