"""Modules of WebAssembly in Node: `runner.mjs` loads one and calls its functions."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

from ...isa import Isa
from .emulator import Emulator

RUNNER = Path(__file__).with_name("runner.mjs")
# Flags that enable more instructions in older versions; modules that validate only with a feature.
_FLAGS = ("", "--experimental-wasm-relaxed-simd")
_PROBES = {
    "simd128": "0,97,115,109,1,0,0,0,1,5,1,96,0,1,123,3,2,1,0,10,10,1,8,0,65,0,253,15,253,98,11",
    "relaxed-simd": "0,97,115,109,1,0,0,0,1,5,1,96,0,1,123,3,2,1,0,10,15,1,13,0,65,1,253,15,65,2,253,15,253,128,2,11",
}


class NodeEngine(Emulator):
    """Node; `cpu` is a flag for it, or empty."""

    def prepare(self, work: Path) -> list[str]:
        """Return the command that calls functions of a module."""
        return [self.program, *filter(None, [self.cpu]), str(RUNNER)]


def find(isa: Isa, features: frozenset[str]) -> Emulator | None:
    """Return Node with the flag that it needs for `features`; None if there is no Node, or it is too old."""
    program = next(filter(None, map(shutil.which, isa.emulators)), None)
    if program is None:
        return None
    for flag in _FLAGS:
        version, has = _survey(program, flag)
        if features <= has:
            return NodeEngine(isa, program, flag, " ".join(filter(None, ("node", version, flag))))
    return None


@cache
def _survey(program: str, flag: str) -> tuple[str, frozenset[str]]:
    """Return Node's version, and its features when started with a flag."""
    probes = ",".join(f"WebAssembly.validate(new Uint8Array([{probe}]))" for probe in _PROBES.values())
    command = (program, *filter(None, [flag]), "-p", f"[process.version,{probes}].join(' ')")
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    version, *found = said or [""]
    return version, frozenset(name for name, each in zip(_PROBES, found, strict=False) if each == "true")
