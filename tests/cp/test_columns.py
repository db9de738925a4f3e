"""Which modes the columns of main effects, pairs and the CP component belong to."""

from __future__ import annotations

import re

import numpy as np
import pytest
from helpers.cases import each

from tensorcep.cp.model.columns import free_columns, modes_of_columns, parts_of


@each(
    ("interactions", "parts"),
    [
        ("cp", {"main": 0, "pair": 0, "cp": 4}),
        ("main+cp", {"main": 1, "pair": 0, "cp": 4}),
        ("pairwise", {"main": 1, "pair": 4, "cp": 0}),
        ("all", {"main": 1, "pair": 4, "cp": 4}),
        ({"main": 1, "cp": 2}, {"main": 1, "pair": 0, "cp": 2}),
    ],
)
def test_parts_of_words_and_dicts(interactions, parts):
    assert parts_of(interactions, 4) == parts


def test_columns_of_three_modes():
    free = free_columns({"main": 1, "pair": 2, "cp": 1}, 3)
    assert modes_of_columns(free) == [(0,), (1,), (2,), (0, 1), (0, 1), (0, 2), (0, 2), (1, 2), (1, 2), (0, 1, 2)]
    np.testing.assert_array_equal(free.sum(axis=1), 1 + 2 * 2 + 1)


def test_columns_of_the_cp_model_are_free_in_every_mode():
    assert free_columns(parts_of("cp", 5), 4).all()


@each(
    ("wrong", "words"),
    [
        ("mains", ["interactions must be one of", "'mains'"]),
        (3, ["interactions must be one of", "3"]),
        ({"triple": 2}, ["key of interactions must be one of 'main', 'pair', 'cp'", "'triple'"]),
        ({"pair": -1}, ["interactions['pair'] must be an integer >= 0", "-1"]),
        ({"pair": 0}, ["at least one part", "'pair': 0"]),
    ],
)
def test_parts_refuse_what_makes_no_model(wrong, words):
    with pytest.raises(ValueError, match=".*".join(re.escape(word) for word in words)):
        parts_of(wrong, 3)
