"""Prepare a folder that runs tests, comparisons and tuning on a machine with a GPU and without TVM, nvcc or a network.

It holds this checkout's Python code, the wheels that it needs for the Python there, and in parts what is compiled: the tests'
kernels, the comparison's bundles, and candidates to tune by. `benchmarks/gpu.sh --from FOLDER OUT` runs it. A part is
written whole or not at all, and another run may replace one part alone; the code is always written again.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from tvmconv.building.builder import build
from tvmconv.errors import TvmconvError
from tvmconv.problem import DTYPES, Problem
from tvmconv.signature import parse_signature
from tvmconv.targets.cuda import SPECIFIC
from tvmconv.targets.target import Target
from tvmconv.tuning.records import Records

from .gpu_candidates import build_ahead
from .gpu_problems import problems_of

ROOT = Path(__file__).parents[1]
SUITES = [f"benchmarks/suites/{name}.toml" for name in ("resnet50", "mobilenet_v1", "resnext", "dcgan", "unet")]
VIDEO = "benchmarks/suites/gpu/video_vae.toml"
# What a dry run compares and tunes, on a CPU of any kind.
DRY, CPU = "conv2d-n1-i16x8x8-o16x8x8-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32", "x86-64-v3"
WHEELS = "wheels"
PARTS = ("tests", "compare", "tune")
# One trip carries 64 MiB, the checkout itself among them.
MOST_BYTES = 60_000_000
# The oldest glibc that the wheel may be for, as pip names it: any newer machine takes it.
PLATFORM = "manylinux_2_28_x86_64"


def main() -> int:
    """Write the folder, and say what it holds."""
    arguments = _arguments()
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    try:
        target = Target.parse(arguments.target)
        _write(folder, "code", lambda work: _code(work, arguments.python))
        makers: dict[str, Callable[[Path], object]] = {
            "tests": lambda work: _tests(work, target, arguments.shapes),
            "compare": lambda work: _compare(work, target, arguments),
            "tune": lambda work: _tune(work, target, arguments),
        }
        for part in arguments.part or PARTS:
            _write(folder, part, makers[part])
    except (TvmconvError, subprocess.CalledProcessError) as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        return 3
    shutil.copy2(ROOT / "benchmarks/gpu.sh", folder)
    total = 0
    for path in sorted(folder.glob("*.tar.xz")):
        total += path.stat().st_size
        print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")
    print(f"{folder}: {total / 1e6:.1f} MB")
    if total > MOST_BYTES:
        print(f"that is over {MOST_BYTES / 1e6:.0f} MB; ask for fewer problems or candidates", file=sys.stderr)
    return int(total > MOST_BYTES)


def _write(folder: Path, part: str, fill: Callable[[Path], object]) -> None:
    """Fill an empty folder and archive its content as the part of this name."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".") as name:
        work = Path(name) / part
        work.mkdir()
        fill(work)
        archive = Path(name) / "archive"
        with tarfile.open(archive, "w:xz") as tar:
            tar.add(work, part)
        archive.replace(folder / f"{part}.tar.xz")
    print(f"{part}: done", file=sys.stderr)


def _code(work: Path, python: str) -> None:
    """Lay out the packages as pyproject.toml installs them, the benchmarks and tests beside them, and what they import."""
    for source, to in (
        ("tvmconv", "tvmconv"), ("tuning_logs", "tvmconv/tuning_logs"),
        ("benchmarks", "benchmarks"), ("tests", "tests"),
    ):  # fmt: skip
        ignored = shutil.ignore_patterns("__pycache__", "results", "golden", "conformance")
        shutil.copytree(ROOT / source, work / to, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", work)
    with tempfile.TemporaryDirectory() as wheels:
        ffi = f"apache-tvm-ffi=={version('apache-tvm-ffi')}"
        wanted = ("--only-binary=:all:", "--implementation=cp", f"--python-version={python}", f"--platform={PLATFORM}")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *wanted, "--dest", wheels, ffi]
        # Tuning locks the records that it writes.
        others = ["typing-extensions", "filelock", *(["tomli"] if python == "3.10" else [])]
        subprocess.run([*command, *others], check=True)
        for wheel in Path(wheels).glob("*.whl"):
            shutil.unpack_archive(wheel, work / WHEELS, "zip")


def _tests(work: Path, target: Target, shapes: list[str] | None) -> None:
    sys.path.insert(0, str(ROOT / "tests"))  # as pytest has it, and so have the workers
    from gpu_kernels import SHAPES, write_kernels  # type: ignore[import-not-found]

    # Of an architecture's own target the tests take what the general one lacks.
    write_kernels(work, Target.parse(target.name.removesuffix("a")), shapes or SHAPES, CPU)


def _problems(arguments: argparse.Namespace) -> tuple[list[Problem], list[Problem]]:
    """Return the problems for which everything is built, and the large ones, of one type and batch."""
    sources = [str(ROOT / each) for each in SUITES] if arguments.sources is None else arguments.sources
    large = [] if arguments.sources is not None else problems_of([str(ROOT / VIDEO)], [1], ["bf16"])
    return problems_of(sources, arguments.batch or [1, 32], arguments.dtype or list(DTYPES)), large


def _compare(work: Path, target: Target, arguments: argparse.Namespace) -> None:
    problems, large = _problems(arguments)
    records = Records(arguments.records)
    build([*problems, *large], work / "default.bundle", target.name, records=records, progress=_say("default"))
    if f32 := [problem for problem in problems if problem.dtype == "f32"]:
        build(f32, work / "tf32.bundle", target.name, math="tf32", records=records, progress=_say("tf32"))
    build([parse_signature(DRY)], work / "dry.bundle", CPU, verify=False)


def _tune(work: Path, target: Target, arguments: argparse.Namespace) -> None:
    problems, large = _problems(arguments)
    records = Records(arguments.records)
    chosen = (large + problems)[: arguments.problems]
    for name, tuned, to in (("gpu", chosen, target), ("dry", [parse_signature(DRY)], Target.parse(CPU))):
        (work / name).mkdir()
        known = Records(arguments.records, shipped=False).winners(to)
        machine = known[0].machine if known else ""
        build_ahead(tuned, to, arguments.candidates, work / name, records, machine, "default")
    # What was measured there before comes along, so that it is not measured again.
    if arguments.records and (measured := Path(arguments.records) / target.folder).is_dir():
        shutil.copytree(measured, work / "records" / target.folder)


def _say(what: str) -> Callable[[int, int, str], None]:
    def progress(done: int, total: int, name: str) -> None:
        if done % 20 == 0 or done == total:
            print(f"{what}: {done} of {total} kernels", file=sys.stderr)

    return progress


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_prepare", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the parts go")
    parser.add_argument("--part", choices=PARTS, action="append", help="may be repeated; default: all")
    parser.add_argument(
        "--target", default=f"cuda:{SPECIFIC}", help="of what is compared and tuned; default: %(default)s"
    )
    parser.add_argument("--python", default="3.12", help="the version of Python there; default: %(default)s")
    parser.add_argument(
        "--source", dest="sources", action="append", help="a suite or signature; default: all that gpu.sh compares"
    )
    parser.add_argument(
        "--shape", dest="shapes", action="append", help="of a test, {} for the type; default: all of tests/gpu"
    )
    parser.add_argument("--batch", type=int, action="append", help="may be repeated; default 1 and 32")
    parser.add_argument("--dtype", choices=DTYPES, action="append", help="may be repeated; default: all")
    parser.add_argument(
        "--problems", type=int, default=60, help="how many to build candidates for; default: %(default)s"
    )
    parser.add_argument("--candidates", type=int, default=12, help="how many of each; default: %(default)s")
    parser.add_argument("--records", help="what was measured there before: the search for candidates goes on from it")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
