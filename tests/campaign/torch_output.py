"""PyTorch's answer to a problem."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tvmconv import fills
from tvmconv.problem import Problem


def torch_output(problem: Problem, arrays: fills.Arrays) -> npt.NDArray[np.float64]:
    """Return PyTorch's output in float64: pads are added to the data, or cut off the output."""
    import torch

    data = arrays.data.astype(np.float64) - problem.zero_point
    filter_ = arrays.filter.astype(np.float64) - problem.filter_zero_point
    if problem.data_format == "NXC":
        data = np.moveaxis(data, -1, 1)
    if problem.filter_format == "XIO":
        filter_ = np.moveaxis(filter_, (-1, -2), (0, 1))
    attributes = {"stride": problem.strides, "dilation": problem.dilations, "groups": problem.groups}
    w = torch.from_numpy(np.ascontiguousarray(filter_))
    inside = tuple(slice(begin, begin + y) for begin, y in zip(problem.pads_begin, problem.out_spatial, strict=True))
    if problem.op == "convolution":
        pads = [(0, 0), (0, 0), *zip(problem.pads_begin, problem.pads_end, strict=True)]
        x = torch.from_numpy(np.pad(data, pads))
        output = getattr(torch.nn.functional, f"conv{problem.rank}d")(x, w, **attributes).numpy()
    else:
        x = torch.from_numpy(np.ascontiguousarray(data))
        output = getattr(torch.nn.functional, f"conv_transpose{problem.rank}d")(x, w, **attributes).numpy()
        longer = [max(place.stop - have, 0) for place, have in zip(inside, output.shape[2:], strict=True)]
        kept = (slice(None), slice(None), *inside)
        output = np.pad(output, [(0, 0), (0, 0), *((0, more) for more in longer)])[kept]
    if arrays.bias is not None:
        output = output + arrays.bias.astype(np.float64).reshape(-1, *[1] * problem.rank)
    return np.moveaxis(output, 1, -1) if problem.data_format == "NXC" else output
