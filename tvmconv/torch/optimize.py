"""`optimize`: a copy of a model whose convolutions are computed by kernels, built where a bundle lacks them."""

from __future__ import annotations

import copy
import os
import sys
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch._ops import OpOverload
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from ..checks import as_path
from ..errors import BuildError, InputError, TvmconvWarning, UnsupportedMachineError
from ..problem import Problem
from ..runtime.bundle import MANIFEST, read_bundle
from ..runtime.registry import Registry
from ..signature import format_signature
from ..support.progress import Progress
from .calls import ByKernel, ByTorch, Notice
from .convolution import DTYPES
from .kernels import OPENED
from .layers import FusedConvolution
from .planned import with_plans
from .rewriting import Arguments, as_examples, is_alike, rewrite, run
from .weights import with_fixed_weights


def print_progress(done: int, total: int, what: str) -> None:
    """Say on stderr which kernel was built."""
    print(f"tvmconv: built {done} of {total}: {what}", file=sys.stderr, flush=True)


def optimize(
    model: nn.Module,
    example_inputs: Any,
    bundle: str | os.PathLike[str] | None = None,
    target: str | Sequence[str] = "host",
    trials: int = 0,
    seconds: float | None = None,
    dtype: Any = None,
    *,
    progress: Progress | None = print_progress,
) -> nn.Module:
    """Return a copy of a model for inference whose convolutions and Linears are computed by tvmconv's kernels.

    The model runs on the examples, which gives the shapes. BatchNorm is folded into the convolutions before it, and
    additions and activations after them become part of their kernels, where torch.fx can trace the model. What kernels do
    not compute is computed by PyTorch: other shapes, types and devices, whatever needs gradients or runs under autocast.

    Parameters
    ----------
    model
        In eval mode. It stays as it is; the copy's parameters need no gradients.
    example_inputs
        A tensor, a tuple of positional arguments, a dict of named ones, or a list of such for several shapes.
    bundle
        Where the kernels are. What it lacks is built into it, which needs the compiler. None: built into a temporary folder,
        which is gone when the process ends.
    target, trials, seconds
        As for :func:`tvmconv.build`, for the kernels that are built.
    dtype
        ``torch.bfloat16`` or ``torch.float16``: the copy computes in this type, and is called with tensors of it. None: as
        the model does.
    progress
        Called as ``progress(done, total, what)`` while kernels are built.

    Returns
    -------
    torch.nn.Module
        The copy. :func:`tvmconv.torch.report` says what computes its layers.

    Raises
    ------
    InputError
        If the model is in training mode, is or has what torch.compile made, was never called and has no parameters, or has no
        convolution; if it cannot be copied, or cannot compute in `dtype`; or if `example_inputs` or `bundle` is something else.
    MissingExtraError
        If kernels are missing, and the compiler is not installed.
    BundleError
        If there is something else at `bundle`, or a bundle of other versions.
    """
    _check(model, dtype)
    bundle = None if bundle is None else as_path("bundle", bundle)
    notice = Notice(silent=True)  # until all that can be built is built
    # Without gradients also since copies of what torch.jit compiled would need them.
    with torch.inference_mode(False), torch.no_grad():
        examples = as_examples(example_inputs)
        fast = rewrite(model, examples, notice)
        if dtype is not None:
            examples = pytree.tree_map_only(torch.Tensor, lambda tensor: _cast(tensor, dtype), examples)
            fast = _in_type(fast, with_fixed_weights(model), examples, dtype, notice)
        fast = with_plans(fast).requires_grad_(False)
        _provide(fast, examples, notice, bundle, target, trials, seconds, progress)
    notice.silent = False
    return fast


def _check(model: Any, dtype: Any) -> None:
    if not isinstance(model, nn.Module):
        raise InputError(f"model is a {type(model).__name__}; give a torch.nn.Module")
    if isinstance(model, torch.jit.ScriptModule):
        raise InputError(
            f"model is a {type(model).__name__}, whose layers cannot be replaced; give the module it was made of"
        )
    if isinstance(model, fx.GraphModule) and any(isinstance(each.target, OpOverload) for each in model.graph.nodes):
        raise InputError(
            "model is a program of torch.export, which has operators where the layers were; give the module that was"
            " exported, or compile the program by tvmconv.relax"
        )
    for path, module in model.named_modules():
        if type(module).__module__.startswith("torch._dynamo"):
            raise InputError(
                f"{path or 'the model'} is what torch.compile made, which hides its layers; give the module it was made of"
                " (its _orig_mod), and compile what optimize returns"
            )
        if any(map(is_lazy, module.parameters(recurse=False))):
            raise InputError(
                f"{path or 'the model'} has no parameters yet, since it was not called; call the model once"
            )
    if model.training:
        raise InputError("the model is in training mode, and what is optimized is inference; call model.eval() first")
    if dtype is not None and dtype not in DTYPES:
        raise InputError(f"dtype is {dtype!r}; allowed: None, {', '.join(map(str, DTYPES))}")


def _cast(tensor: Any, dtype: Any) -> Any:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _in_type(fast: nn.Module, model: nn.Module, examples: Sequence[Arguments], dtype: Any, notice: Notice) -> nn.Module:
    """Return a rewritten model that computes in a type, for examples of it.

    Weights that are folded before they are rounded lose less. A graph's own types, which the model's code made of those of
    its parameters, stay as they were; then the model is rewritten in the type.
    """
    plain = copy.deepcopy(model).to(dtype)
    try:
        expected = [run(plain, example) for example in examples]
    except RuntimeError:  # PyTorch has no operator of it for this type; the copy may need none
        fast = fast.to(dtype)
        try:
            for example in examples:
                run(fast, example)
        except RuntimeError as error:
            raise InputError(f"the model cannot compute in {dtype}: {error}; give another dtype, or None") from error
        return fast
    fast = fast.to(dtype)
    try:
        alike = all(is_alike(run(fast, example), answer) for example, answer in zip(examples, expected, strict=True))
    except (RuntimeError, InputError):
        alike = False
    return fast if alike else rewrite(plain, examples, notice)


def _provide(
    fast: nn.Module,
    examples: Sequence[Arguments],
    notice: Notice,
    bundle: str | os.PathLike[str] | None,
    target: str | Sequence[str],
    trials: int,
    seconds: float | None,
    progress: Progress | None,
) -> None:
    """Open the bundle, build into it what it lacks, and let each layer find its kernels."""
    if bundle is not None and (Path(bundle) / MANIFEST).exists():
        with suppress(UnsupportedMachineError):  # a bundle for other machines lacks all that this one needs
            OPENED.open(bundle)
    layers = [module for module in fast.modules() if isinstance(module, FusedConvolution)]
    notice.unbuilt = True
    try:
        _meet(fast, layers, examples)
    finally:
        notice.unbuilt = False
    missing = _missing(layers, bundle, target)
    if missing:
        from ..building.builder import build

        path = Path(bundle) if bundle is not None else _temporary()
        try:
            build(missing, path, target, trials=trials, seconds=seconds, network=_network(layers), progress=progress)
        except BuildError as error:
            warnings.warn(f"{error}\nPyTorch computes these layers", TvmconvWarning, stacklevel=4)
        if (path / MANIFEST).exists():
            try:
                OPENED.open(path)
            except UnsupportedMachineError as error:  # built for others alone
                warnings.warn(f"{error}; until then PyTorch computes the model here", TvmconvWarning, stacklevel=4)
        _meet(fast, layers, examples)


def _meet(fast: nn.Module, layers: Iterable[FusedConvolution], examples: Sequence[Arguments]) -> None:
    """Let each layer find what computes the examples."""
    for layer in layers:
        layer.calls.forget()  # inputs lie otherwise where PyTorch computed what came before
    for example in examples:
        run(fast, example)


def _network(layers: Iterable[FusedConvolution]) -> list[Problem]:
    """Return a problem of each layer that met one."""
    problems = []
    for layer in layers:
        for each in layer.calls.found.values():
            problem = each.kernel.problem if isinstance(each, ByKernel) else each.problem
            if problem is not None:
                problems.append(problem)
                break
    return problems


def _missing(
    layers: Iterable[FusedConvolution], bundle: str | os.PathLike[str] | None, target: str | Sequence[str]
) -> list[Problem]:
    """Return the problems that the layers met and that are to be built."""
    found = [each for layer in layers for each in layer.calls.found.values()]
    missing = {each.problem for each in found if isinstance(each, ByTorch) and each.problem is not None}
    served = {each.kernel.problem for each in found if isinstance(each, ByKernel)}
    if bundle is None:
        return sorted(missing, key=format_signature)
    # What serves this process may be another bundle's, and this one may be for other machines.
    there = read_bundle(bundle) if (Path(bundle) / MANIFEST).exists() else None
    if target == "host":
        try:
            registry = Registry([there] if there is not None else [])
        except UnsupportedMachineError:
            registry = Registry([])
        missing |= {problem for problem in served if problem not in registry}
    else:
        from ..building.builder import parse_targets

        names = {each.name for each in parse_targets(target)}
        built = {(entry.signature, entry.target) for entry in there.entries} if there is not None else set()
        missing |= served
        missing = {each for each in missing if any((format_signature(each), name) not in built for name in names)}
    return sorted(missing, key=format_signature)


_TEMPORARY: list[tempfile.TemporaryDirectory[str]] = []


def _temporary() -> Path:
    """Return a bundle's path in a folder that goes with the process."""
    _TEMPORARY.append(tempfile.TemporaryDirectory(prefix="tvmconv-"))
    return Path(_TEMPORARY[-1].name) / "torch.bundle"
