"""Fit the default of every model, nothing set but the seed, to many problems; print regret, calibration and cost.

Problems are simulated tensors (values, labels, counts; orders, ranks, noise, offsets, main effects, heavy tails,
spikes, skewed rows), streams of these, matrices with holes, and real data. Each fit has a process of its own, with a
limit on its CPU seconds and memory; --out keeps the records in a csv file as they come, and what is in it already is
not fitted again. --oracle also fits every named method over ranks 2 to 32 and interactions; the best test score of
these is the oracle, which only judges and never tunes. --oracles FILE takes such records of an earlier run.

Lower scores are better: RMSE of values (of simulated matrices in units of a column's standard deviation), log loss of
labels, minus the log score of counts. Intervals' coverage is that of new observations, ties broken at random. In shares
and means of the summary a real data set counts for three simulated ones.

Data: Alog, Enron and DBLP are downloaded or lie under TENSORCEP_DATA (data/README.md). The traffic data are to be put
there by hand as traffic/birmingham.mat and traffic/nyc-taxi.mat: `tensor.mat` of the data sets Birmingham-data-set and
NYC-taxi of https://github.com/xinychen/transdim. Cells whose data are missing are reported as such.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from scripts.benchmarks.common import parser, report, say, table, words
from scripts.benchmarks.gauntlet import fits, scores
from scripts.benchmarks.gauntlet.fits import Table, read, record_of
from scripts.benchmarks.gauntlet.problems import GRID, PARTS
from scripts.benchmarks.gauntlet.scores import DEFAULT, Record

Work = tuple[str, str, int]


def work_of(options: argparse.Namespace) -> Iterator[Work]:
    """The fits asked for: all defaults first, so that a table that is broken off has them."""
    chosen = options.cells or [name for name, cell in GRID.items() if cell.size in PARTS[options.part]]
    yield from ((cell, DEFAULT, options.seed) for cell in chosen)
    if options.oracle:
        for cell in chosen:
            for name in fits.oracles(GRID[cell], options.methods or (), options.ranks, options.interactions):
                yield cell, name, options.seed


def run(options: argparse.Namespace) -> list[Record]:
    """Fit what is not in the file yet; the records of the cells asked for."""
    kept, wanted = Table(options.out), list(work_of(options))
    missing = [key for key in wanted if key not in kept]
    say(f"{len(wanted)} fits, {len(wanted) - len(missing)} of them in {options.out or 'no file'} already")
    limits = (options.seconds, options.gigabytes)
    with ThreadPoolExecutor(options.jobs) as pool:
        for number, record in enumerate(pool.map(lambda key: record_of(*key, *limits), missing), 1):
            kept.append(record)
            said = str(record["status"])
            if said == "ok":
                against, seconds = f"constant {record['constant']:.4f}", f"{record['cpu_seconds']:.1f} CPU s"
                said = f"{record['score']:.4f} ({against}), {seconds}"
            say(f"{number}/{len(missing)} {record['cell']} {record['fit']}: {said}")
    keys = set(wanted)
    return [r for r in kept.records if (r["cell"], r["fit"], r["seed"]) in keys]


def main(arguments: list[str] | None = None) -> None:
    p = parser(__doc__, methods=None, ranks=",".join(map(str, fits.RANKS)), seed=0)
    p.add_argument("--cells", nargs="+", metavar="NAME", help="these cells in place of a part")
    p.add_argument("--part", choices=PARTS, default="small", help="default: %(default)s")
    p.add_argument("--oracle", action="store_true", help="fit every named method too (--methods: of these alone)")
    p.add_argument("--oracles", metavar="FILE", help="csv file of an earlier run whose named methods are the oracle")
    p.add_argument("--interactions", type=words(), default=",".join(fits.INTERACTIONS), help="default: %(default)s")
    p.add_argument("--out", metavar="FILE", help="csv file that keeps the records; an earlier one is continued")
    p.add_argument("--jobs", type=int, default=1, help="fits at once (default: %(default)s)")
    p.add_argument("--seconds", type=float, default=1200.0, help="most CPU seconds of a fit (default: %(default)s)")
    p.add_argument("--gigabytes", type=float, default=12.0, help="most address space of a fit (default: %(default)s)")
    p.add_argument("--list", action="store_true", help="print the names of the cells and end")
    options = p.parse_args(arguments)
    unknown = [name for name in options.cells or () if name not in GRID]
    if unknown:
        p.error(f"--cells {unknown[0]!r} is not a cell; --list prints the {len(GRID)} names")
    if options.list:
        print("\n".join(f"{cell.size:5}  {name}" for name, cell in GRID.items()))
        return
    others = read(Path(options.oracles)) if options.oracles else []
    cells = scores.judged(run(options), others)
    report(scores.rows_of(cells), options.json, [])
    if options.json != "-":
        print(f"{table(scores.lines_of(cells))}\n\n{table(scores.of_kinds(cells))}\n\n{scores.in_all(cells)}")


if __name__ == "__main__":
    main()
