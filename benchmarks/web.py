"""Networks in a headless Chromium as `tvmconv compile --format web` writes them, beside onnxruntime-web, f32.

Each library has a page of its own in a browser of its own, isolated, and they take turns, so that all meet the same machine.
Printed are the least times in milliseconds; the ratio is onnxruntime-web's time by ours, above 1 ours is faster. `first` is the time
from the last byte's arrival to the first answer; `KB` is the code, with `gzip -9` in brackets: of ours the
network's, of onnxruntime-web its runtime's.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import onnx

from tvmconv import cli
from tvmconv.cli.output import print_table
from tvmconv.errors import SourceError, VerificationError
from tvmconv.isa.machine import model_name

from .browser import CHROMIUM, visit
from .commands import print_errors
from .models import NETWORKS
from .onnx_networks import SHIPPED, write_model
from .zoo_contenders import MODELS, ONNXRUNTIME
from .zoo_files import Preparation, prepare
from .zoo_networks import NETWORKS as ZOO

PACKAGE = "onnxruntime-web"
DEFAULT = (
    "mobilenet_v3_large",
    "resnet18",
    "efficientnet_lite0",
    "efficientnet_b0",
    "lraspp_mobilenet_v3_large",
    "detector",
)
ROUNDS = 3
LIBRARIES = ("ours", "onnxruntime")
_CODE = {"ours": "model-relaxed-threads.wasm", "onnxruntime": "ort-wasm-simd-threaded.wasm"}


@print_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Time networks; return 1 if one could not be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.web", description=__doc__)
    parser.add_argument(
        "networks", nargs="*", help=f"of {', '.join(sorted({*NETWORKS, *SHIPPED, *ZOO}))}; default: {' '.join(DEFAULT)}"
    )
    parser.add_argument("--peer", type=Path, help=f"folder of the unpacked package {PACKAGE}; default: npm fetches it")
    parser.add_argument("--folder", type=Path, help="keeps what was compiled for another run")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each in each round, default %(default)s")
    parser.add_argument("--threads", type=int, nargs="+", default=(1, 2), help="default: 1 2")
    parser.add_argument(
        "--clock",
        choices=("wall", "cpu"),
        default="wall",
        help="cpu, of one thread: what the page's busiest thread computed, a call by the mean, for busy machines; default: %(default)s",
    )
    arguments = parser.parse_args(argv)
    if arguments.clock == "cpu" and list(arguments.threads) != [1]:
        parser.error("--clock cpu does not say what threads wait for: give --threads 1 with it")
    rows: list[tuple[str, ...]] = []
    ratios: dict[int, list[float]] = {threads: [] for threads in arguments.threads}
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        version = _add_peer(folder, arguments.peer)
        browser = subprocess.run(
            [str(CHROMIUM), "--version"], capture_output=True, text=True, check=True
        ).stdout.strip()
        print(f"{model_name()}, {browser}, {PACKAGE} {version}", file=sys.stderr)
        for name in arguments.networks or DEFAULT:
            _make_ready(name, folder / name)
            for threads in arguments.threads:
                row, ratio = _race(folder, name, arguments.seconds, threads, arguments.clock)
                ratios[threads].append(ratio)
                rows.append((name, str(threads), *row, f"{ratio:.2f}"))
    names = (
        "network",
        "threads",
        *(f"{each}{what}" for each in LIBRARIES for what in ("", ", first", ", KB")),
        "ratio",
    )
    print_table(names, rows)
    for threads, found in ratios.items():
        print(f"{threads} threads: mean ratio {np.exp(np.log(found).mean()):.2f}, least {min(found):.2f}")
    return 0


def _add_peer(folder: Path, package: Path | None) -> str:
    """Put onnxruntime-web's files and the page into a folder; return its version."""
    shutil.copy(Path(__file__).with_name("web.html"), folder)
    with tempfile.TemporaryDirectory() as temporary:
        if package is None:
            done = subprocess.run(["npm", "pack", PACKAGE], cwd=temporary, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SourceError(f"npm cannot fetch {PACKAGE}: {done.stderr.strip()}")
            archive = next(Path(temporary).glob("*.tgz"))
            shutil.unpack_archive(archive, temporary)
            package = Path(temporary) / "package"
        (folder / "onnxruntime").mkdir(parents=True, exist_ok=True)
        for file in ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.wasm", "ort-wasm-simd-threaded.mjs"):
            shutil.copy(package / "dist" / file, folder / "onnxruntime")
        return str(json.loads((package / "package.json").read_text())["version"])


def _make_ready(name: str, folder: Path) -> None:
    """Write the model with its shapes fixed and our network, unless they are there."""
    if (folder / "model.js").exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        if name in ZOO and name not in NETWORKS:
            prepare(Preparation(name, "f32", temporary, (ONNXRUNTIME,)))
        else:
            write_model(name, Path(temporary))
        model = Path(temporary) / MODELS[ONNXRUNTIME]
        if cli.main(["compile", str(model), "--format", "web", "-o", str(folder)]):
            raise SourceError(f"{name} was not compiled")
        shutil.copy(model, folder)


def _race(folder: Path, name: str, seconds: float, threads: int, clock: str) -> tuple[list[str], float]:
    graph = onnx.load(folder / name / "model.onnx").graph
    shape = [axis.dim_value for axis in graph.input[0].type.tensor_type.shape.dim]
    given = {
        "folder": name,
        "seconds": seconds,
        "threads": threads,
        "input": graph.input[0].name,
        "shape": "x".join(map(str, shape)),
    }
    answers: dict[str, list[Any]] = {library: [] for library in LIBRARIES}
    for _ in range(ROUNDS):
        for library in LIBRARIES:
            answers[library].append(visit(folder, f"web.html?{urlencode({'library': library, **given})}"))
            if error := answers[library][-1].get("error"):
                raise VerificationError(f"{name} by {library}: {error}")
    ours, theirs = (np.array(answers[library][0]["output"]) for library in LIBRARIES)
    # Of the detector's shares all may be nearly 0, for which onnxruntime has 0: they then differ by some 2e-11.
    if not np.linalg.norm(ours - theirs) <= 1e-3 * np.linalg.norm(theirs) + 1e-9:
        raise VerificationError(f"{name}: the answers differ")
    row, least = [], {}
    for library, found in answers.items():
        times = [min(each["times"]) if clock == "wall" else 1e3 * each["cpu"] / len(each["times"]) for each in found]
        least[library] = min(times)
        first = min(each["first"] for each in found)
        row += [
            f"{least[library]:.1f}",
            f"{first:.0f}",
            _size(folder / (name if library == "ours" else library) / _CODE[library]),
        ]
    return row, least["onnxruntime"] / least["ours"]


def _size(file: Path) -> str:
    content = file.read_bytes()
    return f"{len(content) / 1e3:.0f} ({len(gzip.compress(content, 9)) / 1e3:.0f})"


if __name__ == "__main__":
    sys.exit(main())
