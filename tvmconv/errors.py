"""The errors of tvmconv. Each message names the wrong value, what is allowed, and a remedy."""

from __future__ import annotations

from collections.abc import Collection
from importlib.util import find_spec


class TvmconvError(Exception):
    """Base class of every error that tvmconv raises on purpose."""


class InvalidProblemError(TvmconvError, ValueError):
    """Attributes or shapes that describe no valid convolution."""


class SignatureError(TvmconvError, ValueError):
    """A text that is not a signature."""


class InputError(TvmconvError, ValueError):
    """An array given to a kernel that the kernel cannot take (shape, type, device, alignment)."""


class OutOfRangeError(InputError, IndexError):
    """An index, given to a network or computed in it, lies beyond its axis."""


class SourceError(TvmconvError, ValueError):
    """A model or problem file that cannot be read as convolutions."""


class LackingOperatorsError(SourceError):
    """A model with operators that no network has.

    Attributes
    ----------
    names
        Names of the operators.
    """

    def __init__(self, message: str, names: Collection[str]) -> None:
        super().__init__(message)
        self.names = frozenset(names)


class TargetError(TvmconvError, ValueError):
    """A target that is unknown, or that kernels cannot be built for."""


class BundleError(TvmconvError):
    """A bundle that is truncated, foreign, altered, or unsafe to open."""


class UnsupportedMachineError(BundleError):
    """Kernels, or a target to tune, that need CPU features or a GPU that this machine lacks."""


class CudaError(TvmconvError, RuntimeError):
    """The NVIDIA driver is missing or too old, finds no GPU, or failed."""


class KernelNotFoundError(TvmconvError, LookupError):
    """No loaded bundle holds a kernel for a problem."""


class VerificationError(TvmconvError):
    """A compiled kernel's outputs differ from the reference."""


class CompilationError(TvmconvError):
    """A kernel does not compile although its algorithm covers the problem."""


class BuildError(TvmconvError):
    """No algorithm gives a correct kernel for a problem, or the first does not and may not be skipped."""


class ToolchainError(TvmconvError, RuntimeError):
    """The system's C compiler or NVIDIA's is missing, too old, or failed."""


class TuningError(TvmconvError):
    """A problem that cannot be tuned, or a tuning record that does not fit it."""


class ReplayError(TuningError, LookupError):
    """A schedule that its algorithm's space does not (or no longer) offer, or that cannot be applied."""


class RewriteError(TvmconvError, RuntimeError):
    """Lowered loops do not allow the rewrite that a schedule asks for."""


class TvmconvWarning(UserWarning):
    """Warning of tvmconv: work goes on, but somebody should look."""


class MissingExtraError(TvmconvError, ImportError):
    """A command needs an optional part of tvmconv that is not installed."""


def missing_extra(extra: str, module: str) -> MissingExtraError:
    """Return the error for a command that needs `module`, which comes with tvmconv[`extra`]."""
    return MissingExtraError(
        f"this needs the Python package {module!r}, which is not installed; install it with:  pip install '{_origin()}[{extra}]'"
    )


def _origin() -> str:
    """Return this package's source for pip: a folder, a wheel (both as PEP 610 records them), or its name in an index."""
    import json
    import os
    from importlib.metadata import PackageNotFoundError, distribution
    from pathlib import Path
    from urllib.parse import unquote, urlparse

    checkout = Path(__file__).parents[1]
    if (checkout / "pyproject.toml").exists():
        return str(checkout)
    try:
        url = str(json.loads(distribution("tvmconv").read_text("direct_url.json") or "{}").get("url", ""))
    except (PackageNotFoundError, ValueError, AttributeError):
        return "tvmconv"
    path = unquote(urlparse(url).path)
    return path if url.startswith("file:") and os.path.exists(path) else "tvmconv"


def check_extra(extra: str, module: str) -> None:
    """Raise MissingExtraError if `module`, which comes with tvmconv[`extra`], is not installed."""
    if find_spec(module) is None:
        raise missing_extra(extra, module)


def first_line(error: BaseException) -> str:
    """Return the first line of another library's error, cut off after 300 characters."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(".")[:300]


def last_line(error: Exception) -> str:
    """Return the last line of another library's error, without its place in the code."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1].strip()
