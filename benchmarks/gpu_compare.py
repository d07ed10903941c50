"""Compare tvmconv's CUDA kernels with cuDNN, problem by problem, until the time is used up.

cuDNN is called through PyTorch with `cudnn.benchmark`, on channels_last and on contiguous tensors, and the faster counts.
Both sides are timed between CUDA events, in turns, on arrays that are not in the cache; short calls are captured in CUDA
graphs on both sides. Beside each time stands the share of the limit: what the problem takes at the matrix rate and the
bandwidth that were measured, whichever is longer. With --dry the CPU stands in for the GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import torch

from tvmconv import Registry, load
from tvmconv.algorithms.table import MATHS
from tvmconv.building.builder import build
from tvmconv.cli.output import print_table
from tvmconv.errors import KernelNotFoundError
from tvmconv.problem import DTYPES as TYPES
from tvmconv.problem import Problem
from tvmconv.signature import format_signature, parse_signature
from tvmconv.targets.cuda import SPECIFIC
from tvmconv.tuning.records import Records

from . import gpu_cudnn
from .gpu_device import DTYPES, Contender, Device, DryDevice, GpuDevice, bandwidth, matrix_rate, sets_for
from .gpu_problems import group_of, problems_of
from .peers import UnsupportedError

# Problems built together: enough to keep all cores busy, few enough to stop in time.
CHUNK = 32
ROUNDS = 7
# Relative L2 difference of two right answers: sums in f32 in any order, one rounding; TF32 multiplies 10 bits.
TOLERANCE = {"f32": 1e-5, "f16": 2e-3, "bf16": 1e-2}
TF32_TOLERANCE = 2e-3


Kernels = Callable[[list[Problem]], Iterator[tuple[Registry, list[Problem]]]]


def built_here(target: str, math: str, records: Records) -> Kernels:
    """Return what builds kernels, some problems at a time, and yields the registry of each bundle."""

    def build_all(problems: list[Problem]) -> Iterator[tuple[Registry, list[Problem]]]:
        with tempfile.TemporaryDirectory() as folder:
            for start in range(0, len(problems), CHUNK):
                chunk = problems[start : start + CHUNK]
                path = Path(folder) / f"{start}.bundle"
                build(chunk, path, target, math=math, verify=False, records=records)
                yield load(path), chunk

    return build_all


def built_before(paths: list[str]) -> Kernels:
    """Return what yields the registry of some bundles, and all problems."""
    registry = load(*paths)
    return lambda problems: iter([(registry, problems)])


@dataclass(frozen=True)
class Row:
    """What was measured for one problem.

    Attributes
    ----------
    signature, group
        The problem, and which mean it counts to.
    algorithm, origin
        Of our kernel.
    seconds, cudnn
        Of a call: ours, and cuDNN's in each memory format.
    limit_seconds
        What the measured matrix rate and bandwidth allow at best.
    graph
        Whether calls were captured.
    difference
        Relative L2 difference of the two outputs.
    """

    signature: str
    group: str
    algorithm: str
    origin: str
    seconds: float
    cudnn: dict[str, float]
    limit_seconds: float
    graph: bool
    difference: float

    @property
    def ratio(self) -> float:
        """cuDNN's time / our time."""
        return min(self.cudnn.values()) / self.seconds


class Comparison:
    """Times problems on one device.

    Parameters
    ----------
    device
        What it runs on.
    kernels
        Yields the registries that problems' kernels are in, with some of the problems in turn.
    math
        How they were built.
    """

    def __init__(self, device: Device, kernels: Kernels, math: str) -> None:
        self.device = device
        self._kernels = kernels
        gpu_cudnn.use_cudnn(tf32=math == "tf32")
        self.bandwidth = bandwidth(device)
        self.rates = {dtype: matrix_rate(device, dtype) for dtype in TYPES}

    def rows(self, problems: list[Problem], seconds: float) -> Iterator[Row | str]:
        """Yield a row for each problem, or why there is none, until the seconds are used up."""
        end = time.monotonic() + seconds
        done = 0
        for registry, chunk in self._kernels(problems):
            for problem in chunk:
                if time.monotonic() >= end:
                    yield f"no time was left for {len(problems) - done} of {len(problems)} problems"
                    return
                done += 1
                try:
                    kernel = registry.lookup(problem, self.device.name)
                except KernelNotFoundError as error:
                    yield str(error)
                    continue
                yield self._row(kernel, problem)

    def _row(self, kernel: Any, problem: Problem) -> Row | str:
        sets = [self._arrays(problem) for _ in range(sets_for(problem, self.device))]
        outs = [torch.empty(problem.output_shape, dtype=DTYPES[problem.dtype], device=self.device.name) for _ in sets]
        ours = [partial(kernel, *arrays, out=out) for arrays, out in zip(sets, outs, strict=True)]
        answer = ours[0]()
        contenders, difference = {"": Contender(self.device, ours)}, 0.0
        for memory_format in gpu_cudnn.FORMATS:
            try:
                theirs = [gpu_cudnn.prepare(problem, arrays, memory_format) for arrays in sets]
                expected = gpu_cudnn.in_layout(theirs[0](), problem).float()
            except (UnsupportedError, RuntimeError) as error:
                return f"{format_signature(problem)}: cuDNN has no answer: {str(error).partition(chr(10))[0]}"
            difference = max(difference, _relative(answer.float(), expected))
            contenders[memory_format] = Contender(self.device, theirs)
        samples = [{name: each.sample() for name, each in contenders.items()} for _ in range(ROUNDS)]
        medians = {name: median(taken[name] for taken in samples) for name in contenders}
        return Row(
            format_signature(problem),
            group_of(problem),
            kernel.info.algorithm,
            kernel.info.origin,
            medians.pop(""),
            medians,
            max(problem.flops / self.rates[problem.dtype], problem.nbytes / self.bandwidth),
            contenders[""].is_graph,
            difference,
        )

    def _arrays(self, problem: Problem) -> tuple[Any, Any, Any]:
        shapes = (problem.data_shape, problem.filter_shape, problem.bias_shape if problem.bias else None)
        data, filter_, bias = (
            None if shape is None else torch.randn(shape, device=self.device.name).to(DTYPES[problem.dtype])
            for shape in shapes
        )
        return data, filter_, bias


def _relative(got: Any, expected: Any) -> float:
    return float(torch.linalg.vector_norm(got - expected) / torch.linalg.vector_norm(expected).clamp_min(1e-30))


def main() -> int:
    """Run the comparison that the command line asks for; exit with 1 if a kernel is wrong or no problem was compared."""
    arguments = _arguments()
    device: Device = DryDevice() if arguments.dry else GpuDevice()
    if arguments.bundle:
        kernels = built_before(arguments.bundle)
    else:
        kernels = built_here(arguments.target, arguments.math, Records(arguments.records))
    comparison = Comparison(device, kernels, arguments.math)
    if arguments.sources:
        problems = problems_of(arguments.sources, arguments.batch or [1, 32], arguments.dtype or list(TYPES))
    else:
        problems = [parse_signature(signature) for signature in load(*arguments.bundle)]
    rows: list[Row] = []
    facts = {
        "device": device.label,
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "kernels": arguments.bundle or arguments.target,
        "math": arguments.math,
        "matrix_rates": comparison.rates,
        "bandwidth": comparison.bandwidth,
    }
    for row in comparison.rows(problems, arguments.seconds):
        if isinstance(row, Row):
            rows.append(row)
            if arguments.output:  # a kernel may end this process, and the time of the machine is short
                _write(arguments.output, facts, rows)
        else:
            print(row, file=sys.stderr, flush=True)
    wrong = [row for row in rows if not row.difference <= _tolerance(row, arguments.math)]
    _print(rows, comparison)
    for row in wrong:
        print(f"WRONG: {row.signature} by {row.algorithm} differs from cuDNN by {row.difference:.1e}", file=sys.stderr)
    return int(bool(wrong) or not rows)


def means(rows: list[Row]) -> dict[str, float]:
    """Return the geometric mean of the ratios of each group."""
    groups = sorted({row.group for row in rows})
    return {group: geometric_mean(row.ratio for row in rows if row.group == group) for group in groups}


def _write(path: Path, facts: dict[str, Any], rows: list[Row]) -> None:
    """Write the report, whole or not at all."""
    report = {**facts, "means": means(rows), "rows": [{**asdict(row), "ratio": row.ratio} for row in rows]}
    new = path.with_name(f".{path.name}")
    new.write_text(json.dumps(report, indent=1) + "\n")
    new.replace(path)


def _tolerance(row: Row, math: str) -> float:
    dtype = row.group.split()[1]
    return TF32_TOLERANCE if math == "tf32" and dtype == "f32" else TOLERANCE[dtype]


def _print(rows: list[Row], comparison: Comparison) -> None:
    table = [
        (
            row.signature,
            row.algorithm,
            row.origin,
            f"{row.seconds * 1e6:.1f}",
            f"{100 * row.limit_seconds / row.seconds:.0f}",
            *(f"{row.cudnn[each] * 1e6:.1f}" for each in gpu_cudnn.FORMATS),
            f"{row.ratio:.2f}",
        )
        for row in rows
    ]
    header = (
        "signature",
        "algorithm",
        "origin",
        "us",
        "% of limit",
        *(f"{each} us" for each in gpu_cudnn.FORMATS),
        "x",
    )
    print_table(header, table)
    rates = ", ".join(f"{dtype} {rate / 1e12:.1f} TFLOP/s" for dtype, rate in comparison.rates.items())
    print(f"\n{comparison.device.label}: {rates}, {comparison.bandwidth / 1e12:.2f} TB/s")
    counts = [
        (group, str(sum(row.group == group for row in rows)), f"{mean:.3f}") for group, mean in means(rows).items()
    ]
    print_table(("group", "problems", "cuDNN time / our time"), counts)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_compare", description=__doc__)
    parser.add_argument(
        "sources", nargs="*", metavar="SOURCE", help="TOML suites, ONNX files or signatures; default: all of --bundle"
    )
    parser.add_argument("--target", default=f"cuda:{SPECIFIC}", help="default: %(default)s; with --dry a CPU")
    parser.add_argument("--batch", type=int, action="append", help="may be repeated; default 1 and 32")
    parser.add_argument("--dtype", choices=TYPES, action="append", help="may be repeated; default: all")
    parser.add_argument("--math", choices=MATHS, default="default", help="tf32 allows cuDNN TF32 too")
    parser.add_argument("--seconds", type=float, default=300, help="begin no more problems after this, default 300")
    parser.add_argument("--records", help="folder of tuning records; default: the user's and the shipped")
    parser.add_argument(
        "--bundle", action="append", help="kernels built before, with no compiler here; may be repeated: tuned ones win"
    )
    parser.add_argument("--output", type=Path, help="write a JSON report to this file, again with each row")
    parser.add_argument("--dry", action="store_true", help="let the CPU stand in for the GPU")
    arguments = parser.parse_args()
    if not arguments.sources and not arguments.bundle:
        parser.error("give sources to compare, or --bundle")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
