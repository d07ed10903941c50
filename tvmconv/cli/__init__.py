"""The command line: one file a command, each with `add_parser(subparsers)`.

Data goes to stdout, progress and errors to stderr. A command's modules are imported when it runs, so that
`tvmconv sig` never waits for the compiler.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import TextIO

from ..errors import (
    BuildError,
    CompilationError,
    CudaError,
    KernelNotFoundError,
    MissingExtraError,
    ToolchainError,
    TvmconvError,
    TvmconvWarning,
    UnsupportedMachineError,
    VerificationError,
)
from ..support.cache import VARIABLE
from ..support.forking import be_alone
from ..support.heap import spare_time
from ..support.timing import count_start, show_at_end
from ..version import __version__
from .parsing import AnyOrder, Suggesting

resource: ModuleType | None
try:  # now: without memory nothing can be imported later
    import resource
except ImportError:  # Windows
    resource = None

COMMANDS = (
    "compile",
    "run",
    "report",
    "compare",
    "export-onnxruntime",
    "export-wheel",
    "build",
    "tune",
    "list",
    "verify",
    "bench",
    "export-c",
    "explain",
    "inspect",
    "sig",
    "calibrate",
    "rpc-server",
    "cache",
    "shell",
    "env",
)

OK, NO, BAD_INPUT, CANNOT, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 3, 130, 141
START = """\
compile an ONNX file to a library, and time it beside onnxruntime:
  tvmconv compile model.onnx -o model.so
  tvmconv run model.so --bench --against model.onnx
"""
EXIT_CODES = f"""\
exit codes:
  {OK}    success, or the answer is yes
  {NO}    the answer is no: a kernel is wrong, none fits, or none can be built or tuned; or a network was not compared
  {BAD_INPUT}    bad usage or bad input
  {CANNOT}    something is missing here: an extra, the C compiler, a CPU feature, a GPU, memory or disk space
  {INTERRUPTED}  interrupted with Ctrl-C
  {BROKEN_PIPE}  the reader of stdout is gone
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv
        The arguments after the program's name; those of this process when absent.

    Returns
    -------
    int
        The exit code (see ``tvmconv --help``).
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started this; a file opened later would take its number
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - until the process ends
    if argv is None and not any(argument.lower().endswith(".pt2") for argument in sys.argv):
        # In a process of our own: tvm-ffi imports PyTorch where it is installed, for two seconds, which only .pt2 files need.
        sys.modules.setdefault("torch", None)  # type: ignore[arg-type]
    if argv is None:
        be_alone()
        spare_time()
    commands = parser()
    if not (sys.argv[1:] if argv is None else argv):
        commands.exit(BAD_INPUT, commands.format_help())
    arguments = commands.parse_args(argv)
    if getattr(arguments, "timing", False):
        show_at_end()
    if argv is None:
        count_start()
    if getattr(arguments, "no_cache", False):
        os.environ[VARIABLE] = ""  # also for processes that this one starts
    try:
        with warnings.catch_warnings():
            _show_warnings(arguments.command)
            code = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print(f"tvmconv {arguments.command}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return BROKEN_PIPE
    except (TvmconvError, OSError) as error:
        print(f"tvmconv {arguments.command}: {_text(error)}", file=sys.stderr)
        _drop_output()
        return _exit_code(error)
    except (MemoryError, ImportError, AttributeError, RuntimeError) as error:
        # Other libraries raise these where a part of them could not be mapped.
        if not isinstance(error, MemoryError) and not _is_limited():
            raise
        why = str(error).partition("\n")[0]
        print(f"tvmconv {arguments.command}: there may be too little memory (ulimit -v): {why}", file=sys.stderr)
        return CANNOT


def _is_limited() -> bool:
    """Return whether this process's address space is limited."""
    return resource is not None and resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def _drop_output() -> None:
    """Flush stdout; if its reader is gone, redirect it, because the interpreter flushes once more at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    result = Suggesting(
        prog="tvmconv",
        description="An ahead-of-time compiler for convolutional networks, and for single convolutions.",
        epilog=f"{START}\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("-V", "--version", action="version", version=f"tvmconv {__version__}")
    subparsers = result.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=AnyOrder)
    for name in COMMANDS:
        import_module(f"{__name__}.{name.replace('-', '_')}").add_parser(subparsers)
    return result


def _show_warnings(command: str) -> None:
    """Print our warnings on one line, without the code's place, and each once: files are read several times."""
    shown: set[str] = set()

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            print(f"tvmconv {command}: warning: {message}", file=sys.stderr)

    warnings.simplefilter("always", TvmconvWarning)
    warnings.showwarning = show


def _text(error: Exception) -> str:
    """Return an error's message; the system's errors without their number."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str((isinstance(error, OSError) and error.strerror) or error)


def _exit_code(error: Exception) -> int:
    if isinstance(error, (BuildError, CompilationError, KernelNotFoundError, VerificationError)):
        return NO
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM):
        return CANNOT
    if isinstance(error, (CudaError, MissingExtraError, ToolchainError, UnsupportedMachineError)):
        return CANNOT
    return BAD_INPUT
