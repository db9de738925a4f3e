"""The parser of the command line, what runs a command, and errors as the shell says them.

Exit codes: 0 done; 1 an error that the user can mend, told in one sentence on stderr; 2 wrong usage; 130 interrupted;
141 the reader of the output went away. Importing this module loads nothing heavy, so that --help is quick.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import signal
import sys
import textwrap
import traceback
import warnings
from collections.abc import Sequence
from typing import NamedTuple

from tensorcep import __version__
from tensorcep.cli import INTERRUPTED, LAST_WORDS, stop
from tensorcep.cli.options import FILE_KINDS, WRITTEN_KINDS, add, say
from tensorcep.core.checks import InvalidParameter

NEGATIVE = re.compile(r"-(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$|-inf$", re.IGNORECASE)
BROKEN_PIPE = 141  # what a shell reports for SIGPIPE
# What a user can mend: bad input or options, files that are not there, libraries that are not installed, a fit that
# left the range of floating point, too little memory. Anything else is a bug of ours and shows its traceback.
MENDABLE = (ValueError, TypeError, OSError, ImportError, FloatingPointError, MemoryError)

EPILOG = """\
a session, on data that needs no download:
  tensorcep datasets il2 -o il2.csv
  tensorcep split il2.csv train.csv test.csv
  tensorcep fit train.csv -o model.npz --rank 6
  tensorcep evaluate model.npz test.csv
  tensorcep predict model.npz test.csv -o predictions.csv --coverage 0.9

"tensorcep COMMAND --help" explains one command."""

# What the commands are for, and do, as their --help says.
DESCRIPTIONS = {
    "fit": f"""Fit a CP decomposition to the entries of DATA and write it to MODEL.

DATA holds one line per observed entry: one column per mode, and the value. A cell that is not there is unobserved,
not zero. The likelihood is gaussian unless you say otherwise: it is not guessed from the values. Files may be
{FILE_KINDS}.""",
    "stream": """Learn the entries of DATA (csv, tns or parquet files; - is standard input) batch after batch and write
the model to MODEL. The posterior after a batch is the prior of the next, so memory does not grow with the number of
entries; rows not seen before are added. Every batch is predicted before it is learned: --trace keeps the scores of
batches, --scores those of entries, with the columns of score, which are empty in the first batch.

MODEL is written every --checkpoint-every batches and at the end. After a crash, or kill -9, the same command with
--resume goes on from the last checkpoint and ends exactly where an uninterrupted run would have ended.

With --model pca or fa the entries are those of a matrix (row, column, value), the entries of a row one after the
other, and the first batch has all columns. Rows are learned and let go, the columns' loadings kept; no such run is
resumed.""",
    "update": """Learn the entries of NEW on top of what MODEL knows, and write MODEL again. Each file is predicted
before it is learned: --scores keeps how odd each entry was, with the columns of score. Rows that are new are added.

MODEL is of stream, or of fit, as far as that learns on: not of levels, structural zeros, or several noises. It is
replaced in one step when all is done; a run that fails or is interrupted leaves it as it was, so that the same command
can be run again. Checksums of what was learned are kept in MODEL, and a file that was learned already is refused.""",
    "predict": """Predict the cells of DATA and write them as csv, or parquet: the mode columns of DATA, and

  mean, sd, lower, upper       real values and counts: of a new observation
  probability, lower, upper    labels: of a 1, and bounds of the probability; of
                               words probability_yes, the second of no and yes
  level, mean, sd, lower,      levels: the most probable one, and what is known
  upper, probability_1, ...    of a new observation

A point estimate (fit --method wopt) has the first column only. A model of matrices (fit --model) has mean, sd, lower
and upper of real values, mean and sd of counts, and probability of labels.

DATA is read as for fit, except that it needs no values and that cells may repeat. Columns of a csv or parquet file that
carry the names of the model's modes are taken by name. Cells in rows without training data get the prior.""",
    "score": """Score how odd the observations in DATA are under the model, and write them as csv: the mode columns of
DATA, and

  value                     what was observed
  mean, sd                  of a new observation
  surprise                  minus its log predictive density or mass, in nats
  lower_tail, upper_tail    probability of an observation as low, or as high
  unseen                    whether a row of the cell had no training data

DATA is read as for predict, and must hold values; with --count a line is an event, and the value of a cell is the
number of its lines.""",
    "recommend": """Write the best rows of a mode for every combination of rows of the other modes, as csv: the modes,
rank, and mean, sd, lower and upper of the expected observation, without the noise of a single one. Cells that the model
was fitted to are left out, but for zeros that were sampled; a mode that --given fixes does not count for that, unless
all are fixed. A row of --given that the model does not know has the prior: what is best for all.""",
    "components": """Write the weights of a mode's rows in the model's components as csv: row, component, part (the
modes that it belongs to), weight (the size of the component), and mean, sd, lower and upper of the row's weight; their
norm is 1. The component that explains most comes first. Of a model of matrices (fit --model): feature, component, and
mean, sd, lower and upper of the loadings of the matrix that --mode names.""",
    "transform": """Place new rows among those of a fitted model, everything else as it was fitted, and write them as
csv: row, component, mean and sd.

Of a model of a tensor the entries of DATA are of new rows of the mode that --mode names. Of a model of matrices (fit
--model) they are new rows of a matrix, whose columns the model knows.""",
    "report": """Write one HTML page about a model, with all figures in it: what was fitted and how far it is to be
believed, the variance that components explain, their weights with intervals, the rows of the largest weights, how the
fit went; with --data, entries as fit takes them, also the gaps of the data and the residuals by row. Models of matrices
have the scores of their rows, too; of several matrices --data is given once for each, in the order of the fit.""",
    "evaluate": """Score a model's predictions of the entries of DATA, which should not be those that it was fitted to.

  real values   RMSE, MAE, log likelihood, CRPS, coverage of 50, 80 and 95 % intervals
  labels        AUC, average precision, log loss, Brier score, accuracy, calibration
  counts        RMSE, MAE, log likelihood, coverage; so too real values with a limit
  levels        these of the expected level, and accuracy; of words two of them

A coverage is the share of values inside the interval: good when it equals the interval's own. DATA is read as for
predict, and must hold values. --figure draws the reliability of probabilities, or the coverage of intervals and, for
real values, the predictions.""",
    "compare": """Fit the entries of TRAIN by several methods, score each on those of TEST, and print a table.

  rmse, auc          accuracy of real values and counts, and of labels
  log_score          mean log predictive density or probability; higher is better
  coverage           share of values inside their 90 % interval
  calibration_error  mean distance of coverages, or of probabilities, from what is
                     observed
  sweeps, seconds, peak_mb   what the fit took""",
    "select-rank": """Fit the entries of DATA with several ranks, score each on entries held out of the fit, fold by
fold, and print a table and the chosen rank: the smallest one whose mean log score is within one standard error of the
best.

  mean, standard_error   log score of a held-out entry; higher is better
  loss, loss_error       what the rank loses against the best one, on the same folds
  seconds                of its fits""",
    "split": """Write a part of the entries of IN to TEST and the others to TRAIN. What is held out says --by:

  entry   entries at random
  time    those of the last times, by the mode or column --times; one time stays together
  row     some entries of each row of --mode, such as each user, but not all: the last
          ones where --times says when, or random ones
  group   rows of --mode with all their entries

--test-size is a share (of entries; of group, of rows), or a whole number: of entries, times, entries of each row, rows.
Files of csv and parquet keep their header, all their columns and the order of their lines, those of csv also their
separator, if it is a single character.""",
    "datasets": f"""Without NAME, list the data sets. With NAME, download the files that are not there yet. With NAME
and -o, write its entries to a file ({WRITTEN_KINDS}). Downloads are kept in the folder that TENSORCEP_DATA names, or in
the cache of pooch.""",
    "demo": """Hold out a fifth of the COVID-19 serology tensor (it ships with TensorLy: nothing is downloaded), fit the
rest, and compare the predictions with the training mean and with TensorLy's masked parafac. Writes the model and a
figure.""",
    "warmup": """Compile the usual kernels into a cache on the disk (NUMBA_CACHE_DIR), so that the first fit of every
process is quick; a wheel brings most of them. KIND is regressor, classifier, counts or levels (fits by default), cep,
vmp or pg-vb (fits by these methods), streams, knowledge (features, series, graphs), others, matrices, linear or
gaussian-processes; without any, all of them.""",
}

# Options that several commands have: of what is said on the way, of a model of tensors, of files of entries, and of
# files of cells for a model, which has fixed what the rows are.
TALK, INFERENCE = "verbose|quiet", "max_iter tol seed threads"
ROWS, VALUES = "prior features series", "interactions lower_limit upper_limit power zero_rate zero_inflation"
MODEL = f"likelihood {ROWS} graph {VALUES} noise levels"
READING = "how to read the entries | format index_base modes"
TEXT = "no_header sep decimal encoding drop_missing labels"
ENTRIES = f"{READING} value|count {TEXT} duplicates shape"
CELLS = f"{READING} value exposure n_trials {TEXT}"

# The commands: what is typed, the function that runs it, and one line about it; then the names of its arguments in
# `options.OPTIONS`, by the titles of their groups.
SHELL = f"""
fit a model:
fit DATA -o MODEL | fit.run_fit | fit a model to the entries of a file
    fit.data fit.output {TALK}
    model | rank {MODEL}
    inference | {INFERENCE} method cep.schedule cep.damping cep.dtype
    models of matrices | fit.model wide also
    {READING} value|count exposure n_trials {TEXT} duplicates shape zeros
    data that outgrow memory | scratch memory
    workers (for every method but wopt; no effect on the result) | dask_local|dask_scheduler checkpoint
stream DATA... -o MODEL | stream.run_stream | learn entries as they come, with checkpoints
    stream.data fit.output safe_csv {TALK}
    stream | batch_size first_batch checkpoint_every resume bad_lines trace scores forget revisit
    model | stream.model rank stream.likelihood {ROWS} {VALUES} stream.graph stream.zeros
    inference | stream.method stream.max_iter tol seed stream.threads
    {CELLS}
update MODEL NEW... | stream.run_update | score and learn the next file
    learned.model update.data scores again count safe_csv quiet
    {CELLS}

ask a model:
predict MODEL DATA | predict.run_predict | predict cells, with their uncertainty
    fitted.model predict.data predict.output coverage safe_csv matrix
    {CELLS}
score MODEL DATA | predict.run_score | score how odd observations are
    learned.model score.data csv.output safe_csv top count
    {CELLS}
recommend MODEL --mode MODE | predict.run_recommend | rank the rows of a mode
    fitted.model recommend.mode given recommend.by n all|exclude csv.output coverage safe_csv
components MODEL --mode MODE | predict.run_components | write a mode's weights
    learned.model components.mode csv.output coverage safe_csv
transform MODEL DATA | predict.run_transform | place new rows in a model
    fitted.model transform.data csv.output safe_csv transform.mode matrix wide
    {ENTRIES}
report MODEL -o OUT.html | files.run_report | write a page about a model
    learned.model report.output report.data wide
    {ENTRIES}

judge models:
evaluate MODEL DATA | assess.run_evaluate | score predictions of entries left out
    fitted.model evaluate.data json evaluate.figure
    {CELLS}
compare TRAIN TEST | assess.run_compare | compare methods on entries left out
    train test table.output compare.figure methods {TALK}
    model | rank {MODEL}
    inference | {INFERENCE}
    {ENTRIES}
select-rank DATA | assess.run_ranks | choose the rank by entries left out
    ranks.data table.output select_rank.model {TALK}
    choice of the rank | ranks cv best patience
    model | {MODEL}
    inference | {INFERENCE} method
    {ENTRIES}

files and the program:
info FILE | files.run_info | describe a file of entries or a model
    file
    {ENTRIES}
convert IN OUT | files.run_convert | write entries in another format
    convert.data convert.output {TALK}
    how to write OUT | out_index_base out_no_header extended safe_csv zeros seed
    {ENTRIES}
split IN TRAIN TEST | files.run_split | hold out a part of the entries
    convert.data split.train split.test split.by split.mode times test_size seed safe_csv {TALK}
    {ENTRIES}
datasets [NAME] | files.run_datasets | list or fetch published data sets
    datasets.name output part fold safe_csv
demo | files.run_demo | see it work on real data, in half a minute
    output_dir rank seed quiet
warmup [KIND ...] | files.run_warmup | compile the usual kernels beforehand
    kinds processes {TALK}
"""


class Command(NamedTuple):
    """One sub-command; its module is loaded when it runs, writes results to stdout, all else to stderr, and raises."""

    name: str
    arguments: str  # what is typed after it
    run: str  # a module of this room and its function, which takes the parsed arguments
    help: str
    options: dict[str, str]  # their names by the titles of groups


def _commands() -> dict[str, list[Command]]:
    groups: dict[str, list[Command]] = {}
    listed: list[Command] = []
    for line in filter(None, SHELL.splitlines()):
        if line.endswith(":"):
            groups[line[:-1]] = listed = []
        elif line[0] == " ":
            title, _, words = line.strip().rpartition(" | ")
            listed[-1].options[title] = words
        else:
            typed, run, about = line.split(" | ")
            name, _, arguments = typed.partition(" ")
            listed.append(Command(name, arguments, run, about, {}))
    return groups


GROUPS = _commands()
COMMANDS = tuple(command for group in GROUPS.values() for command in group)


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Paragraphs are as wide as the terminal, tables as they are written."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.split("\n\n")
        return "\n\n".join(each if "\n  " in f"\n{each}" else textwrap.fill(each, width) for each in paragraphs)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    listed = "\n".join(
        f"{title}:\n" + "\n".join(f"  {command.name:<12} {command.help}" for command in group) + "\n"
        for title, group in GROUPS.items()
    )
    parser = argparse.ArgumentParser(
        prog="tensorcep",
        usage="tensorcep COMMAND [options]",
        description="Bayesian tensor and matrix factorisation of sparse data, with an interval for every prediction.",
        epilog=f"{listed}\n{EPILOG}",
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tensorcep {__version__}")
    commands = parser.add_subparsers(prog="tensorcep", metavar="COMMAND", dest="command", help=argparse.SUPPRESS)
    for command in COMMANDS:
        own = commands.add_parser(
            command.name,
            usage=f"tensorcep {command.name} {command.arguments} [options]".replace("  ", " "),
            description=DESCRIPTIONS.get(command.name) or f"{command.help[0].upper()}{command.help[1:]}.",
            formatter_class=HelpFormatter,
        )
        own._negative_number_matcher = NEGATIVE  # argparse's own knows no exponents
        for title, words in command.options.items():
            add(own.add_argument_group(title) if title else own, words)
        own.add_argument("--debug", action="store_true", help="show the traceback of an error")
        own.set_defaults(run=command.run, parser=own)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line (default: of this process) and return its exit code; wrong usage: SystemExit of 2."""
    # What a shell closed (>&-) takes, and gives, nothing; its number is taken before another file gets it.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help(sys.stderr)
        return 2
    warned = set()

    def show_once(message: Warning | str, *_: object, **__: object) -> None:
        sentence = sentence_of(message, args.parser)
        if sentence not in warned:  # several steps of a command may come upon it
            say(f"warning: {sentence}")
        warned.add(sentence)

    with warnings.catch_warnings():
        warnings.showwarning = show_once
        try:
            module, _, name = args.run.rpartition(".")
            run = getattr(importlib.import_module(f"tensorcep.cli.{module}"), name)
            if signal.getsignal(signal.SIGINT) is stop:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            run(args)
            sys.stdout.flush()
        except KeyboardInterrupt:
            say(LAST_WORDS)
            return INTERRUPTED
        except BrokenPipeError:
            # The interpreter flushes stdout once more at exit; give it something that takes what is left.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return BROKEN_PIPE
        except MENDABLE as error:
            if args.debug:
                traceback.print_exc()
            say(f"error: {sentence_of(error, args.parser)}")
            return 1
    return 0


# The library's sentences as a user of the shell should read them.

# Parameters that the shell calls otherwise, or that are none of its own, and what has no option by its name.
CALLED = {"n_jobs": "--threads", "random_state": "--seed", "labels": "labels"}
OTHERWISE = {
    "value=None": "--count",
    "exclude='seen'": "leaving out what was seen",
    "pass them as exclude=, or None": "give --exclude FILE, or --all, which leaves out nothing",
    "give y as an ordered Categorical, or as numbers, for another": "say another by --levels",
    ", Timestamps, Timedeltas, dates or Periods, or its order=": " or dates such as 2024-01-31",
    "use CPOrdinalClassifier": "use --likelihood ordinal",
    "use CPRegressor": "use --likelihood gaussian",
}
VALUE = r"True|False|'\w+'(?:(?:,| or) '\w+')*|"


def sentence_of(error: BaseException | str, parser: argparse.ArgumentParser) -> str:
    """Return what went wrong as one sentence that speaks of the options of a command, not of Python's parameters."""
    if isinstance(error, MemoryError):
        return f"there is not enough memory ({error}); use a lower --rank, or --dtype float32."
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.strerror}: '{error.filename}'"
    options = {}  # what is typed for parameters ("max_iter"), and for flags with their values ("labels=False")
    for action in parser._actions:
        words = [word for word in action.option_strings if word.startswith("--")] or action.option_strings
        options[action.dest] = words[0] if words else str(action.metavar)
        if action.nargs == 0:
            values = (True, False) if len(words) == 2 else (action.const,)
            options |= {f"{action.dest}={value}": word for value, word in zip(values, words, strict=True)}
    options |= CALLED
    text = error.in_shell(lambda name: options.get(name, name)) if isinstance(error, InvalidParameter) else str(error)
    text = " ".join(text.split()) or type(error).__name__
    for said, option_words in OTHERWISE.items():
        text = text.replace(said, option_words)
    # Parameters stand before a sign of equality, begin a sentence as "NAME must", or are no words of English.
    names = "|".join(name for name in options if name.isidentifier())
    no_words = "|".join(name for name in options if name.isidentifier() and ("_" in name or name in ("tol", "damping")))

    def option(match: re.Match[str]) -> str:
        name, value = match["name"], match["value"]
        if f"{name}={value}" in options:
            return options[f"{name}={value}"]
        follows = value or re.match(r"[\w'\"({\[-]", text[match.end() :])
        return f"{options[name]}{' ' if follows else ''}{value.replace(chr(39), '')}"

    text = re.sub(rf"(?<![-\w'/.])(?P<name>{names})=(?P<value>{VALUE})", option, text)
    return re.sub(rf"(?<![-\w'/.])(?:{no_words})\b(?![=(])|^(?:{names})(?= must )", lambda m: options[m[0]], text)
