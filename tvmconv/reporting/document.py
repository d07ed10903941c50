"""A page's frame: one self-contained file, without scripts or fonts from elsewhere."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import datetime
from html import escape
from importlib.metadata import version
from importlib.resources import files

from ..isa.machine import model_name
from ..measuring.peak import Peak
from ..runtime.processors import allowed_processors
from ..version import __version__

# The browser enforces that the page loads nothing else.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
# Load of one process that always computes.
BUSY = 1.0
Facts = Sequence[tuple[str, str]]
# A part of a page: its anchor, its title, and its HTML.
Section = tuple[str, str, str]


def document(
    name: str,
    summary: str,
    sections: Sequence[Section],
    facts: Sequence[tuple[str, Facts]],
    date: datetime,
    threads: int,
    load: float,
) -> str:
    """Return a page."""
    links = "".join(f'<a href="#{anchor}">{title}</a>' for anchor, title, _ in sections)
    body = "".join(f'<section id="{anchor}"><h2>{title}</h2>{text}</section>\n' for anchor, title, text in sections)
    lists = "\n".join(_facts(title, each) for title, each in (*facts, ("Timed by", _versions())))
    return f"""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<link rel="icon" href="data:,">
<title>{escape(name)}: tvmconv report</title>
<style>
{_file("page.css")}</style>
</head>
<body>
<header>
<h1>{escape(name)}</h1>
<p class="muted">tvmconv report of {date.strftime("%Y-%m-%d %H:%M UTC")}, {escape(model_name())}, threads: {threads}</p>
<p>{escape(summary)}</p>
{_busy(load)}<nav>{links}</nav>
</header>
<div class="facts">
{lists}
</div>
{body}<script>
{_file("page.js")}</script>
</body>
</html>
"""


def machine_facts(limits: Peak | None, threads: int, load: float, devices: Facts = ()) -> Facts:
    """Return the facts of this machine."""
    facts = [
        ("CPU", model_name()),
        ("system", f"{platform.system()} {platform.machine()}"),
        ("processors", f"{len(allowed_processors())} usable of {os.cpu_count()}"),
        ("threads", str(threads)),
        ("load before", f"{load:.1f} in the last minute"),
        *devices,
    ]
    if limits is None:
        return [*facts, ("peak", "unknown")]
    facts.append(("peak, f32", f"{limits.flops / 1e9:.1f} GFLOP/s"))
    if limits.bf16_flops:
        facts.append(("peak, bf16", f"{limits.bf16_flops / 1e9:.1f} GFLOP/s"))
    if limits.integer_flops:
        facts.append(("peak, integers", f"{limits.integer_flops / 1e9:.1f} GOP/s"))
    facts.append(("memory", f"{limits.bandwidth / 1e9:.1f} GB/s read"))
    facts.append(("cache", f"{limits.cache_bandwidth / 1e9:.1f} GB/s read"))
    return facts


def _busy(load: float) -> str:
    if load < BUSY:
        return ""
    return (
        f'<p class="warning">In the minute before, {load:.1f} processes wanted a processor. If they still did while kernels'
        " were timed, times are longer and peaks lower than on a quiet machine: report again there.</p>\n"
    )


def _versions() -> Facts:
    return [
        ("tvmconv", __version__),
        ("tvm-ffi", version("apache-tvm-ffi")),
        ("NumPy", version("numpy")),
        ("Python", platform.python_version()),
    ]


def _facts(title: str, facts: Facts) -> str:
    lines = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    return f"<div><h3>{title}</h3><dl>{lines}</dl></div>"


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
