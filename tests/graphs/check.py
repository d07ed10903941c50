"""A random graph by a network and by onnxruntime."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

import tvmconv
from tvmconv.errors import TvmconvError
from tvmconv.network.compile import build
from tvmconv.network.read.onnx.reader import read_onnx

from .draw import answers, draw
from .operators import OPERATORS

# Relative L2 error, of chains that may cancel.
_ALLOWED = 1e-4


@dataclass(frozen=True)
class Outcome:
    """Result of a graph: right, refused, wrong, or failed, and why."""

    kind: str
    detail: str


def check(model: onnx.ModelProto, data: np.ndarray) -> Outcome:
    """Return what comes of a model and its input."""
    given = {each.name: data for each in model.graph.input}
    flipped = {name: np.ascontiguousarray(np.flip(value, -1)) * np.float32(0.9) for name, value in given.items()}
    with tempfile.TemporaryDirectory() as folder:
        file, library = Path(folder, "model.onnx"), Path(folder, "model.so")
        onnx.save(model, file)
        try:
            build(read_onnx(str(file)), library, progress=lambda *_: None)
            network = tvmconv.load_network(library)
        except TvmconvError as error:
            return Outcome("refused", str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
            return Outcome("failed", f"{type(error).__name__}: {error}")
        wrong = []
        for each in (given, flipped):
            try:
                right = answers(model, each)
            except Exception:  # noqa: BLE001 - the graph does not take other numbers
                continue
            found = network(**each).values()
            wrong += [
                f"output {at}: {text}"
                for at, pair in enumerate(zip(found, right, strict=True))
                if (text := difference(*pair))
            ]
    return Outcome("wrong", "; ".join(wrong)) if wrong else Outcome("right", "")


def difference(found: np.ndarray, right: np.ndarray) -> str:
    """Return how answers differ; empty: they do not."""
    found = np.asarray(found)
    if (found.shape, found.dtype) != (right.shape, right.dtype):
        return f"{found.dtype} {found.shape}, right is {right.dtype} {right.shape}"
    if right.dtype.kind != "f":
        return "" if np.array_equal(found, right) else f"{int((found != right).sum())} of {right.size} differ"
    if not np.array_equal(np.isfinite(found), np.isfinite(right)):
        return "other numbers are not finite"
    kept = np.isfinite(right)
    error, size = (float(np.linalg.norm(each[kept].astype(np.float64))) for each in (found - right, right))
    allowed = _ALLOWED if right.dtype == np.float32 else 1e-2
    return "" if error <= allowed * max(size, 1e-3) else f"error {error} of {size}"


def check_seed(seed: int, steps: int | None = None) -> tuple[Outcome, str]:
    """Return what comes of a seed's graph, and its text."""
    model, data = draw(seed, OPERATORS, steps)
    text = re.sub(r"\{[^{}\n]{60,}\}", "{...}", onnx.printer.to_text(model))
    return check(model, data), f"seed {seed}\n{text}"
