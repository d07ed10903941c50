"""Print docs/operators.md: the operators that networks read, by the readers' own tables."""

from __future__ import annotations

import re

import onnx.defs
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from tvmconv.frontends.openvino.translate import OPERATORS
from tvmconv.network.read.onnx.decompose import DECOMPOSED
from tvmconv.network.read.onnx.expand_functions import is_lacking
from tvmconv.network.read.onnx.reader import MICROSOFT
from tvmconv.network.read.onnx.repair import COUNTING
from tvmconv.network.read.onnx.unroll_recurrent import GATES
from tvmconv.network.read.torch.reader import CONVERTERS
from tvmconv.network.read.torch.recurrent import RECURRENT
from tvmconv.network.read.torch.whole_layers import LAYERS

HEAD = """# Operators

The operators that networks read, by the readers' tables: made by `.venv/bin/python docs/operators.py`. Some are read in certain uses only; the error then says what is missing.
"""
# Read before the frontend sees them.
EXPANDED = {"If", *GATES, *DECOMPOSED}


def onnx_operators() -> list[str]:
    """Return ONNX's operators that are read: by converters, or by ONNX's definition of them by others."""
    names = []
    for each in onnx.defs.get_all_schemas():
        defined = each.has_function or each.has_context_dependent_function
        if each.domain == "" and (defined or each.name in EXPANDED or not is_lacking(each.name)):
            names.append(each.name)
    return sorted({*names} - {*COUNTING})


def torch_operators() -> list[str]:
    """Return ATen's operators that are read, without the names of overloads."""
    names = {*CONVERTERS, *LAYERS, *ExportedProgramImporter().convert_map} - {
        *RECURRENT
    }  # one of ours stands for the layers
    return sorted({name.partition(".")[0] for name in names if re.match(r"[a-z]", name)})


def page() -> str:
    """Return the page."""
    lists = {
        "ONNX": onnx_operators(),
        "com.microsoft": sorted(MICROSOFT),
        "OpenVINO": sorted({*OPERATORS, "Constant", "Parameter", "Result"}),
        "PyTorch": torch_operators(),
    }
    return HEAD + "".join(f"\n## {title}\n\n{', '.join(names)}\n" for title, names in lists.items())


if __name__ == "__main__":
    print(page(), end="")
