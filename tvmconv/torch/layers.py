"""`FusedConvolution`: a layer that computes a convolution and the steps after it with one kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..errors import InputError
from .calls import Calls, Notice
from .convolution import Convolution
from .operator import convolution as operator
from .pads import padded

_PLAIN = (torch.Tensor, nn.Parameter)


class FusedConvolution(nn.Module):  # type: ignore[misc]
    """A convolution, its bias, and the steps of its epilogue, by a kernel or by PyTorch.

    PyTorch computes what no opened bundle has a kernel for, and whatever needs gradients or runs under autocast.

    Parameters
    ----------
    module
        The convolution, whose parameters the layer takes over under their names.
    convolution
        What is computed.
    name
        The layer's name in its model.
    notice
        Whom to tell that PyTorch computes an input.
    slope
        The parameter of the step ``prelu``, if there is one.
    """

    def __init__(
        self, module: nn.Module, convolution: Convolution, name: str, notice: Notice, slope: Any = None
    ) -> None:
        super().__init__()
        self.weight = module.weight
        self.register_parameter("bias", module.bias)
        self.register_parameter("slope", slope)
        self.convolution = convolution
        for attribute in module.__constants__:  # in_channels, stride and their like, which a model's code may ask for
            setattr(self, attribute, getattr(module, attribute))
        # What PyTorch's layer pads its input with, if not with zeros: the pads of each axis, the last first, and how.
        reflected = getattr(module, "padding_mode", "zeros") != "zeros"
        self.reflection = (module._reversed_padding_repeated_twice, module.padding_mode) if reflected else None
        # Whether outputs lie as PyTorch's: a model that traces and plans do not know may depend on that.
        self.lies_as_torch = False
        # Whether its weights are cast to its input's type, as a subclass of PyTorch's layer may do.
        self.casts = getattr(module, "casts", False)
        self.name = name or convolution.name
        self._notice = notice
        self._calls = Calls(convolution, self.name, notice)
        self.train(module.training)

    def forward(self, input: Any, output_size: Any = None, *, residual: Any = None) -> Any:
        """Compute the layer.

        Parameters
        ----------
        input, output_size
            As PyTorch's layers take them. A transposed one that is told its output's size is computed by PyTorch.
        residual
            What the step ``add`` adds.
        """
        if self.reflection is not None:
            input = padded(input, *self.reflection)
        if self.casts and input.dtype != self.weight.dtype:
            weight, bias = (None if each is None else each.to(input.dtype) for each in (self.weight, self.bias))
            cast = f"the weights are {self.weight.dtype}, and cast to the input's type in each call"
            return self._calls.by_torch(cast, input, weight, bias, residual, self.slope)
        if output_size is not None:
            padding, sized = self._output_padding(input, output_size), "its output's size is given in each call"
            return self._calls.by_torch(sized, input, self.weight, self.bias, residual, self.slope, padding)
        if torch.compiler.is_compiling():
            return self._traced(input, residual)
        parameters = self._parameters
        try:
            weight, bias, slope = parameters["weight"], parameters["bias"], parameters["slope"]
        except KeyError:  # as torch.nn.utils.prune and parametrizations have it
            computed = "a parameter is computed in each call"
            return self._calls.by_torch(computed, input, self.weight, self.bias, residual, self.slope)
        reason = _obstacle(input, weight, bias, residual, slope)
        if reason is not None:
            return self._calls.by_torch(reason, input, weight, bias, residual, slope)
        if type(input) not in _PLAIN or torch._C._len_torch_dispatch_stack():
            return self._traced(input, residual)
        output = self._calls(input, weight, bias, residual, slope)
        if self.lies_as_torch and (input.is_contiguous() or not self.convolution.layout.is_ready(input)):
            return output.contiguous()
        return output

    @property
    def calls(self) -> Calls:
        """What computes the inputs that were met."""
        return self._calls

    @property
    def graphless(self) -> dict[str, str]:
        """Why modules of the model are no graphs."""
        return self._notice.graphless

    def extra_repr(self) -> str:
        """Return what is computed, for the module's text."""
        computed = "-".join(filter(None, (self.convolution.name, self.convolution.epilogue)))
        return computed if self.reflection is None else f"pad_{self.reflection[1]}-{computed}"

    def _traced(self, data: Any, residual: Any) -> Any:
        """Compute by the operator, which whoever traces the model sees."""
        weight, bias, slope, convolution = self.weight, self.bias, self.slope, self.convolution
        if not convolution.is_exported or _obstacle(data, weight, bias, residual, slope):
            return convolution.by_torch(data, weight, bias, residual, slope)
        others = [other for other in (weight, bias, residual, slope) if other is not None]
        fits = convolution.takes(data.dim()) and all(other.dtype == data.dtype for other in others)
        if residual is not None and fits:
            fits = tuple(residual.shape) == tuple(convolution.output_shape(data.shape, weight.shape))
        if not fits:
            return convolution.by_torch(data, weight, bias, residual, slope)
        return operator(data, weight, bias, residual, *convolution.at(data.shape, weight.shape).arguments, slope)

    def _output_padding(self, input: Any, output_size: Any) -> tuple[int, ...]:
        """Return the output padding by which the output has this size."""
        rank, known = len(self.convolution.strides), self.convolution.output_padding
        natural = self.convolution.output_shape(input.shape, self.weight.shape)[-rank:]
        sizes = zip(output_size[-rank:], natural, known, strict=True)
        return tuple(size - other + padding for size, other, padding in sizes)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_calls"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        # Packed filters belong to the weights that they were made of.
        self._calls = Calls(self.convolution, self.name, self._notice)


def _obstacle(input: Any, weight: Any, bias: Any, residual: Any, slope: Any) -> str | None:
    """Return why PyTorch computes a call, whatever kernels there are; None if nothing asks for it.

    Raises
    ------
    InputError
        If the input is no tensor.
    """
    if not isinstance(input, torch.Tensor):
        raise InputError(f"the input is a {type(input).__name__}; give a torch.Tensor")
    if residual is not None and not isinstance(residual, torch.Tensor):
        return "what is added is no tensor"
    if torch.is_grad_enabled() and (
        input.requires_grad
        or weight.requires_grad
        or (bias is not None and bias.requires_grad)
        or (residual is not None and residual.requires_grad)
        or (slope is not None and slope.requires_grad)
    ):
        return "gradients are needed"
    device = input.device.type
    if device != "meta" and torch.is_autocast_enabled(device):
        return "autocast chooses the type"
    return "torch.jit traces it" if torch.jit.is_tracing() else None
