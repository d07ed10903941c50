"""Read ATen's convolutions from programs of `torch.export.save` (.pt2), at their shapes in the program.

Shapes are inferred by PyTorch's fake tensors, which have a shape and no numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any
from zipfile import is_zipfile

import numpy as np

from ... import ops
from ...errors import InvalidProblemError, SourceError, first_line, missing_extra
from ...problem import Problem
from ..following import Following, follow
from ..model import Constants, Skipped, SourceNode
from ..reader import Reader, Reading
from ..shapes import Bucket, Input, Shape, left_free

try:
    import torch
except ImportError:
    raise missing_extra("torch", "torch") from None
from torch._subclasses.fake_tensor import FakeTensorMode

from .effects import DTYPES, Operations, Tensors
from .fixed import fold

# The arguments after data, filter and bias, by the names of ATen's schemas.
_CONV = ("stride", "padding", "dilation", "groups")
_TRANSPOSED = ("stride", "padding", "output_padding", "groups", "dilation")
_GENERAL = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
_ARGUMENTS = {
    **{f"aten.conv{rank}d.{form}": _CONV for rank in (1, 2, 3) for form in ("default", "padding")},
    "aten.conv_transpose1d.default": _TRANSPOSED,
    "aten.conv_transpose2d.input": _TRANSPOSED,
    "aten.conv_transpose3d.input": _TRANSPOSED,
    "aten.convolution.default": _GENERAL,
}
_DEFAULTS: dict[str, Any] = {
    "stride": 1, "padding": 0, "dilation": 1, "groups": 1, "output_padding": 0, "transposed": False, "bias": None,
}  # fmt: skip


@dataclass(frozen=True)
class _Call:
    """A call of a convolution: its target, and tensors and attributes by the names of the schema."""

    target: str
    arguments: Mapping[str, Any]
    output: Any


def load_program(source: str) -> torch.export.ExportedProgram:
    """Return the program in a file; raise SourceError if it has none."""
    if not is_zipfile(source):  # PyTorch would also log a traceback
        raise SourceError(f"{source} was not saved by torch.export.save, or is truncated: it is not a zip file")
    try:
        return torch.export.load(source)
    except Exception as error:
        raise SourceError(f"{source} was not saved by torch.export.save: {first_line(error)}") from error


class ExportReader(Reader):
    """Reads one program."""

    def __init__(self, source: str, how: Reading) -> None:
        super().__init__(source, how)
        self._program = load_program(source)

    def read(self, bucket: Bucket) -> tuple[list[SourceNode], list[Skipped]]:
        """Return the convolutions at the shapes of a bucket, and the skipped ones."""
        placeholders = self._placeholders()
        inputs = [Input(name, _dims(value)) for name, value in placeholders.items()]
        bound = self._bound(inputs, bucket)
        module = self._program.module()
        fold(module)
        names = _names(module.graph)
        if cause := left_free(bound):
            reason = "its shapes depend on them"
            return [], [Skipped(name, str(node.target), reason, cause) for node, name in names.items()]
        by_name = {name: (placeholders[name], dims) for name, dims in bound.items()}
        calls, tensors = self._calls(module, by_name)
        taken = dict[str, str]()
        nodes, skipped = [], []
        for node, name in reversed(names.items()):  # a sum of two belongs to the later one
            if node.name not in calls:
                skipped.append(Skipped(name, str(node.target), "it did not run"))
                continue
            try:
                nodes.append(self._node(name, node, calls[node.name], module, tensors, taken))
            except (InvalidProblemError, SourceError) as error:
                skipped.append(Skipped(name, str(node.target), str(error)))
        return nodes[::-1], skipped[::-1]

    def _placeholders(self) -> dict[str, Any]:
        """Return the placeholders of a caller's inputs, by their names."""
        wanted = set(self._program.graph_signature.user_inputs)
        found = {node.name: node.meta["val"] for node in self._program.graph.nodes if node.op == "placeholder"}
        return {name: value for name, value in found.items() if name in wanted}

    def _calls(self, module: Any, inputs: Mapping[str, tuple[Any, Any]]) -> tuple[dict[str, _Call], Tensors]:
        """Return the calls of convolutions when the program runs, and all tensors by their nodes."""
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        attempts = {"infer": [mode], "run": [None], "auto": [mode, None]}[self._shapes]
        for attempt in attempts:
            watching = _Watching(module)
            try:
                with torch.no_grad(), attempt or nullcontext():
                    feeds = [self._feed(name, value, dims) for name, (value, dims) in inputs.items()]
                    watching.run(*feeds)
                return watching.calls, watching.tensors
            except Exception as error:  # noqa: BLE001 - whatever an operator raises for unsuitable data
                failure = error
        raise SourceError(f"{self._source}: running the program fails: {first_line(failure)}") from failure

    def _feed(self, name: str, value: Any, dims: Shape) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if name in self._given:
            return torch.from_numpy(np.broadcast_to(self._given[name], dims).copy()).to(value.dtype)
        return (
            torch.randn(dims).to(value.dtype) if value.dtype.is_floating_point else torch.ones(dims, dtype=value.dtype)
        )

    def _node(
        self, name: str, node: Any, call: _Call, module: Any, tensors: Tensors, taken: dict[str, str]
    ) -> SourceNode:
        data, taps, bias = (call.arguments[each] for each in ("input", "weight", "bias"))
        dtype = DTYPES.get(data.dtype, self._dtype)
        if dtype is None:
            raise SourceError(
                f"it computes in {data.dtype}, for which there are no kernels; choose a type with --dtype"
            )
        batch = (1,) * (taps.ndim - data.ndim)  # for a single image
        shape, output = (*batch, *data.shape), (*batch, *call.output)
        problem = node_problem(call.target, call.arguments, shape, tuple(taps.shape), dtype)
        problem = problem.with_(bias=bias is not None)
        if problem.output_shape != output:
            raise SourceError(
                f"it returned the shape {list(call.output)}, and its attributes give {list(problem.output_shape)}; please report it"
            )
        sources = [argument for argument in node.args[1:3] if argument is not None]
        fixed = all(getattr(argument, "op", "") == "get_attr" for argument in sources)
        chain = Following(node)
        if self._fuse or self._with_constants:
            operations = Operations(module, tensors, taps.ndim, dtype)
            chain = follow(operations, node, output[1], taken, folds=fixed, fuse=self._fuse)
        serves = (name, *(each.name for each in chain.nodes))
        residual = None if chain.residual is None else chain.residual.name
        whole = chain.problem(problem)
        pads = _pads(call.arguments, taps.shape[2:]) if whole.op == "convolution" else ""
        if not (self._with_constants and fixed):
            return SourceNode(name, whole, None, serves, residual, pads)

        def constants() -> Constants:
            tensors = [torch.fx.Interpreter(module).fetch_attr(each.target).detach() for each in sources]
            filter_, *rest = (tensor.float().numpy() for tensor in tensors)
            return chain.constants(problem, filter_, rest[0] if rest else None, chain.last.name)

        return SourceNode(name, whole, constants, serves, residual, pads)


class _Watching(torch.fx.Interpreter):  # type: ignore[misc]
    """Runs a program and records its calls of convolutions."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.calls: dict[str, _Call] = {}
        self.tensors: dict[str, tuple[tuple[int, ...], Any]] = {}

    def run_node(self, n: Any) -> Any:
        """Run one node."""
        result = super().run_node(n)
        if isinstance(result, torch.Tensor):
            self.tensors[n.name] = (tuple(result.shape), result.dtype)
        target = str(n.target)
        if n.op == "call_function" and target in _ARGUMENTS:
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            given = dict(zip(("input", "weight", "bias", *_ARGUMENTS[target]), args, strict=False))
            self.calls[n.name] = _Call(target, {**_DEFAULTS, **given, **kwargs}, result.shape)
        return result


def node_problem(target: str, arguments: Mapping[str, Any], data: Shape, taps: Shape, dtype: str) -> Problem:
    """Resolve one of ATen's convolutions, without its bias.

    Parameters
    ----------
    target
        For example ``"aten.conv2d.default"``.
    arguments
        Its attributes, by the names of ATen's schema.
    data, taps
        The shapes of its data and filter.
    dtype
        ``"f32"``, ``"f16"`` or ``"bf16"``.

    Raises
    ------
    InvalidProblemError
        If there is no such convolution.
    """

    def each(name: str) -> list[int]:
        return _axes(arguments[name], len(data) - 2)

    common: dict[str, Any] = {
        "strides": each("stride"),
        "dilations": each("dilation"),
        "groups": arguments["groups"],
        "data_format": "NCX",
        "filter_format": "OIX",
        "dtype": dtype,
    }
    pads: dict[str, Any] = dict(zip(("pads_begin", "pads_end"), _pads(arguments, taps[2:]), strict=True))
    if arguments["transposed"] or "transpose" in target:
        return ops.convolution_backprop_data(data, taps, **common, **pads, output_padding=each("output_padding"))
    return ops.convolution(data, taps, **common, **pads)


def _axes(value: int | Sequence[int], rank: int) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values * rank if len(values) == 1 else values


def _pads(arguments: Mapping[str, Any], taps: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    padding = arguments["padding"]
    if not isinstance(padding, str):
        return (tuple(_axes(padding, len(taps))),) * 2
    # "same" pads both ends equally, with an odd element at the end.
    dilations = _axes(arguments["dilation"], len(taps))
    totals = [d * (k - 1) if padding == "same" else 0 for d, k in zip(dilations, taps, strict=True)]
    return tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)


def _dims(value: Any) -> tuple[int | str, ...]:
    if not isinstance(value, torch.Tensor):
        return ()
    return tuple(dim if isinstance(dim, int) else str(dim) for dim in value.shape)


def _names(graph: Any) -> dict[Any, str]:
    """Return the convolutions of a program with the names of their modules, or else of their nodes."""
    found = [node for node in graph.nodes if node.op == "call_function" and str(node.target) in _ARGUMENTS]
    paths = {}
    for node in found:
        stack = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
        paths[node] = stack[-1] if stack and stack[-1] else node.name
    times = Counter(paths.values())
    return {node: path if times[path] == 1 else node.name for node, path in paths.items()}
