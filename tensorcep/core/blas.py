"""BLAS on one thread, so that its sums have one order."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


@cache
def _pools() -> ThreadpoolController:
    """The pools of threads of the libraries; finding them takes milliseconds."""
    from scipy.linalg import get_blas_funcs

    get_blas_funcs("gemm")  # numpy's is loaded already, and now scipy's is
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[Any]:
    """A context in which numpy's and scipy's BLAS run on one thread."""
    return _pools().limit(limits=1, user_api="blas")
