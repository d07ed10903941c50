"""What an activation adds to the time of a kernel that waits for memory: depthwise 3x3 f32, with and without, in turns.

Printed are microseconds without, and by how many percent each activation makes the kernel slower: medians of all samples.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import tvmconv
from tvmconv.cli.output import print_table
from tvmconv.epilogue import parse_epilogue
from tvmconv.fills import random_fill
from tvmconv.measuring.timing import sample_call
from tvmconv.problem import Problem
from tvmconv.runtime.processors import kernel_threads
from tvmconv.signature import parse_signature

from .machine import CLOCKS

ACTIVATIONS = ("relu", "hardswish", "elu(1)", "sigmoid", "tanh", "silu", "gelu", "gelu_tanh")
# Input and output together: 0.4 MB, 12.8 MB and 103 MB, as L2 keeps, L3, and none.
SHAPES = {"L2": (64, 28), "L3": (128, 112), "memory": (256, 224)}
SECONDS = 0.05  # of each kernel in each round


def main(argv: Sequence[str] | None = None) -> int:
    """Time all activations."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.activations", description=__doc__)
    parser.add_argument("activations", nargs="*", default=ACTIVATIONS, help=f"default: {', '.join(ACTIVATIONS)}")
    parser.add_argument("--threads", type=int, default=kernel_threads(), help="default: all")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="cpu: what the process had of the processors; default: %(default)s",
    )
    arguments = parser.parse_args(argv)
    if arguments.clock == "cpu" and arguments.threads > 1:
        parser.error("--clock cpu adds up the time of all threads, waiting ones too: give --threads 1 with it")
    names = ["", *arguments.activations]
    table = []
    for place, (channels, size) in SHAPES.items():
        shape = f"{channels}x{size}x{size}"
        plain = parse_signature(f"conv2d-n1-i{shape}-o{shape}-k3x3-s1x1-d1x1-p1x1_1x1-g{channels}-NXC-XIO-f32-bias")
        problems = [plain.with_(epilogue=parse_epilogue(name or None)) for name in names]
        with tempfile.TemporaryDirectory() as folder:
            calls = _calls(problems, Path(folder), arguments.threads)
            samples: list[list[float]] = [[] for _ in calls]
            for _ in range(arguments.rounds):
                for call, taken in zip(calls, samples, strict=True):
                    taken += sample_call(call, SECONDS, CLOCKS[arguments.clock])
        bare, *others = map(median, samples)
        table.append((place, shape, f"{1e6 * bare:.1f}", *(f"{100 * (other / bare - 1):.0f}" for other in others)))
    print_table(("in", "channels, pixels", "us", *(f"{name} %" for name in names[1:])), table)
    return 0


def _calls(problems: Sequence[Problem], folder: Path, threads: int) -> list[Callable[[], object]]:
    """Return a call of each problem's kernel, all with the same input and output."""
    registry = tvmconv.load(tvmconv.build(problems, folder / "bundle"), threads=threads)
    arrays = random_fill(problems[0]).given()
    data, filter, bias = arrays["data"], arrays["filter"], arrays["bias"]
    kernels = [registry[problem] for problem in problems]
    out = kernels[0](data, filter, bias)
    return [partial(kernel, data, filter, bias, out) for kernel in kernels]


if __name__ == "__main__":
    sys.exit(main())
