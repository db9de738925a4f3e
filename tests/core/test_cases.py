"""Cases of one test: each combination runs with fixtures of its own, and one that fails is named and fails the test."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.cases import each

SEEN: list[tuple[int, str, float]] = []


@each("n", [1, 2])
@each(("word", "length"), [("a", 1), ("bc", 2)])
def test_every_combination_is_made_with_fixtures_of_its_own(
    n: int, word: str, length: int, rng: np.random.Generator, tmp_path: Path
) -> None:
    assert len(word) == length
    SEEN.append((n, word, rng.random()))
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    if len(SEEN) == 4:
        assert [seen[:2] for seen in SEEN] == [(1, "a"), (1, "bc"), (2, "a"), (2, "bc")]
        assert len({seen[2] for seen in SEEN}) == 1


class Told:
    """Subtests that tell of failures."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def test(self, message: str) -> Told:
        self.message = message
        return self

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: object, _trace: object) -> bool:
        if error is not None:
            self.failed.append(self.message)
        return True


def test_a_case_that_fails_is_named_and_others_run() -> None:
    told = Told()

    @each("n", [1, 2, 3])
    def odd(n: int) -> None:
        assert n % 2 == 1

    odd(subtests=told)
    assert told.failed == ["n=2"]
    with pytest.raises(ValueError, match="zip"):
        each("a, b", [(1, 2, 3)])
