"""Whole ONNX models in onnxruntime with its own CPU provider, with one of `tvmconv export-onnxruntime`, and in OpenVINO, in turns.

    python -m benchmarks.onnxruntime_provider --providers FOLDER [NAME ...]

Each side has a process of its own, with two threads unless told. They run in turns; a turn's time is the median of its runs, and what is
printed the median of the turns. A model of PyTorch's, and a provider, that is not in the folder yet is exported into it; a model
whose package is not installed is named and left out.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from .machine import CLOCKS
from .models import NETWORKS
from .onnxruntime_exports import EXPORTED, export_network

SIDES = ("cpu", "tvmconv", "openvino")
SECONDS = 0.25
_LIGHT = "backend/test/data/light/light_{}.onnx"


@dataclass(frozen=True)
class Case:
    """A model of a package, a file or one to export, and the shapes of its inputs."""

    package: str
    file: str
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def path(self, folder: Path) -> Path | None:
        """Return the file, None if the package is not installed or has it not; one that is exported goes into a folder."""
        found = find_spec(self.package)
        if self.package in EXPORTED:
            return export_network(self.package, self.file, folder) if found is not None else None
        if found is None or not found.submodule_search_locations:
            return None
        path = Path(found.submodule_search_locations[0]) / self.file
        return path if path.is_file() else None


CASES = {
    "yolov8n": Case("nudenet", "320n.onnx", {"": (1, 3, 320, 320)}),
    "detector": Case("rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx", {"x": (1, 3, 640, 640)}),
    "recognizer": Case("rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx", {"x": (1, 3, 48, 320)}),
    "classifier": Case("rapidocr_onnxruntime", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": (1, 3, 48, 192)}),
    "basic_pitch": Case("basic_pitch", "saved_models/icassp_2022/nmp.onnx", {"": (1, 43844, 1)}),
    "silero_vad": Case("silero_vad", "data/silero_vad_16k_op15.onnx", {"input": (1, 512), "state": (2, 1, 128)}),
    "silero_sequence": Case("silero_vad", "data/silero_vad_16k_sequence.onnx", {"input": (8, 576)}),
    "silero_openvino": Case("silero_vad", "data/silero_vad_openvino_16k.onnx"),
    "magika": Case("magika", "models/standard_v3_3/model.onnx", {"": (1, 2048)}),
    **{
        f"onnx_{name}": Case("onnx", _LIGHT.format(name))
        for name in (
            *("resnet50", "squeezenet", "shufflenet", "densenet121", "inception_v1", "inception_v2", "vgg19"),
            *("bvlc_alexnet", "zfnet512"),
        )
    },
    **{name: Case("benchmarks", name) for name in NETWORKS},
    **{
        name: Case("torchvision", name)
        for name in (
            *("densenet121", "googlenet", "mnasnet1_0", "regnet_y_400mf", "resnet18", "shufflenet_v2_x1_0"),
            *("squeezenet1_1", "vgg16_bn"),
        )
    },
}


def main(argv: Sequence[str] | None = None) -> int:
    """Time the models that are asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CASES)} (default: all)")
    parser.add_argument(
        "--providers", required=True, type=Path, metavar="FOLDER", help="where the providers are, or go"
    )
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="cpu, with one thread: a machine that others share disturbs it less",
    )
    parser.add_argument("--export-only", action="store_true", help="write the providers, and time nothing")
    parser.add_argument("--worker", choices=SIDES, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if unknown := set(given.names) - set(CASES):
        parser.error(f"there is no model {', '.join(sorted(unknown))}; allowed: {', '.join(CASES)}")
    if given.worker:
        return _work(given.names[0], given.worker, given.providers, given.threads, CLOCKS[given.clock])
    ratios: list[tuple[float, float]] = []
    for name in given.names or CASES:
        if CASES[name].path(given.providers) is None:
            print(f"{name}: the package {CASES[name].package} is not installed", file=sys.stderr)
            continue
        _export(name, given.providers)
        if given.export_only:
            continue
        cpu, ours, openvino, error = _race(
            name, given.providers, given.turns, ["--threads", str(given.threads), "--clock", given.clock]
        )
        ratios.append((cpu / ours, openvino / ours))
        shown = f"{cpu:.3f} ms | {ours:.3f} ms | {openvino:.3f} ms | {cpu / ours:.2f} | {openvino / ours:.2f}"
        print(f"| {name} | {shown} | {error:.1e} |", flush=True)
    if ratios:
        means = " | ".join(f"{exp(sum(map(log, each)) / len(each)):.2f}" for each in zip(*ratios, strict=True))
        print(f"| geometric mean | | | | {means} | |")
    return 0


def _export(name: str, providers: Path) -> None:
    library = providers / f"{name}.so"
    if library.is_file():
        return
    case = CASES[name]
    shapes = [f"--shape={key + '=' if key else ''}{'x'.join(map(str, shape))}" for key, shape in case.shapes.items()]
    command = [
        "from tvmconv.cli import main; raise SystemExit(main())",
        "export-onnxruntime",
        str(case.path(providers)),
        *shapes,
    ]
    subprocess.run([sys.executable, "-c", *command, "-o", str(library)], check=True, stdout=subprocess.DEVNULL)


def _race(name: str, providers: Path, turns: int, more: list[str]) -> tuple[float, float, float, float]:
    """Return the milliseconds of each side, and how far our answers are from onnxruntime's."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.onnxruntime_provider",
        name,
        "--providers",
        str(providers),
        *more,
        "--worker",
    ]
    workers = [
        subprocess.Popen([*command, side], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for side in SIDES
    ]
    times: list[list[float]] = [[] for _ in SIDES]
    try:
        answers = [np.load(_ask(worker)) for worker in workers]
        for _ in range(turns):
            for worker, found in zip(workers, times, strict=True):
                found.append(float(_ask(worker)))
    finally:
        for worker in workers:
            worker.stdin.close()  # type: ignore[union-attr]
            worker.wait()
    right, ours = answers[:2]
    error = max(
        float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-9))
        for a, b in ((right[key].astype(float), ours[key].astype(float)) for key in right)
    )
    cpu, tvmconv, openvino = map(median, times)
    return cpu, tvmconv, openvino, error


def _ask(worker: subprocess.Popen[str]) -> str:
    assert worker.stdin is not None and worker.stdout is not None
    worker.stdin.write("\n")
    worker.stdin.flush()
    line = worker.stdout.readline().strip()
    if not line:
        raise RuntimeError("a worker ended; what it said stands above")
    return line


def _work(name: str, side: str, providers: Path, threads: int, clock: Callable[[], float]) -> int:
    """Open a session, and answer each line: first by a file with what the model computes, then by the time of a run."""
    import onnxruntime as ort

    import tvmconv.onnxruntime

    case = CASES[name]
    path = case.path(providers)
    assert path is not None
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    shapes: Any = case.shapes or None
    model = tvmconv.onnxruntime.with_shapes(path, shapes)
    if side == "tvmconv":
        session = tvmconv.onnxruntime.session(path, providers / f"{name}.so", shapes=shapes, options=options)
    else:
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(0)
    feeds = {each.name: _array(each, generator) for each in session.get_inputs()}
    call = _openvino(model, feeds, threads) if side == "openvino" else lambda: session.run(None, feeds)
    sys.stdin.readline()
    answers = providers / f"{name}-{side}-{os.getpid()}.npz"
    np.savez(answers, *call())
    print(answers, flush=True)
    for _ in sys.stdin:
        print(_time(call, clock), flush=True)
    answers.unlink()
    return 0


def _openvino(model: bytes, feeds: dict[str, np.ndarray], threads: int) -> Callable[[], list[np.ndarray]]:
    """Return a call of a model in OpenVINO, in f32."""
    import openvino

    core = openvino.Core()
    config = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    request = core.compile_model(core.read_model(model), "CPU", config).create_infer_request()

    def call() -> list[np.ndarray]:
        request.infer(feeds, share_inputs=True, share_outputs=True)
        return list(request.results.values())

    return call


def _array(value: Any, generator: np.random.Generator) -> np.ndarray:
    shape = [size if isinstance(size, int) else 1 for size in value.shape]
    if "int" in value.type:
        return np.ones(shape, value.type.removeprefix("tensor(").removesuffix(")"))
    return generator.standard_normal(shape).astype(np.float32)


def _time(call: Callable[[], Any], clock: Callable[[], float]) -> float:
    """Return the median milliseconds of a run."""
    times: list[float] = []
    for _ in range(3):
        call()
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(times) < 5:
        start = clock()
        call()
        times.append(clock() - start)
    return 1e3 * median(times)


if __name__ == "__main__":
    sys.exit(main())
