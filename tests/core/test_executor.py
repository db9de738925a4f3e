"""Threads that run tasks and ranges of work: every one once, whatever their number."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from helpers.cases import each

from tensorcep.core.executor import ThreadExecutor


@each("threads", [1, 2, 3])
@each("n", [0, 1, 2, 3, 5])
def test_tasks_apart_come_back_in_their_order_each_with_threads_of_its_own(threads, n):
    executor = ThreadExecutor(threads)
    given = []

    def task(i, factor, own):
        given.append((i, own.n))
        return factor * i

    assert executor.apart(task, n, 10) == [10 * i for i in range(n)]
    executor.close()
    at_once = n - n % threads
    assert sorted(given) == [(i, 1 if i < at_once else threads) for i in range(n)]


def test_as_many_tasks_run_at_once_as_there_are_threads():
    executor, met = ThreadExecutor(2), threading.Barrier(2, timeout=30.0)
    executor.apart(lambda i, own: met.wait(), 4)
    executor.close()


def test_an_error_in_a_task_is_that_of_all():
    executor = ThreadExecutor(2)

    def task(i, own):
        if i == 1:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        executor.apart(task, 4)
    executor.close()


@each("threads", [1, 2, 3])
def test_ranges_cover_the_work_once(threads):
    executor, seen = ThreadExecutor(threads), np.zeros(20, dtype=int)

    def kernel(first, last, out):
        assert (first - 3) % 4 == 0
        out[first:last] += 1

    executor.run(kernel, 3, 17, seen, align=4)
    executor.close()
    assert seen.tolist() == [0] * 3 + [1] * 14 + [0] * 3
