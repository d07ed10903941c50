"""Small networks whose graphs exercise memory plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

F = nn.functional
Forward = Callable[[Any, Any], Any]
SHAPE = (1, 8, 6, 5)


class Model(nn.Module):
    """Convolutions, put together by a function."""

    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Conv2d(8, 8, 1) for _ in range(3))
        self.both = nn.Conv2d(16, 8, 1)
        self.relu, self.pool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 1, 1)
        self.leaky, self.elu, self.mish = nn.LeakyReLU(0.3), nn.ELU(0.5), nn.Mish()
        self.function = [forward]

    def forward(self, x: Any) -> Any:
        return self.function[0](self, x)


def returns_an_intermediate(m: Any, x: Any) -> Any:
    y = m.a(x)
    return m.c(m.b(y)), y


def returns_a_view(m: Any, x: Any) -> Any:
    y = m.a(x)
    return m.c(m.b(y)), y.flatten(2)[:, 2:]


def works_in_place(m: Any, x: Any) -> Any:
    y = m.a(x)
    z = m.c(m.b(y))
    y.mul_(2)
    return m.b(y), z


def has_a_module_in_place(m: Any, x: Any) -> Any:
    y = m.pool(m.b(m.a(x)))
    return m.c(m.b(m.relu(y))) - y


def calls_a_layer_twice(m: Any, x: Any) -> Any:
    return m.c(m.a(m.b(m.a(x)))) * 2


def reads_late_what_it_adds(m: Any, x: Any) -> Any:
    y = m.a(x)
    return y + m.c(m.both(torch.cat([m.b(y), y], 1)))


def concatenates(m: Any, x: Any) -> Any:
    y = m.a(x)
    return m.both(torch.cat([y, F.silu(F.max_pool2d(m.b(y), 3, 1, 1))], 1))


def pools_what_is_pooled(m: Any, x: Any) -> Any:
    """The first reads what the model is given, the last is returned: they are PyTorch's."""
    y = m.pool(m.a(F.max_pool2d(x, 3, 1, 1)))
    z = m.b(F.max_pool2d(F.max_pool2d(y, 2, 2, ceil_mode=True), 2, 1))
    return F.max_pool2d(m.c(z), (2, 1)), y


def scales_by_a_mean(m: Any, x: Any) -> Any:
    y = m.a(x)
    return m.c(y * torch.sigmoid(m.b(y).mean((2, 3), keepdim=True))), x


def pools_to_one_pixel(m: Any, x: Any) -> Any:
    y = m.a(x)
    return m.c(y * m.b(F.adaptive_avg_pool2d(m.b(y), 1))), F.adaptive_avg_pool2d(y, (2, 1)).flatten(1)


def means_everything(m: Any, x: Any) -> Any:
    y = m.a(x)
    return m.c(m.b(y) * y.mean()) + torch.mean(y)


def splits(m: Any, x: Any) -> Any:
    y, z = m.both(torch.cat([m.a(x), m.b(x)], 1)).chunk(2, 1)
    return m.c(torch.cat([z, y], 1))


def lies_otherwise(m: Any, x: Any) -> Any:
    return m.b((m.a(x) + x).contiguous()) + m.c(x)


def shuffles_channels(m: Any, x: Any) -> Any:
    y = m.a(x)
    z = y.reshape(y.shape[0], 2, y.size(1) // 2, *SHAPE[2:]).transpose(1, 2).reshape(y.shape)
    return m.c(m.b(z)) + y


def normalizes(m: Any, x: Any) -> Any:
    y = F.layer_norm(m.a(x).permute(0, 2, 3, 1), (8,)).permute(0, 3, 1, 2)
    return m.c(m.b(y) + y.softmax(1)).mean((2, 3)).flatten(1)


def has_views_that_live_longer(m: Any, x: Any) -> Any:
    y, z = m.a(x), m.pool(m.b(x)).to(torch.float32).unsqueeze(1)
    transposed = y.transpose(2, 3)
    u = m.b(m.c(m.b(m.a(y))))
    return u + m.a(transposed.mT) + z.squeeze(1), transposed.split([2, 6], 1)[1]


def returns_views_of_views(m: Any, x: Any) -> Any:
    y, z = m.b(m.a(x)), m.c(x) * 2
    return m.b(m.a(z)), y.permute(0, 2, 3, 1)[:, 1], z.unsqueeze(0)


def returns_whole_views(m: Any, x: Any) -> Any:
    """And one of a part, and what cannot be one."""
    return m.b(m.a(x)).permute(0, 2, 3, 1), m.c(x)[:, 1:3], m.b(x).flatten(1)


def views_as_if_contiguous(m: Any, x: Any) -> Any:
    """As PyTorch's outputs are, and those of kernels are not."""
    y = m.b(m.a(x))
    return y.view(y.size(0), -1), m.c(y.view(y.size(0), 2, 4, 6, 5).view(-1, 8, 6, 5))


def multiplies_sizes(m: Any, x: Any) -> Any:
    """Products are written to a plan's memory where they are of tensors."""
    batch, channels, height, width = m.a(x).shape
    y = m.b(x).reshape(batch, channels, height * width)
    return m.c((y * y).reshape(batch, channels, height, width))


def works_on_what_nobody_reads_later(m: Any, x: Any) -> Any:
    """The first three are written over what they read, the others are not: it is read once more, or read as a view."""
    y = torch.sigmoid(m.a(x) * m.b(x)) + 1
    z = m.b(y)
    u = z * z.reshape(z.shape[0], 8, 6, 5).flip(0) - z
    v = m.c(u)
    w = v * v[:, :1] + v.mean(1, keepdim=True)
    return m.a(w / w[:, 1:2])


def activates(m: Any, x: Any) -> Any:
    """What is read more than once, before and after, so that no kernel computes the activations."""
    y = m.b(m.a(x))
    first = F.leaky_relu(y, 0.2) + F.hardtanh(y, max_val=0.5) + F.elu(y, alpha=2.0) + torch.tanh(y) + F.silu(y)
    z = m.c(first + F.relu6(y) + y.relu() + F.hardswish(y) + F.hardsigmoid(y) + F.gelu(y))
    return m.a(m.leaky(m.mish(z) + m.elu(z)) + m.leaky(m.pool(z)))


MODELS = [returns_an_intermediate, returns_a_view, works_in_place, has_a_module_in_place, calls_a_layer_twice,
          reads_late_what_it_adds, concatenates, pools_what_is_pooled, scales_by_a_mean, pools_to_one_pixel, means_everything, splits, lies_otherwise,
          shuffles_channels, normalizes, has_views_that_live_longer, returns_views_of_views, returns_whole_views,
          views_as_if_contiguous, multiplies_sizes,
          works_on_what_nobody_reads_later, activates]  # fmt: skip
