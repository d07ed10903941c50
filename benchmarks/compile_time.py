"""From an ONNX file to a first answer: `tvmconv compile` cold, again and with other weights, beside onnxruntime and OpenVINO.

Each is a process from its start to its end. Cold: with an empty cache; again: with what the first left there; other weights: the
network drawn anew, with the same cache. The others read the file, compile it, and answer once. Contenders take turns; printed are the
least of the rounds, in seconds. ``--timing`` prints where each cold compilation's time went.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from tvmconv.cli.output import print_table
from tvmconv.errors import BuildError, TvmconvError

# Of benchmarks.zoo_networks, of benchmarks.models, and of a package.
ZOO = ("mobilenet_v3_large", "resnet18", "squeezenet1_1", "googlenet", "densenet121", "swin_t")
MODELS = ("convnext_tiny", "efficientnet_b0", "unet")
DETECTOR = "detector"
NETWORKS = (*ZOO, *MODELS, DETECTOR)
HEADER = ("network", "cold", "again", "other weights", "onnxruntime", "OpenVINO")
_PEERS = {
    "onnxruntime": """
import sys, numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
shapes = dict(zip([each.name for each in session.get_inputs()], [eval(sys.argv[2])]))
session.run(None, {name: numpy.ones(shape, numpy.float32) for name, shape in shapes.items()})
""",
    "OpenVINO": """
import sys, numpy, openvino
core = openvino.Core()
model = core.read_model(sys.argv[1])
shape = eval(sys.argv[2])
model.reshape(list(shape))
core.compile_model(model, "CPU")(numpy.ones(shape, numpy.float32))
""",
}
_COMMAND = "import sys; from tvmconv.cli import main; sys.exit(main())"
_EXPORT = """
import sys, torch
torch.manual_seed(int(sys.argv[3]))
if sys.argv[1] == "zoo":
    from benchmarks.zoo_networks import NETWORKS
    model, shape = NETWORKS[sys.argv[2]].make().eval(), NETWORKS[sys.argv[2]].shapes[0]
    data = torch.rand(shape)
else:
    from importlib import import_module
    made = import_module(f"benchmarks.models.{sys.argv[2]}")
    model, data = made.model().eval(), made.example()
torch.onnx.export(model, (data.contiguous(),), sys.argv[4], dynamo=False, opset_version=17, input_names=["x"])
print(tuple(data.shape))
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line for each network."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compile_time", description=__doc__)
    parser.add_argument("networks", nargs="*", default=NETWORKS, help=f"of {', '.join(NETWORKS)}; default: all")
    parser.add_argument("--rounds", type=int, default=3, help="default %(default)s")
    parser.add_argument("--timing", action="store_true", help="say where each cold compilation's time went, on stderr")
    arguments = parser.parse_args(argv)
    if unknown := set(arguments.networks) - set(NETWORKS):
        parser.error(f"there is no network {min(unknown)!r}; there are {', '.join(NETWORKS)}")
    rows = []
    try:
        for name in arguments.networks:
            with tempfile.TemporaryDirectory() as folder:
                least = _time(name, Path(folder), arguments.rounds, arguments.timing)
            rows.append((name, *(f"{least[column]:.2f}" for column in HEADER[1:])))
    except TvmconvError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        if rows:
            print_table(HEADER, rows)
    return 0


def _time(name: str, folder: Path, rounds: int, timing: bool) -> dict[str, float]:
    """Return the least seconds of each column."""
    files = [folder / "first.onnx", folder / "other.onnx"]
    shape = str((1, 3, 640, 640))
    if name == DETECTOR:
        package = find_spec("rapidocr_onnxruntime")
        if package is None or not package.submodule_search_locations:
            raise BuildError("the detector is in the package rapidocr-onnxruntime, which is not installed")
        files = [Path(package.submodule_search_locations[0]) / "models/ch_PP-OCRv4_det_infer.onnx"] * 2
    else:
        for seed, file in enumerate(files):
            origin = "zoo" if name in ZOO else "models"
            shape = _run(sys.executable, "-c", _EXPORT, origin, name, str(seed), str(file)).splitlines()[-1]
    least: dict[str, float] = {}
    for number in range(rounds):
        cache = {"TVMCONV_CACHE": str(folder / f"cache{number}")}
        sizes = "x".join(str(each) for each in eval(shape))
        command = (sys.executable, "-c", _COMMAND, "compile", "--shape", sizes, "-o", str(folder / "network.so"))
        steps = {
            "cold": (*command, str(files[0]), *(["--timing"] if timing else [])),
            "again": (*command, str(files[0])),
            "other weights": (*command, str(files[1])),
            **{peer: (sys.executable, "-c", code, str(files[0]), shape) for peer, code in _PEERS.items()},
        }
        for column, step in steps.items():
            start = time.perf_counter()
            _run(*step, quiet=column != "cold" or not timing, **cache)
            least[column] = min(least.get(column, float("inf")), time.perf_counter() - start)
    return least


def _run(*command: str, quiet: bool = True, **environment: str) -> str:
    """Run a program, and return what it prints.

    Raises
    ------
    BuildError
        If it fails, with its last words.
    """
    given = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment}
    done = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{' '.join(command[-4:])}: {done.stderr[-1000:]}")
    if not quiet:
        sys.stderr.write(done.stderr)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
