"""Helpers for onnxruntime's sessions: their inputs, and the providers of their nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort


def options(folder: Path | None = None) -> Any:
    """Return options of a session without warnings, of which `nodes_of` can tell if it has a folder."""
    made = ort.SessionOptions()
    made.log_severity_level = 3
    if folder is not None:
        made.enable_profiling = True
        made.profile_file_prefix = str(folder / "profile")
    return made


def feeds_of(session: Any) -> dict[str, np.ndarray]:
    """Return small integers, with which sums are exact, for each input: always the same."""
    rng = np.random.default_rng(0)
    return {each.name: rng.integers(-2, 3, each.shape).astype(np.float32) for each in session.get_inputs()}


def nodes_of(session: Any) -> list[dict[str, Any]]:
    """Return what the profile says of each node that ran, such as its `provider` and its `op_name`."""
    events = json.loads(Path(session.end_profiling()).read_text())
    return [each["args"] for each in events if each["name"].endswith("_kernel_time")]


def providers_of(session: Any) -> list[str]:
    """Return the providers of the nodes that ran."""
    return [each["provider"] for each in nodes_of(session)]
