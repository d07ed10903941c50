"""The process of `benchmarks.start`: answer once, as soon as possible, report the time and memory, wait for its end.

Arguments: a contender, its file, the input's file, where the answer goes, threads. It prints the system's monotonic clock after the
first answer, then for each line that it is sent a line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any


def _tvmconv(file: str, given: Any, threads: int) -> tuple[Any, Any]:
    import tvmconv

    network = tvmconv.load_network(file)
    (answer,) = network(**{network.inputs[0].name: given}).values()
    return answer, network


def _onnxruntime(file: str, given: Any, threads: int) -> tuple[Any, Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    (answer,) = session.run(None, {session.get_inputs()[0].name: given})
    return answer, session


def _openvino(file: str, given: Any, threads: int, cache: str = "") -> tuple[Any, Any]:
    import openvino

    core = openvino.Core()
    hints = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    compiled = core.compile_model(file, "CPU", hints | ({"CACHE_DIR": cache} if cache else {}))
    (answer,) = compiled([given]).values()
    return answer, compiled


def _openvino_cached(file: str, given: Any, threads: int) -> tuple[Any, Any]:
    return _openvino(file, given, threads, cache_of(file))


# Each returns its answer, and what it was computed by, which is not to be freed meanwhile.
CONTENDERS: dict[str, Callable[[str, Any, int], tuple[Any, Any]]] = {
    "tvmconv": _tvmconv,
    "tvmconv_small": _tvmconv,
    "openvino": _openvino,
    "openvino_cached": _openvino_cached,
    "onnxruntime": _onnxruntime,
}


def cache_of(file: str) -> str:
    """Return the folder of OpenVINO's cache of a model."""
    return f"{file}.cache"


def memory() -> dict[str, float]:
    """Return this process's MiB: resident, the most that were, and those that no other process has."""
    found: dict[str, float] = {}
    for file in ("status", "smaps_rollup"):
        with open(f"/proc/self/{file}") as lines:
            for line in lines:
                name, _, rest = line.partition(":")
                if rest.endswith("kB\n"):
                    found[name] = int(rest.split()[0]) / 1024
    own = found["Private_Clean"] + found["Private_Dirty"]
    return {"resident": found["VmRSS"], "peak": found["VmHWM"], "own": own}


def main() -> None:
    """Do it."""
    contender, file, given, answer, threads = sys.argv[1:]
    import numpy as np

    found, _alive = CONTENDERS[contender](file, np.load(given), int(threads))
    print(time.monotonic(), flush=True)
    for _ in sys.stdin:
        print(json.dumps(memory()), flush=True)
    np.save(answer, found)


if __name__ == "__main__":
    main()
