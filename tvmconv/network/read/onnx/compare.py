"""A compiled network beside onnxruntime: an operator that TVM's frontend takes for another shows in the answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ....accuracy import NETWORK_ERROR, network_error
from ....errors import InputError, last_line
from ....frontends.onnx.session import open_session

if TYPE_CHECKING:
    from onnx import ModelProto

    from ....runtime.networks.network import Network
    from ....runtime.networks.tensors import Array


def differences(model: ModelProto, network: Network) -> list[str]:
    """Return in words which outputs of a network differ from onnxruntime's, on the same random inputs, and by how much.

    Parameters
    ----------
    model
        What was compiled, its weights within; as :func:`tvmconv.network.read.onnx.reader.fixed` returns it.
    network
        The network.

    Raises
    ------
    InputError
        If onnxruntime cannot read the model, as most in bf16, or refuses the inputs, such as an index of what has one element.
    """
    arrays = network.random_inputs()
    expected = answers(model, arrays)
    found = []
    for (name, answer), right in zip(network(**arrays).items(), expected, strict=True):
        if answer.shape != right.shape:
            found.append(f"{name} has the shape {answer.shape} instead of {right.shape}")
        elif (error := network_error(answer, right)) > NETWORK_ERROR:
            found.append(f"{name} by {error:.2g}")
    return found


def answers(model: ModelProto, arrays: Mapping[str, Array]) -> list[Array]:
    """Return onnxruntime's outputs; `model` and the errors are those of :func:`differences`."""
    try:
        session = open_session(model)
    except Exception as refusal:  # its own have no other class
        raise InputError(f"it cannot read the model: {last_line(refusal)}") from refusal
    taken = {each.name for each in session.get_inputs()}
    try:
        found: list[Array] = session.run(None, {name: each for name, each in arrays.items() if name in taken})
    except Exception as refusal:  # its own have no other class
        raise InputError(f"it refuses random inputs: {last_line(refusal)}") from refusal
    return found
