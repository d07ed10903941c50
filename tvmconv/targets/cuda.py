"""CUDA targets: one or several GPU architectures, for which one library has code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ..errors import TargetError
from .target import Target

# Bytes of shared memory that one block can have, by architecture (CUDA C++ Programming Guide, Technical Specifications per Compute
# Capability).
_SHARED_BYTES = {80: 163 * 1024, 86: 99 * 1024, 89: 99 * 1024, 90: 227 * 1024, 100: 227 * 1024, 120: 99 * 1024}
# The architecture whose instructions no other GPU has: wgmma, setmaxnreg.
SPECIFIC = "sm_90a"


@dataclass(frozen=True)
class CudaTarget(Target):
    """NVIDIA GPUs that kernels are compiled for, from one source for all architectures.

    Attributes
    ----------
    architectures
        Compute capabilities times ten (90: sm_90), ascending. A library has machine code for each, and PTX of the
        last for later GPUs. Schedules use only features of the first.
    specific
        Whether code may use instructions that only GPUs of the one architecture have (sm_90a). A library then has
        no PTX.
    """

    architectures: tuple[int, ...]
    specific: bool = False

    @property
    def kind(self) -> str:
        """``"cuda"``."""
        return "cuda"

    @property
    def shared_bytes(self) -> int:
        """Shared memory that one block can have on every architecture."""
        return min(_SHARED_BYTES[each] for each in self.architectures)

    @staticmethod
    def parse(text: str) -> CudaTarget:
        """Return the target that `text` names, for example ``cuda:sm_90``, ``cuda:sm_80,sm_90`` or ``cuda:sm_90a``.

        Raises
        ------
        TargetError
            If `text` names no architecture, or one that kernels cannot be built for.
        """
        if text == f"cuda:{SPECIFIC}":
            return CudaTarget(text, (SPECIFIC,), (int(SPECIFIC[3:-1]),), specific=True)
        allowed = ", ".join(f"sm_{each}" for each in _SHARED_BYTES)
        match = re.fullmatch(r"cuda:(sm_\d+(?:,sm_\d+)*)", text)
        named = {int(each[3:]) for each in match[1].split(",")} if match else set()
        if not named or named - _SHARED_BYTES.keys():
            raise TargetError(
                f"target is {text!r}; allowed: cuda: and one or several of {allowed}, for example cuda:sm_90 or cuda:sm_80,sm_90; "
                f"or cuda:{SPECIFIC} alone, beside another target: it runs on GPUs of compute capability 9.0 only"
            )
        architectures = tuple(sorted(named))
        features = tuple(f"sm_{each}" for each in architectures)
        return CudaTarget("cuda:" + ",".join(features), features, architectures)

    def tvm(self) -> Any:
        """Return the ``tvm.target.Target``, of the first architecture."""
        import tvm

        return tvm.target.Target(
            {
                "kind": "cuda",
                "arch": f"sm_{self.architectures[0]}",
                "max_num_threads": 1024,
                "max_shared_memory_per_block": self.shared_bytes,
                "thread_warp_size": 32,
            }
        )
