"""`Calls`: a convolution with its weights, and for each kind of input the kernel that computes it, ready to be called.

An input's kind is its shape, strides, type and device. What follows from it is found at the first call: the kernel, the
packed filter, whether the input must be copied, the output's shape. Later calls look the kind up and call.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import Any

import torch

from ..errors import InvalidProblemError, TvmconvError, TvmconvWarning
from ..problem import Problem
from ..runtime.addressed import AddressedKernel
from ..runtime.packed import PackedFilter
from . import native
from .convolution import DTYPES, Convolution
from .kernels import OPENED, is_addressed
from .layout import Layout

# Kinds of inputs that a layer remembers; one that is served more shapes forgets them all and begins again.
_REMEMBERED = 1024
Key = tuple[Any, ...]


class Notice:
    """Warns once, for all layers of a model, that torch computes what a kernel should.

    Attributes
    ----------
    silent
        Whether it warns no more.
    rehearsing
        Whether there are no kernels yet, and there will be one of everything.
    unbuilt
        Whether what PyTorch computes in place of kernels, which are to be built, is to lie in memory as they leave it.
    graphless
        By the paths of modules that are no graphs, the model's own empty: why not.
    """

    def __init__(self, silent: bool = False) -> None:
        self.silent = silent
        self.rehearsing = self.unbuilt = False
        self.graphless: dict[str, str] = {}

    def __call__(self, name: str, reason: str) -> None:
        """Warn that the layer `name` falls back, if nobody was warned before."""
        if not self.silent:
            self.silent = True
            warnings.warn(
                f"{name} is computed by PyTorch: {reason}. Nothing is said of further layers and inputs;"
                " print(tvmconv.torch.report(model)) lists them all",
                TvmconvWarning,
                stacklevel=4,
            )

    def __deepcopy__(self, memo: object) -> Notice:
        return self


@dataclass(frozen=True)
class ByKernel:
    """How an input of one kind is computed by a kernel."""

    kernel: Any
    call: Callable[[Any, Any, Any], Any]


@dataclass(frozen=True)
class ByTorch:
    """Why PyTorch computes an input of one kind.

    `problem` is what a kernel would compute, None where no kernel could; `generation` says which bundles were open.
    """

    reason: str
    problem: Problem | None
    device: str
    generation: int


@dataclass
class _State:
    """What holds as long as the weights stay as they are."""

    weight: Callable[[], Any]
    version: float
    address: int
    bias: Callable[[], Any]
    bias_address: int
    slope: Callable[[], Any]
    slope_version: float
    found: dict[Key, ByKernel | ByTorch] = field(default_factory=dict)
    packed: dict[str, PackedFilter] = field(default_factory=dict)

    def holds(self, weight: Any, bias: Any, slope: Any) -> bool:
        """Whether these are the weights, unchanged."""
        return (
            self.weight() is weight
            and self.version == _version(weight)
            and self.address == weight.data_ptr()
            and self.bias() is bias
            and (bias is None or self.bias_address == bias.data_ptr())
            and self.slope() is slope
            and (slope is None or self.slope_version == _version(slope))
        )


class Calls:
    """A convolution that is computed by kernels where there are some, and by PyTorch where there are none.

    Parameters
    ----------
    convolution
        What is computed.
    name
        The layer's name, for warnings.
    notice
        Whom to tell that PyTorch computes an input.
    """

    def __init__(self, convolution: Convolution, name: str, notice: Notice) -> None:
        self._convolution = convolution
        self._name, self._notice = name, notice
        self._state: _State | None = None
        self._refused: dict[Key, ByTorch] = {}

    def __call__(self, data: Any, weight: Any, bias: Any, residual: Any, slope: Any = None) -> Any:
        """Compute it; no shape, type or device is an error that is none for PyTorch."""
        key = _key(data, residual)
        # Taken once: another thread may see other weights and replace it.
        state = self._state
        if state is None or not state.holds(weight, bias, slope):
            state = self._state = _state(weight, bias, slope)
        found = state.found.get(key)
        if found is None or (isinstance(found, ByTorch) and found.generation != OPENED.generation):
            found = self._find(state, data, weight, bias, residual)
            if len(state.found) >= _REMEMBERED:
                state.found.clear()
            state.found[key] = found
        if isinstance(found, ByKernel):
            try:
                return found.call(data, bias, residual)
            except RuntimeError as error:  # there is no memory, or a tensor has none, as under torch.func.vmap
                reason = str(error).partition("\n")[0]
        else:
            reason = found.reason
        self._notice(self._name, reason)
        output = self._convolution.by_torch(data, weight, bias, residual, slope)
        if self._notice.unbuilt and isinstance(found, ByTorch) and found.problem is not None:
            return self._convolution.layout.laid_out(output)
        return output

    def addressed(self, data: Any, residual: Any) -> AddressedCall | None:
        """Return what computes an input that was met with the present weights, if it is a kernel of the CPU."""
        state = self._state
        found = None if state is None else state.found.get(_key(data, residual))
        return found.call if isinstance(found, ByKernel) and isinstance(found.call, AddressedCall) else None

    def may_serve(self, shape: Sequence[int], dtype: Any, weight: Any, bias: Any) -> bool:
        """Whether a kernel was opened for data of the CPU of this shape and type; always, while it is found out what to build."""
        if self._notice.rehearsing:
            return True
        problem = self._convolution.problem(shape, weight.shape, bias is not None, DTYPES[dtype])
        return OPENED.find(problem, "cpu") is not None

    @property
    def found(self) -> dict[Key, ByKernel | ByTorch]:
        """What computes each kind of input that was met with the present weights."""
        return {**(self._state.found if self._state is not None else {}), **self._refused}

    def by_torch(self, reason: str, data: Any, *others: Any) -> Any:
        """Let PyTorch compute an input for a reason that is not the input's kind, and remember the reason.

        `others`: what `Convolution.by_torch` takes after the data.
        """
        if not (torch.jit.is_tracing() or torch.compiler.is_compiling()) and len(self._refused) < _REMEMBERED:
            key: Key = (data.shape, reason, data.dtype, data.device)
            self._refused.setdefault(key, ByTorch(reason, None, str(data.device), OPENED.generation))
        return self._convolution.by_torch(data, *others)

    def forget(self) -> None:
        """Forget what was found, and the packed filters."""
        self._state = None
        self._refused.clear()

    def _find(self, state: _State, data: Any, weight: Any, bias: Any, residual: Any) -> ByKernel | ByTorch:
        """Return what computes an input."""
        generation, device = OPENED.generation, str(data.device)

        def by_torch(reason: str, problem: Problem | None = None) -> ByTorch:
            return ByTorch(reason, problem, device, generation)

        reason = _obstacle(self._convolution, data, weight, bias, residual, state.slope())
        if reason is not None:
            return by_torch(reason)
        try:
            dtype = DTYPES[data.dtype]
            problem = self._convolution.problem(data.shape, weight.shape, bias is not None, dtype)
        except InvalidProblemError as error:
            return by_torch(str(error))
        if problem.is_empty or problem.is_constant:
            return by_torch("nothing is summed")
        try:
            kernel = OPENED.find(problem, device)
            if kernel is None:
                return by_torch(f"the opened bundles have no kernel for {_shape(data.shape)} on {device}", problem)
            return ByKernel(kernel, _bind(kernel, self._convolution, state, data, weight, residual))
        except (TvmconvError, RuntimeError) as error:
            return by_torch(str(error).splitlines()[0])


def _key(data: Any, residual: Any) -> Key:
    """Return the kind of an input."""
    key: Key = (data.shape, data.stride(), data.dtype, data.device)
    return key if residual is None else (*key, residual.shape, residual.stride(), residual.dtype, residual.device)


def _obstacle(convolution: Convolution, data: Any, weight: Any, bias: Any, residual: Any, slope: Any) -> str | None:
    """Return why no kernel could compute an input, None if one could."""
    if data.numel() == 0:
        return "the input is empty"
    if data.dtype not in DTYPES:
        return f"there are no kernels of {data.dtype}"
    others = (("the filter", weight), ("the bias", bias), ("what is added", residual), ("the slope", slope))
    for name, other in others:
        if other is not None and (other.dtype != data.dtype or other.device != data.device):
            return f"{name} is {other.dtype} on {other.device}, the input {data.dtype} on {data.device}"
    if not convolution.takes(data.dim()):
        return f"the input has no batch dimension: {_shape(data.shape)}"
    shape = convolution.output_shape(data.shape, weight.shape)
    if residual is not None and (reason := convolution.refuses(residual, shape)) is not None:
        return reason
    if bias is not None and not bias.is_contiguous():
        return "the bias is not contiguous"
    return None


def _state(weight: Any, bias: Any, slope: Any) -> _State:
    nothing = (lambda: None, 0)
    kept = nothing if bias is None else (weakref.ref(bias), bias.data_ptr())
    sloped = nothing if slope is None else (weakref.ref(slope), _version(slope))
    return _State(weakref.ref(weight), _version(weight), weight.data_ptr(), *kept, *sloped)


def _version(weight: Any) -> float:
    """Return what changes with the content; tensors of inference mode do not count their changes, so nothing holds."""
    return nan if weight.is_inference() else weight._version


@dataclass(frozen=True)
class AddressedCall:
    """A kernel of the CPU with its filter, whose arrays are handed over as addresses.

    `copied` and `residual_copied`: what the kernel cannot read as it lies.
    """

    kernel: AddressedKernel
    packed: PackedFilter | None  # which lives as long as its address is used
    filter_address: int
    layout: Layout
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    copied: bool
    residual_copied: bool
    factors: Any  # of the step prelu or scale, f32, whatever the type of the others

    def __call__(self, data: Any, bias: Any, residual: Any) -> Any:
        """Compute it."""
        if self.copied:
            data = native.laid_out(self.layout, data)
        if self.residual_copied:
            residual = native.laid_out(self.layout, residual.expand(self.shape))
        output = self.empty()
        addresses = [data.data_ptr(), self.filter_address]
        if bias is not None:
            addresses.append(bias.data_ptr())
        if self.factors is not None:
            addresses.append(self.factors.data_ptr())
        if residual is not None:
            addresses.append(residual.data_ptr())
        self.kernel(torch.get_num_threads(), *addresses, output.data_ptr())
        return output

    def empty(self) -> Any:
        """Return memory for the output."""
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device="cpu")


@dataclass(frozen=True)
class ScalingCall(AddressedCall):
    """A kernel that is given a plain filter, which stands in the residual's place. A plan gives it that address last."""

    def __call__(self, data: Any, bias: Any, residual: Any) -> Any:
        """Compute it."""
        if self.copied:
            data = native.laid_out(self.layout, data)
        output = self.empty()
        self.kernel(torch.get_num_threads(), data.data_ptr(), residual.data_ptr(), output.data_ptr())
        return output


def _bind(
    kernel: Any, convolution: Convolution, state: _State, data: Any, weight: Any, residual: Any
) -> Callable[[Any, Any, Any], Any]:
    """Return what calls a kernel with an input of this kind, the bias, and what is added."""
    # What lies as the kernel reads it is taken as it is; of anything else there is a copy.
    layout, shape = convolution.layout, tuple(convolution.output_shape(data.shape, weight.shape))
    copied = not layout.is_ready(data)
    strides = layout.strides(shape)
    if convolution.filter_is_residual:
        return ScalingCall(
            kernel.addressed(packed=False), None, 0, layout, shape, strides, data.dtype, copied, False, None
        )
    residual_copied = residual is not None and not (tuple(residual.shape) == shape and layout.is_ready(residual))
    weight = convolution.filter(weight, data)
    plain = weight.detach().permute(*range(2, weight.dim()), 1, 0).contiguous().reshape(kernel.problem.filter_shape)
    factors, scale = state.slope(), convolution.scale(weight)
    if factors is not None:
        factors = factors.detach().to(torch.float32, copy=True).contiguous()
    elif scale is not None:
        factors = torch.full((shape[layout.axis],), scale, dtype=torch.float32, device=data.device)
    if not is_addressed(kernel):
        return _on_gpu(kernel, layout, shape, plain, {"slope" if scale is None else "scale": factors})
    packed = kernel.pack(plain)
    packed = state.packed.setdefault(packed.layout, packed)
    address, addressed = packed.array.ctypes.data, kernel.addressed()
    native.offer(addressed)
    return AddressedCall(
        addressed, packed, address, layout, shape, strides, data.dtype, copied, residual_copied, factors
    )


def _on_gpu(
    kernel: Any, layout: Layout, shape: Sequence[int], plain: Any, factors: dict[str, Any]
) -> Callable[[Any, Any, Any], Any]:
    """Bind a kernel of a GPU, which takes the tensors as they are."""
    problem, last = kernel.problem, layout.shape_last(shape)

    def run(data: Any, bias: Any, residual: Any) -> Any:
        data = layout.channels_last(data).contiguous().reshape(problem.data_shape)
        if residual is not None:
            residual = layout.channels_last(residual.expand(shape)).contiguous().reshape(problem.output_shape)
        output = kernel(data, plain, bias, **factors, residual=residual)
        return layout.from_channels_last(output.reshape(last))

    return run


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
