"""What the commands share: options, and what is written and said. Nothing heavy is loaded."""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from tensorcep.core.checks import DUPLICATE_POLICIES, check_int, fail_value, optional_module, printable
from tensorcep.core.persist.archive import atomic_write
from tensorcep.core.settings import Documented, documented
from tensorcep.cp.estimators.docs import PARAMETERS
from tensorcep.cp.settings import CEP, SETTINGS

STDOUT = "-"
FILE_KINDS = ".tns, .csv, .tsv, .txt, .dat, .data, .mtx (these also with .gz, .bz2, .xz, .zip), .parquet or .npz"
WRITTEN_KINDS = ".tns, .tns.gz, .csv, .csv.gz, .parquet or .npz"
EXTENTS = ("exposure", "n_trials")  # columns of a file beside the value
MESSAGES = ("schedule", "damping", "dtype")  # settings of methods


# What is said and written.


def say(text: str) -> None:
    """Write a line to stderr, so that stdout holds results only; what moves a terminal's cursor is escaped."""
    print(printable(text).replace("\n", "\\n"), file=sys.stderr, flush=True)


def show(text: str) -> None:
    """Write lines to stdout; signs of labels and names of files that command a terminal are escaped."""
    print(printable(text), flush=True)


def shows_progress(args: argparse.Namespace) -> int:
    """1 if progress bars are wanted: when asked for, or when a person watches."""
    return int(args.verbose or (not args.quiet and sys.stderr.isatty()))


def check_output(path: str | None, *inputs: str | None) -> None:
    """Refuse, before any work, a place that cannot be written, or that an input would be lost to."""
    if path is None or path == STDOUT:
        return
    target = os.path.realpath(path)
    if any(os.path.realpath(name) == target for name in inputs if name is not None):
        fail_value(f"'{path}' is an input of this command; give another file to write to.")
    if os.path.isdir(target):
        raise IsADirectoryError(f"cannot write '{path}': it is a folder; give the path of a file.")
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"cannot write '{path}': there is no folder '{folder}'; create it first.")
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"cannot write '{path}': the folder '{folder}' is read-only to you; choose another.")


@contextmanager
def output(path: str) -> Iterator[BinaryIO]:
    """Yield a binary handle on stdout, or on a file that appears only when it is complete."""
    if path == STDOUT:
        sys.stdout.flush()
        if sys.stdout.isatty():  # labels could command the terminal
            held = io.BytesIO()
            yield held
            sys.stdout.write(printable(held.getvalue().decode("utf-8", "replace")))
            return
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    else:
        with atomic_write(path) as handle:
            yield handle


def check_figure(path: str | None, *inputs: str | None) -> None:
    """Refuse, before any work, a figure that cannot be written or drawn."""
    check_output(path, *inputs)
    if path is not None:
        optional_module("matplotlib.figure", "--figure", "'tensorcep[plots]'")


def save_figure(path: str, *drawings: Callable[[Any], Any]) -> None:
    """Write a png with one panel for each drawing, which gets its axes; without pyplot, so no display is needed."""
    n = len(drawings)
    figures = optional_module("matplotlib.figure", "--figure", "'tensorcep[plots]'")
    figure = figures.Figure(figsize=(6.4 * n, 4.8), layout="constrained")
    for draw, ax in zip(drawings, figure.subplots(1, n, squeeze=False)[0], strict=True):
        draw(ax)
    with output(path) as handle:
        figure.savefig(handle, format="png")


# Values as they are typed.


def option_of(name: str) -> str:
    """What is typed for an option of this name."""
    return f"--{name.replace('_', '-')}" if len(name) > 1 else f"-{name}"


def is_given(args: argparse.Namespace, name: str) -> bool:
    """Whether the command has the option, and it has another value than its default."""
    value = getattr(args, name, None)
    return value is not None and value is not False and value != [] and value != args.parser.get_default(name)


def check_counts_of(args: argparse.Namespace, *names: str) -> None:
    """Refuse numbers below 1 of options that are given."""
    for name in names:
        if getattr(args, name) is not None:
            check_int(option_of(name), getattr(args, name))


def mode_in(text: str) -> int | str:
    """A mode, or a matrix: its position, or its name."""
    return int(text) if text.isdecimal() else text


def reads(kind: Callable[[str], Any], expected: str) -> Callable[[str], Any]:
    """What reads text by `kind`, and says what is `expected` where that raises ValueError."""

    def read(text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{expected}; got {text!r}") from None

    return read


def number_or(kind: type, *words: str) -> Callable[[str], Any]:
    """What reads an int or a float, or one of the words."""
    allowed = ", ".join(("an integer" if kind is int else "a number", *words))
    allowed = " or ".join(allowed.rsplit(", ", 1))
    return reads(lambda text: text if text in words else kind(text), f"{allowed} is expected")


def integers_in(what: str, example: str) -> Callable[[str], list[int]]:
    """What reads integers between commas."""
    expected = f"{what} are integers between commas, such as {example}"
    return reads(lambda text: [int(word) for word in text.split(",")], expected)


def threads_in(text: str) -> int:
    """A number of threads."""
    if not text.isdecimal() or int(text) < 1:
        raise ValueError
    return int(text)


def zeros_in(text: str) -> tuple[str, float]:
    """How many zeros are asked for: ("all", 1), ("x", times the number of entries) or ("n", number)."""
    word, number = ("all", "1") if text == "all" else ("x", text[:-1]) if text.endswith("x") else ("n", text)
    size = float(number) if word == "x" else float(int(number))
    if not 0.0 < size < float("inf"):
        raise ValueError
    return word, size


def likelihood_in(*kinds: str) -> Callable[[str], str]:
    """What reads the word of a likelihood of these kinds of data; their table is heavy, so --help does not ask it."""

    def read(text: str) -> str:
        from tensorcep.likelihoods import words_of

        words = words_of(*kinds)
        if text not in words:
            raise argparse.ArgumentTypeError(f"invalid choice: {text!r} (choose from {', '.join(map(repr, words))})")
        return text

    return read


# The options. Those of parameters have the names, defaults, words and first sentences of these, in the package; the
# shell's own are documented here in the same way, a short one in a line. A type is a set of words, int, float or one of
# KINDS, and what stands for a value; or that of the parameter. What differs between commands has a word before it.

OPTIONS = """
fit.data : positional DATA | file of the entries to fit, a folder, or a pattern in quotes
stream.data : several DATA | files of entries, in the order to learn them
update.data : several NEW | files of new entries, in the order to learn them
predict.data : positional DATA | file of the cells to predict, a folder, or a pattern in quotes
score.data : positional DATA | file of observations
transform.data : positional DATA | file of the entries of the new rows
evaluate.data : positional DATA | file of entries with their values
ranks.data : positional DATA | file of the entries to fit
convert.data : positional IN | entries in <files>
convert.output : positional OUT | file to write; its extension says the format
fitted.model : positional MODEL | file that fit wrote
learned.model : positional MODEL | file that fit or stream wrote
train : positional TRAIN | file of the entries to fit
test : positional TEST | file of the entries to predict
split.train : positional TRAIN | file for the entries to fit
split.test : positional TEST | file for the entries held out
file : positional FILE | model file, or entries in <files>
datasets.name : perhaps NAME | one of those that the list shows
kinds : any KIND | what to compile (default: everything)
likelihood : NAME, default=gaussian
    gaussian: real values; probit, logit: labels 0/1, or two words; poisson, negbinomial: counts; counts: the one of
    these two that they ask for; binomial: successes of trials; ordinal: ordered levels such as stars
stream.likelihood : NAME, default=gaussian
    gaussian, probit, logit, counts, poisson, negbinomial or binomial, as for fit
cep.dtype : parameter | storage of the messages of cep and laplace, and of the draws of samplers
features : list MODE=FILE
    what is known of the rows of a mode (by name, or position from 0), such as item=items.csv: csv or parquet with the
    row, in the column called like the mode or the first one, and its features, numbers or text; rows without entries
    are predicted from them (several times)
series : list MODE[=WORDS]
    a mode whose rows follow each other in time, numbers or dates such as 2024-01-31. Words between commas: auto
    (default), ou (Ornstein-Uhlenbeck; of equal steps an AR(1)) or rw (random walk); period=LENGTH of a season, 7D for
    dates; cyclic, of hours of the day; local=MODE, whose rows deviate each by itself. Such as day or day=rw,period=7
graph : list MODE=FILE
    rows of a mode that are neighbours, such as sensor=roads.csv: csv or parquet with two columns of rows and perhaps a
    weight
lower_limit : L, default=auto
    real values: those at or below L are censored there; auto: at the least value if it is a spike; none
upper_limit : float U | real values: those at or above U are censored there
power : P
    positive real values: the power of them that is Gaussian, 0 to 1, 0 for the logarithm, or auto (default: 1, or as
    auto where all are positive and very uneven)
noise : N, default=one
    real values: one; a mode, by name or position from 0, whose rows have a noise each; entry: Student's t; auto: the
    one of these that predicts entries left out best
zero_rate : W
    labels: share of the population's zeros that DATA holds, where they were sampled, or auto (from .npz files);
    probabilities are then those of the population (default: 1)
zero_inflation : flag | counts, poisson, negbinomial: a share of the cells, which is learned, is 0 whatever its mean
levels : A,B,C | ordinal: the levels in their order, where they are words (default: that of the alphabet)
seed : int N, default=0 | of the random numbers
threads : N, default=all processors | of the fit; the result does not depend on them
rank : parameter | number of components; auto: 3 to 20 by entries and rows, more where entries left out ask for them
method : parameter
    <methods>; auto: gibbs (pg-gibbs for logit) where it fits, vmp for more than 100,000 counts, otherwise cep
stream.threads : N, default=1 | of the fit; the result does not depend on them
stream.method : {cep, vmp}, default=cep | inside a batch
stream.max_iter : N, default=200 | the most sweeps of a batch
zeros : N
    add entries of value 0 in so many absent cells, drawn by --seed: a number, 3x the number of entries, or all. For
    counts and labels of which only ones and more were recorded; 3x to 5x to recommend
fit.model : {cp, pca, fa, gfa, cmf}, default=cp
    cp: a tensor. Of a matrix of rows, columns and values: pca, fa (factor analysis). Of several, with --also: gfa,
    views of the same rows; cmf, matrices whose rows and columns are what their columns of labels are called. Their
    likelihoods: gaussian, logit, probit, negbinomial, poisson
stream.model : {cp, pca, fa}, default=cp | cp: a tensor; pca, fa: rows of a matrix
also : list FILE[=LIKELIHOOD] | gfa, cmf: the entries of one more matrix (several times)
wide : switch
    csv and parquet hold a matrix as it is: a line per row, a column per variable, empty cells for what is missing, and
    perhaps labels of the rows first (default: where there are not just three columns)
scratch : DIR | folder for files of the entries, in place of memory; real values, labels and counts
memory : SIZE | most memory to take, such as 8GB: entries that fit stay in memory
dask_local : int N | start N workers on this machine
dask_scheduler : ADDRESS | the workers of this Dask scheduler, such as tcp://host:8786
checkpoint : DIR
    folder that all workers see, where the fit is kept; the same command goes on with a fit that was ended
batch_size : int N, default=1000 | entries per batch
first_batch : int N | entries of the first batch, which should be large (default: as all)
checkpoint_every : int N, default=50 | batches between two checkpoints
resume : flag | go on from the checkpoint in MODEL, if there is one
bad_lines : FILE | set malformed lines aside in FILE and go on (default: stop at the first)
trace : FILE.csv | write the scores of each batch before it was learned
scores : FILE.csv | write how odd each entry is, as score does, before it is learned
again : flag | learn files although they were learned already
format : {tns, csv, parquet, npz, mtx} | of the file (default: by the extension)
index_base : {0, 1}, default=1 | what indices count from
modes : A,B,C | columns of the modes (default: all but the value)
value : COLUMN | column of the value (default: the last)
count : flag | no column is the value: count the lines of each cell
exposure : COLUMN | counts: column of the exposures that means are proportional to, such as hours; csv and parquet
n_trials : COLUMN | binomial: column of the numbers of trials (default: 1 each)
sep : S
    csv: what stands between the fields of a line, such as ';' or \\t (default: the comma, tab, ;, | or :: that the
    first line has, or blanks)
decimal : P, default=. | decimal point of values: . or ,
encoding : NAME | of text, such as latin1 (default: UTF-8, or what a byte-order mark says)
drop_missing : flag | leave out lines whose value is missing: empty, NA, nan, null, ...
labels : switch
    whether mode columns hold labels, not indices (default: as the model has them, or if the columns have names)
duplicates : str, default=error | cells that occur twice
shape : N,N,N | sizes (default: the largest indices; not for labels)
no_header : flag | csv without column names; columns are 0, 1, ...
out_index_base : {0, 1}, default=1 | indices count from
out_no_header : flag | csv: no line of column names
extended : flag | .tns: begin with order, number of entries and sizes
verbose : flag | show progress bars even if stderr is no terminal, and how far a fit is to be believed
quiet : flag | show nothing but warnings and errors
output : FILE | file to write
fit.output : required MODEL | file to write, usually .npz
report.output : required FILE | file to write
csv.output : OUT, default=- | csv file to write; - is stdout
predict.output : OUT, default=- | csv or parquet file to write; - is csv on stdout
table.output : CSV | write the table to this file, too
coverage : float C, default=0.9 | of the interval lower to upper
safe_csv : flag | csv for spreadsheets: put ' before text that they would run as a formula
matrix : NAME | of a model of matrices: which one (default: the first)
components.mode : required MODE | the mode, or matrix: its name, or its position from 0
recommend.mode : required MODE | mode whose rows are ranked: its name, or its position from 0
top : int N | the N oddest alone, the oddest first
transform.mode : MODE | of a tensor: the mode of the new rows, its name or its position from 0
given : list MODE=LABEL | a row of another mode (several times)
recommend.by : {mean, lower, upper, thompson, sd}, default=mean | what rows are ranked by
n : int N, default=10 | rows for each combination
all : flag | cells that the model was fitted to as well
exclude : FILE | leave out the cells of this file, which may have the columns of some modes
json : flag | one JSON object instead of a table
evaluate.figure : PNG | draw how well the uncertainty holds to this file
compare.figure : PNG | draw accuracy against seconds to this file
methods : A,B,C | names between commas (default: every method that fits the likelihood)
select_rank.model : MODEL | write the model of the chosen rank, fitted to all entries
ranks : R,R,R, default=1,2,3,4,6,8,12,16 | ranks to try
cv : int N, default=5 | number of folds
best : flag | choose the best rank, not the smallest one that is as good
patience : int N | stop when so many ranks in a row are no better (default: try all)
split.by : {entry, time, row, group}, default=entry | what is held out
split.mode : MODE | row, group: name of the mode (without names: its position from 0)
times : COLUMN | time, row: mode or column that says when
test_size : S, default=0.2 | share that is held out, or a whole number
part : {train, test} | alog, enron, dblp: which entries (default: train)
fold : int N | alog, enron: fold; dblp: test set (default: 1)
report.data : list FILE | entries with their values (several times)
output_dir : DIR, default=. | folder for the two files
processes : int N, default=2 | kinds that are compiled at a time
"""


def _all_documented() -> dict[str, Documented]:
    """What is documented of parameters, by its first sentence, of settings as "cep.damping", and here."""

    def shortened(item: Documented) -> str:
        text = re.sub(r" \([^()]{20,}\)", "", item.summary).replace('"', "")
        return f"{text[:1].lower()}{text[1:]}"

    items = {name: item._replace(text=shortened(item)) for name, item in documented(PARAMETERS).items()}
    for name, item in documented(CEP.__doc__ or "").items():  # which python -OO has not
        methods = ", ".join(method for method, record in SETTINGS.items() if name in record().get_params())
        items[f"cep.{name}"] = item._replace(text=f"{methods}: {shortened(item)}")
    rows = OPTIONS.replace("<methods>", ", ".join(SETTINGS)).replace("<files>", FILE_KINDS)
    for name, item in documented(re.sub(r"^(\S+ : [^|\n]+) \| ", r"\1\n    ", rows, flags=re.MULTILINE)).items():
        items[name] = items.get(name, item)._replace(text=item.text) if item.type == "parameter" else item
    return items


DOCUMENTED = _all_documented()
# How values are read that no type tells of.
READ: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("rank", "max_iter"), number_or(int, "auto")),
    **dict.fromkeys(("index_base", "out_index_base"), int),
    **dict.fromkeys(("modes", "levels", "methods"), lambda text: [word.strip() for word in text.split(",")]),
    **dict.fromkeys(("power", "zero_rate"), number_or(float, "auto")),
    "lower_limit": number_or(float, "auto", "none"),
    "damping": number_or(float, "auto", "adaptive"),
    "noise": mode_in,
    "threads": reads(threads_in, "an integer >= 1 is expected"),
    "zeros": reads(zeros_in, "a number of zeros is expected, such as 1000, 3x the number of entries, or all"),
    "sep": lambda text: text.replace("\\t", "\t"),  # which a shell hardly lets one type
    "shape": lambda text: tuple(integers_in("sizes", "200,100,200")(text.replace("x", ","))),
    "ranks": integers_in("ranks", "2,4,8"),
    "test_size": lambda text: int(text) if text.isdecimal() else number_or(float)(text),
}
# What `add_argument` is to take beside or instead of what is documented; a default is then said in words.
EXCEPTIONS: dict[str, dict[str, Any]] = {
    "likelihood": {"type": likelihood_in("values", "labels", "counts", "levels"), "default": None},
    "stream.likelihood": {"type": likelihood_in("values", "labels", "counts")},
    **{key: {"help": argparse.SUPPRESS} for key in ("stream.graph", "stream.zeros")},  # to say what to do instead
    "threads": {"default": -1},
    "no_header": {"dest": "header", "action": "store_false"},
    "decimal": {"choices": (".", ",")},
    "duplicates": {"choices": DUPLICATE_POLICIES},
}
SHORT = {"output": ["-o"], "verbose": ["-v"], "quiet": ["-q"]}
POSITIONAL: dict[str, dict[str, Any]] = {"positional": {}}
POSITIONAL |= {kind: {"nargs": sign} for kind, sign in (("several", "+"), ("any", "*"), ("perhaps", "?"))}
KINDS: dict[str, dict[str, Any]] = {**POSITIONAL, "flag": {"action": "store_true"}, "required": {"required": True}}
KINDS |= {"switch": {"action": argparse.BooleanOptionalAction}, "list": {"action": "append", "default": []}}


def add(group: Any, words: str) -> None:
    """Add arguments as they are documented, of names between blanks, or between "|" where they exclude each other."""
    for word in words.split():
        place = group.add_mutually_exclusive_group() if "|" in word else group
        for key in word.split("|"):
            name, exception = key.rpartition(".")[2], EXCEPTIONS.get(key, {})
            item = DOCUMENTED.get(key) or DOCUMENTED.get(name, Documented())
            what = re.sub(r",? ?default=.*", "", item.type)
            kind, typed = what.partition(" ")[0], re.search(r"(?:^| )([A-Z][^ ]*)$", what)
            read = READ.get(name, {"int": int, "float": float}.get(kind))
            default = f" (default: {item.default})" if item.default else ""
            arguments: dict[str, Any] = {"help": item.text.replace("%", "%%") + default, **KINDS.get(kind, {})}
            arguments |= {"type": read} if read is not None else {}
            arguments |= {"metavar": typed[1]} if typed is not None else {}
            arguments |= {"choices": tuple(map(read or str, item.words))} if item.words else {}
            if item.default and "default" not in exception and not key.startswith("cep."):  # left to the method
                arguments["default"] = (read or str)(item.default)
            names = [name] if kind in POSITIONAL else [*SHORT.get(name, []), option_of(name)]
            place.add_argument(*names, **arguments | exception)
