"""Kernels of families at sizes that nobody named, beside the kernel that `build` chooses for the size, and other libraries.

Each layer of the suites is a family. Its kernel is timed at sizes drawn by a seed, in turns with the kernel of just that size, whatever
its algorithm, and with onnxruntime and OpenVINO, whose models have free dimensions: their first call at a size, and later ones.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import tvmconv
from tvmconv.cli.output import print_table, progress_bar
from tvmconv.family import ProblemFamily
from tvmconv.fills import Arrays, random_fill
from tvmconv.frontends.families import any_size
from tvmconv.problem import DTYPES, Problem
from tvmconv.signature import format_signature

from .compare import FILTER_FORMATS, NETWORKS, NoRecords, read_suites
from .peers import data_as

LEAST_CALLS = 5

PEERS = ("onnxruntime", "openvino")
# Of several axes the greatest extent, of one; a size of more operations than a call of 0.1 s or so has is drawn again.
_MOST = {1: 4096, 2: 160, 3: 24}
_MOST_FLOPS = 4e9


@dataclass(frozen=True)
class Row:
    """A family at a size: the algorithms of both kernels, and the seconds of each contender, by name."""

    signature: str
    family: str
    exact: str
    seconds: dict[str, float]
    first: dict[str, float]

    def ratio(self, other: str) -> float:
        """Return how many times as long as another the family's kernel takes."""
        return self.seconds["family"] / self.seconds[other]


def main() -> int:
    """Run the comparison that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.any_size", description=__doc__)
    parser.add_argument("source", nargs="*", help="suites or signatures; default: all of benchmarks/suites")
    parser.add_argument("--sizes", type=int, default=12, help="of each layer; default: %(default)s")
    parser.add_argument("--layers", type=int, help="of each suite, at most, drawn by the seed; default: all")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--dtype", choices=DTYPES, default="f32", help="default: %(default)s")
    parser.add_argument("--layout", choices=FILTER_FORMATS, default="nxc", help="default: %(default)s")
    parser.add_argument("--math", default="default", help="of both kernels; default: %(default)s")
    parser.add_argument("--peer", action="append", choices=PEERS, help="beside these, too")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all")
    parser.add_argument("--seconds", type=float, default=0.2, help="of each comparison; default: %(default)s")
    parser.add_argument("--output", type=Path, help="write the rows to this JSON file")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    suites = read_suites(arguments.source or NETWORKS, arguments.dtype, arguments.layout).values()
    layers = [each for suite in suites for each in rng.sample(suite, min(arguments.layers or len(suite), len(suite)))]
    sizes = {each: list(draw_sizes(each, arguments.sizes, rng)) for each in dict.fromkeys(layers)}
    with tempfile.TemporaryDirectory() as folder:
        rows = list(_compare(sizes, Path(folder), arguments))
    print_rows(rows)
    if arguments.output:
        arguments.output.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0


def draw_sizes(layer: Problem, count: int, rng: random.Random) -> Iterator[Problem]:
    """Yield a layer at sizes of its own pads, small and large ones, even and odd."""
    family = replace(any_size(layer), pads=(layer.pads_begin, layer.pads_end))
    found: dict[Problem, None] = {}
    for _ in range(100 * count):
        most = rng.choice((8, 32, _MOST[layer.rank]))
        extents = [
            max(rng.randint(1, most), d * (k - 1) + 1) for k, d in zip(layer.kernel, layer.dilations, strict=True)
        ]
        problem = family.problem(1, extents)
        if problem.flops <= _MOST_FLOPS and not problem.is_constant and len(found) < count:
            found[problem] = None
    yield from found


def _compare(sizes: dict[Problem, list[Problem]], folder: Path, arguments: argparse.Namespace) -> Iterator[Row]:
    families = {each: replace(any_size(each), pads=(each.pads_begin, each.pads_end)) for each in sizes}
    named = list(dict.fromkeys(problem for each in sizes.values() for problem in each))
    with progress_bar("compiling") as progress:
        options: Any = {"math": arguments.math, "records": NoRecords(), "progress": progress}
        tvmconv.build(families.values(), folder / "families", **options)
        tvmconv.build(named, folder / "exact", **options)
    free, exact = (tvmconv.load(folder / name, threads=arguments.threads) for name in ("families", "exact"))
    with progress_bar("timing") as progress:
        for number, (layer, problems) in enumerate(sizes.items()):
            progress(number, len(sizes), format_signature(layer))
            arrays = random_fill(layer)
            peers = {
                name: _peer(name, families[layer], layer, arrays, arguments.threads) for name in arguments.peer or ()
            }
            for problem in problems:
                kernels = {"family": free.lookup(problem), "exact": exact.lookup(problem)}
                given = random_fill(problem).given()
                calls = {name: _call(kernel, given) for name, kernel in kernels.items()}
                data = data_as(given["data"], problem, "NCX")
                calls |= {name: partial(peer, data) for name, peer in peers.items()}
                first = {name: time_once(call) for name, call in calls.items()}
                seconds = {name: median(each) for name, each in time_in_turns(calls, arguments.seconds).items()}
                family, own = (kernel.info.algorithm for kernel in kernels.values())
                yield Row(format_signature(problem), family, own, seconds, first)


def _call(kernel: Any, given: dict[str, Any]) -> Callable[[], object]:
    packed = {**given, "filter": kernel.pack(given["filter"])}
    out = kernel(**packed)
    return lambda: kernel(**packed, out=out)


def time_once(call: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def time_in_turns(calls: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, list[float]]:
    """Return the seconds of each call, one after the other again and again, five times and more."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or min(map(len, samples.values())) < LEAST_CALLS:
        for name, call in calls.items():
            samples[name].append(time_once(call))
    return samples


def _peer(name: str, family: ProblemFamily, layer: Problem, arrays: Arrays, threads: int) -> Callable[[Any], object]:
    """Return another library's call of a model of a layer, of data in NCX, of which batch and spatial extents are free."""
    free = [None, family.in_channels, *[None] * family.rank]
    if name == "onnxruntime":
        import onnx

        from .peers import onnxruntime

        model = onnx.load_from_string(onnxruntime._model(layer, arrays))
        for value in (*model.graph.input, *model.graph.output):
            for axis, dim in enumerate(value.type.tensor_type.shape.dim):
                if axis != 1:
                    dim.dim_param = f"{value.name}{axis}"
        session = onnxruntime.open_session(model.SerializeToString(), threads)
        return lambda data: session.run(None, {"data": data})
    import openvino

    from .peers import openvino as peer

    model = peer._model(layer, arrays, "NCX")
    model.reshape(openvino.PartialShape([-1 if each is None else each for each in free]))
    request = peer.compile_model(model, layer.dtype, threads).create_infer_request()
    return lambda data: request.infer({0: data}, share_inputs=True, share_outputs=True)


def print_rows(rows: Sequence[Row]) -> None:
    """Print a line for each size, the slowest beside its own kernel first, and the means."""
    others = [name for name in rows[0].seconds if name != "family"] if rows else []
    table = [
        [
            row.signature,
            row.family,
            row.exact,
            f"{row.seconds['family'] * 1e6:.1f}",
            *(f"{row.ratio(other):.2f}" for other in others),
            *(f"{row.seconds['family'] / row.first[other]:.3f}" for other in others[1:]),
        ]
        for row in sorted(rows, key=lambda row: -row.ratio("exact"))
    ]
    header = ["signature", "family", "exact", "us", *(f"/ {other}" for other in others)]
    print_table([*header, *(f"/ {other}, first" for other in others[1:])], table)
    for other in others:
        ratios = [row.ratio(other) for row in rows]
        print(f"family / {other}: {geometric_mean(ratios):.3f} by the mean of {len(rows)}, the worst {max(ratios):.2f}")


if __name__ == "__main__":
    sys.exit(main())
