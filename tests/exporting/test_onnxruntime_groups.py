"""What a provider computes between convolutions: onnxruntime's answers, by one node where all is ours."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from models import model, save, value
from near import assert_near
from onnx import TensorProto, helper, numpy_helper
from onnxruntime_sessions import feeds_of, options, providers_of
from toys import compile_bundle

import tvmconv.onnxruntime
from tvmconv.errors import InputError
from tvmconv.exporting.provider_library import export_provider
from tvmconv.frontends import read_source

RNG = np.random.default_rng(0)
Node = onnx.NodeProto


def node(op: str, inputs: str, output: str, **attributes: Any) -> Node:
    return helper.make_node(op, inputs.split(" "), output.split(), **attributes)  # two spaces: one is left out


def fixed(name: str, *shape: int, low: int = -2, dtype: Any = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(RNG.integers(low, 3, shape).astype(dtype), name)


def ints(name: str, *numbers: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(numbers, np.int64), name)


def conv(inputs: str, output: str, rank: int = 2, **attributes: Any) -> Node:
    return node("Conv", inputs, output, **({"pads": [1] * 2 * rank} | attributes))


WEIGHTS = [
    *(fixed("w", 8, 8, 3, 3), fixed("w1", 8, 8, 3), fixed("w3", 8, 8, 3, 3, 3), fixed("w16", 8, 16, 3, 3)),
    *(fixed("s", 8, low=1), fixed("t", 8), fixed("m", 8), fixed("v", 8, low=1), fixed("p", 8, 1, 1), fixed("r", 8, 1, 1, low=1)),
    *(fixed("g", 8, 8, 1, 1), fixed("k", 1, 8, 7, 6), numpy_helper.from_array(np.float32(0.5), "half")),
    *(ints("twice", 1, 8, 14, 12), ints("flat", 1, 8), ints("five", 1, 2, 4, 7, 6), ints("four", 1, 8, 7, 6), ints("three_five", 3, 5)),
    *(ints("i2", 2), ints("i6", 6), ints("i1", 1), ints("axes", 2, 3), numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales")),
]  # fmt: skip
# From x (1, 8, 7, 6), c = Conv(x), to y; and how many nodes onnxruntime runs itself.
BETWEEN: dict[str, tuple[list[Node], int]] = {
    "relu_first": ([node("Relu", "x", "a"), conv("a w", "y")], 0),
    "normalized_first": ([node("BatchNormalization", "x s t m v", "a"), node("Relu", "a", "b"), conv("b w", "y")], 0),
    "max_pool": ([conv("x w", "c"), node("MaxPool", "c", "d", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), conv("d w", "y")], 0),
    "max_pool_ceil": ([conv("x w", "c"), node("MaxPool", "c", "y", kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1)], 0),
    "max_pool_dilated": ([conv("x w", "c"), node("MaxPool", "c", "y", kernel_shape=[2, 2], dilations=[3, 2])], 0),
    "max_pool_same": ([conv("x w", "c"), node("MaxPool", "c", "y", kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_UPPER")], 0),
    "average": ([conv("x w", "c"), node("AveragePool", "c", "y", kernel_shape=[3, 3], pads=[1, 1, 1, 1])], 0),
    "average_of_all": ([conv("x w", "c"), node("AveragePool", "c", "y", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)], 0),
    "average_ceil": ([conv("x w", "c"), node("AveragePool", "c", "y", kernel_shape=[2, 4], strides=[2, 2], ceil_mode=1)], 0),
    "global_flat": ([conv("x w", "c"), node("GlobalAveragePool", "c", "d"), node("Flatten", "d", "y")], 0),
    "global_max": ([conv("x w", "c"), node("GlobalMaxPool", "c", "d"), node("Reshape", "d flat", "y")], 0),
    "mean": ([conv("x w", "c"), node("ReduceMean", "c axes", "y", keepdims=0)], 0),
    "gate": (
        [conv("x w", "c"), node("GlobalAveragePool", "c", "d"), conv("d g", "e", pads=[0] * 4), node("Sigmoid", "e", "f"), node("Mul", "c f", "y")],
        0,
    ),
    "concatenated": ([conv("x w", "c"), node("Relu", "c", "d"), node("Concat", "x d", "e", axis=1), conv("e w16", "y")], 0),
    "split": ([conv("x w", "c"), node("Split", "c three_five", "d e", axis=1), node("Concat", "e d", "f", axis=1), conv("f w", "y")], 0),
    "sliced": (
        [conv("x w", "c"), node("Slice", "c i2 i6 i1", "d"), node("Concat", "d d", "e", axis=1), conv("e w", "y")], 0,
    ),
    "shuffled": (
        [conv("x w", "c"), node("Reshape", "c five", "d"), node("Transpose", "d", "e", perm=[0, 2, 1, 3, 4]), node("Reshape", "e four", "f"), conv("f w", "y")],
        0,
    ),
    "stretched": ([conv("x w", "c"), node("Resize", "c  scales", "y", mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")], 0),
    "stretched_by_half_pixels": ([conv("x w", "c"), node("Resize", "c   twice", "y", mode="nearest")], 0),
    "linear": ([conv("x w", "c"), node("Resize", "c  scales", "d", mode="linear"), conv("d w", "y")], 1),
    "across": ([conv("x w", "c"), node("LRN", "c", "d", size=5, alpha=1e-2), conv("d w", "y")], 0),
    "across_few": ([conv("x w", "c"), node("LRN", "c", "y", size=3, alpha=1e-2, beta=0.5)], 0),
    "arithmetic": (
        [conv("x w", "c"), node("Sub", "p c", "a"), node("Div", "a r", "b"), node("Sub", "b half", "d"), node("Sub", "x d", "e"), node("Mul", "e x", "y")],
        0,
    ),
    "activations": (
        [conv("x w", "c"), node("Neg", "c", "n"), node("PRelu", "x p", "a"), node("LeakyRelu", "a", "b", alpha=0.5), node("HardSwish", "b", "d"),
         node("Elu", "d", "e"), node("Sub", "e c", "y")],
        1,
    ),
    "read_by_both": ([conv("x w", "c"), node("Relu", "c", "a"), node("Sin", "a", "n"), conv("a w", "d"), node("Add", "n d", "y")], 1),
    "two_levels": ([conv("x w", "c"), node("Sin", "c", "n"), conv("n w", "d"), node("Add", "c d", "y")], 1),
    "fixed_sum": ([conv("x w", "c"), node("Add", "c k", "d"), node("MaxPool", "d", "y", kernel_shape=[2, 2])], 0),
    "given_twice": ([conv("x w", "c"), node("Relu", "c", "a"), node("MaxPool", "a", "y", kernel_shape=[2, 2]), conv("a w", "z")], 0),
}  # fmt: skip


def write(nodes: list[Node], folder: Path, shape: tuple[int, ...] = (1, 8, 7, 6)) -> str:
    read = {each for made in nodes for each in made.input}
    outputs = [value(name, None) for name in ("y", "z") if any(name in made.output for made in nodes)]
    return save(model(nodes, [value("x", shape)], outputs, [each for each in WEIGHTS if each.name in read]), folder)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    found = {name: write(nodes, tmp_path_factory.mktemp(name)) for name, (nodes, _) in BETWEEN.items()}
    nodes = [
        conv("x w1", "c", 1),
        node("MaxPool", "c", "d", kernel_shape=[2]),
        conv("d w1", "e", 1),
        node("Relu", "e", "y"),
    ]
    found["one_axis"] = write(nodes, tmp_path_factory.mktemp("one"), (2, 8, 9))
    nodes = [
        conv("x w3", "c", 3),
        node("AveragePool", "c", "d", kernel_shape=[2, 2, 1], strides=[2, 1, 1]),
        conv("d w3", "y", 3),
    ]
    found["three_axes"] = write(nodes, tmp_path_factory.mktemp("three"), (2, 8, 4, 5, 3))
    return found


@pytest.fixture(scope="module")
def provider(files: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a provider with kernels for both layouts."""
    problems = list(dict.fromkeys(problem for path in files.values() for problem in read_source(path)))
    problems += [each.with_(data_format="NXC") for each in problems]
    folder = tmp_path_factory.mktemp("bundle")
    return export_provider(compile_bundle(folder / "b.bundle", problems, strict=problems, quick=True), folder / "b.so")


def ours_and_others(session: Any) -> tuple[int, int]:
    """Return how many nodes ran that are ours, and others."""
    ran = providers_of(session)
    ours = sum(each.startswith("tvmconv") for each in ran)
    return ours, len(ran) - ours


@pytest.mark.parametrize("name", [*BETWEEN, "one_axis", "three_axes"])
def test_answers_and_what_is_left(name: str, files: dict[str, str], provider: Path, tmp_path: Path):
    session = tvmconv.onnxruntime.session(files[name], provider, options=options(tmp_path))
    feeds = feeds_of(session)
    answers = session.run(None, feeds)
    expected = ort.InferenceSession(files[name], options(), providers=["CPUExecutionProvider"]).run(None, feeds)
    for answer, right in zip(answers, expected, strict=True):
        assert_near(answer, right, summed=2 * 8 * 9, layers=3)
    ours, others = ours_and_others(session)
    left = BETWEEN[name][1] if name in BETWEEN else 0
    assert others == left
    assert ours == 1 or left > 0


def test_a_normalization_that_contradicts_its_data(provider: Path, tmp_path: Path):
    """One number for eight channels is onnxruntime's error, as without the provider."""
    one = fixed("one", 1, low=1)
    nodes = [conv("x w", "c"), node("MaxPool", "c", "d", kernel_shape=[2, 2])]
    nodes += [node("BatchNormalization", "d one one one one", "y")]
    weights = [one, *(each for each in WEIGHTS if each.name == "w")]
    path = save(model(nodes, [value("x", (1, 8, 7, 6))], [value("y", None)], weights, opset=13), tmp_path)
    session = tvmconv.onnxruntime.session(path, provider, options=options())
    with pytest.raises(Exception, match="Invalid input scale"):
        session.run(None, feeds_of(session))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_half_precision(dtype: str, tmp_path: Path):
    """bf16 is compared with f32, in which the same sums are exact: onnxruntime computes none."""
    kind = {"f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}[dtype]

    def made(kind: int) -> str:
        weights = [helper.make_tensor("w", kind, (8, 8, 3, 3), numbers), helper.make_tensor("u", kind, (8,), [1] * 8)]
        nodes = [node("Cast", "x", "a", to=kind), conv("a w", "c"), node("Relu", "c", "b")]
        nodes += [
            node("MaxPool", "b", "d", kernel_shape=[2, 2]),
            node("Concat", "d d", "e", axis=1),
            node("Slice", "e i2 i10 i1", "f"),
        ]
        nodes += [conv("f w u", "g"), node("Cast", "g", "y", to=TensorProto.FLOAT)]
        folder = tmp_path / str(kind)
        folder.mkdir()
        return save(
            model(
                nodes,
                [value("x", (1, 8, 7, 6))],
                [value("y", None)],
                [*weights, ints("i2", 2), ints("i10", 10), ints("i1", 1)],
            ),
            folder,
        )

    numbers = RNG.integers(-1, 2, 8 * 8 * 9).astype(np.float32) * (RNG.random(8 * 8 * 9) < 0.1)
    path = made(kind)
    problems = [each.with_(data_format="NXC") for each in read_source(path)]
    library = export_provider(
        compile_bundle(tmp_path / "b.bundle", problems, strict=problems, quick=True), tmp_path / "b.so"
    )
    session = tvmconv.onnxruntime.session(path, library, options=options(tmp_path))
    feeds = {"x": RNG.integers(-1, 2, (1, 8, 7, 6)).astype(np.float32)}
    answer = session.run(None, feeds)[0]
    np.testing.assert_array_equal(answer, ort.InferenceSession(made(TensorProto.FLOAT)).run(None, feeds)[0])
    assert ours_and_others(session) == (1, 2)


def test_threads_sessions_and_bindings(files: dict[str, str], provider: Path):
    """Several threads call two sessions with other numbers of threads, one by bindings; none has an arena."""
    sessions = []
    for threads in (1, 3):
        made = options()
        made.intra_op_num_threads = threads
        made.enable_cpu_mem_arena = threads == 3
        sessions.append(tvmconv.onnxruntime.session(files["gate"], provider, options=made))
    feeds = feeds_of(sessions[0])
    expected = ort.InferenceSession(files["gate"], options(), providers=["CPUExecutionProvider"]).run(None, feeds)[0]

    def call(i: int) -> np.ndarray:
        if i % 3:
            return sessions[i % 2].run(None, feeds)[0]
        binding, output = sessions[i % 2].io_binding(), np.empty(expected.shape, np.float32)
        binding.bind_cpu_input("x", feeds["x"])
        binding.bind_output("y", "cpu", 0, np.float32, output.shape, output.ctypes.data)
        sessions[i % 2].run_with_iobinding(binding)
        return output

    with ThreadPoolExecutor(4) as pool:
        for answer in pool.map(call, range(300)):
            assert_near(answer, expected, summed=2 * 8 * 9, layers=3)


@pytest.mark.parametrize(("claims", "ours"), [("nothing", 0), ("convolutions", 2), ("groups", 1)])
def test_what_is_claimed_can_be_asked_for(
    claims: str, ours: int, files: dict[str, str], provider: Path, tmp_path: Path
):
    session = tvmconv.onnxruntime.session(files["max_pool"], provider, options=options(tmp_path), claims=claims)
    session.run(None, feeds_of(session))
    assert ours_and_others(session)[0] == ours
    with pytest.raises(InputError, match="claims is 'all'; allowed: nothing, convolutions, groups"):
        tvmconv.onnxruntime.session(files["max_pool"], provider, claims="all")


def test_an_option_that_is_not_known(files: dict[str, str], provider: Path, capsys: pytest.CaptureFixture[str]):
    """onnxruntime's Python raises what a provider refuses; before 1.32, it says so and goes on without it."""
    made, name = options(), tvmconv.onnxruntime.register(provider)
    made.add_provider_for_devices([each for each in ort.get_ep_devices() if each.ep_name == name], {"claims": "all"})
    why = "tvmconv: the option claims is 'all'; allowed: nothing, convolutions, groups, network"
    if tuple(map(int, ort.__version__.split(".")[:2])) >= (1, 32):
        with pytest.raises(Exception, match=why):
            ort.InferenceSession(files["max_pool"], made)
        return
    with pytest.warns(UserWarning, match="has already been configured with providers"):
        ort.InferenceSession(files["max_pool"], made)
    assert why in capsys.readouterr().out
