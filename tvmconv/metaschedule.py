"""Offer the spaces as MetaSchedule tasks to users of TVM with search strategies, builders and runners of their own; import their results.

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
    """Return a MetaSchedule task for each problem and each algorithm worth trying for it.

    The attributes of a task's module name its problem, target and algorithm. Its space generator has the sketches, and the mutator of
    choices that an evolutionary search needs; there are no postprocessors. Modules are built with :func:`build` and called
    with :class:`Arguments`.

    Parameters
    ----------
    problems
        The problems to tune.
    target
        As for `tvmconv.tuning.tuner.tune`; this machine need not run it.
    strategy
        Returns a MetaSchedule search strategy for each task; ``ReplayTrace`` is another.
    math
        As for `tvmconv.algorithms.table.applicable`.
    seed
        Seed of the random choices.

    Returns
    -------
    list of tvm.s_tir.meta_schedule.TuneContext
        Each is named by signature and algorithm. The algorithms of a problem are alternatives, but a task scheduler that minimizes
        the sum over all tasks, such as the gradient one, spends most trials on the slowest of them.
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

    TVM's own build lacks the rewrites that the schedules request. The module's function ``main`` takes the problem's operands (data,
    filter, bias if there is one) and its output. ``export_library`` writes it as a library for processes that have loaded TVM.

    Parameters
    ----------
    module
        A task's module, scheduled by a search strategy.
    target
        MetaSchedule's; not used, as the module's attributes name the target.
    params
        None; MetaSchedule passes parameters of Relax here.

    Raises
    ------
    TargetError
        If the module is for a GPU.
    ReplayError, TvmconvError
        If the module is not one of :func:`tasks`.
    """
    workload = workload_in(module)
    definition, _ = sketches_of(workload.algorithm, workload.problem, workload.target)
    return generator_of(workload.target).module(module, definition, workload.target)


class Arguments:
    """Arguments for calls of built tasks: an ``f_alloc_argument`` for ``LocalRunner``.

    MetaSchedule would allocate the shapes of the task's module, which are those of the definition, not of the problem.

    Parameters
    ----------
    contexts
        The tasks of :func:`tasks`.
    """

    def __init__(self, contexts: Sequence[TuneContext]) -> None:
        found = {_key([each.as_json() for each in ArgInfo.from_prim_func(c.mod["main"])]): c for c in contexts}
        self._signatures = {key: str(context.mod["main"].attrs[SIGNATURE]) for key, context in found.items()}

    def __call__(self, device: Any, args_info: Any, alloc_repeat: int) -> list[list[Any]]:
        """Return normally distributed operands and an output for the problem of these arguments, `alloc_repeat` times."""
        problem = parse_signature(self._signatures[_key(args_info)])
        output = np.zeros(problem.output_shape, numpy_dtype(problem.types.output))
        arrays = [*random_fill(problem).given().values(), output]
        bits = [each.view(np.uint16) if each.dtype.name == "bfloat16" else each for each in arrays]
        return [[tvm.runtime.tensor(each, device) for each in bits] for _ in range(alloc_repeat)]


def _key(arguments: Any) -> str:
    return json.dumps([[str(kind), str(dtype), [int(size) for size in shape]] for kind, dtype, shape in arguments])
