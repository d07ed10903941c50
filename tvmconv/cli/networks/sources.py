"""The models that `tvmconv compile` reads: ONNX files, OpenVINO IR, and programs that `torch.export.save` wrote."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ...errors import InputError, SourceError, TvmconvError, VerificationError, check_extra, last_line
from ...family import Extent
from ...frontends.conversions import advise_conversion
from ...frontends.shapes import Bucket
from ...support.forking import has_forked
from ..sources import split_shapes

if TYPE_CHECKING:
    import tvm

    from ...runtime.networks.tensors import Array

FILES = (".onnx", ".xml", ".pt2")


class Source(Protocol):
    """A model, and the library that computes its expected outputs.

    Attributes
    ----------
    module
        The model as a Relax module.
    sizes
        The same at the fixed sizes named in addition to free extents.
    by
        Name of the library that computes the reference answers.
    """

    module: tvm.IRModule
    sizes: list[tvm.IRModule]
    by: str

    def answers(self, arrays: Mapping[str, Array]) -> list[Array]:
        """Return that library's outputs of inputs by name; an InputError if it cannot run the model on them."""


def read_source(arguments: argparse.Namespace) -> Source:
    """Return a command's model at the requested shapes.

    Raises
    ------
    SourceError
        If it cannot be read, or its shapes are not fixed.
    InputError
        If an option does not apply to such a file.
    MissingExtraError
        If the reader is not installed.
    """
    suffix = Path(arguments.model).suffix.lower()
    if suffix == ".pt2":
        return _SavedProgram(arguments)
    return _IrFile(arguments) if suffix == ".xml" else _OnnxModel(arguments)


def check_source(arguments: argparse.Namespace) -> None:
    """Raise an error for a wrong file or option, before minutes are spent."""
    suffix = Path(arguments.model).suffix.lower()
    if suffix not in FILES:
        raise SourceError(
            f"{arguments.model!r} is not an ONNX file, OpenVINO IR or a saved program; tvmconv compile reads {', '.join(FILES)}"
            + advise_conversion(arguments.model)
        )
    given = arguments.shape or arguments.dim or arguments.batch is not None or arguments.cut or arguments.value
    if suffix == ".pt2" and given:
        raise InputError(
            "--shape, --dim, --batch, --value and --cut are for ONNX files and OpenVINO IR; a program of torch.export has the shapes and outputs"
            " that it was exported with"
        )


class _OnnxModel:
    by = "onnxruntime"

    def __init__(self, arguments: argparse.Namespace) -> None:
        from ...network.read.onnx.compare import is_quantized
        from ...network.read.onnx.reader import as_relax, fix_shapes
        from .session_beside import Compared, SessionBeside, imported_bytes

        free, buckets = _shapes(arguments)
        self._model, *others = (
            fix_shapes(arguments.model, bucket, arguments.cut, free=None if number else free)
            for number, bucket in enumerate(buckets)
        )
        self._compared = Compared(arguments.model, buckets[0], arguments.cut, free)
        self._is_quantized = is_quantized(self._model.graph)
        # Another process pays off where the model is larger than what it imports.
        is_beside = has_forked() and not self._is_quantized and imported_bytes() < Path(arguments.model).stat().st_size
        self._beside = SessionBeside(self._compared) if is_beside else None
        self.module = as_relax(self._model, arguments.model, free)
        self.sizes = [as_relax(each, arguments.model) for each in others]
        self._source, self._layout = arguments.model, arguments.layout

    def answers(self, arrays: Mapping[str, Array]) -> list[Array]:
        """Return onnxruntime's outputs, or the reference evaluator's; of a quantized model the network's own, if its quantizers are right.

        Raises
        ------
        VerificationError
            If a quantizer's result is not onnxruntime's for the network's values before it.
        """
        from ...network.read.onnx.compare import answers

        if self._is_quantized:
            from ...network.read.onnx.compare_quantized import find_wrong_quantizers

            find_wrong = partial(find_wrong_quantizers, self._model)
            with suppress(InputError):  # compared as a whole then
                return _answer_quantized(self._model, self._source, self._layout, self.by, arrays, find_wrong)
        found = None if self._beside is None else self._beside.run(arrays)
        return answers(self._model, arrays, self._compared.read(self._model)) if found is None else found


def _answer_quantized(
    model: Any,
    source: str,
    layout: str,
    by: str,
    arrays: Mapping[str, Array],
    find_wrong: Callable[[Mapping[str, Array], Mapping[str, Array]], list[str]],
) -> list[Array]:
    """Return the outputs of a quantized model's network by a library, if `find_wrong` finds no wrong quantizer."""
    from ...network.compile import build
    from ...network.read.onnx.compare_quantized import with_quantized
    from ...network.read.onnx.reader import as_relax
    from ...runtime.networks.network import load_network

    outputs = [each.name for each in model.graph.output]
    model = with_quantized(model, {name: each.shape for name, each in arrays.items()})
    with tempfile.TemporaryDirectory(prefix="tvmconv-") as folder:
        path = Path(folder) / "network.so"
        build(as_relax(model, source), path, layout=layout)
        taken = load_network(path)(**arrays)
    _check_quantizers(source, by, find_wrong(arrays, taken))
    return [taken[each] for each in outputs]


def _check_quantizers(source: str, by: str, wrong: list[str]) -> None:
    """Raise a VerificationError if quantizers round to something else than a library's."""
    if wrong:
        raise VerificationError(
            f"{source}: {len(wrong)} quantizers or outputs differ from {by}'s, given the same integers as input:"
            f" {'; '.join(wrong[:3])}. An operator before the first may be read wrongly; the convolutions alone can be built:"
            f" tvmconv build {source}"
        )


def given_free(arguments: argparse.Namespace) -> dict[str, tuple[Extent, ...]]:
    """Return the shapes with free extents, as the command line has them."""
    return {
        name: tuple(map(Extent.of, shape))
        for name, shape in arguments.shape
        if any(isinstance(each, Extent) for each in shape)
    }


def _shapes(arguments: argparse.Namespace) -> tuple[dict[str, tuple[Extent, ...]], list[Bucket]]:
    """Return the shapes with free extents by input; and buckets: fixed shapes of other inputs, then all shapes of each named size.

    Raises
    ------
    InputError
        If an input has several shapes with free extents, or several fixed ones and none with free extents.
    SourceError
        If the free extents do not allow a named size.
    """
    given, named = split_shapes(arguments.shape)
    if len(given) > 1 or (not given and len(named) > 1):
        raise InputError(
            "--shape is given several times for an input: give one shape, or one with free extents (1x3x?x?) and fixed ones"
            " that get their own kernels"
        )
    free, some = free_shapes(arguments, arguments.model), given_free(arguments)
    if given:
        from ...network.read.onnx.free import check_named

        for shapes in named:
            check_named(shapes, free, arguments.model)
        others = {name: tuple(each.low for each in shape) for name, shape in given[0].items() if name not in some}
        named = [others, *named]
    return free, [Bucket(each, dict(arguments.dim), arguments.batch, dict(arguments.value)) for each in named or [{}]]


def free_shapes(arguments: argparse.Namespace, model: str) -> dict[str, tuple[Extent, ...]]:
    """Return the shapes with free extents by input, each free extent with a name."""
    given = given_free(arguments)
    if not given:
        return {}
    from ...network.read.onnx.free import free_dims

    if Path(model).suffix.lower() == ".xml":
        from ...frontends.openvino.ir import declare_inputs, load_ir

        return free_dims(declare_inputs(load_ir(model)), given, model)
    from ...frontends.onnx.graph import declared_inputs
    from ...network.read.onnx.reader import load_file

    return free_dims(declared_inputs(load_file(model).graph), given, model)


class _IrFile:
    by = "OpenVINO"

    def __init__(self, arguments: argparse.Namespace) -> None:
        from ...network.read.onnx.reader import as_relax
        from ...network.read.openvino.reader import read_ir

        free, (bucket, *named) = _shapes(arguments)
        self._model = read_ir(arguments.model, bucket, arguments.cut, free)
        self.module = as_relax(self._model.onnx, arguments.model, free)
        sizes = [read_ir(arguments.model, each, arguments.cut, None) for each in named]
        self.sizes = [as_relax(each.onnx, arguments.model) for each in sizes]
        self._source, self._layout = arguments.model, arguments.layout

    def answers(self, arrays: Mapping[str, Array]) -> list[Array]:
        """Return OpenVINO's outputs; of a quantized model the network's own, as of a quantized ONNX file."""
        from ...network.read.openvino.compare import compute_answers, find_quantizers, find_wrong_quantizers

        if find_quantizers(self._model):
            find_wrong = partial(find_wrong_quantizers, self._model)
            return _answer_quantized(self._model.onnx, self._source, self._layout, self.by, arrays, find_wrong)
        return compute_answers(self._model.ir, arrays)


class _SavedProgram:
    by = "PyTorch"

    def __init__(self, arguments: argparse.Namespace) -> None:
        check_extra("torch", "torch")
        if sys.modules.get("torch", self) is None:  # a command in a process of its own blocks its import
            del sys.modules["torch"]
        from ...frontends.torch.reader import load_program
        from ...network.read.torch.reader import read_torch

        self._program = load_program(arguments.model)
        self.module = read_torch(self._program)
        self.sizes: list[tvm.IRModule] = []
        self._source, self._layout = arguments.model, arguments.layout

    def answers(self, arrays: Mapping[str, Array]) -> list[Array]:
        """Return PyTorch's outputs, bf16 as f32, which NumPy's arrays lack; of a quantized program as those of a quantized ONNX file."""
        import torch
        from torch.utils import _pytree as pytree

        from ...network.read.torch.compare_quantized import is_quantized

        tensors = [
            torch.from_numpy(each.view("int16")).view(torch.bfloat16)
            if each.dtype.name == "bfloat16"
            else torch.from_numpy(each)
            for each in arrays.values()
        ]
        signature = self._program.graph_signature.user_inputs
        if len(signature) != len(tensors):
            raise InputError(f"the program takes {len(signature)} tensors, the network {len(tensors)}")
        try:
            args, kwargs = pytree.tree_unflatten(tensors, self._program.call_spec.in_spec)
            if is_quantized(self._program):
                return self._quantized_answers(arrays, tensors)
            with torch.no_grad():
                found = self._program.module()(*args, **kwargs)
        except TvmconvError:
            raise
        except Exception as error:
            raise InputError(f"PyTorch cannot run it on random inputs: {last_line(error)}") from error
        leaves = [each for each in pytree.tree_leaves(found) if isinstance(each, torch.Tensor)]
        return [(each.float() if each.dtype == torch.bfloat16 else each).numpy() for each in leaves]

    def _quantized_answers(self, arrays: Mapping[str, Array], tensors: list[Any]) -> list[Array]:
        from ...network.compile import build
        from ...network.read.torch.compare_quantized import find_wrong_quantizers, with_quantized
        from ...network.read.torch.reader import read_decomposed
        from ...runtime.networks.network import load_network

        with tempfile.TemporaryDirectory(prefix="tvmconv-") as folder:
            path = Path(folder) / "network.so"
            build(read_decomposed(with_quantized(self._program)), path, layout=self._layout)
            taken = list(load_network(path)(**arrays).values())
        _check_quantizers(self._source, self.by, find_wrong_quantizers(self._program, tensors, taken))
        return taken[: len(self._program.graph.output_node().args[0])]
