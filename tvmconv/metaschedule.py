"""Offer the spaces as tasks of MetaSchedule to users of TVM, with their own components, and import their results.

docs/tuning.md has a whole example::

    contexts = tvmconv.metaschedule.tasks([tvmconv.parse_signature("conv2d-...")])
    ms.tune_tasks(tasks=contexts, task_weights=[1.0] * len(contexts), work_dir="work", max_trials_global=64, ...)
    tvmconv.metaschedule.import_database("work")
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.search_strategy import EvolutionarySearch, SearchStrategy

from .algorithms.annotations import SIGNATURE
from .algorithms.table import worth_trying
from .fills import numpy_dtype, random_fill
from .lowering.code_generator import generator_of
from .lowering.compiler import sketches_of
from .problem import Problem, list_of
from .signature import format_signature, parse_signature
from .targets.target import Target
from .tuning.contexts import Sketches, tune_context, workload_in, workload_of
from .tuning.database import export_database, import_database

__all__ = ["Arguments", "build", "export_database", "import_database", "tasks"]


def tasks(
    problems: Sequence[Problem],
    target: str | Target = "host",
    *,
    strategy: Callable[[], SearchStrategy] = EvolutionarySearch,
    math: str = "default",
    seed: int = 0,
) -> list[TuneContext]:
    """Return a task of MetaSchedule for every algorithm that covers each problem.

    Its module says in attributes what it is of. Its space generator has the sketches, and the mutator of choices that an
    evolutionary search needs; there are no postprocessors. A module is built with :func:`build`, and what that gives is
    called with :class:`Arguments`.

    Parameters
    ----------
    problems
        What to tune.
    target
        As for `tvmconv.tuning.tuner.tune`; it need not be of this machine.
    strategy
        Makes a search strategy of MetaSchedule for each task; ``ReplayTrace`` is another.
    math
        As in `tvmconv.algorithms.table.applicable`.
    seed
        Of the random choices.

    Returns
    -------
    list of tvm.s_tir.meta_schedule.TuneContext
        Named by signature and algorithm. The algorithms of a problem are alternatives: a task scheduler that lessens the
        sum of all tasks, as the gradient one does, spends most time on the slowest of them.
    """
    target = Target.parse(target) if isinstance(target, str) else target
    return [
        tune_context(
            workload_of(problem, target, algorithm.name).module,
            target=target.tvm(),
            space_generator=Sketches(seed),
            search_strategy=strategy(),
            task_name=f"{format_signature(problem)} {algorithm.name}",
            seed=seed,
        )
        for problem in list_of(problems)
        for algorithm in worth_trying(problem, target, math)
    ]


def build(module: tvm.IRModule, target: tvm.target.Target, params: Any = None) -> Any:
    """Return the ``tvm.runtime.Module`` of a scheduled module of :func:`tasks`: an ``f_build`` for ``LocalBuilder``.

    TVM's own build lacks what the schedules ask of lowering. Its function ``main`` takes the problem's operands (data,
    filter, bias if there is one) and its output. ``export_library`` makes it a library that runs in a process with TVM.

    Parameters
    ----------
    module
        Scheduled by a strategy; its attributes say what it is of.
    target
        As MetaSchedule gives it; the attributes name it, too.
    params
        None: MetaSchedule gives what Relax has, which is nothing here.

    Raises
    ------
    TargetError
        If it is of a GPU.
    ReplayError, TvmconvError
        If it is none of those of :func:`tasks`.
    """
    workload = workload_in(module)
    definition, _ = sketches_of(workload.algorithm, workload.problem, workload.target)
    return generator_of(workload.target).module(module, definition, workload.target)


class Arguments:
    """Arguments that built tasks are called with: an ``f_alloc_argument`` for ``LocalRunner``.

    MetaSchedule takes the arguments of a task's module, whose shapes are those of the definition, not of the problem.

    Parameters
    ----------
    contexts
        The tasks of :func:`tasks`.
    """

    def __init__(self, contexts: Sequence[TuneContext]) -> None:
        found = {_key([each.as_json() for each in ArgInfo.from_prim_func(c.mod["main"])]): c for c in contexts}
        self._signatures = {key: str(context.mod["main"].attrs[SIGNATURE]) for key, context in found.items()}

    def __call__(self, device: Any, args_info: Any, alloc_repeat: int) -> list[list[Any]]:
        """Return so many times the operands, normally distributed, and the output of the problem of these arguments."""
        problem = parse_signature(self._signatures[_key(args_info)])
        output = np.zeros(problem.output_shape, numpy_dtype(problem.types.output))
        arrays = [*random_fill(problem).given().values(), output]
        bits = [each.view(np.uint16) if each.dtype.name == "bfloat16" else each for each in arrays]
        return [[tvm.runtime.tensor(each, device) for each in bits] for _ in range(alloc_repeat)]


def _key(arguments: Any) -> str:
    return json.dumps([[str(kind), str(dtype), [int(size) for size in shape]] for kind, dtype, shape in arguments])
