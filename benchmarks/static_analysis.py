"""The hot loops of default schedules as LLVM's machine code analyzer sees them: multiply-adds as a share of what a core can start.

    python -m benchmarks.static_analysis --target neoverse-n1 --target neoverse-v2 --algorithm direct [SIGNATURE ...]

It knows no caches, and branches cost nothing: a loop that misses its peak here cannot reach it, one that meets it may not.
`llvm-mca` is of LLVM 19 or later (Debian: apt install llvm-19): earlier ones take an A57's model for a Neoverse's.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys

from tvmconv.algorithms import table
from tvmconv.isa import Isa
from tvmconv.lowering.compiler import Choice
from tvmconv.lowering.cpu.kernels import generate, lower_choice
from tvmconv.signature import parse_signature
from tvmconv.targets.target import CpuTarget, Target

ITERATIONS = 200
TOOLS = ("llvm-mca-19", "llvm-mca")
# Of each algorithm a layer that it is for: of the suites, but the transposed one.
LAYERS = {
    "direct": "conv2d-n1-i256x28x28-o512x28x28-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32",
    "winograd4": "conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32",
    "kn2row": "conv2d-n1-i256x33x33-o256x33x33-k3x3-s1x1-d12x12-p12x12_12x12-g1-NXC-XIO-f32",
    "planar": "conv2d-n1-i64x56x56-o64x56x56-k1x1-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f32",
    "grouped": "conv2d-n1-i128x56x56-o128x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g128-NXC-XIO-f32",
    "phased": "backprop2d-n1-i128x16x16-o64x32x32-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-f32",
    "dot": "conv2d-n1-i256x28x28-o512x28x28-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-bf16",
    "mmla": "conv2d-n1-i256x28x28-o512x28x28-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-bf16",
}


def hot_loop(asm: str, isa: Isa) -> list[str]:
    """Return the instructions of the loop that `tvmconv inspect --stage asm` calls hot, up to the jump to its begin.

    Behind that lie blocks that few passes visit: where rows of padding are skipped, for example.
    """
    found = isa.hot_loop(asm)
    lines = list(found.lines) if found else []
    begin = re.match(r"(\.L\w+):", lines[0]) if lines else None
    jumps = [number for number, line in enumerate(lines) if begin and line.endswith(f"\t{begin[1]}")]
    return [line for line in lines[: max(jumps, default=len(lines)) + 1] if line.startswith("\t")]


def cycles(lines: list[str], target: CpuTarget, tool: str) -> float:
    """Return the cycles of one pass through a loop, passes after each other."""
    features = ["-mattr=+bf16"] if target.has_dot and target.isa.dots_by_element else []
    command = [tool, f"-mtriple={target.isa.triple}", f"-mcpu={target.mcpu}", *features, f"-iterations={ITERATIONS}"]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=True)
    found = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
    assert found is not None, done.stdout
    return int(found[1]) / ITERATIONS


def main(words: list[str] | None = None) -> int:
    """Print a line for each target and layer."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.static_analysis", description=__doc__)
    parser.add_argument("signatures", nargs="*", metavar="SIGNATURE", help="layers; by default, one of each algorithm")
    parser.add_argument("--target", action="append", required=True, metavar="TARGET", help="CPUs")
    parser.add_argument("--algorithm", action="append", choices=[*LAYERS], help="by default, all that cover a layer")
    arguments = parser.parse_args(words)
    tool = next(filter(None, map(shutil.which, TOOLS)), None)
    if tool is None:
        print(f"none of {', '.join(TOOLS)} is on the PATH; Debian: apt install llvm-19", file=sys.stderr)
        return 1
    for name in arguments.target:
        target = Target.parse(name)
        assert isinstance(target, CpuTarget), f"{name} is no CPU"
        for algorithm in arguments.algorithm or LAYERS:
            for signature in arguments.signatures or [LAYERS[algorithm]]:
                problem = parse_signature(signature)
                if table.get(algorithm).covers(problem, target) is None:
                    module = lower_choice(problem, target, Choice(algorithm)).module
                    loop = hot_loop(generate(module, target).mod.inspect_source("asm"), target.isa)
                    count, taken = target.isa.multiply_adds(loop), cycles(loop, target, tool)
                    share = count / target.multiply_adds / taken
                    print(f"| {name} | {algorithm} | {count} | {taken:.1f} | {share:.0%} | `{signature}` |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
