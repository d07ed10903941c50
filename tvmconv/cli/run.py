"""`tvmconv run`: call or time a network that `tvmconv compile` wrote."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from .output import check_output, print_json, print_table
from .parsing import add_command, add_json, add_threads, positive, positive_seconds
from .sources import read_inputs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy import ndarray

    from ..runtime.networks.network import Network
    from ..runtime.networks.tensors import Tensor
    from .parsing import Subparsers

BF16 = "bfloat16"
RANDOM = "random (integers are ones, or zeros where a one is an index out of range)"
HEADER = ("output", "shape", "dtype", "min", "max", "mean")
EXAMPLE = """\
  tvmconv run detector.so
  tvmconv run detector.so --input image.npz --output answers.npz
  tvmconv run detector.so --bench
  tvmconv run detector.so --profile
  tvmconv run detector.so --bench --threads 1 --concurrency 4
  tvmconv run detector.so --bench --against detector.onnx
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "run",
        "Run a compiled network and print its outputs, or its time: of a call, by operator, or by layer of the model.",
        EXAMPLE,
        run,
    )
    parser.add_argument("network", metavar="LIBRARY.so", help="the library")
    parser.add_argument(
        "--inputs",
        "--input",
        action="append",
        default=[],
        metavar="FILE",
        help="FILE.npz: inputs by name; [NAME=]FILE.npy: one; NAME=NUMBER fills one with a number; others are "
        f"{RANDOM}",
    )
    parser.add_argument("--output", metavar="FILE.npz", help="write the outputs by name to this file")
    parser.add_argument("--bench", action="store_true", help="print the time of a call and of each operator instead")
    parser.add_argument(
        "--profile",
        action="store_true",
        help="print the time of each step in order instead, with the model's nodes or modules that it computes",
    )
    parser.add_argument(
        "--seconds",
        type=positive_seconds,
        default=1.0,
        metavar="S",
        help="with --bench and --profile: time for each measurement (default 1)",
    )
    add_threads(parser)
    parser.add_argument(
        "--concurrency",
        type=positive,
        default=1,
        metavar="N",
        help="with --bench: number of concurrent callers (default 1)",
    )
    parser.add_argument(
        "--against",
        metavar="MODEL",
        help="with --bench: also time onnxruntime on the source model (.onnx), or OpenVINO on its IR (.xml), "
        "alternating with the network",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the outputs, or the times."""
    from ..runtime.networks.network import load_network

    _check_options(arguments)
    if arguments.threads:
        os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    network = load_network(arguments.network)
    arrays = complete_inputs(network, read_inputs(arguments.inputs))
    if arguments.against:
        _race(arrays, arguments)
        return 0
    if arguments.bench:
        _bench(network, arrays, arguments)
        return 0
    if arguments.profile:
        _profile(network, arrays, arguments)
        return 0
    outputs = network(**arrays)
    if arguments.output:
        _write(outputs, arguments.output)
    _print_facts(outputs, arguments.json)
    return 0


def _print_facts(outputs: Mapping[str, ndarray], as_json: bool) -> None:
    """Print the shapes, types and statistics of a network's outputs."""
    facts = [
        {"output": name, "shape": "x".join(map(str, array.shape)), "dtype": str(array.dtype)}
        | {name: float(getattr(array, name)()) for name in HEADER[3:] if array.size}
        for name, array in outputs.items()
    ]
    if as_json:
        print_json(facts)
    else:
        print_table(HEADER, [[_cell(row.get(name)) for name in HEADER] for row in facts])


def _check_options(arguments: argparse.Namespace) -> None:
    """Raise an error for options that exclude each other, and for files that are missing or would be overwritten."""
    if not arguments.bench and (arguments.against or arguments.concurrency > 1):
        raise InputError("--against and --concurrency need --bench: add it")
    if arguments.against and arguments.concurrency > 1:
        raise InputError("--against uses one caller each; leave out --concurrency")
    if arguments.against:
        _check_peer(Path(arguments.against))
    if arguments.bench and arguments.profile:
        raise InputError("--bench times operators, and --profile steps; leave one of them out")
    if (arguments.bench or arguments.profile) and arguments.output:
        option = "--bench" if arguments.bench else "--profile"
        raise InputError(f"{option} prints times, and --output is for outputs; leave one of them out")
    if arguments.output:
        check_output(Path(arguments.output), arguments.network)


def _check_peer(model: Path) -> None:
    if model.suffix.lower() not in (".onnx", ".xml"):
        raise InputError(
            f"--against is {model}; give the model that the network was compiled from (.onnx, .xml); "
            "tvmconv compare compares two networks"
        )
    if not model.is_file():
        raise InputError(f"--against: there is no file {model}")


def _cell(value: object) -> str:
    """Return a table's text for a fact; an empty array has no minimum, maximum and mean."""
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def name_inputs(network: Network, given: dict[str, ndarray]) -> dict[str, ndarray]:
    """Return arrays by name; an array without a name is for the only input."""
    if "" not in given:
        return given
    if len(network.inputs) != 1:
        raise InputError(f"the network takes {', '.join(map(str, network.inputs))}; write --inputs NAME=FILE.npy")
    return {name or network.inputs[0].name: array for name, array in given.items()}


def complete_inputs(network: Network, given: dict[str, ndarray], told: bool = False) -> dict[str, ndarray]:
    """Return all inputs: the given arrays, f32 converted to bf16 where needed, and random ones, which are named unless `told`."""
    import numpy as np

    given = name_inputs(network, given)
    unknown = set(given) - {each.name for each in network.inputs}
    if unknown:
        raise InputError(
            f"the network has no input {sorted(unknown)[0]!r}; it takes {', '.join(map(str, network.inputs))}"
        )
    arrays = network.random_inputs(shapes={name: array.shape for name, array in given.items() if array.ndim})
    for each in network.inputs:
        if each.name in given:
            array = given[each.name]
            if each.dtype == BF16 and array.dtype == np.float32:  # NumPy's files have no bf16
                array = array.astype(each.dtype)
            arrays[each.name] = _fill(each, arrays[each.name].shape, array) if array.ndim == 0 else array
    random = [each for each in network.inputs if each.name not in given]
    if random and not told:
        taken = (f"{each.name} ({'x'.join(map(str, arrays[each.name].shape))} {each.dtype})" for each in random)
        print(f"random inputs: {', '.join(taken)}; give yours with --inputs FILE", file=sys.stderr)
    return arrays


def _fill(tensor: Tensor, shape: Sequence[int], number: ndarray) -> ndarray:
    """Return an array of one number; InputError if an input of integers or booleans cannot hold it."""
    import numpy as np

    with np.errstate(invalid="ignore"):
        filled = np.full(shape, number, tensor.numpy)
    if filled.dtype.kind in "biu" and (filled != number).any():
        raise InputError(f"the network takes {tensor}, which cannot hold {number}")
    return filled


def _bench(network: Network, arrays: dict[str, ndarray], arguments: argparse.Namespace) -> None:
    from ..measuring.latency import time_callers

    whole = time_callers([network.call(arrays) for _ in range(arguments.concurrency)], arguments.seconds)
    operators = network.operators(arrays, arguments.seconds)
    total = sum(each.seconds for each in operators) or 1.0
    others = sum(each.seconds for each in operators if not each.ours)
    if arguments.json:
        facts = {"seconds": asdict(whole), "others": others / total, "operators": [asdict(each) for each in operators]}
        print_json(facts)
        return
    rows = [
        (
            f"{each.seconds * 1e6:.1f}",
            f"{100 * each.seconds / total:.1f}",
            str(each.calls),
            "kernel" if each.ours else "between",
            each.name,
        )
        for each in operators
    ]
    print_table(("us", "%", "calls", "by", "operator"), rows)
    print(
        f"{whole.median * 1e6:.1f} us a call by the median (minimum {whole.least * 1e6:.1f}, p90 {whole.p90 * 1e6:.1f}, p99"
        f" {whole.p99 * 1e6:.1f}), {whole.throughput:.1f} calls a second; {100 * others / total:.1f} % of the operators' time"
        " is outside our kernels",
        file=sys.stderr,
    )


def _profile(network: Network, arrays: dict[str, ndarray], arguments: argparse.Namespace) -> None:
    steps = network.steps(arrays, arguments.seconds)
    if arguments.json:
        print_json([asdict(each) for each in steps])
        return
    total = sum(each.seconds for each in steps) or 1.0
    rows = [
        (f"{each.seconds * 1e6:.1f}", f"{100 * each.seconds / total:.1f}", each.name, _abridge(each.nodes))
        for each in steps
    ]
    print_table(("us", "%", "step", "nodes"), rows)


def _abridge(nodes: Sequence[str]) -> str:
    """Return names, more than five abridged to the first and the last two; --json has all."""
    shown = [*nodes[:2], f"... {len(nodes) - 4} more ...", *nodes[-2:]] if len(nodes) > 5 else nodes
    return ", ".join(shown) or "-"


def _race(arrays: dict[str, ndarray], arguments: argparse.Namespace) -> None:
    from ..errors import check_extra
    from ..measuring.beside import peer_of, race
    from ..runtime.processors import kernel_threads

    peer = peer_of(arguments.against)
    check_extra("openvino" if peer == "openvino" else "onnx", peer)
    threads = kernel_threads()
    found = race(arguments.network, arguments.against, arrays, threads, arguments.seconds)
    if arguments.json:
        print_json(asdict(found) | {"threads": threads})
        return
    ours, theirs = found.contenders
    rows = [
        (what, f"{a:.{digits}f}", f"{b:.{digits}f}", f"{b / a:.2f}")
        for what, a, b, digits in (
            ("a call, ms", ours.seconds * 1e3, theirs.seconds * 1e3, 3),
            ("start to first answer, s", ours.start, theirs.start, 2),
            ("memory, MiB", ours.resident / 2**20, theirs.resident / 2**20, 0),
        )
    ]
    print_table(("", ours.name, theirs.name, "ratio"), rows)
    apart = f"{found.largest:.1e} at most (relative L2 {found.difference:.1e})"
    print(f"{threads} threads each; answers differ by {apart}", file=sys.stderr)


def _write(outputs: dict[str, ndarray], path: str) -> None:
    """Write arrays as numpy.savez does, whole or not at all; bf16, which its format lacks, as f32."""
    import io

    import numpy as np

    from ..support.files import write_whole

    content = io.BytesIO()
    arrays = {name: each.astype(np.float32) if str(each.dtype) == BF16 else each for name, each in outputs.items()}
    np.savez(content, allow_pickle=False, **arrays)
    write_whole(Path(path), content.getvalue())
