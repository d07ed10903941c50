"""What the commands take from their sources, and the inputs that they are given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tvmconv.cli.run import complete_inputs
from tvmconv.cli.sources import problems_of, read_inputs
from tvmconv.errors import InputError, SourceError
from tvmconv.frontends import read_model
from tvmconv.runtime.networks.tensors import Tensor

SIGNATURE = "conv1d-n1-i4x8-o4x8-k1-s1-d1-p0_0-g1-NXC-XIO-f32"


def test_a_problem_counts_as_often_as_it_stands_there() -> None:
    model = read_model(SIGNATURE)
    assert len(problems_of([model])) == 1 and problems_of([model, model]) == problems_of([model]) * 2


def test_a_damaged_file_of_inputs(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "x.npz", x=np.arange(10_000))
    content = bytearray((tmp_path / "x.npz").read_bytes())
    content[400:600] = bytes(each ^ 0x5A for each in content[400:600])
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(SourceError, match=r"is not a file from numpy\.savez, or is cut off"):
        read_inputs([str(tmp_path / "x.npz")])


@pytest.mark.parametrize("number", ["-1", "256", "1.5", "nan"])
def test_a_number_that_an_input_cannot_hold(number: str) -> None:
    class Network:
        inputs = (Tensor("x", (2,), "uint8"),)

        def random_inputs(self, shapes: object) -> dict[str, np.ndarray]:
            return {"x": np.ones(2, np.uint8)}

    network = Network()
    assert complete_inputs(network, read_inputs(["x=255"]))["x"].tolist() == [255, 255]  # type: ignore[arg-type]
    with pytest.raises(InputError, match=rf"x \(2 uint8\), which cannot hold {number}"):
        complete_inputs(network, read_inputs([f"x={number}"]))  # type: ignore[arg-type]
