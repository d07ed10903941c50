"""Compare the outputs of a compiled model with those of the library that the model is for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InputError, UnsupportedMachineError, VerificationError

if TYPE_CHECKING:
    import argparse

    from ...exporting.network_part import NetworkPart
    from ...runtime.networks.tensors import Array, Tensor
    from .sources import Source

    # Outputs of a network by name, and those of the model's library.
    Answers = list[tuple[dict[str, Array], list[Array]]]


def compare_library(arguments: argparse.Namespace, source: Source) -> str:
    """Compare the compiled library's outputs with those of the model's library; return why they cannot be compared."""
    from ...runtime.networks.network import load_network

    def answers() -> Answers:
        network = load_network(arguments.output)
        given = network.examples()
        # The model's library first: its error names the node that refuses random inputs.
        right = [answer_of(arguments, source, arrays) for arrays in given]
        return [(network(**arrays), each) for arrays, each in zip(given, right, strict=True)]

    return _differ(arguments, source, answers)


def compare_module(arguments: argparse.Namespace, source: Source, part: NetworkPart, threads: int) -> str:
    """Compare a module's answers, computed in Node, with those of the model's library; return why they cannot be compared."""
    from ...runtime.networks.tensors import tensors_of
    from ...runtime.networks.web import run_web

    def answers() -> Answers:
        arrays, right = answer_random(arguments, source, tensors_of(part.description, "inputs"))
        found = run_web(Path(arguments.output), arrays, part.description["features"], threads)
        return [(found, right)]

    return _differ(arguments, source, answers)


def answer_random(
    arguments: argparse.Namespace, source: Source, tensors: Sequence[Tensor]
) -> tuple[dict[str, Array], list[Array]]:
    """Return random inputs that the model's library takes, and its answers; else raise its first error."""
    from ...runtime.networks.tensors import put_in_range, random_arrays

    answers: list[list[Array]] = []
    arrays = put_in_range(
        random_arrays(tensors), lambda given: answers.append(answer_of(arguments, source, given)), InputError
    )
    return arrays, answers[0] if answers else answer_of(arguments, source, arrays)


def answer_of(arguments: argparse.Namespace, source: Source, arrays: dict[str, Array]) -> list[Array]:
    """Return the answers of the model's library to inputs converted to the model's types."""
    if arguments.dtype is not None:
        types = {str(each.name): str(each.ty.dtype) for each in source.module["main"].params}
        arrays = {name: each.astype(types[name], copy=False) for name, each in arrays.items()}
    return source.answers(arrays)


def _differ(arguments: argparse.Namespace, source: Source, answers: Callable[[], Answers]) -> str:
    """Raise an error if outputs differ; return why they were not compared."""
    from ...accuracy import describe_differences, network_tolerance

    try:
        tolerance = network_tolerance(arguments.dtype)
        found = [line for each in answers() for line in describe_differences(*each, tolerance)]
    except (UnsupportedMachineError, InputError) as error:
        return f"{arguments.output} was written, but its answers were not compared with {source.by}'s: {error}"
    if found:
        raise VerificationError(
            f"{arguments.output} was written, but on random inputs its outputs differ from {source.by}'s (relative L2 error):"
            f" {', '.join(found)}. An operator may have been read wrongly, unless the network is discontinuous (top-k,"
            f" rounding); the convolutions alone can be built: tvmconv build {arguments.model}"
        )
    return ""
