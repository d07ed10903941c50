"""Caches, ports and rates of CPUs by LLVM's names: facts for schedules and estimates that features do not imply.

Cache sizes and multiply-adds in a cycle are those of the makers' optimization guides (AMD's Software Optimization Guides
for families 17h, 19h and 1Ah; Intel's 64 and IA-32 Architectures Optimization Reference Manual, appendix on
microarchitectures). `l3` is that of one cluster of cores: 8 cores of AMD's CPUs, all of Intel's, as in a small model.
Rates of the bf16 dot product were measured with this project's kernels: 550 and 275 GFLOP/s in bf16 and f32
on one Zen 5 core, 172 and 342 on two cores of an Emerald Rapids.

No ARM CPU has been measured. Sources of their numbers:

- neoverse-n1, neoverse-v1 and neoverse-v2: AWS, Graviton Technical Guide (github.com/aws/aws-graviton-getting-started, README), of
  Graviton 2, 3 and 4: 2, 4 and 4 vector units of 128 bits, L2 of 1, 1 and 2 MB a core, last level caches of 32, 32 and 36 MB.
- grace: NVIDIA, Grace Performance Tuning Guide (docs.nvidia.com/grace-perf-tuning-guide): 4 units of 128 bits, L2 of 1 MB, L3 of 114 MB.
- ampere1: Ampere at Hot Chips 2024, as servethehome.com reports: L2 of 2 MB, 64 MB in all of L3; two units of 128 bits.
- cortex-a76: Raspberry Pi documentation, BCM2712: L2 of 512 KB a core, L3 of 2 MB. Units are assumed to be those of a neoverse-n1,
  which derives from it.
- Multiply-adds (four cycles, in all units), BFDOT (as many) and BFMMLA (as many; on an ampere1 half as many): Arm's Software
  Optimization Guides by way of LLVM's scheduling models (AArch64SchedNeoverseN1.td, V1 and V2, AArch64SchedAmpere1.td; llvm-mca
  19.1.7), in which a cortex-a53 has one unit.

Assumed, without a vendor's document: caches of cortex-a53 (512 KiB, shared by four cores, no L3, as in a Raspberry Pi 3), of
neoverse-n2 (a neoverse-n1's, with rates of LLVM's model) and of wasm32 (those of small computers), and all of
apple-m1 (12 MiB, shared by four cores, 8 MiB of the system, four multiply-adds, where LLVM's model has three).
"""

from __future__ import annotations

from dataclasses import dataclass

KIB, MIB = 1024, 1024 * 1024
# Ways of L1 of every x86 CPU here: addresses a multiple of a way apart share a set. An L1 of 48 KiB has 12 such ways.
# ARM's L1 has four ways of 8 or 16 KiB, so that fewer addresses share a set there.
L1_WAY_BYTES, L1_WAYS = 4 * KIB, 8
L2_WAYS = 8  # at least: of an AMD's of 512 KiB or 1 MiB, and of an N1's
LINE_BYTES = 64
TLB_PAGES = 64  # of L1's data TLB, at least


@dataclass(frozen=True)
class Cpu:
    """One CPU.

    Attributes
    ----------
    l2, l3
        Bytes of a core's L2, and of the shared L3.
    two_of_512
        Whether two multiply-adds of 512 bits start in a cycle.
    dot_rate
        Products of the bf16 dot product in the time of an f32 multiply-add.
    pair_rate
        Products of pairs of 16-bit integers, by a multiplication and an addition, in the time of an f32 multiply-add. By ports
        (uops.info): a Zen 3 has separate ones for both, a Skylake three in all, a Haswell two.
    matrix_rate
        Products of an instruction for matrices of bf16 (`Isa.matrices`) in the time of an f32 multiply-add.
    pipes
        Multiply-adds of whole vectors that start in a cycle, of at most 256 bits.
    """

    l2: int
    l3: int
    two_of_512: bool = False
    dot_rate: float = 0.5
    pair_rate: float = 1.5
    matrix_rate: float = 0.5
    pipes: int = 2


# Facts for generic targets: those of common servers.
_GENERIC = Cpu(1 * MIB, 32 * MIB)
_CPUS = {
    "haswell": Cpu(256 * KIB, 8 * MIB, pair_rate=1.0),
    "broadwell": Cpu(256 * KIB, 8 * MIB, pair_rate=1.0),
    "skylake": Cpu(256 * KIB, 8 * MIB),
    "skylake-avx512": Cpu(1 * MIB, 22 * MIB, two_of_512=True),
    "cascadelake": Cpu(1 * MIB, 22 * MIB, two_of_512=True),
    "cooperlake": Cpu(1 * MIB, 22 * MIB, two_of_512=True),
    "icelake-server": Cpu(1280 * KIB, 32 * MIB, two_of_512=True),
    "sapphirerapids": Cpu(2 * MIB, 32 * MIB, two_of_512=True),
    "emeraldrapids": Cpu(2 * MIB, 64 * MIB, two_of_512=True),
    "graniterapids": Cpu(2 * MIB, 64 * MIB, two_of_512=True),
    "graniterapids-d": Cpu(2 * MIB, 64 * MIB, two_of_512=True),
    "diamondrapids": Cpu(2 * MIB, 64 * MIB, two_of_512=True),
    "alderlake": Cpu(1280 * KIB, 16 * MIB),
    "znver1": Cpu(512 * KIB, 8 * MIB),
    "znver2": Cpu(512 * KIB, 16 * MIB),
    "znver3": Cpu(512 * KIB, 32 * MIB, pair_rate=2.0),
    "znver4": Cpu(1 * MIB, 32 * MIB, dot_rate=2.0),
    "znver5": Cpu(1 * MIB, 32 * MIB, two_of_512=True, dot_rate=2.0),
    "znver6": Cpu(1 * MIB, 32 * MIB, two_of_512=True, dot_rate=2.0),
    "cortex-a53": Cpu(128 * KIB, 512 * KIB, pipes=1),
    "cortex-a76": Cpu(512 * KIB, 2 * MIB),
    "neoverse-n1": Cpu(1 * MIB, 32 * MIB),
    "neoverse-n2": Cpu(1 * MIB, 32 * MIB, dot_rate=2.0, matrix_rate=4.0),
    "neoverse-v1": Cpu(1 * MIB, 32 * MIB, pipes=4, dot_rate=2.0, matrix_rate=4.0),
    "neoverse-v2": Cpu(2 * MIB, 36 * MIB, pipes=4, dot_rate=2.0, matrix_rate=4.0),
    "grace": Cpu(1 * MIB, 114 * MIB, pipes=4, dot_rate=2.0, matrix_rate=4.0),
    "ampere1": Cpu(2 * MIB, 64 * MIB, dot_rate=2.0, matrix_rate=2.0),
    "apple-m1": Cpu(3 * MIB, 8 * MIB, pipes=4),
    "wasm32": Cpu(512 * KIB, 8 * MIB),
}
_SAME = {"wasm32-relaxed": "wasm32", "skx": "skylake-avx512", "rocketlake": "alderlake", "raptorlake": "alderlake"}


def cpu_of(mcpu: str) -> Cpu:
    """Return the facts about LLVM's CPU `mcpu`; generic ones if it is unknown."""
    return _CPUS.get(_SAME.get(mcpu, mcpu), _GENERIC)
