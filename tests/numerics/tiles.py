"""The emulator of AMX's tiles (`tiles.c`), for tests on CPUs without them.

Code is the same as on a Sapphire Rapids, but for the f16 arithmetic that AMD's CPUs lack.
"""

from __future__ import annotations

import os
from pathlib import Path

from tvmconv.support.toolchain import run_compiler

FLAGS = ("-O3", "-mavx2", "-mfma", "-ffp-contract=off", "-shared", "-fPIC")


def with_emulated_tiles(folder: Path) -> dict[str, str]:
    """Return the environment of a process that has tiles, built in `folder`."""
    run_compiler((*FLAGS, str(Path(__file__).with_name("tiles.c")), "-o", "tiles.so", "-ldl"), folder)
    return {**os.environ, "LD_PRELOAD": str(folder / "tiles.so")}
