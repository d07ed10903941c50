"""`optimize`: a copy of a model whose calls networks answer; networks that a folder lacks are compiled."""

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

    ``torch.export`` reads the model for each example (``strict=False``), so what its code decides by shapes is decided as
    for the example. Operators that networks do not have are computed by PyTorch between them. Where a whole model cannot be
    read, its submodules are tried. What is called otherwise than in an example is computed by PyTorch: other shapes, types
    and devices, whatever needs gradients or runs under autocast, and all calls while something is not as it was that the model's
    code may read: weights, attributes, hooks, classes, functions, variables of modules and closures.

    Parameters
    ----------
    model
        In eval mode, or a program of ``torch.export.export``. It stays as it is; the copy's parameters need no gradients.
    example_inputs
        A tensor, a tuple of positional arguments, a dict of named ones, or a list of such for several shapes.
    bundle
        The folder that keeps networks. What it lacks is compiled into it, which needs the compiler. None: a temporary folder,
        which is gone when the process ends.
    target
        A CPU, or several, as for :func:`tvmconv.build`, for the networks that are compiled.
    trials, seconds
        As for :func:`tvmconv.build`.
    dtype
        ``torch.bfloat16`` or ``torch.float16``: the copy computes in this type, and is called with tensors of it. None: as
        the model does.
    memory
        ``"small"``: no transforms, as with ``math="strict"``, and no joined filters that are larger than what they are of.
        ``"default"``: these as well, where they are faster. None: small if weights are let go, else the default.
    keep_weights
        False: the copy lets go of the weights that networks have. Calls that no network answers, training and ``state_dict`` are
        then an InputError.
    changed
        ``"pytorch"``: a model that has changed is computed by PyTorch, with a warning that names what changed, until it is as it was.
        ``"compile"``: the first call of it compiles networks anew, while other threads' calls are PyTorch's. This needs the compiler.
    dynamic_shapes
        As ``torch.export.export`` takes it, for axes whose extents calls give: ``{"x": {2: Dim("h", min=32, max=4096)}}``. One network
        answers calls of all that it allows, if none of the model's operators has to be PyTorch's. None: networks are for the examples'
        shapes.
    progress
        Called as ``progress(done, total, what)`` while kernels are built.

    Returns
    -------
    torch.nn.Module
        The copy. :func:`tvmconv.torch.report` says what computes its operators.

    Raises
    ------
    InputError
        If the model is in training mode, is or has what torch.compile made, or was never called and has no parameters; if
        nothing of it can be compiled; if it cannot be copied, or cannot compute in `dtype`; if its own code reads weights that
        were to be let go; or if `example_inputs`, `bundle`, `memory` or `changed` is something else.
    MissingExtraError
        If networks are missing, and the compiler is not installed.
    BundleError
        If there is something else at `bundle`, or networks of another version.
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
        # The last weight that goes with the model: the heap keeps what small ones leave.
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
