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
from tvmconv.frontends.torch.memory import octets  # noqa: E402
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
    "of one number, stretched": lambda each: each[:1, 1, 2:3, 3].as_strided((1, 1), (0, 5)),
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
    plain = torch.tensor(expected.flatten().tolist(), dtype=dtype)
    np.testing.assert_array_equal(octets(tensor), plain.view(torch.uint8).numpy())


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


class EightBits(torch.nn.Module):
    """Computes with what it keeps in 8 bits, and rounds to 8 bits."""

    def __init__(self, kept: Any, does_round: bool) -> None:
        super().__init__()
        self.conv, self.does_round = torch.nn.Conv2d(3, 4, 1), does_round
        self.register_buffer("kept", kept)

    def forward(self, x: Any) -> Any:
        y = self.conv(x) * self.kept.to(x.dtype)
        return y.to(self.kept.dtype).float() if self.does_round else y


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_floating_point_of_8_bits(dtype: Any, tmp_path: Path) -> None:
    kept = torch.rand(1, 4, 6, 5).transpose(2, 3).to(dtype)
    data = torch.rand(1, 3, 5, 6)
    for does_round in (False, True):
        model = EightBits(kept, does_round).eval().requires_grad_(False)
        fast = tvmconv.torch.optimize(model, data, bundle=tmp_path / "model.bundle", progress=None)
        by = {
            row.computes: row.by
            for row in tvmconv.torch.report(fast).rows
            if row.computes != "_assert_tensor_metadata.default"
        }
        assert {name for name, each in by.items() if each == "PyTorch"} == (
            {"_to_copy.default"} if does_round else set()
        )
        if not does_round:
            assert_near(fast(data), model(data), summed=3, layers=2)
