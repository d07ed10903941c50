"""Constants of PyTorch's programs: of every type, however their memory lies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from near import assert_near

torch = pytest.importorskip("torch")
import tvmconv.torch  # noqa: E402
from tvmconv.frontends.torch.fixed import TYPES  # noqa: E402
from tvmconv.network.read.torch.constants import constants  # noqa: E402
from tvmconv.network.read.torch.reader import _ProgramImporter  # noqa: E402

LAYOUTS = {
    "contiguous": lambda each: each.contiguous(),
    "transposed": lambda each: each.transpose(1, 3),
    "channels_last": lambda each: each.contiguous(memory_format=torch.channels_last),
    "sliced": lambda each: each[:, 1::2, :, ::3],
    "expanded": lambda each: each[:, :1].expand(-1, 5, -1, -1),
    "not aligned": lambda each: each.reshape(-1)[3:],
    "of one number": lambda each: each[0, 0, 0, 0],
    "empty": lambda each: each[:, :0].transpose(0, 1),
    "copied on write": lambda each: each.contiguous()._lazy_clone(),
    "sparse": lambda each: each.to_sparse(),
    "with gradients": lambda each: each.requires_grad_() if each.is_floating_point() else each,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", sorted(TYPES, key=str), ids=str)
def test_numbers_are_read_in_every_layout(dtype: Any, layout: str) -> None:
    tensor = LAYOUTS[layout](torch.randint(0, 2 if dtype is torch.bool else 100, (2, 4, 6, 7)).to(dtype))
    expected = tensor.detach().to_dense() if tensor.is_sparse else tensor.detach()
    wide = expected.double().numpy()
    for given in (_ProgramImporter._convert_pytorch_tensor_to_tvm(tensor), constants(tensor).value):
        assert str(given.dtype) == str(dtype).removeprefix("torch.")
        np.testing.assert_array_equal(given.numpy().astype(np.float64), wide)


@pytest.mark.parametrize("is_model_bf16", [False, True])
def test_bf16_channels_last(is_model_bf16: bool, tmp_path: Path) -> None:
    layers = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Conv2d(16, 16, 3))
    model = layers.eval().to(memory_format=torch.channels_last)
    data = torch.randn(1, 3, 12, 12).to(torch.bfloat16, memory_format=torch.channels_last)
    example = data if is_model_bf16 else data.float()
    model = model.to(example.dtype)
    fast = tvmconv.torch.optimize(model, example, dtype=torch.bfloat16, bundle=tmp_path / "model.bundle")
    with torch.no_grad():
        answer, expected = fast(data), model.float()(data.float())
    assert answer.dtype is torch.bfloat16
    assert_near(answer, expected.to(torch.bfloat16), summed=(3 + 16) * 9, layers=3)
