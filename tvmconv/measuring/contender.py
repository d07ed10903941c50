"""A process that answers by one library, reports its time and memory, and times calls on request.

Arguments: the library, its file, the inputs' file (.npz), threads, and where the outputs go. It prints a line of JSON after the first
answer, then one for each number of seconds that it reads.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Arrays = dict[str, Any]


def _tvmconv(file: str, given: Arrays, threads: int) -> tuple[Callable[[], object], Arrays]:
    os.environ["OMP_NUM_THREADS"] = str(threads)
    from ..runtime.networks.network import load_network

    network = load_network(file)
    return network.call(given), network(**given)


def _onnxruntime(file: str, given: Arrays, threads: int) -> tuple[Callable[[], object], Arrays]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]

    def call() -> list[Any]:
        return session.run(names, given)

    return call, dict(zip(names, call(), strict=True))


def _openvino(file: str, given: Arrays, threads: int) -> tuple[Callable[[], object], Arrays]:
    import openvino

    core = openvino.Core()
    model = core.read_model(file)
    model.reshape({name: each.shape for name, each in given.items()})
    named = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    compiled = core.compile_model(model, "CPU", named)
    request, tensors = compiled.create_infer_request(), {name: openvino.Tensor(each) for name, each in given.items()}

    def call() -> object:
        return request.infer(tensors, share_inputs=True, share_outputs=True)

    call()
    answers = {each.get_any_name(): request.get_tensor(each).data.copy() for each in compiled.outputs}
    return call, answers


CONTENDERS = {"tvmconv": _tvmconv, "onnxruntime": _onnxruntime, "openvino": _openvino}


def _resident() -> int:
    """Return the bytes of memory that this process has, those of files that it maps included."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(name: str, file: str, inputs: str, threads: str, outputs: str) -> None:
    """Answer, and time calls until stdin ends."""
    import numpy as np

    given = dict(np.load(inputs))
    call, answers = CONTENDERS[name](file, given, int(threads))
    print(json.dumps({"resident": _resident()}), flush=True)
    np.savez(outputs, allow_pickle=False, **answers)
    from .timing import sample_call

    for line in sys.stdin:
        print(json.dumps(sample_call(call, float(line), time.perf_counter)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
