"""`compile`: a whole PyTorch model as one library, read by torch.export; `CompiledModel` calls it with tensors.

In the library are kernels, what lies between them, weights and a plan (`tvmconv.relax.compiling`); calling it needs neither
the compiler nor the model.
"""

from __future__ import annotations

import copy
import os
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from ..checks import as_path
from ..errors import BundleError, InputError, SourceError, last_line
from ..runtime.network import Network
from ..support.progress import Progress
from .convolution import DTYPES
from .optimize import print_progress

_TYPES = {
    "float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "bool": torch.bool,
    "uint8": torch.uint8, "int8": torch.int8, "int16": torch.int16, "int32": torch.int32, "int64": torch.int64,
}  # fmt: skip
_TEMPORARY: list[tempfile.TemporaryDirectory[str]] = []


def compile(
    model: nn.Module,
    example_inputs: Any,
    path: str | os.PathLike[str] | None = None,
    target: str = "host",
    dtype: Any = None,
    *,
    math: str = "default",
    memory: str = "default",
    progress: Progress | None = print_progress,
) -> CompiledModel:
    """Compile a whole model to one library, for inputs as the examples are; return what calls it.

    ``torch.export`` reads the model (``strict=False``), so what its code decides by shapes is decided as for the examples.

    Parameters
    ----------
    model
        In eval mode. It stays as it is.
    example_inputs
        A tensor, a tuple of positional arguments, or a dict of named ones.
    path
        Where the library goes; :func:`tvmconv.torch.load` reads it. None: into a temporary folder, which goes with the process.
    target
        A CPU, as for :func:`tvmconv.build`.
    dtype
        ``torch.bfloat16`` or ``torch.float16``: the model computes in this type. None: as it does.
    math
        As for :func:`tvmconv.build`.
    memory
        ``"small"``: no filters that a transform enlarges, as Winograd does, and no joined ones that are larger than what they
        are of.
    progress
        Called as ``progress(done, total, what)`` while kernels are built.

    Raises
    ------
    InputError
        If the model is none, or in training mode, or cannot compute in `dtype`.
    SourceError
        If torch.export cannot read it, or it changes its own buffers, or an operator is missing; it says which.
    MissingExtraError
        If the compiler is not installed.
    """
    from ..relax.compiling import build
    from ..relax.torch_export import read_torch

    if not isinstance(model, nn.Module):
        raise InputError(f"model is a {type(model).__name__}; give a torch.nn.Module")
    if model.training:
        raise InputError("the model is in training mode, and what is compiled is inference; call model.eval() first")
    if dtype is not None and dtype not in DTYPES:
        raise InputError(f"dtype is {dtype!r}; allowed: None, {', '.join(map(str, DTYPES))}")
    args, kwargs = _arguments(example_inputs)
    if dtype is not None:
        model = copy.deepcopy(model).to(dtype)
        args, kwargs = pytree.tree_map_only(torch.Tensor, lambda each: _cast(each, dtype), (args, kwargs))
    flat = _Flat(model, args, kwargs)
    program = _exported(flat)
    path = _temporary() if path is None else as_path("path", path)
    build(read_torch(program), path, target, math=math, progress=progress, memory=memory, facts=flat.facts())
    return CompiledModel(path)


def load(path: str | os.PathLike[str]) -> CompiledModel:
    """Return what :func:`compile` wrote; errors are those of :class:`tvmconv.Network`."""
    return CompiledModel(path)


class CompiledModel(nn.Module):  # type: ignore[misc]
    """A compiled model, called as the model was in the example; its threads are PyTorch's.

    Attributes
    ----------
    network
        The library.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        self.network = Network(path)
        facts = self.network.description.get("caller", {})
        if "in_spec" not in facts:
            raise BundleError(f"{path} was not compiled by tvmconv.torch.compile; call it by tvmconv.load_network")
        self._in_spec, self._out_spec = (pytree.treespec_loads(facts[name]) for name in ("in_spec", "out_spec"))
        self._given, self._returned = facts["given"], facts["returned"]
        self._types = [_TYPES[each.dtype] for each in self.network.inputs]
        self._made = [(each.shape, _TYPES[each.dtype]) for each in self.network.outputs]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the model would.

        Raises
        ------
        InputError
            If arguments are others than in the example: of other shapes, types or structure, on another device, or in need of
            gradients.
        """
        leaves, spec = _flattened(args, kwargs)
        if spec != self._in_spec:
            raise InputError(f"arguments are {spec}; the model was compiled for {self._in_spec}")
        tensors: list[Any] = []
        for leaf, constant in zip(leaves, self._given, strict=True):
            if constant is None:
                tensors.append(self._checked(leaf, len(tensors)))
            elif not _is_same(leaf, constant[0]):
                raise InputError(f"an argument is {leaf!r}; the model was compiled for {constant[0]!r}")
        made = [torch.empty(shape, dtype=dtype) for shape, dtype in self._made]
        addresses = ([each.data_ptr() for each in tensors], [each.data_ptr() for each in made])
        self.network.run(*addresses, threads=torch.get_num_threads(), openmp=True)
        found = iter(made)
        returned = [next(found) if constant is None else constant[0] for constant in self._returned]
        return pytree.tree_unflatten(returned, self._out_spec)

    def _checked(self, leaf: Any, number: int) -> Any:
        wanted, dtype = self.network.inputs[number], self._types[number]
        if not isinstance(leaf, torch.Tensor) or tuple(leaf.shape) != wanted.shape or leaf.dtype != dtype:
            shape = "x".join(map(str, leaf.shape)) + f" {leaf.dtype}" if isinstance(leaf, torch.Tensor) else repr(leaf)
            raise InputError(
                f"input {number} is {shape}; the model was compiled for {wanted}: compile it for this, too"
            )
        if leaf.device.type != "cpu" or leaf.layout != torch.strided:
            raise InputError(
                f"input {number} is on {leaf.device}, {leaf.layout}; the model was compiled for CPUs, torch.strided"
            )
        if torch.is_grad_enabled() and leaf.requires_grad:
            raise InputError(
                f"input {number} needs a gradient, and a compiled model gives none; call it under torch.no_grad()"
            )
        return leaf.detach().resolve_neg().contiguous()


def _flattened(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
    """Return the leaves of arguments, and what holds them; named ones in the order of their names."""
    return pytree.tree_flatten((args, dict(sorted(kwargs.items()))))


def _is_same(leaf: Any, constant: Any) -> bool:
    """Whether an argument is what a model was compiled for: 1 is not True, nor 1.0, and NaN is NaN."""
    if not isinstance(leaf, type(constant)) or isinstance(leaf, bool) != isinstance(constant, bool):
        return False
    return bool(leaf == constant) or (leaf != leaf and constant != constant)


def _arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example, torch.Tensor):
        return (example,), {}
    if isinstance(example, tuple):
        return example, {}
    if isinstance(example, dict):
        return (), example
    raise InputError(
        f"example_inputs is a {type(example).__name__}; give a tensor, a tuple of arguments or a dict of named ones"
    )


def _cast(tensor: Any, dtype: Any) -> Any:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


class _Answers:
    """What a model's answers are like; an object, for torch.export sets attributes of modules back."""

    spec: Any = None
    returned: Sequence[Any] = ()


class _Flat(nn.Module):  # type: ignore[misc]
    """A model for one structure of arguments: it takes and gives tensors alone, one after the other."""

    def __init__(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.model = model
        leaves, self._in_spec = _flattened(args, kwargs)
        self._given = [_constant(each) for each in leaves]
        self.tensors = tuple(each for each in leaves if isinstance(each, torch.Tensor))
        self._answers = _Answers()

    def forward(self, *tensors: Any) -> tuple[Any, ...]:
        """Return the tensors of the model's answer."""
        found = iter(tensors)
        leaves = [next(found) if constant is None else constant[0] for constant in self._given]
        args, kwargs = pytree.tree_unflatten(leaves, self._in_spec)
        returned, self._answers.spec = pytree.tree_flatten(self.model(*args, **kwargs))
        self._answers.returned = [_constant(each) for each in returned]
        return tuple(each for each in returned if isinstance(each, torch.Tensor))

    def facts(self) -> dict[str, Any]:
        """Return what arguments and answers are like; of those that are no tensors, the value in a list."""
        try:
            specs = [pytree.treespec_dumps(each) for each in (self._in_spec, self._answers.spec)]
        except NotImplementedError as error:  # of a class that PyTorch's trees cannot name
            raise SourceError(
                f"the model's arguments or answers have a class that cannot be written: {last_line(error)}; let it take and give"
                " tensors, tuples, lists and dicts (return_dict=False)"
            ) from error
        return {"in_spec": specs[0], "out_spec": specs[1], "given": self._given, "returned": self._answers.returned}


def _constant(leaf: Any) -> list[Any] | None:
    """Return in a list what a leaf always is; None: it is a tensor."""
    if isinstance(leaf, torch.Tensor):
        return None
    if not isinstance(leaf, (bool, int, float, str, type(None))):
        raise SourceError(f"the model takes or gives a {type(leaf).__name__}; allowed: tensors, numbers, text and None")
    return [leaf]


def _exported(flat: _Flat) -> Any:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program = torch.export.export(flat, flat.tensors, strict=False)
            # Before this, changes in place are not noted.
            signature = program.run_decompositions({}).graph_signature
        except SourceError:
            raise
        except Exception as error:  # of many classes: it names the line of the model's code
            raise SourceError(f"torch.export cannot read the model: {last_line(error)}") from error
    if signature.buffers_to_mutate or signature.user_inputs_to_mutate:
        changed = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
        name = changed[0].removeprefix("model.")
        raise SourceError(f"the model changes {name} in each call, and a library has nothing that changes")
    return program


def _temporary() -> Path:
    """Return a library's path in a folder that goes with the process."""
    _TEMPORARY.append(tempfile.TemporaryDirectory(prefix="tvmconv-"))
    return Path(_TEMPORARY[-1].name) / "model.so"
