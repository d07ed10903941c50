"""Names of targets on systems other than Linux: the system, a colon, and a CPU."""

from __future__ import annotations

from ..isa import ISAS, Isa


def ports_by_name() -> dict[str, list[Isa]]:
    """Return instruction sets on other systems by each prefix of targets' names, the usual one first."""
    named: dict[str, list[Isa]] = {}
    for isa in ISAS:
        if isa.port is not None:
            system, (machine, *_) = isa.platform.prefix, isa.triple.split("-")
            for name in dict.fromkeys((system, f"{machine}-{system}", isa.triple)):
                named.setdefault(name, []).append(isa)
    return named


def usual_targets() -> list[str]:
    """Return one target of each other system."""
    return [f"{isa.platform.prefix}:{isa.port.default}" for isa in ISAS if isa.port is not None]
