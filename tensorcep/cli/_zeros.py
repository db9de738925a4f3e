"""Zeros that nobody recorded, added in the shell."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from tensorcep.core.checks import fail_value

if TYPE_CHECKING:
    from tensorcep.entries.sparse_tensor import SparseTensor

# More absent cells than these are not all written down.
MOST = 10**8


def add_zeros_option(parser: Any) -> None:
    """Add --zeros."""
    parser.add_argument(
        "--zeros",
        type=_zeros_of,
        metavar="N",
        help="add entries of value 0 in so many absent cells, drawn by --seed: a number, such as 3x the number of "
        "entries, or all. For counts and labels of which only ones and more were recorded; 3x to 5x to recommend",
    )


def _zeros_of(text: str) -> tuple[str, float]:
    """What is asked for and how much: ("all", 0), ("x", times) or ("n", number)."""
    if text == "all":
        return "all", 0.0
    try:
        found = ("x", float(text[:-1])) if text.endswith("x") else ("n", float(int(text)))
    except ValueError:
        found = ("n", -1.0)
    if not 0.0 < found[1] < math.inf:
        message = f"a number of zeros is expected, such as 1000, 3x the number of entries, or all; got {text!r}"
        raise argparse.ArgumentTypeError(message)
    return found


def with_zeros(tensor: SparseTensor, args: argparse.Namespace) -> SparseTensor:
    """The entries, and the zeros that are asked for.

    Raises
    ------
    ValueError
        If there are not so many absent cells, or all of them are too many.
    """
    if args.zeros is None:
        return tensor
    word, size = args.zeros
    absent = math.prod(tensor.shape) - tensor.nnz
    n = absent if word == "all" else round(size * tensor.nnz) if word == "x" else int(size)
    if n > absent:
        fail_value(f"--zeros must be at most the {absent} cells without an entry; got {n}; give all, or fewer.")
    if n > MOST:
        fail_value(f"--zeros would add {n} entries, more than {MOST}; give a number, such as 3x the number of entries.")
    return tensor.with_zeros(n, random_state=args.seed)
