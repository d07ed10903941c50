"""The networks of a provider: each model as a whole, or its largest parts, at each of its shapes, for each target."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import TvmconvError
from ..sources import by_name

# Tensors of a part in a message.
_MOST_SHOWN = 4

if TYPE_CHECKING:
    import tvm

    from ...exporting.network_part import NetworkPart
    from ...frontends.shapes import Bucket
    from ...support.progress import Progress


def with_shapes(models: Sequence[str], arguments: argparse.Namespace) -> Iterator[tuple[str, Bucket, str]]:
    """Yield each model with each of its shapes, and what both are called."""
    from ...frontends.shapes import make_buckets

    buckets = make_buckets(by_name(arguments.shape), by_name(arguments.dim), arguments.batch)
    for model in models:
        for bucket in buckets:
            yield model, bucket, f"{model} ({_flags_of(bucket)})" if len(buckets) > 1 else model


def _flags_of(bucket: Bucket) -> str:
    shapes = (f"--shape {name}={'x'.join(map(str, shape))}" for name, shape in bucket.shapes.items())
    batch = () if bucket.batch is None else (f"--batch {bucket.batch}",)
    return " ".join((*shapes, *(f"--dim {name}={size}" for name, size in bucket.dims.items()), *batch))


def of_session(bucket: Bucket) -> dict[str, Any]:
    """Return the shapes as `tvmconv.onnxruntime.session` takes them."""
    return {"shapes": bucket.shapes or None, "dims": bucket.dims or None, "batch": bucket.batch}


def networks_of(
    models: Sequence[str], arguments: argparse.Namespace, folder: Path, progress: Progress
) -> dict[int, list[NetworkPart]]:
    """Return the networks by the identities of the graphs that onnxruntime makes; say which there are not, and why.

    Parameters
    ----------
    folder
        For a library that tells identities.
    """
    from ...exporting.provider_library import export_provider
    from ...network.read.onnx.partition import read_parts
    from ...onnxruntime.racing import graph_of

    found: dict[int, list[NetworkPart]] = {}
    library = export_provider(None, folder / "graphs.so")
    for model, bucket, name in with_shapes(models, arguments):
        if Path(model).suffix.lower() != ".onnx":
            print(f"{name}: no network: it is no ONNX file", file=sys.stderr)
            continue
        try:
            parts = read_parts(model, bucket)
        except TvmconvError as error:
            print(f"{name}: no network: {error}", file=sys.stderr)
            continue
        for part in parts:
            called = name
            if part.outputs:
                called = f"{name}, {from_to(part.inputs, part.outputs)}"
                print(f"{called}: a network; onnxruntime computes what is between networks", file=sys.stderr)
            try:
                graph = graph_of(model, library, inputs=part.inputs, outputs=part.outputs, **of_session(bucket))
            except TvmconvError as error:
                print(f"{called}: no network: {error}", file=sys.stderr)
                continue
            if graph not in found and (compiled := _compile(part.module, called, arguments, progress)):
                found[graph] = compiled
    return found


def from_to(inputs: Sequence[str], outputs: Sequence[str]) -> str:
    """Return what a part is called, by its first inputs and outputs."""
    return f"from {_enumerate(inputs)} to {_enumerate(outputs)}"


def _enumerate(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_SHOWN])
    return shown if len(names) <= _MOST_SHOWN else f"{shown} and {len(names) - _MOST_SHOWN} more"


def _compile(module: tvm.IRModule, name: str, arguments: argparse.Namespace, progress: Progress) -> list[NetworkPart]:
    """Return the networks of a module, at most one a target."""
    from ...network.compile import export_part
    from ...network.passes import use_kernels
    from ...tuning.records import records_of

    records = records_of(arguments.records)
    networks: dict[str, NetworkPart] = {}
    for target in arguments.target or ["host"]:
        try:
            ours = use_kernels(module, target, records=records, math=arguments.math, progress=progress)
            network = export_part(ours, target)
        except TvmconvError as error:
            print(f"{name}: no network for {target}: {error}", file=sys.stderr)
            continue
        networks.setdefault(network.description["target"], network)
    return list(networks.values())
