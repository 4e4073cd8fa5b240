"""Dispatches per second of the runtime, and bytes to a dispatch: both must not grow with their number.

Outside the default run: `pytest tests/benchmarks/test_runtime_speed.py --benchmark-only`.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Generator
from typing import Any

import pytest

from nc_sim import Program
from nc_sim.runtime import NrtStatus, Ret, Runtime

SIZES = (1_000, 10_000, 100_000)
THREADS = 4


def dispatched(n: int, **options: Any) -> Runtime:
    """n executions from four host threads on two cores, against full queues, a program for ten at a time."""
    rt = Runtime(cores=2, values=False, **options)
    rt.nrt_init()
    models = [[rt.nrt_load(Program(f"p{k}"), core)[1] for k in range(2)] for core in (0, 1)]

    def host(thread: int) -> Generator[Any, Any, None]:
        mine: list[int] = []
        while len(mine) < n // THREADS:
            model = models[thread % 2][len(mine) // 10 % 2]
            assert model is not None
            status, seq = yield from rt.nrta_execute_schedule(model, {}, {}, 0, Ret(), thread=thread)
            if status is NrtStatus.QUEUE_FULL:
                yield rt.nrta_event_register_seq_id_completion(mine[-8])[1]
            else:
                assert status is NrtStatus.SUCCESS
                mine.append(seq)
        yield rt.nrta_event_register_seq_id_completion(mine[-1])[1]

    rt.run(*[host] * THREADS)
    assert rt.executions == n
    return rt


@pytest.mark.parametrize("n", SIZES)
def test_dispatches(benchmark: Any, n: int) -> None:
    benchmark.pedantic(dispatched, (n,), rounds=3 if n < SIZES[-1] else 1, warmup_rounds=int(n < SIZES[-1]))
    benchmark.extra_info["dispatches_per_second"] = round(n / benchmark.stats["min"])


@pytest.mark.parametrize("n", SIZES)
def test_bytes_to_a_dispatch(benchmark: Any, n: int) -> None:
    """The peak of what Python allocates; the time of this run means nothing."""

    def peak() -> int:
        gc.collect()
        tracemalloc.start()
        try:
            rt = dispatched(n)
            benchmark.extra_info["events"] = len(rt.trace.events)
            benchmark.extra_info["dropped"] = sum(rt.trace.dropped.values())
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    benchmark.extra_info["bytes_to_a_dispatch"] = round(benchmark.pedantic(peak, rounds=1) / n)
