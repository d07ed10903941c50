"""Files of a network of the zoo: its weights, inputs and answer, and each contender's compiled or converted model."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from tvmconv.errors import TvmconvError, last_line
from tvmconv.support.files import write_whole

from .zoo_contenders import (
    DTYPES,
    EXPECTED,
    INPUTS,
    MODELS,
    ONNXRUNTIME,
    OPENVINO,
    OURS,
    WRITTEN,
    library,
    read_arrays,
    refusal,
)
from .zoo_networks import NETWORKS, load

WEIGHTS = "weights.pt"
# The newest that PyTorch's exporter writes; it has GELU as one node.
OPSET = 20


@dataclass(frozen=True)
class Preparation:
    """Write the files that `contenders` need to compute a network in a type into a folder; existing files stay."""

    network: str
    dtype: str
    folder: str
    contenders: tuple[str, ...]

    def __str__(self) -> str:
        return f"making {self.network} ready"


def prepare(task: Preparation) -> None:
    """Run `task`. In place of a file that cannot be written is one with the reason."""
    folder = Path(task.folder)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not (folder / EXPECTED).exists():
            _write_network(task.network, folder)
        model, inputs = read_network(task.network, folder)
        writers: dict[str, tuple[Path, Callable[[Path], None]]] = {
            ONNXRUNTIME: (folder / MODELS[ONNXRUNTIME], lambda file: _write_onnx(model, inputs, file)),
            OPENVINO: (folder / MODELS[OPENVINO], lambda file: _write_openvino(model, inputs, file)),
            OURS: (library(folder, task.dtype), lambda file: write_ours(model, inputs, task.dtype, file)),
            WRITTEN: (
                library(folder, task.dtype, WRITTEN),
                lambda file: write_ours(model, inputs, task.dtype, file, joins=False),
            ),
        }
        for contender in task.contenders:
            if contender in writers:
                _written(*writers[contender])


def read_network(name: str, folder: Path) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return the network in a folder, and its inputs."""
    model = NETWORKS[name].make().eval()
    model.load_state_dict(torch.load(folder / WEIGHTS))
    return model, tuple(map(torch.from_numpy, read_arrays(folder / INPUTS)))


def _written(file: Path, write: Callable[[Path], None]) -> None:
    why = refusal(file)
    if file.exists() or why.exists():
        return
    try:
        write(file)
    except Exception as error:  # noqa: BLE001 (exporters raise whatever they stumble over; the file says what)
        said = str(error) if isinstance(error, TvmconvError) else f"{type(error).__name__}: {last_line(error)}"
        write_whole(why, said.encode())


def _write_network(name: str, folder: Path) -> None:
    model, inputs = load(name)
    answer = [leaf.numpy() for leaf in pytree.tree_leaves(model(*inputs))]
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), folder / WEIGHTS)
    np.savez(folder / INPUTS, *(each.numpy() for each in inputs))
    np.savez(folder / EXPECTED, *answer)


def write_ours(model: nn.Module, inputs: Any, dtype: str, file: Path, joins: bool = True) -> None:
    """Compile a model for some inputs into a file; without `joins`, its fixed filters as they are."""
    from tvmconv.network.compile import build
    from tvmconv.network.read.torch.reader import read_torch
    from tvmconv.torch.exporting import export
    from tvmconv.torch.flat import Flat

    inputs = tuple(each.to(getattr(torch, DTYPES[dtype])) for each in inputs)
    # Others export the model after us, in f32.
    model = copy.deepcopy(model).to(getattr(torch, DTYPES[dtype]))
    try:
        program = torch.export.export(model, inputs, strict=False)
    except RuntimeError:  # of a forward that writes its own weights
        program = export(Flat(model, inputs, {}))
    with nullcontext() if joins else mock.patch("tvmconv.network.passes.join_filters", lambda mod, *_: (mod, [])):
        build(read_torch(program), file)


def _write_openvino(model: nn.Module, inputs: Any, file: Path) -> None:
    import openvino as ov

    converted = ov.convert_model(model, example_input=inputs, input=[list(each.shape) for each in inputs])
    ov.save_model(converted, file, compress_to_fp16=False)


def _write_onnx(model: nn.Module, inputs: Any, file: Path) -> None:
    names = [f"input{number}" for number in range(len(inputs))]
    torch.onnx.export(model, inputs, file, dynamo=False, opset_version=OPSET, input_names=names)
