"""`tvmconv compile` reads programs of torch.export, and compares with PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")

from near import assert_near  # noqa: E402

from tvmconv import cli, load_network  # noqa: E402

SHAPE = (1, 3, 10, 12)


class Model(torch.nn.Module):
    """Takes a tensor, and a tuple of two by name; gives a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x: torch.Tensor, *, pair: tuple[torch.Tensor, torch.Tensor]) -> dict[str, torch.Tensor]:
        y = self.conv(x).relu()
        return {"sum": y + pair[0], "mean": (y * pair[1]).mean((2, 3))}


def save(path: Path, dtype: torch.dtype = torch.float32) -> tuple[str, torch.nn.Module]:
    torch.manual_seed(0)
    model = Model().eval().to(dtype)
    pair = torch.randn(1, 8, 10, 12, dtype=dtype), torch.randn(1, 8, 1, 1, dtype=dtype)
    torch.export.save(torch.export.export(model, (torch.randn(SHAPE, dtype=dtype),), {"pair": pair}), path)
    return str(path), model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_program(dtype: torch.dtype, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, model = save(tmp_path / "model.pt2", dtype)
    output = str(tmp_path / "model.so")
    assert cli.main(["compile", source, "-o", output, "--require-comparison"]) == 0
    assert capsys.readouterr().out == output + "\n"
    if dtype == torch.float32:
        network = load_network(output)
        given = network.random_inputs()
        x, *pair = map(torch.from_numpy, given.values())
        with torch.no_grad():
            expected = model(x, pair=tuple(pair))
        for answer, right in zip(network(**given).values(), expected.values(), strict=True):
            assert_near(answer, right.numpy(), summed=32)


def test_wrong_answers_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, _ = save(tmp_path / "model.pt2")
    monkeypatch.setattr("tvmconv.accuracy.network_error", lambda got, expected: 1.0)
    assert cli.main(["compile", source, "-o", str(tmp_path / "model.so")]) == 1
    assert "its outputs differ from PyTorch's" in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--shape", "1x3x8x8"], ["--batch", "2"], ["--cut", "y"], ["--dim", "h=3"]])
def test_options_of_onnx_files(option: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compile", "model.pt2", *option, "-o", str(tmp_path / "model.so")]) == 2
    assert "are for ONNX files" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "words"), [("model.pt", "reads .onnx, .xml, .pt2"), ("model.pt2", "was not saved by torch.export.save")]
)
def test_files_that_cannot_be_read(name: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / name).write_bytes(b"nothing")
    assert cli.main(["compile", str(tmp_path / name), "-o", str(tmp_path / "model.so")]) == 2
    assert words in capsys.readouterr().err
