"""Print README's table of systems: what was run on each, by the table of platforms."""

from __future__ import annotations

from tvmconv.platforms import PLATFORMS

HEADER = ("system", "instruction set", "what was run", "by", "when")


def table() -> str:
    """Return the table."""
    rows = [
        (platform.name, each.machine, each.what, f"`{each.command}`", each.date)
        for platform in PLATFORMS
        for each in platform.trials
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in (HEADER, ("---",) * len(HEADER), *rows))


if __name__ == "__main__":
    print(table())
