"""Options of a network's compilation."""

from __future__ import annotations

from dataclasses import dataclass

from ..algorithms.table import check_math
from ..checks import FILES, MEMORIES, QUANTIZED_LAYERS, choice
from ..errors import InputError, TargetError
from ..support.progress import Progress
from ..targets.target import CpuTarget, Target
from ..tuning.records import Records

LAYOUTS = ("NXC", "NCX")
DTYPES = ("f32", "f16", "bf16")


@dataclass(frozen=True)
class Options:
    """Options of compiling a network.

    Parameters
    ----------
    target
        As for :func:`tvmconv.building.builder.build`; a CPU.
    records
        The tuning records; absent: the user's and those that ship with tvmconv.
    layout
        ``"NXC"``: the whole network is converted to channels last. ``"NCX"``: the module's layout stays. Absent: NXC, or, with a
        warning, NCX where TVM cannot convert the network.
    math
        As for :func:`tvmconv.building.builder.build`.
    progress
        Called as ``progress(done, total, what)`` while kernels are compiled.
    memory
        ``"default"``: where transforms (Winograd) would enlarge the weights to more than 1.3 times the model's, only the filters that
        save the most time for each byte keep them, if that costs at most 2 % of the kernels' time by estimate. ``"small"``: no
        transforms, as with ``math="strict"``, and no joined filters with more numbers than the original ones. Filters then take the
        model's bytes, rounded up to whole register tiles.
    file
        ``"default"``: the file has packed filters, whose memory processes share. ``"small"``: filters that packing enlarges are stored
        in the model's layout, and each process packs them when it loads the network.
    trials, seconds
        As for :func:`tvmconv.building.builder.build`: kernels are tuned first.
    dtype
        ``"f32"``, ``"f16"`` or ``"bf16"``: the network computes in this type, also its floating-point inputs and outputs have it.
        Absent: the module's types.
    quantized
        ``"model"``: layers between quantizers are computed in integers. ``"fastest"``: those estimated to be faster in f32 are computed
        in f32 (`tvmconv.network.report.in_f32` lists them).

    Raises
    ------
    TargetError
        If `target` is unknown, or not a CPU.
    InputError
        If `layout`, `memory`, `file`, `dtype` or `quantized` has another value, or `quantized` is ``"fastest"`` with reproducible `math`.
    TvmconvError
        If `math` has another value.
    """

    target: str = "host"
    records: Records | None = None
    layout: str | None = None
    math: str = "default"
    progress: Progress | None = None
    memory: str = "default"
    file: str = "default"
    trials: int = 0
    seconds: float | None = None
    dtype: str | None = None
    quantized: str = "model"

    def __post_init__(self) -> None:
        """Check the options."""
        if self.layout is not None:
            choice("layout", self.layout, LAYOUTS, InputError)
        if self.dtype is not None:
            choice("dtype", self.dtype, DTYPES, InputError)
        for name, allowed in (("memory", MEMORIES), ("file", FILES), ("quantized", QUANTIZED_LAYERS)):
            choice(name, getattr(self, name), allowed, InputError)
        check_math(self.math)
        if (self.math, self.quantized) == ("reproducible", "fastest"):
            raise InputError(
                "quantized='fastest' is decided by estimates, which differ between CPUs, and math='reproducible' has the same bits on all;"
                " give quantized='model', or another math"
            )
        check_target(self.target)

    @property
    def cpu(self) -> CpuTarget:
        """Return the target, parsed."""
        return check_target(self.target)

    @property
    def is_small(self) -> bool:
        """Return whether filters may take no more memory than the model's."""
        return self.memory == "small"


def check_target(target: str) -> CpuTarget:
    """Return the target that a network is compiled for; raise TargetError if it is not a CPU."""
    known = Target.parse(target)
    if not isinstance(known, CpuTarget):
        raise TargetError(f"target is {target!r}; networks are only compiled for CPUs")
    return known
