"""Messages between a tuner and its servers: read back unchanged, and refused if malformed."""

from __future__ import annotations

import errno
import json
from math import inf
from typing import Any

import pytest

from tvmconv.errors import TvmconvError
from tvmconv.fleet import protocol, server
from tvmconv.fleet.protocol import Description
from tvmconv.isa.x86 import ISA as X86
from tvmconv.measuring.measure import Check, Measured
from tvmconv.measuring.race import Built, Race, Times
from tvmconv.signature import parse_signature
from tvmconv.support.sandbox import TimeoutExceededError
from tvmconv.support.schema import SchemaError
from tvmconv.support.workers import WorkerDiedError
from tvmconv.targets.cuda import CudaTarget
from tvmconv.targets.target import CpuTarget, Target

PROBLEM = parse_signature("conv2d-n1-i16x8x8-o32x8x8-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias-add-clip_0_6")
BUILT = Built("3.so", (4608, "float32"), "_2")
CPU = CpuTarget("some-no-amx", ("avx2", "fma"), "some", ("amx-tile",), (2**20, 2**25), isa=X86)


@pytest.mark.parametrize(
    "task",
    [
        Check(PROBLEM, "exact", BUILT),
        Check(PROBLEM, "transform", BUILT, 1e-3, cold_bytes=2**26),
        Race(PROBLEM, (BUILT, Built("4.so"))),
        Race(PROBLEM, (BUILT,), cold_bytes=2**26),
    ],
)
def test_tasks(task: Check | Race) -> None:
    libraries = [task.library] if isinstance(task, Check) else list(task.libraries)
    found, seconds = protocol.task_from_text(protocol.task_to_text(task, libraries, 40.0), "/there")
    there = [found.library] if isinstance(found, Check) else list(found.libraries)
    assert [each.path for each in there] == [f"/there/{each.path}" for each in libraries] and seconds == 40.0
    assert protocol.task_to_text(found, libraries, seconds) == protocol.task_to_text(task, libraries, seconds)
    assert getattr(found, "cut_off", None) == getattr(task, "cut_off", None)
    assert found.cold_bytes == task.cold_bytes


@pytest.mark.parametrize("answer", [Measured(1.5e-6), Measured(None, "2 outputs differ")])
def test_answers(answer: Measured) -> None:
    assert protocol.answer_from_text(protocol.answer_to_text(answer), Check(PROBLEM, "exact", BUILT)) == answer


def test_times() -> None:
    times = Times(((1e-6, 2e-6), (3e-6, 4e-6)), (1e-6, 2e-6), (True, False))
    assert protocol.answer_from_text(protocol.answer_to_text(times), Race(PROBLEM, (BUILT, BUILT))) == times
    with pytest.raises(ValueError, match="an answer has 2 kernels' times"):
        protocol.answer_from_text(protocol.answer_to_text(times), Race(PROBLEM, (BUILT,)))


@pytest.mark.parametrize("error", [WorkerDiedError("it died"), TimeoutExceededError("40 s"), TvmconvError("no")])
def test_what_measuring_raises(error: TvmconvError) -> None:
    with pytest.raises(type(error), match=str(error)) as found:
        protocol.answer_from_text(protocol.answer_to_text(error), Check(PROBLEM, "exact", BUILT))
    assert type(found.value) is type(error)


@pytest.mark.parametrize(
    "answer",
    [
        {"ok": 0},
        {"ok": -1.0},
        {"ok": None},
        {"wrong": ""},
        {"fine": 1.0},
        {},
        {"times": {}},
        {"ok": 1, "wrong": "x"},
        3,
    ],
)
def test_what_is_no_answer(answer: Any) -> None:
    with pytest.raises(ValueError):
        protocol.answer_from_text(json.dumps(answer), Check(PROBLEM, "exact", BUILT))


@pytest.mark.parametrize("target", [None, CPU, Target.parse("neoverse-n1"), CudaTarget.parse("cuda:sm_80,sm_90")])
def test_targets(target: Any) -> None:
    assert protocol.target_from_text(protocol.target_to_text(target)) == target


def test_descriptions() -> None:
    found = json.loads(Description(CPU, "a machine", "").to_text("1.2"))
    assert protocol.VERSION(found) == {"protocol": protocol.PROTOCOL, "tvmconv": "1.2"}
    assert protocol.description_of(found) == Description(CPU, "a machine", "")
    with pytest.raises(SchemaError, match="machine"):
        protocol.description_of({**found, "machine": None})
    assert inf not in found.values()


def test_a_port_that_another_server_takes_meanwhile_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = [OSError(errno.EADDRINUSE, "in use")]

    def state(*_: Any, **__: Any) -> str:
        if errors:
            raise errors.pop()
        return "listening"

    monkeypatch.setattr(server.rpc_server, "PopenRPCServerState", state)
    assert server._listening("127.0.0.1", ("127.0.0.1", 9190), "key") == "listening"
    errors.append(OSError(errno.EADDRNOTAVAIL, "no such address"))
    with pytest.raises(OSError, match="no such address"):
        server._listening("127.0.0.2", ("127.0.0.1", 9190), "key")
