"""Options of a network's compilation."""

from __future__ import annotations

from dataclasses import dataclass

from ..algorithms.table import check_math
from ..checks import FILES, MEMORIES, QUANTIZED, choice
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
        ``"NXC"``: data is transposed, channels last, for the whole network. ``"NCX"``: it stays as the module has it. Absent:
        NXC, and with a warning NCX where TVM cannot do that.
    math
        As for :func:`tvmconv.building.builder.build`.
    progress
        Called as ``progress(done, total, what)`` while kernels are compiled.
    memory
        ``"default"``: where transforms (Winograd) enlarge the weights to more than 1.3 times the model's, they are left to the filters
        that they save the most time with for each byte, as long as that costs at most 2 % of the kernels' time by estimate.
        ``"small"``: no transforms, as with ``math="strict"``, and no joined filters that have more numbers than those that they
        are of. Filters are as many bytes as the model's, but for whole register tiles.
    file
        ``"default"``: the file has filters as kernels read them, and processes share their memory. ``"small"``: it has those that are larger
        so as the model has them, and they are packed when the network is loaded, by each process.
    trials, seconds
        As for :func:`tvmconv.building.builder.build`: kernels are tuned first.
    dtype
        ``"f32"``, ``"f16"`` or ``"bf16"``: the network computes in this type, and takes and gives tensors of it in the place of the
        others of these. Absent: as the module does.
    quantized
        ``"model"``: layers between quantizers are computed in integers. ``"fastest"``: in f32 those that are estimated to be faster so,
        and `tvmconv.network.report.in_f32` names.

    Raises
    ------
    TargetError
        If `target` is unknown, or no CPU.
    InputError
        If `layout`, `memory`, `file`, `dtype` or `quantized` is none.
    TvmconvError
        If `math` is none.
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
        for name, allowed in (("memory", MEMORIES), ("file", FILES), ("quantized", QUANTIZED)):
            choice(name, getattr(self, name), allowed, InputError)
        check_math(self.math)
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
    """Return the target that a network is compiled for; TargetError if it is no CPU."""
    known = Target.parse(target)
    if not isinstance(known, CpuTarget):
        raise TargetError(f"target is {target!r}; networks are only compiled for CPUs")
    return known
