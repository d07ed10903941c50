"""The nine networks in the ONNX package."""

from __future__ import annotations

from collections.abc import Iterable

from models import LIGHT

from tvmconv.frontends import read_source
from tvmconv.problem import Problem

# Those that are run whole, with their numbers of convolutions; and those of which the shapes alone are tested.
RUN_WHOLE = {"resnet50": 53, "squeezenet": 26, "shufflenet": 49}
OTHERS = ("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "vgg19", "zfnet512")


def light_problems(names: Iterable[str]) -> list[Problem]:
    """Return every distinct convolution of some of them, alone, as the evaluator calls them."""
    problems = [problem for name in names for problem in read_source(str(LIGHT / f"light_{name}.onnx"), fuse=False)]
    return list(dict.fromkeys(problems))
