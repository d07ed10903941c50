"""Kernels and networks take the same arrays: the same answer, or the same error."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.placing import aligned

pytest.importorskip("tvm")
torch = pytest.importorskip("torch")
from models import model, save, value  # noqa: E402
from onnx import helper, numpy_helper  # noqa: E402

import tvmconv  # noqa: E402
from tvmconv import cli  # noqa: E402
from tvmconv.errors import InputError  # noqa: E402

SHAPE = (1, 4, 5, 6)
BASE = np.random.default_rng(0).integers(-3, 4, SHAPE).astype(np.float32)
Call = Callable[[Any], Any]


class Tensor(torch.Tensor):  # type: ignore[misc]
    """A subclass that changes nothing."""


class Foreign:
    """An array of a library that speaks DLPack alone."""

    def __init__(self, array: np.ndarray, device: int = 1) -> None:
        self.array, self.device = array, device

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


class Interface:
    """What NumPy makes an array of, and nobody else."""

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        return BASE


def read_only() -> np.ndarray:
    array = BASE.copy()
    array.flags.writeable = False
    return array


def masked_tensor() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.masked.masked_tensor(torch.from_numpy(BASE), torch.from_numpy(BASE > 0))


def fake_tensor() -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.zeros(SHAPE)


pytestmark = pytest.mark.filterwarnings("ignore:.*(prototype stage|deprecated):UserWarning")
# By name: what is given, and part of the message it is refused with; None: it is answered.
KINDS: dict[str, tuple[Callable[[], Any], str | None]] = {
    "array": (lambda: BASE, None),
    "read-only": (read_only, None),
    "Fortran order": (lambda: np.asfortranarray(BASE), None),
    "transposed": (lambda: BASE.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2), None),
    "every other": (lambda: np.repeat(BASE, 2, 3)[..., ::2], None),
    "negative strides": (lambda: BASE[:, ::-1].copy()[:, ::-1], None),
    "broadcast": (lambda: np.broadcast_to(BASE[:, :1], SHAPE), None),
    "aligned to the element": (lambda: aligned(BASE, 4), None),
    "unaligned": (lambda: aligned(BASE, 1), None),
    "subclass": (lambda: BASE.view(np.recarray), None),
    "memmap": (lambda: BASE.view(np.memmap), None),
    "masked": (lambda: np.ma.masked_array(BASE, BASE > 0), "masked array"),
    "masked, of no mask": (lambda: np.ma.masked_array(BASE), "masked array"),
    "big-endian": (lambda: BASE.astype(">f4"), "other byte order"),
    "float64": (lambda: BASE.astype(np.float64), "float64"),
    "float16": (lambda: BASE.astype(np.float16), ""),
    "int32": (lambda: BASE.astype(np.int32), "32"),
    "complex": (lambda: BASE.astype(np.complex64), "complex64"),
    "object": (lambda: BASE.astype(object), "object"),
    "text": (lambda: BASE.astype(str), "str"),
    "bytes": (lambda: BASE.astype(bytes), "bytes"),
    "time": (lambda: BASE.astype("m8[s]"), "timedelta64"),
    "structured": (lambda: BASE.view([("x", np.float32)]), "void"),
    "another shape": (lambda: BASE[..., :5], "5"),
    "zero-size": (lambda: BASE[:0], "0"),
    "a number": (lambda: np.float32(1), ""),
    "list": (lambda: BASE.tolist(), "is a list; give a NumPy array"),
    "float": (lambda: 1.0, "is a float; give a NumPy array"),
    "None": (lambda: None, "is a NoneType; give a NumPy array"),
    "__array__": (Interface, "is a Interface; give a NumPy array"),
    "buffer": (lambda: memoryview(BASE), "is a memoryview; give a NumPy array"),
    "DLPack": (lambda: Foreign(BASE), None),
    "DLPack on a GPU": (lambda: Foreign(BASE, 2), "CUDA device"),
    "DLPack of float64": (lambda: Foreign(BASE.astype(np.float64)), "float64"),
    "tensor": (lambda: torch.from_numpy(BASE), None),
    "tensor, channels last": (lambda: torch.from_numpy(BASE).to(memory_format=torch.channels_last), None),
    "tensor, expanded": (lambda: torch.from_numpy(BASE[:, :1]).expand(SHAPE), None),
    "tensor of a subclass": (lambda: torch.from_numpy(BASE).as_subclass(Tensor), None),
    "inference tensor": (lambda: torch.inference_mode()(lambda: torch.from_numpy(BASE).clone())(), None),
    "negated view": (lambda: torch.complex(torch.zeros(SHAPE), -torch.from_numpy(BASE)).conj().imag, None),
    "conjugated": (lambda: torch.complex(torch.from_numpy(BASE), torch.ones(SHAPE)).conj(), "complex64"),
    "requires grad": (lambda: torch.from_numpy(BASE.copy()).requires_grad_(), "requires grad"),
    "parameter": (lambda: torch.nn.Parameter(torch.from_numpy(BASE)), "requires grad"),
    "sparse": (lambda: torch.from_numpy(BASE).to_sparse(), "layout torch.sparse_coo"),
    "nested": (lambda: torch.nested.nested_tensor([torch.from_numpy(BASE[0])]), ""),
    "meta": (lambda: torch.zeros(SHAPE, device="meta"), "device meta"),
    "fake": (fake_tensor, ""),
    "masked tensor": (masked_tensor, ""),
    "quantized": (lambda: torch.quantize_per_tensor(torch.from_numpy(BASE), 0.1, 0, torch.qint8), "qint8"),
    "float8": (lambda: torch.from_numpy(BASE).to(torch.float8_e4m3fn), "float8"),
    "bfloat16": (lambda: torch.from_numpy(BASE).bfloat16(), "bf"),
}


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Call]:
    """Return a kernel and a network of one convolution, each a function of its data."""
    folder = tmp_path_factory.mktemp("arrays")
    taps = np.random.default_rng(1).integers(-2, 3, (8, 4, 3, 3)).astype(np.float32)
    node = helper.make_node("Conv", ["data", "w"], ["y"], name="first", pads=[1] * 4)
    source = save(model([node], [value("data", SHAPE)], weights=[numpy_helper.from_array(taps, "w")]), folder)
    assert cli.main(["build", source, "-o", str(folder / "bundle"), "--jobs", "1", "--math", "strict"]) == 0
    assert cli.main(["compile", source, "-o", str(folder / "network.so"), "--math", "strict"]) == 0
    registry, network = tvmconv.load(folder / "bundle"), tvmconv.load_network(folder / "network.so")
    (kernel,) = (registry[signature] for signature in registry)
    packed = kernel.pack(taps)
    return {
        "plain filter": lambda data: kernel(data, taps),
        "packed filter": lambda data: kernel(data, packed),
        "network": lambda data: network(data=data)["y"],
        "bound call": lambda data: network.call({"data": data})()[0],
    }


def outcome(call: Call, data: Any) -> Any:
    """Return the numbers of an answer, or what it is refused with."""
    try:
        answer = call(data)
    except InputError as error:
        return str(error)
    return answer.numpy() if isinstance(answer, torch.Tensor) else np.asarray(answer)


@pytest.mark.parametrize("kind", KINDS)
def test_kernels_and_networks_take_the_same_arrays(kind: str, calls: dict[str, Call]) -> None:
    make, refusal = KINDS[kind]
    found = {name: outcome(call, make()) for name, call in calls.items()}
    if refusal is None:
        plain = make()
        if isinstance(plain, Foreign):
            plain = plain.array
        plain = plain.resolve_neg().numpy() if isinstance(plain, torch.Tensor) else np.asarray(plain)
        for name, call in calls.items():
            np.testing.assert_array_equal(found[name], call(np.array(plain, np.float32, order="C")), err_msg=name)
        return
    for name, text in found.items():
        assert isinstance(text, str) and refusal in text, (name, text)
    shared = {text for text in found.values() if " takes " not in text and "; kernels take" not in text}
    assert len(shared) <= 1, found


@pytest.mark.parametrize("make", [lambda: BASE, lambda: torch.from_numpy(BASE.copy()).requires_grad_()])
def test_without_gradients_a_tensor_that_has_them_is_taken(make: Callable[[], Any], calls: dict[str, Call]) -> None:
    with torch.no_grad():
        answers = [outcome(call, make()) for call in calls.values()]
    for each in answers[1:]:
        np.testing.assert_array_equal(each, answers[0])


def test_an_output_that_would_not_be_written() -> None:
    from tvmconv.runtime.arrays import kernel_output

    negated = torch.zeros(SHAPE, dtype=torch.complex64).conj().imag
    with pytest.raises(InputError, match="out is a negated or conjugated view"):
        kernel_output(negated, "f32", SHAPE, [], [])
