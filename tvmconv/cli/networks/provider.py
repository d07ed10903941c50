"""The networks of a provider: each model as a whole, or its largest parts, at each of its shapes, for each target."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InputError, TvmconvError
from ..sources import by_name
from .sources import free_shapes, given_free

# Most tensors of a part that a message names.
_MOST_SHOWN = 4
# Free extents other than the batch, where a model is timed.
_TIMED = 224

if TYPE_CHECKING:
    import tvm

    from ...exporting.network_part import NetworkPart
    from ...family import Extent
    from ...frontends.shapes import Bucket
    from ...support.progress import Progress


@dataclass(frozen=True)
class ShapedModel:
    """A model at shapes of its inputs.

    Attributes
    ----------
    model, name
        The file, and what messages call it.
    bucket
        Values of the model's free dimensions, except those in `free`.
    free
        The shapes of inputs with free extents.
    """

    model: str
    name: str
    bucket: Bucket
    free: Mapping[str, tuple[Extent, ...]]

    @property
    def of_session(self) -> dict[str, Any]:
        """The shapes as `tvmconv.onnxruntime.session` takes them."""
        shapes: dict[str, Any] = dict(self.bucket.shapes)
        for name, shape in self.free.items():
            shapes[name] = tuple(None if each.is_free else each.low for each in shape)
        return {"shapes": shapes or None, "dims": self.bucket.dims or None, "batch": self.bucket.batch}

    @property
    def sizes(self) -> dict[str, tuple[int, ...]]:
        """Shapes for timing where extents are free: a batch of one, and images of a usual size."""
        chosen: dict[str, int] = {}
        for shape in self.free.values():
            for axis, each in enumerate(shape):
                chosen.setdefault(each.name, each.near(_TIMED if axis else 1))
        return {
            name: tuple(chosen[each.name] if each.is_free else each.low for each in shape)
            for name, shape in self.free.items()
        }


def with_shapes(models: Sequence[str], arguments: argparse.Namespace) -> Iterator[ShapedModel]:
    """Yield each model with each of its shapes."""
    from ...frontends.shapes import make_buckets

    free = set(given_free(arguments))
    fixed = [(name, shape) for name, shape in arguments.shape if name not in free]
    if len(free) + len(fixed) < len(arguments.shape):
        raise InputError("an input has several --shape with free extents; give one")
    buckets = make_buckets(by_name(fixed), by_name(arguments.dim), arguments.batch)
    for model in models:
        for bucket in buckets:
            name = f"{model} ({_flags_of(bucket)})" if len(buckets) > 1 else model
            yield ShapedModel(model, name, bucket, free_shapes(arguments, model))


def _flags_of(bucket: Bucket) -> str:
    shapes = (f"--shape {name}={'x'.join(map(str, shape))}" for name, shape in bucket.shapes.items())
    batch = () if bucket.batch is None else (f"--batch {bucket.batch}",)
    return " ".join((*shapes, *(f"--dim {name}={size}" for name, size in bucket.dims.items()), *batch))


def networks_of(
    models: Sequence[str], arguments: argparse.Namespace, folder: Path, progress: Progress
) -> dict[int, list[NetworkPart]]:
    """Return the networks by the identities of onnxruntime's graphs; print which models have none, and why."""
    from ...exporting.provider_library import export_provider
    from ...network.read.onnx.partition import read_parts
    from ...onnxruntime.racing import graph_of

    found: dict[int, list[NetworkPart]] = {}
    library = export_provider(None, folder / "graphs.so")
    for shaped in with_shapes(models, arguments):
        if Path(shaped.model).suffix.lower() != ".onnx":
            print(f"{shaped.name}: no network: it is not an ONNX file", file=sys.stderr)
            continue
        try:
            parts = read_parts(shaped.model, shaped.bucket, shaped.free)
        except TvmconvError as error:
            print(f"{shaped.name}: no network: {error}", file=sys.stderr)
            continue
        for part in parts:
            called = shaped.name
            if part.outputs:
                called = f"{shaped.name}, {from_to(part.inputs, part.outputs)}"
                print(f"{called}: a network; onnxruntime computes what is between networks", file=sys.stderr)
            try:
                graph = graph_of(shaped.model, library, inputs=part.inputs, outputs=part.outputs, **shaped.of_session)
            except TvmconvError as error:
                print(f"{called}: no network: {error}", file=sys.stderr)
                continue
            if graph not in found and (compiled := _compile(part.module, called, arguments, progress)):
                found[graph] = compiled
    return found


def from_to(inputs: Sequence[str], outputs: Sequence[str]) -> str:
    """Return a part's name, from its first inputs and outputs."""
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
