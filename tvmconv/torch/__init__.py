"""tvmconv.torch: the convolutions of a PyTorch model computed by tvmconv's kernels.

Needs PyTorch, which `pip install 'tvmconv[torch]'` brings; building kernels needs the compiler, using built ones does not.
"""

from __future__ import annotations

from ..errors import missing_extra

try:
    import torch as torch
except ImportError:
    raise missing_extra("torch", "torch") from None

from .compiled import CompiledModel, compile, load
from .kernels import open_bundle
from .layers import FusedConvolution
from .optimize import optimize
from .report import report

__all__ = ["CompiledModel", "FusedConvolution", "compile", "load", "open_bundle", "optimize", "report"]
