"""`tvmconv cache`: list or remove the outcomes of builds that later builds reuse."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING

from ..errors import TvmconvError
from ..support.cache import VARIABLE, open_cache, place
from .output import print_json, print_table
from .parsing import add_command, add_json

if TYPE_CHECKING:
    from .parsing import Subparsers

EXAMPLE = """\
  tvmconv cache
  tvmconv cache --clear
  TVMCONV_CACHE=/opt/kernels tvmconv compile resnet50.onnx -o resnet50.so
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "cache",
        "List the cache of compiled code, which build, compile, optimize and export-onnxruntime reuse while its inputs are"
        f" unchanged. It is in ${VARIABLE}, by default tvmconv in the user's cache folder; {VARIABLE}= disables it.",
        EXAMPLE,
        run,
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--list", action="store_true", help="list it (the default)")
    group.add_argument("--path", action="store_true", help="print the folder")
    group.add_argument("--clear", action="store_true", help="delete everything in it")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """List the entries, remove them, or print the cache's folder."""
    folder = place()
    if folder is None:
        raise TvmconvError(
            f"the cache is disabled: {VARIABLE} is empty, or this user has no home directory; set {VARIABLE} to a folder"
        )
    if arguments.path:
        print_json({"path": str(folder)}) if arguments.json else print(folder)
        return 0
    known = open_cache()
    if known is None:  # open_cache has warned
        return 1
    if arguments.clear:
        count = known.clear()
        print_json({"removed": count}) if arguments.json else print(f"removed: {count}", file=sys.stderr)
        return 0
    files = known.files()
    if arguments.json:
        print_json([asdict(each) for each in files])
        return 0
    rows = [
        (each.key[:16], f"{each.bytes / 1e3:.0f}", datetime.fromtimestamp(each.read).isoformat(" ", "seconds"))
        for each in files
    ]
    print_table(("key", "kB", "last used"), rows)
    print(f"{folder}: {len(files)} files, {sum(each.bytes for each in files) / 1e6:.1f} MB", file=sys.stderr)
    return 0
