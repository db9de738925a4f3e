"""Errors that know their parameter, and what docstrings say of one."""

from __future__ import annotations

import pickle

import pytest
from helpers.cases import each

from tensorcep.core.checks import InvalidParameter, check_choice, check_fraction, check_int, fail_value
from tensorcep.core.settings import documented

OPTIONS = {"rank": "--rank", "n_jobs": "--threads"}


@each(
    ("call", "python", "shell"),
    [
        (
            lambda: check_int("rank", 0, instead="'auto' or "),
            "rank must be 'auto' or an integer >= 1; got 0.",
            "--rank must be auto or an integer >= 1; got 0.",
        ),
        (
            lambda: check_choice("method", "em", ("cep", "pg-vb")),
            "method must be one of 'cep', 'pg-vb'; got 'em'.",
            "method must be one of cep, pg-vb; got 'em'.",
        ),
        (
            lambda: fail_value("n_jobs must be -1, or 1 and more; got 0 threads; give -1 for all."),
            "n_jobs must be -1, or 1 and more; got 0 threads; give -1 for all.",
            "--threads must be -1, or 1 and more; got 0 threads; give -1 for all.",
        ),
    ],
)
def test_errors_say_one_sentence_in_python_and_in_the_shell(call, python, shell):
    with pytest.raises(InvalidParameter) as caught:
        call()
    error = caught.value
    again = pickle.loads(pickle.dumps(error))  # as workers send it
    assert str(error) == str(again) == python
    assert error.in_shell(lambda name: OPTIONS.get(name, name)) == shell == again.in_shell(lambda n: OPTIONS.get(n, n))


def test_errors_know_name_value_what_is_allowed_and_what_to_do():
    with pytest.raises(InvalidParameter) as caught:
        check_fraction("coverage", 2.0)
    assert (caught.value.name, caught.value.value, caught.value.allowed) == ("coverage", 2.0, "be a number in (0, 1)")
    with pytest.raises(InvalidParameter) as caught:
        fail_value("burn_in must be below max_iter=9; got 12; increase max_iter.")
    error = caught.value
    assert [error.name, error.value, error.allowed] == ["burn_in", "12", "be below max_iter=9"]
    assert error.remedy == "increase max_iter"


@each("sentence", ["'a.csv' must hold rows; got none.", "there must be two; got 1.", "no entries; give some."])
def test_errors_that_tell_of_no_parameter_are_plain(sentence):
    with pytest.raises(ValueError, match=".") as caught:
        fail_value(sentence)
    assert type(caught.value) is ValueError
    assert str(caught.value) == sentence


def test_documented_tells_types_words_defaults_and_first_sentences():
    found = documented(
        """Fit.

        Parameters
        ----------
        schedule : {"modewise", "parallel"}, default="modewise"
            Mode after mode, or at once. The second is slow.
        low, high : float, optional
            Ends, 0.5 to
            1. Both count.
        """
    )
    assert list(found) == ["schedule", "low", "high"]
    assert (found["schedule"].words, found["schedule"].default) == (("modewise", "parallel"), "modewise")
    assert found["schedule"].summary == "Mode after mode, or at once"
    assert (found["high"].words, found["high"].default, found["low"].summary) == ((), "", "Ends, 0.5 to 1")
