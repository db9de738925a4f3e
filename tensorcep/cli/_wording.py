"""The library's sentences as a user of the shell should read them."""

from __future__ import annotations

import re

# Names of Python arguments that the library's sentences may mention -> the option that does the same.
OPTIONS = (
    (r"drop_missing=True", "--drop-missing"),
    (r"\b(sep|decimal|encoding)= ?", r"--\1 "),
    (r"out of modes=", "out of --modes"),
    (r"\bvalue= names", "--value names"),
    (r"modes= and value=", "--modes and --value"),
    (r"by modes=", "by --modes"),
    (r"by value=", "by --value"),
    (r"index_base=", "--index-base "),
    (r"header=False", "--no-header"),
    (r"give y as an ordered Categorical, or as numbers, for another", "say another by --levels"),
    (r"labels=False", "--no-labels"),
    (r"format=", "--format"),
    (r"duplicates='mean', 'sum' or 'last'", "--duplicates mean, sum or last"),
    (r"value=None", "--count"),
    (r"duplicates='sum'", "--duplicates sum"),
    (r"\bvalue='", "--value '"),
    (r"duplicates must be left out", "--duplicates must be left out"),
    (r"rename or choose them", "rename them, or choose with --modes"),
    (r"pass shape=", "give --shape"),
    (r"max_iter=", "--max-iter "),
    (r"\binteractions=", "--interactions "),
    (r"increase max_iter, raise tol, or add damping", "increase --max-iter, raise --tol, or add --damping"),
    (r"\btol=", "--tol "),
    (r"\bpower=", "--power "),
    (r"\b(lower|upper)_limit=?", r"--\1-limit "),
    (r", Timestamps, Timedeltas, dates or Periods, or its order=", " or dates such as 2024-01-31"),
    (r"use CPOrdinalClassifier for ordered levels", "give --likelihood ordinal for ordered levels"),
    (r"\bgiven=", "--given"),
    (r"\bby='(\w+)'", r"--by \1"),
    (r"\b(mode|times)=", r"--\1"),
    (r"\btest_size\b", "--test-size"),
    (r"exclude='seen' needs", "leaving out what was seen needs"),
    (r"pass them as exclude=, or None", "give --exclude FILE, or --all, which leaves out nothing"),
    (r"\bn_jobs\b", "--threads"),
    (r"\brandom_state\b", "--seed"),
    (r"\bmax_iter\b", "--max-iter"),
)


def sentence_of(error: BaseException | str) -> str:
    """Return what went wrong as one sentence that speaks of options, not of Python arguments."""
    if isinstance(error, MemoryError):
        return f"there is not enough memory ({error}); use a lower --rank, or --dtype float32."
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        text = f"{error.strerror}: '{error.filename}'"
    else:
        text = " ".join(str(error).split()) or type(error).__name__
    for pattern, option in OPTIONS:
        text = re.sub(rf"(?<!-){pattern}", option, text)
    return text
