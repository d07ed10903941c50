"""Whole ONNX networks as `tvmconv compile` builds them, beside onnxruntime and OpenVINO, f32.

Each contender has a process of its own, and they take turns, so that all meet the same machine. Printed are the least times in
milliseconds; the ratio is the faster peer's time by ours, above 1 ours is faster. `others` is the share of our time that is
outside our kernels, and `most` the operator that takes the most of it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from tvmconv.cli.output import print_table
from tvmconv.errors import SourceError
from tvmconv.frontends.shapes import Bucket
from tvmconv.isa.machine import model_name
from tvmconv.support.workers import Worker

from .commands import print_errors
from .machine import CLOCKS
from .models import NETWORKS
from .onnx_network import CONTENDERS, ONNXRUNTIME, OPENVINO, OURS, Task, export_model, measure

# Files that packages ship: the package, the file, and the shape of the input.
SHIPPED = {
    "classifier": ("rapidocr_onnxruntime", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx", (1, 3, 48, 192)),
    "detector": ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx", (1, 3, 640, 640)),
    "yolov8n": ("nudenet", "320n.onnx", (1, 3, 320, 320)),
}
ROUNDS = 7


@print_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Time networks; return 1 if one could not be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.onnx_networks", description=__doc__)
    names = (*NETWORKS, *SHIPPED)
    parser.add_argument("networks", nargs="*", help=f"of {', '.join(names)}; default: all")
    parser.add_argument("--libraries", help="folder that keeps what was compiled for another run")
    parser.add_argument("--layout", choices=("NXC", "NCX"), help="as of tvmconv compile, default NXC")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each in each round, default %(default)s")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all")
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="cpu: what the process had of the processors; default: %(default)s",
    )
    arguments = parser.parse_args(argv)
    if arguments.clock == "cpu" and arguments.threads > 1:
        parser.error("--clock cpu adds up the time of all threads, waiting ones too: give --threads 1 with it")
    print(f"{model_name()}, {arguments.threads} threads", file=sys.stderr)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        for name in arguments.networks or names:
            folder = Path(arguments.libraries or temporary) / f"{name}-{arguments.layout or 'NXC'}"
            folder.mkdir(parents=True, exist_ok=True)
            make_ready(name, folder, arguments.layout)
            rows.append((name, *_times(folder, arguments.seconds, arguments.threads, arguments.clock)))
    print_table(("network", *CONTENDERS, "ratio", "others %", "most", "%"), rows)
    return 0


def make_ready(name: str, folder: Path, layout: str | None) -> None:
    """Write the model with its shapes fixed, its input, and our library, unless they are there."""
    if (folder / "network.so").exists():
        return
    from tvmconv.network.compile import build
    from tvmconv.network.read.onnx.reader import read_onnx

    shape = write_model(name, folder)
    np.save(folder / "input.npy", np.random.default_rng(0).standard_normal(shape).astype(np.float32))
    build(read_onnx(str(folder / "model.onnx")), folder / "network.so", layout=layout)


def write_model(name: str, folder: Path) -> tuple[int, ...]:
    """Write a network as ``model.onnx`` of fixed shapes into a folder; return its input's shape.

    Raises
    ------
    SourceError
        If the package that ships it is not installed.
    """
    from tvmconv.network.read.onnx.reader import fix_shapes

    if name in NETWORKS:
        source = str(folder / "exported.onnx")
        exporter = Worker(export_model, 2, torch=True)
        shape: tuple[int, ...] = exporter.call((name, source))
        exporter.close()
    else:
        package, file, shape = SHIPPED[name]
        found = find_spec(package)
        if found is None or not found.submodule_search_locations:
            raise SourceError(f"the package {package} is not installed: pip install --no-deps {package}")
        source = str(Path(found.submodule_search_locations[0]) / file)
    (folder / "model.onnx").write_bytes(fix_shapes(source, Bucket({"": shape})).SerializeToString())
    return shape


def _times(folder: Path, seconds: float, threads: int, clock: str) -> tuple[str, ...]:
    workers = {name: Worker(measure, threads) for name in CONTENDERS}
    least = dict.fromkeys(CONTENDERS, float("inf"))
    try:
        workers[ONNXRUNTIME].call(Task(ONNXRUNTIME, str(folder), 0.0, threads))  # writes what is expected
        for _ in range(ROUNDS):
            for name, worker in workers.items():
                taken = worker.call(Task(name, str(folder), seconds, threads, clock)).samples
                least[name] = min(least[name], *taken)
        parts = workers[OURS].call(Task(OURS, str(folder), seconds, threads, parts=True)).operators
    finally:
        for worker in workers.values():
            worker.close()
    total = sum(took for *_, took in parts)
    others = [(name, took) for name, ours, took in parts if not ours]
    most, took = max(others, key=lambda each: each[1])
    ratio = min(least[ONNXRUNTIME], least[OPENVINO]) / least[OURS]
    shares = f"{100 * sum(took for _, took in others) / total:.1f}", most, f"{100 * took / total:.1f}"
    return (*(f"{1e3 * least[name]:.3f}" for name in CONTENDERS), f"{ratio:.2f}", *shares)


if __name__ == "__main__":
    sys.exit(main())
