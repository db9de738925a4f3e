"""Numbers and bits of arrays, the machine that they are of, and what moved between two records."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tensorcep.core.kernel_cache import target

FOLDER = Path(__file__).parent / "record"
# Numbers of an array that are kept beside its hash; how far they may be on another kind of machine.
KEPT, CLOSE = 6, 1e-9
# Hexadecimal digits of a hash that are kept.
DIGITS = 16

# Cases that promise bits alone: where an optimiser ends, or which fit is chosen, follows rounding, and numbers part by
# more than that with other kernels of BLAS and numpy on the machine of the record.
BITS_ALONE = (
    "default/*",
    "*wopt*",
    "option/prior fixed, gibbs",
    "option/weights, real, gibbs",
    "questions/real, gibbs",
    "process of labels/inducing points*",
)

Entry = dict[str, Any]


def machine() -> dict[str, str]:
    """What the bits of a fit depend on besides the sources: the processor as the compiler sees it, and libraries."""
    import llvmlite.binding as llvm
    import threadpoolctl

    features = ",".join(sorted(name for name, there in llvm.get_host_cpu_features().items() if there))
    blas = {
        f"{found.get('internal_api')} {found.get('version')} {found.get('architecture')}"
        for found in threadpoolctl.threadpool_info()
        if found.get("user_api") == "blas"
    }
    libraries = ("numpy", "scipy", "numba", "llvmlite", "scikit-learn", "pandas")
    return {
        "system": " ".join([platform.system(), platform.machine(), *platform.libc_ver()]),
        "processor": f"{llvm.get_host_cpu_name()}, features {hashlib.sha256(features.encode()).hexdigest()[:8]}",
        "kernels": target().name,
        "blas": ", ".join(sorted(blas)),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in libraries},
    }


def entry_of(array: Any) -> Entry:
    """What is kept of an array: its type and shape, its hash, a sum over all of it, and some of its values.

    The sum is of arcsinh of the values, so that large ones do not hide the others, with a weight for every place, so
    that a change anywhere changes it.
    """
    array = np.asarray(array)
    if array.dtype == object:
        array = array.astype(str)
    digest = hashlib.sha256(f"{array.dtype.str} {array.shape}".encode())
    digest.update(np.ascontiguousarray(array).tobytes())
    entry: Entry = {"type": f"{array.dtype.name if array.dtype.kind != 'U' else 'text'} {list(array.shape)}"}
    entry["sha256"] = digest.hexdigest()[:DIGITS]
    flat = array.ravel()
    if array.dtype.kind == "f" and flat.size > KEPT:
        finite = np.arcsinh(np.where(np.isfinite(flat), flat, 0.0).astype(float))
        entry["sum"] = _rounded(np.sin(1.0 + np.arange(flat.size)) @ finite)
        entry["size"] = _rounded(np.abs(finite).sum())
    places = np.unique(np.linspace(0, flat.size - 1, min(KEPT, flat.size)).astype(int)) if flat.size else []
    values = flat[places].tolist() if flat.size else []
    entry["values"] = [_rounded(value) for value in values] if array.dtype.kind == "f" else values
    return entry


def _rounded(value: float) -> float:
    """Numbers that are compared to 1e-9 need no more digits; bits are the hash's."""
    return float(f"{value:.12g}")


def differences(before: Entry, now: Entry, bits: bool) -> str:
    """How one array differs from what was recorded of it; empty where it does not."""
    if before["type"] != now["type"]:
        return f"is {now['type']}, was {before['type']}"
    if before["sha256"] == now["sha256"]:
        return ""
    a, b = before["values"], now["values"]
    if before["type"].startswith("float"):
        a, b = np.array(a, dtype=float), np.array(b, dtype=float)
        unlike = int(np.sum(np.isfinite(a) != np.isfinite(b)))
        both = np.isfinite(a) & np.isfinite(b)
        far = np.max((np.abs(a - b) / (1.0 + np.abs(a)))[both], initial=0.0)
        if "sum" in before:
            far = max(far, abs(before["sum"] - now["sum"]) / (1.0 + before["size"]))
        if bits or far > CLOSE or unlike:
            return f"differs by {far:.1e}" + (f", {unlike} values are finite in one alone" if unlike else "")
        return ""
    return f"is {_short(b)}, was {_short(a)}" if a != b else "differs beyond the values that are kept"


def _short(values: Any) -> str:
    text = str(values)
    return text if len(text) <= 100 else f"{text[:97]}..."


def moved(before: Mapping[str, Any], now: Mapping[str, Any], bits: bool) -> list[str]:
    """Sentences about a case: its arrays, and its warnings."""
    if "error" in now:
        return [f"raises {now['error']}"]
    told = []
    for name in [*before["arrays"], *(new for new in now["arrays"] if new not in before["arrays"])]:
        if name not in now["arrays"]:
            told.append(f"{name} is gone")
        elif name not in before["arrays"]:
            told.append(f"{name} is new")
        else:
            difference = differences(before["arrays"][name], now["arrays"][name], bits)
            told += [f"{name} {difference}"] if difference else []
    told += [f"no longer warns: {text}" for text in before["warnings"] if text not in now["warnings"]]
    told += [f"warns: {text}" for text in now["warnings"] if text not in before["warnings"]]
    return told


def read(name: str) -> dict[str, Any]:
    """A file of the record; empty where there is none."""
    path = FOLDER / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def write(name: str, content: Mapping[str, Any]) -> None:
    """Write a file of the record: a line for every array, sentence, signature or line of a help text."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text(_lines(content, 3) + "\n", encoding="utf-8")


def _lines(item: Any, depth: int, indent: str = "") -> str:
    if depth and isinstance(item, Mapping) and item:
        inner = [f"{indent} {json.dumps(key)}: {_lines(item[key], depth - 1, indent + ' ')}" for key in item]
        return "{\n" + ",\n".join(inner) + f"\n{indent}}}"
    if depth and isinstance(item, list) and len(item) > 1:
        inner = [f"{indent} {json.dumps(part, ensure_ascii=False)}" for part in item]
        return "[\n" + ",\n".join(inner) + f"\n{indent}]"
    return json.dumps(item, ensure_ascii=False)
