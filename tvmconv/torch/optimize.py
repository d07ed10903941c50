"""`optimize`: a copy of a model whose calls are answered by networks; those that a folder lacks are compiled."""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from ..checks import MEMORIES, as_path, choice
from ..errors import InputError, TvmconvWarning
from ..support.heap import give_back, trim
from ..support.progress import Progress
from .computed import How
from .examples import Arguments, as_examples, cast, check_model, print_progress, run
from .exporting import ProgramModule, as_module
from .left import left_to_pytorch
from .replacing import Replacing
from .rewritten import copied_model
from .store import Store, temporary


def optimize(
    model: nn.Module | ExportedProgram,
    example_inputs: Any,
    bundle: str | os.PathLike[str] | None = None,
    target: str | Sequence[str] = "host",
    trials: int = 0,
    seconds: float | None = None,
    dtype: Any = None,
    *,
    memory: str | None = None,
    keep_weights: bool = True,
    changed: str = "pytorch",
    dynamic_shapes: Any = None,
    progress: Progress | None = print_progress,
) -> nn.Module:
    """Return a copy of a model for inference whose calls compiled networks answer.

    ``torch.export`` reads the model for each example (``strict=False``), so its code's decisions by shapes are those for the
    example. PyTorch computes unsupported operators, between networks. Where a whole model cannot be read, its submodules are
    tried. PyTorch also computes calls unlike the examples: with other shapes, types or devices, with gradients or autocast, and
    all calls while something that the model's code may read has changed: weights, attributes, hooks, classes, functions,
    variables of modules and closures.

    Parameters
    ----------
    model
        A model in eval mode, or a program of ``torch.export.export``. It is not changed; the copy's parameters need no gradients.
    example_inputs
        A tensor, a tuple of positional arguments, a dict of named ones, or a list of such for several shapes.
    bundle
        The folder of networks. Missing ones are compiled into it, which needs the compiler. None: a temporary folder, which is
        removed with the process.
    target
        A CPU, or several, as for :func:`tvmconv.build`, for the networks that are compiled.
    trials, seconds
        As for :func:`tvmconv.build`.
    dtype
        ``torch.bfloat16`` or ``torch.float16``: the copy computes in this type, and takes tensors of it. None: the model's
        type.
    memory
        ``"small"``: no transforms, as with ``math="strict"``, and no joined filters that are larger than the originals.
        ``"default"``: both where they are faster. None: small with ``keep_weights=False``, else the default.
    keep_weights
        False: the copy releases the weights that networks have. Calls that no network answers, training and ``state_dict`` are
        then an InputError.
    changed
        ``"pytorch"``: PyTorch computes a changed model, with a warning that names the change, until it is undone.
        ``"compile"``: the first call after a change compiles networks again, meanwhile PyTorch computes other threads' calls. This needs
        the compiler.
    dynamic_shapes
        As for ``torch.export.export``, for axes with free extents: ``{"x": {2: Dim("h", min=32, max=4096)}}``. One network answers
        calls with all allowed extents, if networks support all of the model's operators. None: networks are for the examples' shapes.
    progress
        Called as ``progress(done, total, what)`` while kernels are built.

    Returns
    -------
    torch.nn.Module
        The copy. :func:`tvmconv.torch.report` lists what computes its operators.

    Raises
    ------
    InputError
        If the model is in training mode, contains a result of torch.compile, or has no parameters yet since it was never called;
        if nothing of it can be compiled; if it cannot be copied, or cannot compute in `dtype`; if its own code reads weights that
        were to be released; or if `example_inputs`, `bundle`, `memory` or `changed` has another type or value.
    MissingExtraError
        If networks are missing, and the compiler is not installed.
    BundleError
        If `bundle` is something else, or has networks of another version.
    """
    model = as_module(model)
    _check(model, dtype)
    store = Store(temporary() / "networks" if bundle is None else as_path("bundle", bundle))
    targets = (target,) if isinstance(target, str) else tuple(target)
    if not targets:
        raise InputError("target is empty; give at least one CPU, for example host")
    if memory is None:
        memory = "default" if keep_weights else "small"
    choice("memory", memory, MEMORIES, InputError)
    if changed not in ("pytorch", "compile") or (changed == "compile" and not keep_weights):
        raise InputError(f"changed is {changed!r}; allowed: pytorch, and with keep_weights=True compile")
    how = How(targets, trials, seconds, progress=progress, memory=memory, dynamic_shapes=dynamic_shapes)
    with torch.inference_mode(False), torch.no_grad():
        given = as_examples(example_inputs)
        fast, examples = _copy(model, given, dtype)
        replacing = Replacing(fast, store, how, changed == "compile")
        replacing.replace(examples)
        fast.requires_grad_(False)
        replacing.finish(examples, keep_weights)
        share = left_to_pytorch(model, given, replacing.answering) if replacing.networks else 0.0
    give_back()
    if share > 0.5:
        text = f"PyTorch computes {share:.0%} of the model's multiply-adds; print tvmconv.torch.report of the copy for each reason"
        warnings.warn(text, TvmconvWarning, stacklevel=2)
    if not replacing.networks:
        whys = "; ".join(f"{path or 'the model'}: {why}" for path, why in replacing.refused.items())
        if replacing.elsewhere:
            warnings.warn(f"{whys}; until then PyTorch computes the model here", TvmconvWarning, stacklevel=2)
        else:
            raise InputError(f"no part of the model can be compiled: {whys}")
    if not keep_weights:
        # When the model's last weight is freed: the heap keeps the memory of small ones.
        for weight in [*model.parameters()][-1:]:
            weakref.finalize(weight, trim).atexit = False
    return fast


def _check(model: Any, dtype: Any) -> None:
    check_model(model, dtype, "optimize")
    if isinstance(model, torch.jit.ScriptModule):
        raise InputError(f"model is a {type(model).__name__}, which cannot be read; give the module it was made of")
    for path, module in model.named_modules():
        if type(module).__module__.startswith("torch._dynamo"):
            raise InputError(
                f"{path or 'the model'} was made by torch.compile, which hides its layers; give the original module"
                " (its _orig_mod), and compile what optimize returns"
            )
        if any(map(is_lazy, module.parameters(recurse=False))):
            raise InputError(
                f"{path or 'the model'} has no parameters yet, since it was not called; call the model once"
            )


def _copy(model: nn.Module, examples: list[Arguments], dtype: Any) -> tuple[nn.Module, list[Arguments]]:
    """Return a copy of a model in a type, and its examples; InputError if the copy fails and the model does not."""
    for example in examples:
        run(model, example)
    try:
        fast = copied_model(model)
        for example in examples:
            run(fast, example)
    except Exception as error:
        raise InputError(
            f"a copy of the model (copy.deepcopy) fails where the model does not, {type(error).__name__}: {error}; if it has"
            " hooks or closures that belong to the model, make them methods of its modules, or optimize it without them"
        ) from error
    if isinstance(fast, fx.GraphModule):
        fast = ProgramModule(fast).eval()
    if dtype is None:
        return fast, examples
    fast = fast.to(dtype)
    examples = pytree.tree_map_only(torch.Tensor, lambda tensor: cast(tensor, dtype), examples)
    try:
        for example in examples:
            run(fast, example)
    except RuntimeError as error:
        raise InputError(f"the model cannot compute in {dtype}: {error}; give another dtype, or None") from error
    return fast, examples
