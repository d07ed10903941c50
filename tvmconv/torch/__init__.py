"""tvmconv.torch: PyTorch models as compiled networks.

Needs PyTorch, which `pip install 'tvmconv[torch]'` installs. Compiling needs the compiler; calling compiled models does not.
"""

from __future__ import annotations

from ..errors import missing_extra

try:
    import torch as torch
except ImportError:
    raise missing_extra("torch", "torch") from None

from .compiled import CompiledModel, compile, load
from .optimize import optimize
from .report import networks, report

__all__ = ["CompiledModel", "compile", "load", "networks", "optimize", "report"]
