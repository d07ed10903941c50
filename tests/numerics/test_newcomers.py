"""What a newcomer adds: an algorithm by a folder and a line, an instruction set or a system by a folder, a CPU or a type by a row, a pass of
networks by a file and a row, an operator by a file.

Each is added to a copy of the package, of links to its files, that a process of its own imports.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tvmconv
from tvmconv.isa import native
from tvmconv.isa.x86 import ISA as X86
from tvmconv.targets.target import CpuTarget, Target

PACKAGE = Path(tvmconv.__file__).parent
SIGNATURE = "conv2d-n1-i8x6x6-o16x6x6-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias"

ALGORITHM = '''
"""A toy: what `plain` computes, which it says costs nothing."""
from ..plain import covers, define


def estimate(problem, target):
    return {}
'''
SPACE = "from tvmconv.schedules.cpu.plain import space as space\n"
USE_ALGORITHM = """
(entry,) = read_bundle(tvmconv.build([problem], sys.argv[2], fallback=False, records=tvmconv.Records(sys.argv[2] + "-records"))).entries
print(entry.algorithm, entry.verified, *(row.algorithm for row in weigh(problem, Target.parse("host"))))
"""

INSTRUCTION_SET = '''
"""A toy: POWER with VSX."""
from pathlib import Path

from ..isa import Isa

ISA = Isa(
    name="power",
    machine="ppc64le",
    triple="powerpc64le-linux-gnu",
    linux_names={},
    used=frozenset({"vsx", "altivec"}),
    without=("mma",),
    needed=frozenset({"vsx"}),
    least="has no VSX",
    vectors={"vsx": (128, 64)},
    working_registers=8,
    dot="no dot product",
    dot_intrinsic="",
    dots_by_element=False,
    known_cpus={},
    cross_compilers=("powerpc64le-linux-gnu-gcc",),
    install="apt install gcc-powerpc64le-linux-gnu",
    c_file="",
    c_features={},
    detect=frozenset,
    assembly=f"{__name__}.assembly",
    native=Path(__file__).parent,
)
'''
ASSEMBLY = """
import re

from ..assembly import Jumps
from ..instructions import AssemblyReader, Instruction


def read(line):
    return Instruction(int(line.split()[0].startswith("xvmadd")))


READER = AssemblyReader(read, lambda lines: frozenset({"r1"}), Jumps(re.compile(r"b|bdnz|blr"), frozenset({"b", "blr"})))
"""
USE_INSTRUCTION_SET = """
target = Target.parse("pwr10")
print(target.isa.name, target.vector_bits, target.vector_registers, *target.features)
asm = generate(lower_choice(problem, target, Choice("direct")).module, target).mod.inspect_source("asm")
print(max(map(target.isa.multiply_adds, target.isa.loops(asm))))
"""
SYSTEM = '''
"""A toy: what Linux is, with libraries of another name."""
from dataclasses import replace

from ..linux import PLATFORM as LINUX
from ..platform import Port

X86 = Port("x86-64", "x86_64-linux-musl", "toy", "x86-64-v3", lacking=frozenset({"gfni"}), cross_compilers=("cc",))
PLATFORM = replace(LINUX, name="Toy", prefix="toy", library_suffix=".toy", ports=(X86,))
'''
USE_SYSTEM = """
from pathlib import Path

from tvmconv.isa.machine import obstacle_of
from tvmconv.lowering.compiler import compile_problem

target = Target.parse("x86_64-toy:znver4")
library = Path(sys.argv[2] + target.library_suffix)
compile_problem(problem, target, library, choice=Choice("plain"))
print(target.name, Target.parse("toy").name, library.name, library.read_bytes()[1:4].decode())
print("gfni" in target.features, obstacle_of(target.features))
"""
PASS = '''
"""A toy: negations of negations are left out."""
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from ..ir.graph import Graph
from ..ir.mutator import each_function, tidy


@mutator
class _Leaving(PyExprMutator):
    def __init__(self, mod, function):
        super().__init__(mod)
        self._graph = Graph(function)

    def visit_call_(self, call):
        inner = self._graph.call(call.args[0], "relax.negative") if call.op.name == "relax.negative" else None
        return super().visit_call_(call) if inner is None else self.visit_expr(inner.args[0])


def leave_negations(mod):
    return tidy(each_function(mod, _Leaving, with_bindings=True))
'''
OPERATOR = '''
"""A toy: rounds up, and says so."""
from tvm import te, tirx


def ceil(builder, call):
    def above(data):
        return te.compute(data.shape, lambda *at: tirx.ceil(data(*at)) + 100, "toy")

    return builder.call_te(above, call.args[0])


OPERATORS = {"relax.ceil": ceil}
'''
USE_NETWORK = """
import numpy as np
from tvm import relax

from tvmconv.network.compile import export
from tvmconv.network.options import Options
from tvmconv.network.passes import listing, run, use_kernels

builder = relax.BlockBuilder()
x = relax.Var("x", relax.TensorType((2, 3), "float32"))
with builder.function("main", [x]):
    made = builder.emit(relax.op.negative(builder.emit(relax.op.negative(x))))
    builder.emit_func_output(builder.emit(relax.op.ceil(made)))
mod = builder.finalize()
print("toy-negations" in listing(), *(run(mod, Options(), last).script().count("R.negative") for last in ("simplify", "toy-negations")))
export(use_kernels(mod), sys.argv[2] + ".so")
answer = tvmconv.load_network(sys.argv[2] + ".so")(x=np.full((2, 3), 0.5, np.float32))
print(*np.unique(np.asarray([*answer.values()])))
"""
TYPE = 'Dtype("u4", 1, "uint8", 1, 2, "s32", (0, 15), "uint8_t", arrays=("data",)),\n        '
USE_TYPE = (
    f"sys.path.append({str(Path(__file__).parents[1])!r})"
    + """
from campaign.check import Batch, Case, work

made, choices = problem.with_(dtype="u4s8s32"), ((Choice("plain"), False), (Choice("direct"), True))
print(made.types.data, made.largest_sum)
print(*(each.kind for each in work(Batch((Case(made, Target.parse("host"), 0, choices),), True))))
"""
)
USE_CPU = """
target = Target.parse("tigerlake")
print(target.l2, target.l3_share, target.multiply_adds, target.dot_rate)
"""
HEAD = """
import sys
import tvmconv
from tvmconv.building.decision.weigh import weigh
from tvmconv.lowering.compiler import Choice
from tvmconv.lowering.cpu.kernels import generate, lower_choice
from tvmconv.runtime.bundle import read_bundle
from tvmconv.targets.target import Target

problem = tvmconv.parse_signature(sys.argv[1])
"""


def with_files(folder: Path, files: dict[str, str]) -> Path:
    """Make the package with other or more files in a folder: links to all but these."""
    root = folder / "tvmconv"
    for made in sorted({parent for name in files for parent in Path(name).parents}):
        (root / made).unlink(missing_ok=True)  # a link, of the folder above
        (root / made).mkdir(parents=True)
        there = PACKAGE / made
        for each in there.iterdir() if there.exists() else ():
            if each.name != "__pycache__":
                (root / made / each.name).symlink_to(each)
    for name, text in files.items():
        (root / name).unlink(missing_ok=True)
        (root / name).write_text(text)
    return folder


def run(folder: Path, script: str) -> list[str]:
    """Run a script that imports the package of a folder; return the words that it prints."""
    command = [sys.executable, "-c", HEAD + script, SIGNATURE, str(folder / "b")]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_an_algorithm_is_a_folder_and_a_line(tmp_path: Path) -> None:
    table = (PACKAGE / "algorithms/table.py").read_text()
    line = 'ALGORITHMS: tuple[Algorithm, ...] = (\n    Algorithm("toy", 1, "exact", "toy"),'
    files = {
        "algorithms/table.py": table.replace("ALGORITHMS: tuple[Algorithm, ...] = (", line),
        "algorithms/cpu/toy/__init__.py": ALGORITHM,
        "algorithms/cpu/toy/space.py": SPACE,
    }
    taken, verified, *order = run(with_files(tmp_path, files), USE_ALGORITHM)
    assert (taken, verified, order[0]) == ("toy", "True", "toy") and "direct" in order


def test_an_instruction_set_is_a_folder(tmp_path: Path) -> None:
    folder = with_files(tmp_path, {"isa/power/__init__.py": INSTRUCTION_SET, "isa/power/assembly.py": ASSEMBLY})
    name, bits, registers, *features, products = run(folder, USE_INSTRUCTION_SET)
    assert (name, bits, registers, features) == ("power", "128", "64", ["altivec", "vsx"])
    assert int(products) >= 8  # its register tile, by its own instructions


@pytest.mark.skipif(native() is not X86, reason="the toy is x86-64's")
def test_a_system_is_a_folder(tmp_path: Path) -> None:
    folder = with_files(tmp_path, {"platforms/toy/__init__.py": SYSTEM})
    *there, has, it, is_ = run(folder, USE_SYSTEM)[:7]
    assert there == ["toy:znver4", "toy:x86-64-v3", "b.toy", "ELF"]
    assert (has, it, is_) == ("False", "it", "is")


def test_a_cpu_is_a_row(tmp_path: Path) -> None:
    table, name = (PACKAGE / "targets/cpus.py").read_text(), "tigerlake"
    (row,) = re.findall(r'^    "znver5": .+\n', table, re.MULTILINE)
    known, before = Target.parse("znver5"), Target.parse(name)
    assert isinstance(known, CpuTarget) and isinstance(before, CpuTarget)
    assert name not in table and before.multiply_adds != known.multiply_adds
    folder = with_files(tmp_path, {"targets/cpus.py": table.replace(row, row + row.replace("znver5", name))})
    facts = (known.l2, known.l3_share, known.multiply_adds, known.dot_rate)
    assert run(folder, USE_CPU) == list(map(str, facts))


def test_a_pass_is_a_row_and_a_file_and_an_operator_a_file(tmp_path: Path) -> None:
    table, row = (PACKAGE / "network/passes.py").read_text(), '    NetworkPass("unstack"'
    toy = '    NetworkPass("toy-negations", _module(leave_negations), "a toy"),\n'
    files = {
        "network/passes.py": table.replace(row, toy + row).replace(
            "from .rewrite.unstack", "from .rewrite.toy import leave_negations\nfrom .rewrite.unstack"
        ),
        "network/rewrite/toy.py": PASS,
        "network/operators/toy.py": OPERATOR,
    }
    assert run(with_files(tmp_path, files), USE_NETWORK) == ["True", "2", "0", "101.0"]


def test_a_type_is_a_row(tmp_path: Path) -> None:
    table = (PACKAGE / "dtypes.py").read_text()
    folder = with_files(tmp_path, {"dtypes.py": table.replace('Dtype("u8"', TYPE + 'Dtype("u8"')})
    assert run(folder, USE_TYPE) == ["u4", str(15 * 128 * 72), "right", "right"]


@pytest.mark.parametrize("name", ["isa/x86/__init__.py", "algorithms/table.py"])
def test_the_copy_is_what_is_imported(name: str, tmp_path: Path) -> None:
    folder = with_files(tmp_path, {name: 'raise SystemExit("the copy")\n'})
    with pytest.raises(AssertionError, match="the copy"):
        run(folder, "")
