"""Programs of torch.export: their convolutions, at fixed and free shapes, against PyTorch's own answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from near import assert_near

from tvmconv import reference
from tvmconv.errors import SourceError
from tvmconv.frontends import read_model

torch = pytest.importorskip("torch")


class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
    """One convolution of each kind; the last one is called twice."""

    def __init__(self) -> None:
        super().__init__()
        nn = torch.nn
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 8, (3, 5), padding="same", groups=2, bias=False)
        )  # fmt: skip
        self.up = nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1, groups=2, dilation=1)
        self.line = nn.Conv1d(4, 4, 3, padding="valid")

    def forward(self, images: Any) -> Any:
        return self.line(self.line(self.up(self.stem(images)).mean(2)))


NAMES = ["stem.0", "stem.2", "up", "conv1d", "conv1d_1"]


def export(folder: Path, **options: Any) -> str:
    torch.manual_seed(0)
    path = folder / "net.pt2"
    torch.export.save(torch.export.export(Net().eval(), (torch.randn(2, 3, 16, 24),), **options), path)
    return str(path)


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> str:
    return export(tmp_path_factory.mktemp("fixed"))


@pytest.fixture(scope="module")
def free(tmp_path_factory: pytest.TempPathFactory) -> str:
    dims = {0: torch.export.Dim.AUTO, 2: torch.export.Dim.AUTO}
    return export(tmp_path_factory.mktemp("free"), dynamic_shapes={"images": dims})


def test_the_answers_are_pytorchs(fixed: str) -> None:
    torch.manual_seed(0)
    net = Net().eval()
    found = read_model(fixed, with_constants=True, fuse=False)
    assert [node.name for node in found.nodes] == NAMES and not found.skipped
    modules = [net.stem[0], net.stem[2], net.up, net.line, net.line]
    for node, module in zip(found.nodes, modules, strict=True):
        assert node.constants is not None
        data = torch.randn(node.problem.data_shape)
        constants = node.constants()
        output = reference.compute(node.problem, data.numpy(), constants.filter, constants.bias)
        with torch.no_grad():
            assert_near(output, module(data).numpy(), summed=8 * 15)


@pytest.mark.parametrize("dtype", [torch.int32, torch.float16, torch.bfloat16])
def test_conversions_that_change_numbers_end_a_kernel(tmp_path: Path, dtype: Any) -> None:
    class Whole(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 4, 3)

        def forward(self, x: Any) -> Any:
            return self.conv(x).to(dtype).float().relu()

    torch.export.save(torch.export.export(Whole().eval(), (torch.randn(1, 3, 8, 8),)), tmp_path / "whole.pt2")
    (node,) = read_model(str(tmp_path / "whole.pt2")).nodes
    assert node.serves == ("conv",) and not node.problem.epilogue


@pytest.mark.parametrize("shapes_by", ["infer", "run"])
def test_free_shapes(free: str, shapes_by: str) -> None:
    found = read_model(free, shapes={"images": [(1, 3, 32, 24), (4, 3, 64, 24)]}, shapes_by=shapes_by)
    assert len({node.problem for node in found.nodes}) == 10
    assert [node.problem.data_shape for node in found.nodes if node.name == "up"] == [(1, 8, 16, 12), (4, 8, 32, 12)]


def test_what_is_left_free_or_is_no_program(free: str, tmp_path: Path) -> None:
    found = read_model(free)
    assert [each.name for each in found.skipped] == NAMES
    assert "--shape images=1x3x256x24" in found.skipped[0].cause
    with pytest.raises(SourceError, match="has 4 at dimension 1, which the model fixes"):
        read_model(free, shapes={"": (1, 4, 32, 24)})
    (tmp_path / "net.pt2").write_bytes(b"no program")
    with pytest.raises(
        SourceError, match=r"was not saved by torch\.export\.save, or is truncated: it is not a zip file"
    ):
        read_model(str(tmp_path / "net.pt2"))
    (tmp_path / "net.pt2").write_bytes(b"PK\5\6" + bytes(18))  # an empty zip file
    with pytest.raises(SourceError, match=r"was not saved by torch\.export\.save: "):
        read_model(str(tmp_path / "net.pt2"))
