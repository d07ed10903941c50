"""Bad attributes, files and models: refused by their values and the allowed ones.

(Bad signatures are in test_signature.py, bad fields of a Problem in test_problem.py.)
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from models import LIGHT, conv_model, model, save, value, weight
from onnx import TensorProto, helper

from tvmconv import ops
from tvmconv.errors import InvalidProblemError, SignatureError, SourceError
from tvmconv.frontends import read_source

CONVOLUTION = {
    "data_shape": (1, 8, 8, 6),
    "filter_shape": (3, 3, 6, 4),
    "strides": (1, 1),
    "dilations": (1, 1),
    "pads_begin": (0, 0),
    "pads_end": (0, 0),
}
BACKPROP = {**CONVOLUTION, "filter_shape": (3, 3, 4, 6)}

# Changes to either operation's attributes, and what the message says.
BOTH = [
    ({"strides": (0, 1)}, r"strides\[0\] is 0; it must be an integer of at least 1"),
    ({"strides": (1, -2)}, r"strides\[1\] is -2; it must be an integer of at least 1"),
    ({"strides": (1,)}, r"strides is \[1\], 1 numbers; 2 are needed, one per spatial axis"),
    ({"strides": (1, 1, 1)}, r"strides is \[1, 1, 1\], 3 numbers; 2 are needed"),
    ({"strides": ()}, r"strides is \[\], 0 numbers; 2 are needed"),
    ({"strides": None}, "strides is None; it must be a sequence of integers, each at least 1"),
    ({"strides": 2}, "strides is 2; it must be a sequence of integers"),
    ({"strides": "1x1"}, "strides is '1x1'; it must be a sequence of integers"),
    ({"strides": (1.0, 1.0)}, r"strides\[0\] is 1.0, a float; it must be an integer"),
    ({"strides": ("1", "1")}, r"strides\[0\] is '1', a str; it must be an integer"),
    ({"strides": (True, 1)}, r"strides\[0\] is True; it must be an integer"),
    ({"strides": {1, 2}}, r"strides is \{1, 2\}; it must be a sequence of integers"),
    ({"strides": {"h": 1, "w": 1}}, "strides is {'h': 1, 'w': 1}; it must be a sequence of integers"),
    ({"strides": (None, 1)}, r"strides\[0\] is None, a NoneType; it must be an integer"),
    ({"strides": (float("nan"), 1)}, r"strides\[0\] is nan, a float"),
    ({"strides": np.ones((2, 2), int)}, r"strides\[0\] is array\(\[1, 1\]\), a ndarray; it must be an integer"),
    ({"strides": np.array(1)}, r"strides is array\(1\); it must be a sequence of integers"),
    ({"strides": (10**5000, 1)}, r"strides\[0\] is an integer of 16610 bits; at most 2147483647 is supported"),
    ({"strides": (-(10**5000), 1)}, r"strides\[0\] is an integer of 16610 bits"),
    ({"strides": (2**31, 1)}, r"strides\[0\] is an integer of 32 bits; at most 2147483647"),
    ({"dilations": (0, 1)}, r"dilations\[0\] is 0; it must be an integer of at least 1"),
    ({"dilations": (1, -1)}, r"dilations\[1\] is -1; it must be an integer of at least 1"),
    ({"dilations": (1,)}, r"dilations is \[1\], 1 numbers; 2 are needed"),
    ({"dilations": None}, "dilations is None; it must be a sequence"),
    ({"dilations": b"\1\1"}, r"dilations is b'.*'; it must be a sequence"),
    ({"pads_begin": (-1, 0)}, r"pads_begin\[0\] is -1; it must be an integer of at least 0"),
    ({"pads_begin": (0,)}, r"pads_begin is \[0\], 1 numbers; 2 are needed"),
    ({"pads_begin": None}, "pads_begin is missing; give pads_begin and pads_end, or auto_pad"),
    ({"pads_end": (0, -3)}, r"pads_end\[1\] is -3; it must be an integer of at least 0"),
    ({"pads_end": (0, 0, 0)}, r"pads_end is \[0, 0, 0\], 3 numbers; 2 are needed"),
    ({"pads_end": None}, "pads_end is missing; give pads_begin and pads_end, or auto_pad"),
    ({"pads_end": (0.5, 0)}, r"pads_end\[0\] is 0.5, a float"),
    ({"auto_pad": "same"}, "auto_pad is 'same'; allowed: None, none, same_upper, same_lower, valid"),
    ({"auto_pad": ""}, "auto_pad is ''; allowed"),
    ({"auto_pad": "same_upper "}, "auto_pad is 'same_upper '; allowed"),
    ({"auto_pad": "explicit"}, "auto_pad is 'explicit'; allowed"),
    ({"auto_pad": True}, "auto_pad is True; allowed"),
    ({"auto_pad": ["valid"]}, r"auto_pad is \['valid'\]; allowed"),
    ({"auto_pad": np.array(["valid", "none"])}, "auto_pad is array"),
    ({"groups": 0}, "groups is 0; it must be an integer of at least 1"),
    ({"groups": -2}, "groups is -2; it must be an integer of at least 1"),
    ({"groups": 1.0}, "groups is 1.0, a float; it must be an integer"),
    ({"groups": "2"}, "groups is '2', a str; it must be an integer"),
    ({"groups": None}, "groups is None, a NoneType; it must be an integer"),
    ({"groups": (1,)}, r"groups is \(1,\), a tuple; it must be an integer"),
    ({"groups": 4}, "data channels are 6, which groups=4 does not divide"),
    ({"data_format": "NHWC"}, "data_format is 'NHWC'; allowed: NXC, NCX"),
    ({"data_format": "nxc"}, "data_format is 'nxc'; allowed: NXC, NCX"),
    ({"data_format": None}, "data_format is None; allowed: NXC, NCX"),
    ({"data_format": ["NXC"]}, r"data_format is \['NXC'\]; allowed: NXC, NCX"),
    ({"filter_format": "HWIO"}, "filter_format is 'HWIO'; allowed: XIO, OIX"),
    ({"filter_format": "OXI"}, "filter_format is 'OXI'; allowed: XIO, OIX"),
    ({"filter_format": 3}, "filter_format is 3; allowed: XIO, OIX"),
    ({"dtype": "f64"}, "dtype is 'f64'; allowed: f32, f16, bf16"),
    ({"dtype": "float32"}, "dtype is 'float32'; allowed: f32, f16, bf16"),
    ({"dtype": np.float32}, "dtype is <class 'numpy.float32'>; allowed: f32, f16, bf16"),
    ({"same_rule": "upper"}, "same_rule is 'upper'; allowed: default, "),
    ({"same_rule": None}, "same_rule is None; allowed: default, "),
    ({"data_shape": (8, 8)}, r"data has rank 2 \(shape \[8, 8\]\); convolution.* takes rank 3, 4 or 5"),
    ({"data_shape": (1, 8, 8, 8, 8, 6)}, r"data has rank 6 .* takes rank 3, 4 or 5 \(one to three spatial axes\)"),
    ({"data_shape": ()}, r"data has rank 0 \(shape \[\]\)"),
    ({"data_shape": (1, 8, 6)}, r"the filter has rank 4 .*, data has rank 3 .*; they must be equal"),
    ({"data_shape": (-1, 8, 8, 6)}, r"data shape\[0\] is -1; it must be an integer of at least 0"),
    ({"data_shape": (None, 8, 8, 6)}, r"data shape\[0\] is None, a NoneType"),
    ({"data_shape": ("N", 8, 8, 6)}, r"data shape\[0\] is 'N', a str"),
    ({"data_shape": (1, 0, 8, 6)}, r"data has shape \[1, 0, 8, 6\]; every spatial extent must be at least 1"),
    ({"data_shape": (1, 8, 8, 5)}, "data has 5 channels, but the filter"),
    ({"data_shape": (2**20, 64, 64, 6)}, "data would have 25769803776 elements; at most 2147483647 are supported"),
    ({"data_shape": 7}, "data shape is 7; it must be a sequence"),
    ({"filter_shape": (3, 6, 4)}, r"the filter has rank 3 \(shape \[3, 6, 4\]\), data has rank 4"),
    ({"filter_shape": (3, -3, 6, 4)}, r"filter shape\[1\] is -3; it must be an integer of at least 0"),
    ({"filter_shape": None}, "filter shape is None; it must be a sequence"),
    ({"filter_shape": (3, 3, 2**15, 2**15)}, "channels"),
    ({"bias_shape": (3,)}, r"bias has shape \[3\]; it must be \[4\], one value per output channel"),
    ({"bias_shape": ()}, r"bias has shape \[\]; it must be \[4\]"),
    ({"bias_shape": (1, 4)}, r"bias has shape \[1, 4\]; it must be \[4\]"),
    ({"bias_shape": 4}, "bias shape is 4; it must be a sequence"),
]
CONVOLUTION_ONLY = [
    ({"same_rule": "attribute_text"}, "same_rule is 'attribute_text'; allowed: default, pre_stride"),
    ({"filter_shape": (3, 3, 5, 4)}, "the filter takes 5 in each of 1 groups; the filter's input channels must be 6"),
    ({"groups": 2}, "the filter takes 6 in each of 2 groups; the filter's input channels must be 3"),
    ({"groups": 3, "filter_shape": (3, 3, 2, 4)}, "filter output channels are 4, which groups=3 does not divide"),
    (
        {"filter_shape": (9, 3, 6, 4)},
        "axis 0: the filter spans 9 .*, more than the input 8 with pads 0 and 0; use larger",
    ),
    ({"dilations": (1, 4)}, r"axis 1: the filter spans 9 \(kernel 3, dilation 4\), more than the input 8"),
    ({"auto_pad": "valid", "dilations": (4, 1)}, "axis 0: the filter spans 9"),
    ({"pads_begin": (2**31 - 1, 0)}, r"out_spatial\[0\] is an integer of 32 bits"),
    ({"pads_begin": (2**26, 0)}, "data with its pads would have|output would have"),
]
BACKPROP_ONLY = [
    ({"same_rule": "pre_stride"}, "same_rule is 'pre_stride'; allowed: default, attribute_text, keep_pads"),
    (
        {"same_rule": "keep_pads", "output_shape": [9, 9], "pads_begin": None},
        "pads_begin is missing; same_rule='keep_pads'",
    ),
    ({"filter_shape": (3, 3, 4, 5)}, "data has 6 channels, but the filter's O is 5; they must be equal"),
    ({"filter_shape": (3, 3, 6, 4)}, "data has 6 channels, but the filter's O is 4"),
    ({"output_shape": (10,)}, r"output_shape is \[10\], 1 numbers; 2 are needed"),
    ({"output_shape": (1, 10, 10, 4)}, r"output_shape is \[1, 10, 10, 4\], 4 numbers; 2 are needed"),
    ({"output_shape": (0, 10)}, r"output_shape\[0\] is 0; it must be an integer of at least 1"),
    ({"output_shape": (10, -1)}, r"output_shape\[1\] is -1; it must be an integer of at least 1"),
    ({"output_shape": (10.0, 10.0)}, r"output_shape\[0\] is 10.0, a float"),
    ({"output_shape": 10}, "output_shape is 10; it must be a sequence"),
    ({"output_shape": (2**30, 2**30)}, "output would have"),
    ({"output_padding": (-1, 0)}, r"output_padding\[0\] is -1; it must be an integer of at least 0"),
    ({"output_padding": (1,)}, r"output_padding is \[1\], 1 numbers; 2 are needed"),
    ({"output_padding": 1}, "output_padding is 1; it must be a sequence"),
    (
        {"pads_begin": (6, 0), "pads_end": (4, 0)},
        "axis 0: pads_begin 6 and pads_end 4 leave 0 of the 10 outputs; use smaller",
    ),
    ({"pads_begin": (0, 99)}, "axis 1: pads_begin 99 and pads_end 0 leave -89 of the 10 outputs"),
    ({"pads_begin": None}, "pads_begin is missing; give pads_begin and pads_end, or auto_pad or output_shape"),
]


@pytest.mark.parametrize(("changes", "message"), BOTH + CONVOLUTION_ONLY)
def test_convolution(changes, message):
    with pytest.raises(InvalidProblemError, match=message) as caught:
        ops.convolution(**{**CONVOLUTION, **changes})
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(("changes", "message"), BOTH + BACKPROP_ONLY)
def test_backprop_data(changes, message):
    with pytest.raises(InvalidProblemError, match=message) as caught:
        ops.convolution_backprop_data(**{**BACKPROP, **changes})
    assert len(str(caught.value)) < 500


TABLE = """
data_shape = [1, 8, 8, 6]
filter_shape = [3, 3, 6, 4]
strides = [1, 1]
dilations = [1, 1]
pads_begin = [0, 0]
pads_end = [0, 0]
"""
GOOD = "[[convolution]]" + TABLE
SIGNATURE = "conv1d-n1-i2x5-o4x3-k3-s1-d1-p0_0-g1-NXC-XIO-f32"
TOML = [
    ("[[convolution]", "is not TOML"),
    ("convolution = [", "is not TOML"),
    (GOOD + "strides = [2, 2]\n", "is not TOML"),
    (GOOD[:60], "is not TOML|filter_shape is missing"),
    ("x = " + "[" * 5000, "is not TOML|nested too deeply"),
    ("x = " + "9" * 5000, "is not TOML"),
    (b"\xff\xfe[[convolution]]", "is not a text file: byte 0 is not UTF-8"),
    (b"\x00", "is not TOML"),
    (b"PK\x03\x04", "is not TOML"),
    ("[convolution]" + TABLE, r"convolution is not a list of tables; write \[\[convolution\]\] above each problem"),
    ("convolution = 3\n", "convolution is not a list of tables"),
    ("convolution = [1, 2]\n", "convolution is not a list of tables"),
    ("[[convolutions]]" + TABLE, "'convolutions' is unknown; did you mean convolution"),
    ("[[deconvolution]]" + TABLE, "'deconvolution' is unknown; did you mean convolution"),
    ("[[pooling]]" + TABLE, "'pooling' is unknown; allowed: convolution, convolution_backprop_data"),
    ("title = 'mine'\n" + GOOD, "'title' is unknown"),
    (GOOD + "stride = 1\n", "convolution 1: 'stride' is unknown; did you mean strides"),
    (GOOD + "padding = [1, 1]\n", "convolution 1: 'padding' is unknown; allowed: data_shape, filter_shape"),
    (GOOD + "output_padding = [1, 1]\n", "'output_padding' is unknown"),
    (GOOD + "output_shape = [8, 8]\n", "'output_shape' is unknown"),
    (GOOD.replace("data_shape = [1, 8, 8, 6]\n", ""), "convolution 1: data_shape is missing; needed are data_shape"),
    (GOOD.replace("filter_shape = [3, 3, 6, 4]\n", ""), "filter_shape is missing"),
    (GOOD.replace("strides = [1, 1]\n", ""), "strides is missing"),
    (GOOD.replace("dilations = [1, 1]\n", ""), "dilations is missing"),
    (GOOD.replace("pads_end = [0, 0]\n", ""), "pads_end is missing; give pads_begin and pads_end, or auto_pad"),
    (GOOD + "bias = 1\n", "bias is 1; it must be true or false"),
    (GOOD + "bias = 'yes'\n", "bias is 'yes'; it must be true or false"),
    (GOOD + "dtype = 'int8'\n", "convolution 1: dtype is 'int8'; allowed: f32, f16, bf16"),
    (GOOD + "groups = 1.5\n", "convolution 1: groups is 1.5, a float"),
    (GOOD + "auto_pad = 1979-05-27\n", "auto_pad is datetime.date"),
    (GOOD + GOOD.replace("strides = [1, 1]", "strides = [0, 1]"), r"convolution 2: strides\[0\] is 0"),
    (GOOD + "filter_format = 'XIO'\nweights_format = 'XIO'\n", "filter_format and weights_format are one attribute"),
    (GOOD + f"signature = '{SIGNATURE}'\n", "signature stands alone; remove data_shape, filter_shape, strides"),
    ("[[convolution]]\nsignature = 'conv2d'\n", "convolution 1: 'conv2d' is not a signature: field 2"),
    ("[[convolution]]\nsignature = 3\n", "convolution 1: 3 is a int, not a signature"),
    (
        f"[[convolution_backprop_data]]\nsignature = '{SIGNATURE}'\n",
        r"is of a convolution; write it under \[\[convolution\]\]",
    ),
    (
        "[[convolution_backprop_data]]" + TABLE,
        "convolution_backprop_data 1: data has 6 channels, but the filter's O is 4",
    ),
]


@pytest.mark.parametrize(("text", "message"), TOML)
def test_toml(text, message, tmp_path):
    path = tmp_path / "problems.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SourceError, match=message) as caught:
        read_source(str(path))
    assert str(path) in str(caught.value)


SOURCES = [
    ("missing.onnx", r"there is no file '.*missing\.onnx'"),
    ("missing.toml", r"there is no file '.*missing\.toml'"),
    ("folder.onnx", r"folder\.onnx' cannot be read: Is a directory"),
    ("folder", "exists, but is not a format that tvmconv reads: a source is a file"),
    ("notes.txt", "exists, but is not a format that tvmconv reads"),
    ("model.tflite", "OpenVINO converts it: .*convert_model.'.*model.tflite'"),
    ("model.pth", "load it in Python and call tvmconv.torch.optimize, or write model.pt2"),
    ("saved", "OpenVINO converts it: .*convert_model.'.*saved'"),
    ("absent", "is neither a file nor a signature"),
    ("nowhere/absent.onnx", "there is no file"),
    ("nul\0.onnx", "cannot be read: embedded null byte"),
    ("x" * 5000 + ".onnx", "cannot be read: File name too long"),
]


@pytest.mark.parametrize(("name", "message"), SOURCES)
def test_sources(name, message, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.onnx").mkdir()
    (tmp_path / "notes.txt").write_text("not a source")
    for other in ("model.tflite", "model.pth", "saved/saved_model.pb"):
        (tmp_path / other).parent.mkdir(exist_ok=True)
        (tmp_path / other).touch()
    with pytest.raises(SourceError, match=message):
        read_source(str(tmp_path / name))


@pytest.mark.parametrize(
    ("source", "options", "error", "message"),
    [
        ("", {}, SourceError, "is neither a file nor a signature|not a format that tvmconv reads"),
        ("conv2d-n1", {}, SignatureError, "field 3"),
        ("x" * 5000, {}, SourceError, "is neither a file nor a signature"),
        (SIGNATURE, {"batch": 2}, SourceError, "batch 2 is for models with a free batch dimension"),
        (SIGNATURE, {"batch": -1}, InvalidProblemError, "batch is -1"),
        (SIGNATURE, {"dtype": "f64"}, InvalidProblemError, "dtype is 'f64'; allowed"),
        (SIGNATURE, {"data_format": "NHWC"}, InvalidProblemError, "data_format is 'NHWC'; allowed"),
        (SIGNATURE, {"filter_format": "HWIO"}, InvalidProblemError, "filter_format is 'HWIO'; allowed"),
    ],
)
def test_arguments(source, options, error, message):
    with pytest.raises(error, match=message):
        read_source(source, **options)


RESNET = (LIGHT / "light_resnet50.onnx").read_bytes()
CONTENTS = [
    (b"", "is not an ONNX model: it has no opset"),
    (b"\0" * 100, "is not an ONNX model, or is truncated"),
    (b"hello, world\n", "is not an ONNX model"),
    (b"\x89PNG\r\n\x1a\n" + bytes(64), "is not an ONNX model"),
    (RESNET[:1], "is not an ONNX model"),
    (RESNET[:1000], "is not an ONNX model, or is truncated"),
    (RESNET[: len(RESNET) // 2], "is not an ONNX model, or is truncated"),
    (RESNET[:-1], "is not an ONNX model"),
    (onnx.ModelProto(ir_version=8).SerializeToString(), "it has no opset"),
    (
        onnx.ModelProto(opset_import=[helper.make_opsetid("", 22)]).SerializeToString(),
        "is not an ONNX model: it has no graph",
    ),
]


@pytest.mark.parametrize(("content", "message"), CONTENTS)
def test_onnx_files(content, message, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=message) as caught:
        read_source(str(path))
    assert str(path) in str(caught.value)


def node_without_filter() -> onnx.ModelProto:
    proto = conv_model()
    del proto.graph.node[0].input[1:]
    return proto


def after(op_type: str, **attributes: object) -> onnx.ModelProto:
    """Return a model with a convolution behind a node of which ONNX infers nothing."""
    nodes = [
        helper.make_node(op_type, ["x"], ["a"], domain="com.example", **attributes),
        helper.make_node("Conv", ["a", "w"], ["y"], name="conv"),
    ]
    proto = model(nodes, [value("x", (1, 3, 8, 8))], [value("y", None)], [weight("w", (4, 3, 3, 3))])
    proto.opset_import.append(helper.make_opsetid("com.example", 1))
    return proto


def untyped_attribute() -> onnx.ModelProto:
    proto = conv_model(strides=[1, 1])
    proto.graph.node[0].attribute[0].ClearField("type")
    return proto


def two_free_dimensions() -> onnx.ModelProto:
    proto = conv_model(x=("N", 3, 8, 8))
    proto.graph.input.append(value("boxes", ("M", 4)))
    return proto


def broken_before() -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "m"], ["a"]),
        helper.make_node("Conv", ["a", "w"], ["y"], name="conv"),
    ]
    return model(nodes, [value("x", (1, 3, 8, 8)), value("m", (5, 5))], weights=[weight("w", (4, 3, 3, 3))])


MODELS = [
    (lambda: conv_model(x=("N", 3, 8, 8)), {}, r"unknown extents \[\?, 3, 8, 8\].*free: x\[0\] \(N\).*--batch N"),
    (lambda: conv_model(x=(None, 3, 8, 8)), {}, r"free: x\[0\]\. Give .*--batch N"),
    (lambda: conv_model(x=("N", 3, "H", "W")), {"batch": 1}, r"\[1, 3, \?, \?\].*free: x\[2\] \(H\), x\[3\] \(W\)"),
    (lambda: conv_model(x=(1, 3, None, 8)), {}, r"free: x\[2\]\. .*--shape x=1x3x256x8"),
    (lambda: conv_model(x=None), {}, "Conv node 'conv': ONNX's shape inference finds no shape for its data 'x'"),
    (conv_model, {"batch": 2}, "batch 2 was given, but no input of the model has a free dimension 0"),
    (two_free_dimensions, {"batch": 2}, "dimension 0 is not the same in all inputs: M, N"),
    (node_without_filter, {}, "Conv node 'conv': it lacks its inputs or its output"),
    (lambda: after("Mystery"), {}, "finds no shape for its data 'a'.*declare the shape in the model"),
    (broken_before, {}, "shape inference fails: .*MatMul"),
    (untyped_attribute, {}, "strides is None; it must be a sequence"),
    (lambda: conv_model(strides=[1]), {}, r"Conv node 'conv': strides is \[1\], 1 numbers; 2 are needed"),
    (lambda: conv_model(strides=[0, 1]), {}, r"strides\[0\] is 0; it must be an integer of at least 1"),
    (lambda: conv_model(strides=2), {}, "strides is 2; it must be a sequence"),
    (lambda: conv_model(strides=[1.0, 1.0]), {}, r"strides\[0\] is 1.0, a float"),
    (lambda: conv_model(dilations=[1, 0]), {}, r"dilations\[1\] is 0"),
    (
        lambda: conv_model(pads=[1, 1]),
        {},
        r"pads is \[1, 1\], 2 numbers; 4 are needed: the beginning of each spatial axis",
    ),
    (lambda: conv_model(pads=[-1, 0, 0, 0]), {}, r"pads\[0\] is -1"),
    (lambda: conv_model(group=0), {}, "groups is 0"),
    (lambda: conv_model(group=2), {}, "data channels are 3, which groups=2 does not divide"),
    (lambda: conv_model(auto_pad="SAME"), {}, "auto_pad is 'SAME'; allowed: NOTSET, SAME_UPPER, SAME_LOWER, VALID"),
    (lambda: conv_model(auto_pad="same_upper"), {}, "auto_pad is 'same_upper'; allowed: NOTSET"),
    (lambda: conv_model(auto_pad=3), {}, "auto_pad is 3; allowed: NOTSET"),
    (
        lambda: conv_model(auto_pad="SAME_UPPER", w=(4, 3, 1, 1), strides=[8, 8]),
        {},
        "padding of -7 .*write explicit pads",
    ),
    (lambda: conv_model(kernel_shape=[5, 5]), {}, r"kernel_shape is \[5, 5\], but .* has taps \[3, 3\]"),
    (lambda: conv_model(kernel_shape=[3]), {}, r"kernel_shape is \[3\], 1 numbers; 2 are needed"),
    (lambda: conv_model(w=(4, 2, 3, 3)), {}, "data has 3 channels, but the filter takes 2"),
    (lambda: conv_model(w=(4, 3, 3)), {}, "the filter has rank 3"),
    (lambda: conv_model(w=(4, 3, 9, 9)), {}, "the filter spans 9 .*, more than the input 8"),
    (lambda: conv_model(b=(5,)), {}, r"bias has shape \[5\]; it must be \[4\]"),
    (lambda: conv_model(x=(3, 8), w=(4, 3)), {}, r"data has shape \[3, 8\]; Conv takes one to three spatial axes"),
    (lambda: conv_model(x=(1, 3, 8, 8, 8, 8), w=(4, 3, 1, 1, 1, 1)), {}, "Conv takes one to three spatial axes"),
    (lambda: conv_model(elem_type=TensorProto.DOUBLE), {}, "computes in double; .*--dtype"),
    (lambda: conv_model(elem_type=TensorProto.INT32), {}, "computes in int32; .*--dtype"),
    (lambda: conv_model("ConvTranspose", w=(4, 3, 3, 3)), {}, "data has 3 channels, but the filter's O is 4"),
    (
        lambda: conv_model("ConvTranspose", w=(3, 4, 3, 3), pads=[9, 0, 9, 0]),
        {},
        "pads_begin 9 and pads_end 9 leave -8",
    ),
    (lambda: conv_model("ConvTranspose", w=(3, 4, 3, 3), output_shape=[5]), {}, r"output_shape is \[5\], 1 numbers"),
    (lambda: conv_model("ConvTranspose", w=(3, 4, 3, 3), output_shape=[0, 5]), {}, r"output_shape\[0\] is 0"),
    (lambda: conv_model("ConvTranspose", w=(3, 4, 3, 3), output_padding=[-1, 0]), {}, r"output_padding\[0\] is -1"),
]


@pytest.mark.parametrize(("build", "options", "message"), MODELS)
def test_onnx_models(build, options, message, tmp_path):
    source = save(build(), tmp_path)
    with pytest.raises(SourceError, match=message) as caught:
        read_source(source, **options)
    assert source in str(caught.value)
