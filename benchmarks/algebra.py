"""What the algebra of fixed filters is worth, block by block: ours as written and joined, in turns.

Blocks are those of ACNet, diverse branches, adapters beside a Linear, decoders that upsample, concatenations, resizes and pools, of
other sizes than rules were fitted to. Printed are medians in milliseconds, the ratio (above 1, joining gains), and what was done;
blocks that stay as they are have no times. Answers are compared with PyTorch's.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np
import torch

from tvmconv.accuracy import relative_error
from tvmconv.cli.output import print_table
from tvmconv.errors import VerificationError
from tvmconv.measuring.timing import sample_call
from tvmconv.runtime.networks.network import Network

from .algebra_blocks import BLOCKS, Block
from .models.weights import settle
from .zoo_contenders import ALLOWED_ERROR
from .zoo_files import write_ours


def main(argv: Sequence[str] | None = None) -> int:
    """Time blocks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.algebra", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="blocks whose names begin so; default: all")
    parser.add_argument("--folder", type=Path, help="keeps what is compiled for another run; default: a temporary one")
    parser.add_argument("--prepare", action="store_true", help="compile into the folder, and time nothing")
    parser.add_argument("--rounds", type=int, default=7, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=0.05, help="of each in each round, default: %(default)s")
    arguments = parser.parse_args(argv)
    names = [name for name in BLOCKS if name.startswith(tuple(arguments.only or [""]))]
    if not names:
        parser.error(f"--only {' '.join(arguments.only)}: no block begins so; there are {', '.join(BLOCKS)}")
    if arguments.prepare and arguments.folder is None:
        parser.error("--prepare keeps what it makes: give --folder with it")
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        for name in names:
            print(f"compiling {name}", file=sys.stderr)
            _prepare(BLOCKS[name], _at(folder, name))
        if not arguments.prepare:
            _print([_row(name, _at(folder, name), arguments) for name in names])
    return 0


def _at(folder: Path, name: str) -> Path:
    return folder / name.replace(" ", "_").replace(",", "")


@torch.no_grad()  # type: ignore[untyped-decorator]
def _prepare(block: Block, folder: Path) -> None:
    """Write what is not there yet: both networks, the inputs and the answer."""
    if (folder / "arrays.npz").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    inputs = tuple(torch.randn(shape) for shape in block.shapes)
    model = settle(block.make(), inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for joins in (True, False):
            write_ours(model, inputs, "f32", _library(folder, joins), joins)
    np.savez(folder / "arrays.npz", model(*inputs).numpy(), *(each.numpy() for each in inputs))


def _library(folder: Path, joins: bool) -> Path:
    return folder / ("joined.so" if joins else "as_written.so")


def _row(name: str, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the samples of a block both ways, and what was done to it."""
    with np.load(folder / "arrays.npz") as arrays:
        expected, *inputs = (arrays[each] for each in arrays.files)
    networks = [Network(_library(folder, joins)) for joins in (False, True)]
    calls, samples = [], [list[float]() for _ in networks]
    for network in networks:
        given = {each.name: array for each, array in zip(network.inputs, inputs, strict=True)}
        (answer,) = network(**given).values()
        if not (error := relative_error(np.asarray(answer), expected)) <= ALLOWED_ERROR["f32"]:
            raise VerificationError(f"{name}: {network.file.path} is wrong: the relative L2 error is {error:.2g}")
        calls.append(network.call(given))
    joined = networks[1].description["rewrites"]
    for _ in range(arguments.rounds if joined else 0):
        for call, taken in zip(calls, samples, strict=True):
            taken += sample_call(call, arguments.seconds)
    return {"name": name, "joined": joined, "seconds": [median(taken) if taken else None for taken in samples]}


def _print(rows: Sequence[dict[str, Any]]) -> None:
    table, ratios = [], []
    for row in rows:
        before, after = row["seconds"]
        said = "; ".join(line.partition(": ")[2] for line in row["joined"])
        times = ["-", "-", "-"]
        if before is not None:
            ratios.append(before / after)
            times = [f"{1e3 * before:.3f}", f"{1e3 * after:.3f}", f"{ratios[-1]:.2f}"]
        table.append((row["name"], *times, said or "stays"))
    print_table(("block", "as written", "joined", "ratio", "what was done"), table)
    if ratios:
        print(
            f"{len(ratios)} are joined: {geometric_mean(ratios):.2f} by the geometric mean, {min(ratios):.2f} at least"
        )


if __name__ == "__main__":
    sys.exit(main())
