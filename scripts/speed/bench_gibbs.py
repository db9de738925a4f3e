"""A sweep of one Gibbs chain of real values on one thread, beside what it must read: six `numpy.take` of its rows.

A third-order sweep gathers, for each of three modes, the rows of the two others: no sweep that reads memory as numpy
does can be quicker than six `numpy.take` of rows of 8 doubles, each at as many random places as there are entries.
They are taken by turns with the sweeps, so that other work on the machine slows both. Columns are "cp" (rank 8) or
"default": main effects, pairs of modes and the CP component of fits by default, 37 free columns in every mode.

Rows: median CPU nanoseconds per entry of sweeps after the burn-in ("later"), of the burn-in, which leaves a tenth of
the entries out, of the six takes, and, once, of setting up: packing and sorting. "times_take" and "times_later" are
their ratios.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from scripts.lib.common import Row, parser, report, row, say, words
from scripts.lib.published import options_with
from scripts.lib.simulated_entries import ORDER, Case, drawn, entry_counts, problem_of, shape_of
from tensorcep.core.executor import ThreadExecutor
from tensorcep.cp.methods import METHODS
from tensorcep.cp.model.columns import free_columns
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.plan.auto import RANKS, every_column
from tensorcep.cp.plan.priors import structure, structured_prior, structured_start
from tensorcep.priors.fixed import FixedPrior, natural_lines

COLUMNS = ("cp", "default")
WARM_UP_ENTRIES = 2000
LONG = 1_000_000  # a burn-in that does not end


def in_default_columns(problem: Problem, seed: int) -> Problem:
    """The problem in the columns that fits of so many entries have by default."""
    free = free_columns(every_column(RANKS[1], problem.shape), ORDER)
    found = structure(free, 0.0, 0.0, lambda order, rank: rank ** (-0.5 / order))
    prior, learner = structured_prior(found, "learned")
    start = structured_start(found, problem.shape, None, np.random.default_rng(seed))
    learned = (learner or FixedPrior)(*natural_lines(prior, problem.shape, free.shape[1]))
    return problem._replace(rank=free.shape[1], prior=learned, start=start, free=free)


def cpu_of(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds and the result."""
    begin = time.process_time()
    result = work()
    return time.process_time() - begin, result


class Sweeps:
    """One chain, set up once, in a burn-in that does not end and after one that has ended."""

    def __init__(self, case: Case, columns: str, seed: int):
        self.method, self.executor = METHODS["gibbs"], ThreadExecutor(1)
        chain = {"n_chains": 1, "thin": LONG}
        self.options = {
            phase: options_with("gibbs", burn_in=n, max_iter=n + LONG, **chain)
            for phase, n in (("later", 1), ("burn-in", LONG))
        }
        data = drawn(case, seed)
        packing, problem = cpu_of(lambda: problem_of(case, *data))
        self.problem = problem if columns == "cp" else in_default_columns(problem, seed)
        sorting, state = cpu_of(lambda: self.method.init(self.problem, self.options["later"], self.executor))
        self.set_up = packing + sorting
        self.states = dict.fromkeys(self.options, state)
        for phase in ("later", "later", "burn-in"):  # the burn-in of one sweep, its end, and what is compiled
            self.step(phase)

    def step(self, phase: str) -> float:
        """CPU seconds of the next sweep."""
        given = self.states[phase], self.problem, self.options[phase], self.executor
        seconds, (self.states[phase], _) = cpu_of(lambda: self.method.step(*given))
        return seconds


def six_takes(shape: tuple[int, ...], n: int, seed: int) -> Callable[[], None]:
    """What takes the rows of the two other modes at random places, for every mode."""
    rng = np.random.default_rng(seed)
    tables = [rng.standard_normal((size, 8)) for size in shape]
    places = [rng.integers(0, size, n) for size in shape]

    def take() -> None:
        for k in range(ORDER):
            for j in range(ORDER):
                if j != k:
                    np.take(tables[j], places[j], axis=0)

    return take


def measure(case: Case, columns: str, repeats: int, seed: int) -> list[Row]:
    """The rows of one set of entries in some columns."""
    Sweeps(case._replace(n=min(case.n, WARM_UP_ENTRIES)), columns, seed)  # compiled code is loaded
    sweeps, take = Sweeps(case, columns, seed), six_takes(case.shape, case.n, seed)
    take()
    turns = [(cpu_of(take)[0], sweeps.step("burn-in"), sweeps.step("later")) for _ in range(repeats)]
    sweeps.executor.close()
    found = dict(zip(("take", "burn-in", "later"), np.median(turns, axis=0), strict=True))
    found["set-up"] = sweeps.set_up
    about = {"data": f"simulated {case.data}", "entries": case.n, "columns": columns, "threads": 1}
    about["free_columns"] = int(sweeps.problem.every_free.sum(axis=1).max())
    rows = []
    for what, seconds in found.items():
        mine = {**about, "method": what}
        rows.append(row("ns_per_entry", 1e9 * seconds / case.n, seconds=seconds, **mine))
        rows.append(row("times_take", seconds / found["take"], **mine))
        rows.append(row("times_later", seconds / found["later"], **mine))
    say(f"{case.data} {columns}, ns: " + ", ".join(f"{what} {1e9 * s / case.n:.1f}" for what, s in found.items()))
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    p = parser(__doc__, ranks="8", seed=0)
    p.add_argument("--entries", type=entry_counts, default="1e6", help="numbers of entries (default: %(default)s)")
    p.add_argument("--columns", type=words(*COLUMNS), default="cp,default", help="default: %(default)s")
    p.add_argument("--repeats", type=int, default=5, help="sweeps and takes of each kind (default: %(default)s)")
    options = p.parse_args(arguments)
    rows: list[Row] = []
    for data, n in options.entries:
        for rank in options.ranks:
            case = Case(data, n, shape_of(n), rank, "gaussian")
            for columns in options.columns:
                rows += measure(case, columns, options.repeats, options.seed)
    report(rows, options.json)


if __name__ == "__main__":
    main()
