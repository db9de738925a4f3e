"""Threads that share calls: each once, in the caller's context; errors come when all calls have ended."""

from __future__ import annotations

import gc
import threading
import time

import numpy as np
import pytest

from tensorcep.core.executor import Team


def test_calls_come_back_in_their_order():
    team = Team(3)
    assert team.do(lambda i, power: i**power, [(i, 2) for i in range(50)]) == [i**2 for i in range(50)]
    assert team.do(int, []) == []
    team.close()


def test_whoever_asks_does_calls_too_and_no_thread_more_than_the_others_begins():
    team, met, seen = Team(2), threading.Barrier(2, timeout=30.0), set()

    def call():
        met.wait()  # two calls at a time
        seen.add(threading.get_ident())

    team.do(call, [()] * 6)
    team.close()
    assert len(seen) == 2
    assert threading.get_ident() in seen


def test_an_error_comes_when_all_calls_have_ended():
    team, ended = Team(2), []

    def call(i):
        if i == 0:
            raise ValueError("no")
        time.sleep(0.05)
        ended.append(i)

    with pytest.raises(ValueError, match="no"):
        team.do(call, [(i,) for i in range(4)])
    assert sorted(ended) == [1, 2, 3]
    assert team.do(abs, [(-1,), (-2,)]) == [1, 2]
    team.close()


def test_what_numpy_ignores_it_ignores_in_all_threads():
    team, met = Team(2), threading.Barrier(2, timeout=30.0)

    def call():
        met.wait()
        return np.geterr()["over"]

    with np.errstate(over="ignore"):
        assert team.do(call, [(), ()]) == ["ignore"] * 2
    with np.errstate(over="raise"):
        assert team.do(call, [(), ()]) == ["raise"] * 2
    team.close()


def test_threads_of_a_team_that_nobody_has_ended_end_with_it():
    team = Team(4)
    team.do(abs, [(1,)] * 8)
    threads = team._threads
    del team
    gc.collect()
    for thread in threads:
        thread.join(30.0)
    assert not any(thread.is_alive() for thread in threads)


def test_a_team_that_has_ended_does_calls_alone():
    team = Team(3)
    for _ in range(2):
        assert team.do(abs, [(-1,), (-2,)]) == [1, 2]
        team.close()
