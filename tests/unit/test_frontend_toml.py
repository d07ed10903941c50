"""TOML files of problems, signatures as sources, and what to read a source as."""

from __future__ import annotations

import pytest

from tvmconv import ops
from tvmconv.errors import SourceError
from tvmconv.frontends import read_source, read_uses
from tvmconv.signature import format_signature

pytestmark = pytest.mark.smoke

CONVOLUTION = """
[[convolution]]
data_shape = [1, 56, 56, 64]
filter_shape = [3, 3, 64, 64]
strides = [1, 1]
dilations = [1, 1]
auto_pad = "same_upper"
"""
FULL = """
[[convolution_backprop_data]]
data_shape = [2, 16, 8]
filter_shape = [16, 4, 4]
output_shape = [17]
output_padding = [1]
strides = [2]
dilations = [1]
auto_pad = "same_lower"
same_rule = "attribute_text"
groups = 2
data_format = "NCX"
weights_format = "OIX"
dtype = "bf16"
bias = true
"""
SIGNATURE = "conv1d-n1-i2x5-o4x3-k3-s1-d1-p0_0-g1-NXC-XIO-f32"


@pytest.fixture
def write(tmp_path):
    def write(text: str) -> str:
        path = tmp_path / "problems.toml"
        path.write_text(text)
        return str(path)

    return write


def test_tables(write):
    first, second, third = read_source(
        write(
            CONVOLUTION
            + FULL
            + f'[[convolution_backprop_data]]\nsignature = "{SIGNATURE.replace("conv", "backprop").replace("o4x3", "o4x7")}"'
        )
    )
    assert first == ops.convolution(
        (1, 56, 56, 64), (3, 3, 64, 64), strides=[1, 1], dilations=[1, 1], auto_pad="same_upper"
    )
    assert second == ops.convolution_backprop_data(
        (2, 16, 8), (16, 4, 4), [17], strides=[2], dilations=[1], auto_pad="same_lower", same_rule="attribute_text",
        output_padding=[1], groups=2, data_format="NCX", filter_format="OIX", dtype="bf16", bias_shape=(8,),
    )  # fmt: skip
    assert third.out_spatial == (7,)


def test_repeated_problems_are_one_with_its_places(write):
    explicit = CONVOLUTION.replace('auto_pad = "same_upper"', "pads_begin = [1, 1]\npads_end = [1, 1]")
    (use,) = read_uses(write(CONVOLUTION + explicit))
    assert use.places == ("convolution 1", "convolution 2")


def test_overrides(write):
    (problem,) = read_source(write(CONVOLUTION), dtype="f16", data_format="NCX", filter_format="OIX")
    assert (problem.dtype, problem.data_shape, problem.filter_shape) == ("f16", (1, 64, 56, 56), (64, 64, 3, 3))


def test_an_epilogue(write):
    (problem,) = read_source(write(CONVOLUTION + 'epilogue = "add-relu"\n'))
    assert format_signature(problem).endswith("-f32-add-relu")
    with pytest.raises(SourceError, match="'swish' is not a step"):
        read_source(write(CONVOLUTION + 'epilogue = "swish"\n'))


def test_an_empty_file_has_no_problems(write):
    assert read_source(write("# none yet\n")) == []


def test_a_signature(tmp_path):
    (problem,) = read_source(SIGNATURE)
    assert format_signature(problem) == SIGNATURE
    (use,) = read_uses(SIGNATURE, dtype="bf16")
    assert use.places == (SIGNATURE,)
    assert format_signature(use.problem) == SIGNATURE.replace("f32", "bf16")


def test_a_missing_file_suggests_its_neighbour(tmp_path):
    (tmp_path / "problems.toml").write_text(CONVOLUTION)
    for wrong in ("problem.toml", "problems.tom", "porblems.toml"):
        with pytest.raises(SourceError, match=r"did you mean '.*problems\.toml'\?"):
            read_source(str(tmp_path / wrong))


def test_file_names_in_any_case(tmp_path):
    path = tmp_path / "PROBLEMS.TOML"
    path.write_text(CONVOLUTION)
    assert len(read_source(str(path))) == 1
