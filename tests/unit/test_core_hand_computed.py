"""Machine instructions on trn2 to the tick, every number worked out by hand.

A tick is 1/4.8 ns; a constant is rounded to ticks once, half up. The numbers are those of the timing rules, and stand
in ns in front of their ticks. Engines are released at Vector 40 (192), GpSimd 129 (619), Scalar 157 (754), Tensor 209
(1003) after Sync (0). A handover of 0 ns takes one tick, as everything does that takes no time; a MATMUL that has
entered the array's queue streams a tick later at the earliest, and a store's trigger starts a tick after its dispatch.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import attrs
import pytest

from nc_sim import chip as chips
from nc_sim import core
from nc_sim.costs import Options
from nc_sim.isa import DTYPES, Engine, Instruction, Memory, Step, Update, UpdateOp, View, Wait, When
from nc_sim.isa.control import EventSemaphore
from nc_sim.isa.dma import DmaDirect2d
from nc_sim.isa.errors import Deadlock, ProgramError
from nc_sim.isa.scalar import Activate, TableLoad
from nc_sim.isa.tensor import LoadWeights, Matmul
from nc_sim.isa.vector import Reciprocal, TensorCopy, TensorReduce, TensorScalar
from nc_sim.lower import lower
from nc_sim.table import Role, Table
from nc_sim.timeline import Timeline, step_ends

TRN2 = chips.load("trn2")
TENSOR, VECTOR, SCALAR, GPSIMD, SYNC = Engine
HBM, SBUF, PSUM = Memory
ENGINES = range(16)


@attrs.frozen
class Run:
    table: Table
    timeline: Timeline

    @property
    def starts(self) -> list[int]:
        """Of every step, as a trace shows it."""
        return [int(t) for t in self.timeline.start[self.table.start_row]]

    @property
    def finishes(self) -> list[int]:
        return [int(t) for t in self.timeline.finish[self.table.finish_row]]

    @property
    def dispatches(self) -> list[int]:
        """When the sequencer was through with a step's waits."""
        return [int(t) for t in self.timeline.start[self.table.wait_row]]

    def streams(self) -> list[int]:
        """When each MATMUL began to stream, in program order."""
        return [int(t) for t, role in zip(self.timeline.start, self.table.role, strict=True) if role == Role.STREAM]

    def triggers(self) -> list[int]:
        """When each trigger's transfers began to count."""
        return [int(t) for t, role in zip(self.timeline.start, self.table.role, strict=True) if role == Role.TRIGGER]

    def dma(self, step: int) -> list[tuple[int, int, int]]:
        """(arrival, first packet, end of the semaphore packet) of a DMA on each of the 16 engines."""
        rows = [r for r in range(self.table.rows, self.table.rows + self.table.transfers) if self.table.step[r] == step]
        return [(int(self.timeline.ready[r]), int(self.timeline.start[r]), int(self.timeline.finish[r])) for r in rows]


def run(steps: Sequence[Step], phase_ticks: int = 0, **what_if: Any) -> Run:
    """Lower and run; `phase_ticks` places an edge of the clock gate, and `a__b_ns` overrides the chip's a.b_ns."""
    chip = TRN2.what_if({key.replace("__", "."): value for key, value in what_if.items()})
    table, _ = lower(steps, chip, Options(gate_phase_ns=Fraction(phase_ticks * 10, 48)))
    return Run(table, core.run(table))


def view(memory: Memory, free: int, dtype: str = "float32", partitions: int = 128, stride: int = 1) -> View:
    """An operand at an absolute address, as a recorded trace has them."""
    return View("", memory, DTYPES[dtype], 0, partitions, 0, (stride,), (free,))


def on(engine: Engine, instruction: Instruction, *sync: Wait | Update) -> Step:
    waits = tuple(x for x in sync if isinstance(x, Wait))
    return Step(instruction, engine, waits, tuple(x for x in sync if isinstance(x, Update)))


def add(semaphore: int, value: int = 1, when: When = When.COMPLETE) -> Update:
    return Update(semaphore, UpdateOp.ADD, value, when)


def event(engine: Engine, *sync: Wait | Update) -> Step:
    return on(engine, EventSemaphore(), *sync)


def load(
    engine: Engine, *sync: Wait | Update, free: int = 256, partitions: int = 128, row: int | None = None, by: str = "hardware"
) -> Step:
    """HBM to SBUF, float32: one descriptor of 4 x free bytes for each partition."""
    source = View("", HBM, DTYPES["float32"], 0, 0, 0, (free, 1), (partitions, free))
    return on(engine, DmaDirect2d(dst=view(SBUF, free, partitions=partitions), src=source, generation=by, row=row), *sync)


def store(engine: Engine, *sync: Wait | Update, free: int = 256, by: str = "hardware") -> Step:
    target = View("", HBM, DTYPES["float32"], 0, 0, 0, (free, 1), (128, free))
    return on(engine, DmaDirect2d(dst=target, src=view(SBUF, free), generation=by), *sync)


def weights(*sync: Wait | Update, dtype: str = "bfloat16", passes: str = "single") -> Step:
    return on(TENSOR, LoadWeights(src=view(SBUF, 128, dtype), passes=passes), *sync)


def matmul(*sync: Wait | Update, free: int = 512, dtype: str = "bfloat16", passes: str = "single") -> Step:
    return on(TENSOR, Matmul(dst=view(PSUM, free), src=view(SBUF, free, dtype), columns=128, passes=passes), *sync)


def product(**more: Any) -> list[Step]:
    return [weights(**{k: v for k, v in more.items() if k != "free"}), matmul(**more)]


# --- one DMA alone ---------------------------------------------------------------------------------------------------

# [128, 256] float32 is 8 rows of 1024 B, 8 KiB, on each engine.
# First packet: 1300 + 11.25 x 8 + k (9.23 + 0.38 x 8) = 1390 + 12.27 k after the trigger.
HARDWARE_LOAD = [6672, 6731, 6790, 6849, 6908, 6966, 7025, 7084, 7143, 7202, 7261, 7320, 7379, 7438, 7497, 7555]
# 1240 + 10.5 k
HARDWARE_STORE = [5952, 6002, 6053, 6103, 6154, 6204, 6254, 6305, 6355, 6406, 6456, 6506, 6557, 6607, 6658, 6708]
# 760 + 9.23 k
SOFTWARE_LOAD = [3648, 3692, 3737, 3781, 3825, 3870, 3914, 3958, 4002, 4047, 4091, 4135, 4180, 4224, 4268, 4313]
# 635 + 10.5 k
SOFTWARE_STORE = [3048, 3098, 3149, 3199, 3250, 3300, 3350, 3401, 3451, 3502, 3552, 3602, 3653, 3703, 3754, 3804]
# A row is 4.7 + 1024 / 27.2 = 42.347 (203), stored 4.7 + 1024 / 26 = 44.085 (212); the semaphore packet is 6 (29).
LOADS = 437 + 8 * 203 + 29  # the first packet of a hardware load is 91 (437) longer
# Software: eight rows of 1 KiB in two packets are 2 x 4.7 + 8192 / 27.2 = 310.576, an eighth 38.822 (186), stored
# 2 x 4.7 + 8192 / 26 = 324.477, an eighth 40.560 (195).
SOFTWARE_LOADS = 1090 + 8 * 186 + 29  # the first packet 227 (1090) longer
SOFTWARE_STORES = 8 * 195 + 29
STORES = 8 * 212 + 29
LOADED, STORED = 1675, 1891  # to the waiter's dispatch: 315 + 34 and 360 + 34 after the semaphore packet
TRIGGER = 2489  # of 128 rows: 470 + 0.38 x 128 = 518.64
FOLLOWING = 2657  # 35 more behind another trigger: 553.64
GAP, SCALAR_GAP = 226, 67  # 47 and 14 to the next instruction


def test_a_lone_hardware_load_reaches_every_engine_and_then_the_waiter() -> None:
    ran = run([load(SYNC, add(0, 16)), event(VECTOR, Wait(0, 16))])
    assert ran.dma(0) == [(a, a, a + LOADS) for a in HARDWARE_LOAD]
    assert (ran.starts[0], ran.finishes[0]) == (0, TRIGGER)
    assert (ran.starts[1], ran.finishes[1]) == (11320, 11430)  # 7555 + 2090 + 1675; EVENT_SEMAPHORE takes 23 (110)


def test_a_lone_hardware_store_reaches_every_engine_and_then_the_waiter() -> None:
    ran = run([store(SCALAR, add(0, 16)), event(VECTOR, Wait(0, 16))])
    assert ran.triggers() == [755]
    assert ran.dma(0) == [(755 + a, 755 + a, 755 + a + STORES) for a in HARDWARE_STORE]
    assert (ran.starts[0], ran.finishes[0]) == (754, 755 + TRIGGER)
    assert ran.starts[1] == 11079  # 755 + 6708 + 1725 + 1891


def test_a_lone_software_load_first_has_its_descriptors_made() -> None:
    """They take 1161 (5573), and the trigger then shows for 31 (149)."""
    ran = run([load(GPSIMD, add(0, 16), by="software"), event(VECTOR, Wait(0, 16))])
    assert ran.dispatches[0] == 619
    assert (ran.starts[0], ran.finishes[0]) == (6192, 6341)
    assert ran.dma(0) == [(6192 + a, 6192 + a, 6192 + a + SOFTWARE_LOADS) for a in SOFTWARE_LOAD]
    assert ran.starts[1] == 14787  # 6192 + 4313 + 2607 + 1675


def test_a_lone_software_store_first_has_its_descriptors_made() -> None:
    ran = run([store(GPSIMD, add(0, 16), by="software"), event(VECTOR, Wait(0, 16))])
    assert ran.dma(0) == [(6192 + a, 6192 + a, 6192 + a + SOFTWARE_STORES) for a in SOFTWARE_STORE]
    assert ran.starts[1] == 13476  # 6192 + 3804 + 1589 + 1891


def test_a_software_load_of_one_packet_an_engine_waits_before_it_and_not_in_it() -> None:
    """Eight rows of 256 B: 4.7 + 2048 / 27.2 = 79.994, an eighth 9.999 (48). Engine k waits 227 k / 15 more, 0 to 1090."""
    ran = run([load(GPSIMD, add(0, 16), free=64, by="software")])
    arrivals = [d[0] - 6192 for d in ran.dma(0)]
    assert (arrivals[0], arrivals[15]) == (3648, 4313 + 1090 - 1)  # 760 + 138.45 + 227 = 1125.45 is 5402.16
    assert all(end - start == 8 * 48 + 29 for _, start, end in ran.dma(0))


def test_rows_that_are_no_neighbours_in_hbm_take_a_packet_each() -> None:
    apart = View("", HBM, DTYPES["float32"], 0, 0, 0, (512, 1), (128, 256))
    ran = run([on(GPSIMD, DmaDirect2d(dst=view(SBUF, 256), src=apart, generation="software"))])
    assert all(end - start == 1090 + 8 * 203 + 29 for _, start, end in ran.dma(0))


def test_software_rows_beyond_128_take_gpsimd_longer_and_the_first_of_them_is_not_seen_sooner() -> None:
    """583 + 384 x 427 / 384 = 1010 (4848) for 512 rows, 583 + 896 x 427 / 384 = 1579.33 (7581) for 1024."""
    ran = run([load(GPSIMD, by="software", row=64), load(GPSIMD, by="software", row=32), event(GPSIMD)])
    assert ran.dispatches == [619, 619 + 4848, 619 + 4848 + 7581]
    assert ran.starts[:2] == [619 + 5573, 619 + 4848 + 7581]  # 1161, and for the second what its making takes


def test_a_profile_shows_a_software_trigger_20_ns_longer_for_each_unfinished_one_before_it() -> None:
    ran = run([load(GPSIMD, by="software") for _ in range(4)])
    lengths = [int(e - s) for s, e in zip(ran.starts, step_ends(ran.table, ran.timeline), strict=True)]
    over = [max(end for _, _, end in ran.dma(k)) for k in range(4)]
    assert [sum(o > s for o in over[:k]) for k, s in enumerate(ran.starts)] == [0, 1, 2, 2]
    assert lengths == [149, 149 + 96, 149 + 2 * 96, 149 + 2 * 96]


def test_gpsimd_makes_descriptors_every_583_ns_and_shows_each_trigger_1161_after_its_dispatch() -> None:
    ran = run([load(GPSIMD, by="software"), load(GPSIMD, by="software"), event(GPSIMD)])
    assert ran.dispatches == [619, 3417, 6215]  # 583 is 2798
    assert ran.starts[:2] == [6192, 8990]


def test_each_engine_adds_one_of_the_sixteen() -> None:
    """In their order, as they all move as much: a wait for n is met by engine n - 1."""
    ran = run([load(SYNC, add(0, 16)), event(VECTOR, Wait(0, 1)), event(SCALAR, Wait(0, 5)), event(TENSOR, Wait(0, 15))])
    assert ran.starts[1:] == [a + LOADS + LOADED for a in (6672, 6908, 7497)]


def test_an_engine_without_rows_sends_its_semaphore_packet_all_the_same() -> None:
    """16 partitions are on engines 0 and 1; the others' first packet is due 1300 + 9.23 k after the trigger."""
    ran = run([load(SYNC, add(0, 16), partitions=16)])
    assert ran.dma(0)[:2] == [(6672, 6672, 6672 + LOADS), (6731, 6731, 6731 + LOADS)]
    assert [d[1] for d in ran.dma(0)[2:5]] == [6329, 6373, 6417]
    assert [d[2] - d[1] for d in ran.dma(0)[2:]] == [29] * 14
    assert ran.finishes == [2285]  # 470 + 0.38 x 16 = 476.08


@pytest.mark.parametrize(
    ("free", "packet"),
    [
        (64, 86),  # 256 B: 8.5 + 256 / 27.2 = 17.912
        (128, 131),  # 512 B: 8.5 + 512 / 27.2 = 27.324
        (129, 118),  # 516 B: 4.7 + 516 / 26 = 24.546
    ],
)
def test_rows_of_a_store_up_to_512_bytes_have_their_own_time(free: int, packet: int) -> None:
    assert [d[2] - d[1] for d in run([store(SYNC, free=free)]).dma(0)] == [8 * packet + 29] * 16


# --- DMA triggers on their queues ------------------------------------------------------------------------------------


def test_a_trigger_within_60_ns_of_another_takes_35_more() -> None:
    ran = run([load(SYNC), load(SYNC), load(SYNC)])
    assert ran.starts == [0, TRIGGER + GAP, TRIGGER + GAP + FOLLOWING + GAP]
    assert ran.finishes == [2489, 5372, 8255]


def test_scalars_queue_goes_on_sooner_after_a_trigger() -> None:
    ran = run([load(SCALAR), load(SCALAR)])
    assert ran.starts == [754, 754 + TRIGGER + SCALAR_GAP]
    assert ran.finishes == [3243, 3310 + FOLLOWING]


def test_a_trigger_follows_no_other_when_an_instruction_stands_between() -> None:
    """Sync's EVENT_SEMAPHORE takes 18 (86) and 50 (240) to the next: 552 ticks after the first trigger, more than 288."""
    ran = run([load(SYNC), event(SYNC), load(SYNC)])
    assert ran.starts == [0, 2715, 3041]
    assert ran.finishes == [2489, 2801, 3041 + TRIGGER]


@pytest.mark.parametrize(("window_ns", "second"), [("47", TRIGGER), ("47.2", FOLLOWING)])
def test_the_follow_window_ends_before_its_limit(window_ns: str, second: int) -> None:
    """Sync's second trigger comes 226 ticks after the first: 47 ns is 226 and 47.2 is 227."""
    ran = run([load(SYNC), load(SYNC)], dma__follow_window_ns=window_ns)
    assert ran.finishes[1] - ran.starts[1] == second


def test_the_fourth_store_of_a_ring_stalls_until_the_first_is_complete() -> None:
    """Its trigger ends 650 (3120) after the oldest of three unfinished stores does, on the slowest engine."""
    ran = run([store(SCALAR) for _ in range(5)])
    # A store is dispatched, and a tick later triggered; 2657 and 67 ticks after that comes the next.
    assert ran.starts == [754, 3311, 6036, 8761, 12375]
    assert ran.triggers()[:3] == [755, 3312, 6037]
    complete = 755 + 6708 + STORES
    assert complete == 9188
    assert ran.triggers()[3] == complete + 3120 - TRIGGER
    assert ran.finishes[3] == complete + 3120  # the fourth follows nothing: the third ended 1125 ticks before
    # The second store ends at 3312 + 6708 + 1725 = 11745; 631 later is 12376, when the fifth would start anyhow.
    assert ran.triggers()[4] == 12376
    assert ran.finishes[4] == 12376 + FOLLOWING
    assert [d[0] for d in ran.dma(3)] == [9819 + a for a in HARDWARE_STORE]


def test_without_the_ring_limit_no_store_stalls() -> None:
    ran = run([store(SCALAR) for _ in range(5)], dma__store_ring_limit=0)
    assert ran.starts == [754, 3310, 6034, 8758, 11482]


def test_three_unfinished_stores_do_not_stall_a_load_of_their_queue() -> None:
    ran = run([store(SCALAR), store(SCALAR), store(SCALAR), load(SCALAR)])
    assert (ran.starts[3], ran.finishes[3]) == (8761, 8761 + FOLLOWING)


# --- DMA engines ---------------------------------------------------------------------------------------------------------


def test_two_rings_take_turns_packet_by_packet_and_a_load_that_comes_second_is_delayed() -> None:
    ran = run([load(SYNC), store(SCALAR)])
    loads, stores = HARDWARE_LOAD, [755 + a for a in HARDWARE_STORE]
    # On engines 0 to 4 the load is there first. The store comes in its first packet, then each has one packet in turn:
    # load 437 + 203, store 212, load 203 … store 212, load's semaphore packet 29, store's 29.
    for k in ENGINES[:5]:
        assert loads[k] < stores[k] < loads[k] + 640
        both = loads[k] + 437 + 8 * 203 + 8 * 212
        assert ran.dma(0)[k] == (loads[k], loads[k], both + 29)
        assert ran.dma(1)[k] == (stores[k], loads[k] + 640, both + 58)
    # On the others the store is, so the load comes again 500 (2400) later, when the store is out, and its first packet
    # takes another 808/1280 of 8 x 203: 1025.15.
    for k in ENGINES[5:]:
        assert ran.dma(1)[k] == (stores[k], stores[k], stores[k] + STORES)
        assert stores[k] + STORES < loads[k] + 2400
        assert ran.dma(0)[k] == (loads[k], loads[k] + 2400, loads[k] + 2400 + LOADS + 1025)


def test_a_ring_with_more_packets_sends_the_rest_alone() -> None:
    """16 rows of 512 B, 4.7 + 512 / 27.2 = 23.524 (113), against a store's 8 of 212, on engine 0."""
    ran = run([load(SYNC, row=128), store(SCALAR)])
    # The load's first packet, 437 + 113, ends at 7222; then store, load, store … until the store's eighth at 9709.
    eighth = 7222 + 8 * 212 + 7 * 113
    # The load's ninth packet stands between it and the store's semaphore packet; the load's other seven follow.
    assert ran.dma(1)[0] == (6707, 7222, eighth + 113 + 29)
    assert ran.dma(0)[0] == (6672, 6672, eighth + 113 + 29 + 7 * 113 + 29)


def test_a_load_soon_after_the_last_of_its_ring_is_delayed_and_stalled() -> None:
    """The second load arrives 2715 - 2090 = 625 after the first's end, less than 280 (1344)."""
    ran = run([load(SYNC), load(SYNC)])
    arrivals = [2715 + a for a in HARDWARE_LOAD]
    assert ran.dma(1) == [(a, a + 2400, a + 2400 + LOADS + 1025) for a in arrivals]


def test_a_load_later_than_280_ns_after_the_last_of_its_ring_is_not() -> None:
    """Three EVENT_SEMAPHORE of 326 ticks between: 1603 after the first's end."""
    ran = run([load(SYNC), event(SYNC), event(SYNC), event(SYNC), load(SYNC)])
    assert ran.dma(4) == [(3693 + a, 3693 + a, 3693 + a + LOADS) for a in HARDWARE_LOAD]


@pytest.mark.parametrize(("recent_ns", "delay"), [("130.2", 0), ("130.4", 2400)])
def test_recent_ends_before_its_limit(recent_ns: str, delay: int) -> None:
    """625 ticks after the first's end: 130.2 ns is 625, and 130.4 is 626."""
    ran = run([load(SYNC), load(SYNC)], dma__recent_load_ns=recent_ns)
    assert ran.dma(1)[0][1] == 2715 + 6672 + delay


# Rows of 4096 B, 32 KiB on each engine: 1300 + 11.25 x 32 = 1660 (7968) to the first packet of engine 0, and a packet
# of 4.7 + 4096 / 27.2 = 155.288 (745).
LONG = 437 + 8 * 745 + 29
LONG_STALL = 3762  # 808/1280 of 8 x 745: 3762.25


def test_a_load_that_meets_a_busy_engine_is_delayed_and_the_one_queued_behind_it_excused() -> None:
    ran = run([load(SYNC, free=1024) for _ in range(3)])
    assert ran.starts == [0, 2715, 5598]
    first = 7968 + LONG
    assert ran.dma(0)[0] == (7968, 7968, first)
    # At 10683 the engine is busy: again at 13083, still before the first's end at 14394.
    assert ran.dma(1)[0] == (10683, first, first + LONG + LONG_STALL)
    # At 13566 the second waits unstarted: the third only queues.
    assert ran.dma(2)[0] == (13566, first + LONG + LONG_STALL, first + 2 * LONG + LONG_STALL)


def test_a_load_behind_a_delayed_one_of_its_ring_waits_for_it_and_is_excused() -> None:
    """On Scalar triggers of 16 rows can be 2352 apart, 476.08 (2285) + 14 (67): less than the delay of 2400."""
    steps = [load(SCALAR, free=1024, partitions=16), event(SCALAR), *(load(SCALAR, free=1024, partitions=16) for _ in range(2))]
    ran = run(steps)
    assert [ran.starts[k] for k in (0, 2, 3)] == [754, 3548, 5900]  # EVENT_SEMAPHORE takes 40 (192) and 52 (250)
    first = 754 + 7968 + LONG
    assert ran.dma(0)[0] == (8722, 8722, first)
    assert ran.dma(2)[0] == (11516, first, first + LONG + LONG_STALL)  # comes again at 13916
    assert ran.dma(3)[0] == (13868, first + LONG + LONG_STALL, first + 2 * LONG + LONG_STALL)


def test_a_software_load_that_meets_a_busy_engine_stalls_without_delay() -> None:
    """227 (1090) on every first packet, and 315/1280 of 8 x 745, 1466.7, on this one's."""
    ran = run([load(GPSIMD, free=1024, by="software") for _ in range(2)])
    first = 6192 + 3648 + 1090 + 8 * 745 + 29
    assert ran.dma(0)[0] == (9840, 9840, first)
    assert ran.dma(1)[0] == (8990 + 3648, first, first + 1090 + 1467 + 8 * 745 + 29)


# --- sequencers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "release", "shown", "gap"),
    [
        (TENSOR, 1003, 250, 125),  # 52 and 26
        (SCALAR, 754, 192, 250),  # 40 and 52
        (VECTOR, 192, 110, 384),  # 23 and 80
        (GPSIMD, 619, 91, 240),  # 19 and 50
        (SYNC, 0, 86, 240),  # 18 and 50
    ],
)
def test_event_semaphores_follow_each_other_and_signal_34_ns_after_reading_or_completing(
    engine: Engine, release: int, shown: int, gap: int
) -> None:
    reader, completer = [e for e in (SCALAR, VECTOR, GPSIMD) if e is not engine][:2]
    ran = run(
        [
            event(engine),
            event(engine, add(0, when=When.READ), add(1)),
            event(reader, Wait(0, 1)),
            event(completer, Wait(1, 1)),
        ]
    )
    second = release + shown + gap
    assert (ran.starts[:2], ran.finishes[:2]) == ([release, second], [release + shown, second + shown])
    released = {SCALAR: 754, VECTOR: 192, GPSIMD: 619}
    assert ran.starts[2] == max(second + 163, released[reader])
    assert ran.starts[3] == max(second + shown + 163, released[completer])


def exp(*sync: Wait | Update, source: Memory = PSUM) -> Step:
    return on(SCALAR, Activate(dst=view(SBUF, 512), op="exp", data=view(source, 512)), *sync)


def test_a_sequencer_runs_ahead_of_its_engine_by_33_instructions_and_no_more() -> None:
    """Each is dispatched 2 (10) after the other. The first begins at 755, so 33 behind it are handed over without a stop;
    the 35th waits for the second to begin, at 755 + 2754, and the 36th for the third."""
    ran = run([exp() for _ in range(36)])
    assert ran.dispatches[:34] == [754 + 10 * k for k in range(34)]
    assert ran.dispatches[34:] == [755 + 2754 + 1, 755 + 2 * 2754 + 1]
    assert ran.starts == [755 + 2754 * k for k in range(36)]


def test_a_queue_one_deep_holds_the_sequencer_and_what_follows_back_but_not_the_engine() -> None:
    steps = [exp(), exp(), exp(), event(SCALAR)]
    deep, shallow = run(steps), run(steps, sequencer__scalar__queue_depth=1)
    assert deep.dispatches == [754, 764, 774, 784]
    assert shallow.dispatches == [754, 764, 3510, 3520]
    assert deep.starts[:3] == shallow.starts[:3] == [755, 3509, 6263]


def test_the_tensor_queue_holds_the_sequencer_back_while_an_instruction_is_on_its_way() -> None:
    """Handed over at 1003, it begins 86 later: until then a queue one deep is full."""
    assert run([weights(), matmul()]).dispatches == [1003, 1013]
    assert run([weights(), matmul()], sequencer__tensor__queue_depth=1).dispatches == [1003, 1090]


def test_a_trigger_executes_in_the_sequencer_while_its_engine_still_works() -> None:
    assert run([exp(), load(SCALAR)]).starts == [755, 764]


def test_two_queues_that_wait_for_each_other_are_reported_with_what_they_wait_for() -> None:
    with pytest.raises(Deadlock) as caught:
        run(
            [
                on(VECTOR, TensorCopy(dst=view(SBUF, 64), src=view(SBUF, 64)), Wait(7, 2), add(9)),
                on(SCALAR, TensorCopy(dst=view(SBUF, 64), src=view(SBUF, 64)), Wait(9, 1), add(7)),
                event(SYNC, add(7)),
            ]
        )
    # Streams: Vector, Scalar, then the engines behind them. Rows: two sequencers', Sync's, two engines'. Semaphores: 7
    # and 9 (numbers 0 and 1), then the hidden ones by which Vector and Scalar hand over.
    assert caught.value.blocked == ((1, 0, 0, 2, 1), (2, 1, 1, 1, 0), (6, 3, 2, 1, 0), (7, 4, 3, 1, 0))
    assert "4 rows cannot run" in str(caught.value)


def test_a_queue_stuck_behind_its_first_instruction_counts_every_row_it_cannot_run() -> None:
    with pytest.raises(Deadlock, match="3 rows cannot run") as caught:
        run([load(SYNC, add(0, 16)), event(VECTOR, Wait(0, 17)), event(VECTOR), event(VECTOR)])
    assert [b[2:] for b in caught.value.blocked] == [(0, 17, 16)]


# --- ScalarEngine: ends after c + N / 1.2, the next starts N / 1.2 + g after it ------------------------------------------


@pytest.mark.parametrize(
    ("step", "interval", "length"),
    [
        (exp(), 2754, 3294),  # 426.667 + 147 = 573.667; + 259.5 = 686.167
        (exp(source=SBUF), 2941, 3454),  # + 186 = 612.667; + 293 = 719.667
        (on(SCALAR, TensorCopy(dst=view(SBUF, 512), src=view(PSUM, 512))), 2307, 2810),  # + 54 = 480.667; + 158.7 = 585.367
        (on(SCALAR, TableLoad(function="exp")), 6158, 6158),  # 1283, and nothing overlaps
    ],
)
def test_independent_instructions_on_scalar_overlap(step: Step, interval: int, length: int) -> None:
    ran = run([step, step, step])
    assert ran.starts == [755, 755 + interval, 755 + 2 * interval]
    assert ran.finishes == [s + length for s in ran.starts]


def test_dependent_instructions_on_scalar_are_34_ns_and_a_handover_apart() -> None:
    ran = run([exp(add(0)), exp(Wait(0, 1), add(0)), exp(Wait(0, 2))])
    apart = 3294 + 163 + 1
    assert ran.starts == [755, 755 + apart, 755 + 2 * apart]


def test_a_short_instruction_does_not_end_before_a_long_one_ahead_of_it() -> None:
    """ACTIVATE of 512 ends at 755 + 3294. A copy of 1 element starts 2754 later and alone would take 159.53 (766)."""
    short = on(SCALAR, TensorCopy(dst=view(SBUF, 1), src=view(PSUM, 1)))
    ran = run([exp(), short])
    assert ran.starts == [755, 3509]
    assert ran.finishes == [4049, 3509 + 766]
    tiny = run([exp(source=SBUF), short], scalar__copy__psum_fixed_ns=10)  # alone it would end at 3696 + 52
    assert tiny.starts == [755, 3696]
    assert tiny.finishes == [4209, 4209]


# --- VectorEngine: 0.96 GHz, 5 ticks a cycle; the next starts 66 ns after streaming ------------------------------------


@pytest.mark.parametrize(
    ("instruction", "interval", "length"),
    [
        # fp32, SBUF to SBUF, two elements a cycle: 1280 ticks + 316.8, + 152 ns (729.6)
        (TensorCopy(dst=view(SBUF, 512), src=view(SBUF, 512)), 1597, 2010),
        # 16 bits, four elements a cycle: 640
        (TensorCopy(dst=view(SBUF, 512, "bfloat16"), src=view(SBUF, 512, "bfloat16")), 957, 1370),
        # 16 bits, but every other element: two a cycle
        (TensorCopy(dst=view(SBUF, 512, "bfloat16"), src=view(SBUF, 512, "bfloat16", stride=2)), 1597, 2010),
        # 16 bits on one side only
        (TensorCopy(dst=view(SBUF, 512, "bfloat16"), src=view(SBUF, 512)), 1597, 2010),
        # a PSUM operand, on either side: one element a cycle, 2560 ticks, + 157 ns (753.6)
        (TensorCopy(dst=view(SBUF, 512), src=view(PSUM, 512)), 2877, 3314),
        (TensorCopy(dst=view(PSUM, 512), src=view(SBUF, 512)), 2877, 3314),
        (TensorReduce(dst=view(SBUF, 1), op="add", data=view(PSUM, 512), axis=(1,)), 2877, 3314),
        # no fast mode from SBUF: 2560 + 729.6
        (TensorReduce(dst=view(SBUF, 1), op="add", data=view(SBUF, 512), axis=(1,)), 2877, 3290),
        (TensorScalar(dst=view(SBUF, 512), data=view(SBUF, 512), op0="multiply", operand0=2.0), 1597, 2010),
        # an operand by pointer: 60 ns (288) on both
        (TensorScalar(dst=view(SBUF, 512), data=view(SBUF, 512), op0="multiply", operand0=view(SBUF, 1)), 1885, 2298),
        # 6 cycles an element: 15360
        (Reciprocal(dst=view(SBUF, 512), data=view(SBUF, 512)), 15677, 16090),
    ],
    ids=str,
)
def test_instructions_on_vector_stream_at_the_rate_of_their_operands(instruction: Instruction, interval: int, length: int) -> None:
    ran = run([on(VECTOR, instruction) for _ in range(3)])
    assert ran.starts == [193, 193 + interval, 193 + 2 * interval]
    assert ran.finishes == [s + length for s in ran.starts]


def test_a_chain_over_two_engines_pays_the_semaphore_at_every_hop() -> None:
    copy = TensorCopy(dst=view(SBUF, 512), src=view(SBUF, 512))
    ran = run([on(VECTOR, copy, add(0)), exp(Wait(0, 1), add(1)), on(VECTOR, copy, Wait(1, 1))])
    assert ran.starts == [193, 193 + 2010 + 163 + 1, 193 + 2010 + 163 + 1 + 3294 + 163 + 1]


# --- TensorEngine ----------------------------------------------------------------------------------------------------

# The first LDWEIGHTS starts at 1003 + 18 (86), and its MATMUL 2 (10) later. The array runs at half rate from the start;
# `tensor.gate.initial = full` makes the first window, 3413.3 ns or 16384 ticks, a full one.
FULL: dict[str, Any] = {"tensor__gate__initial": "full"}
FIRST = 1089


def test_a_gated_product_hides_the_next_weight_load() -> None:
    ran = run([*product(), *product()])
    # Weights idle 28 (134), shown 146: 118 (566) longer. They stream 2 (10) after they are in: 512 rows of 4 ticks.
    assert (ran.starts[0], ran.finishes[0]) == (FIRST, FIRST + 134 + 566)
    stream = FIRST + 134 + 10
    assert (ran.starts[1], ran.finishes[1]) == (FIRST + 10, stream + 2048 + 994)  # visible 207 (994) after streaming
    # The next LDWEIGHTS 2.5 (12) after the stream's start; behind a product it loads 30 (144) and shows 116 (557) more.
    assert (ran.starts[2], ran.finishes[2]) == (stream + 12, stream + 12 + 144 + 557)
    # The next MATMUL as the stream ends: no gap when gated.
    second = stream + 2048
    assert (ran.starts[3], ran.streams()) == (second, [stream, second + 1])
    assert ran.finishes[3] == second + 1 + 2048 + 994


def test_a_product_at_full_rate_hides_the_next_weight_load() -> None:
    ran = run([*product(), *product()], **FULL)
    # Weights idle 25 (120), shown 97: 72 (346) longer; 512 rows of 2 ticks; visible 165 (792) later.
    stream = FIRST + 120 + 10
    assert (ran.finishes[0], ran.finishes[1]) == (FIRST + 120 + 346, stream + 1024 + 792)
    # Behind a product 20 (96), 77 (370) more. The next MATMUL 2.3 (11) after the stream.
    assert (ran.starts[2], ran.finishes[2]) == (stream + 12, stream + 12 + 96 + 370)
    second = stream + 1024 + 11
    assert (ran.starts[3], ran.streams()) == (second, [stream, second + 1])
    assert ran.finishes[3] == second + 1 + 1024 + 792


def two_passes(free: int) -> list[Step]:
    return [*product(free=free, dtype="float32", passes="low"), *product(free=free, dtype="float32", passes="high")]


def test_the_weight_load_of_a_short_fp32_pass_at_full_rate_is_exposed() -> None:
    """A pass of 128 rows takes 256 cycles, 512 ticks, and its weights 107 (514): products are 12 + 514 + 10 apart."""
    ran = run([*two_passes(128), *two_passes(128)], **FULL)
    stream = FIRST + 514 + 10
    assert ran.streams() == [stream, stream + 536, stream + 1072, stream + 1608]
    assert ran.finishes[0] == FIRST + 514 + 403  # shown 191, 84 (403) beyond the load
    assert ran.starts[3] == stream + 512 + 11  # the MATMUL is there before its weights
    assert ran.finishes[3] == stream + 536 + 512 + 792


def test_the_weight_load_of_a_short_fp32_pass_at_half_rate_is_hidden() -> None:
    """The pass takes 1024 ticks; the weights 12 + 208 (998) + 10."""
    ran = run(two_passes(128))
    stream = FIRST + 773 + 10  # idle 161
    assert ran.finishes[0] == FIRST + 773 + 826  # shown 333, 172 (826) beyond the load
    assert ran.streams() == [stream, stream + 1024 + 1]
    assert ran.finishes[2] == stream + 12 + 998 + 600  # 125 (600) beyond


def test_products_start_at_least_64_cycles_apart() -> None:
    """16 rows take 32 ticks and leave 48 cycles, 96 ticks, to wait. The weights, 12 + 96 + 10, are in before."""
    ran = run([*product(free=16), *product(free=16)], **FULL)
    stream = FIRST + 120 + 10
    assert (ran.starts[3], ran.streams()) == (stream + 32 + 96, [stream, stream + 128 + 1])


def test_a_dependent_product_waits_for_the_result_and_loads_its_weights_into_an_idle_array() -> None:
    ran = run([weights(), matmul(add(0)), weights(Wait(0, 1)), matmul()], **FULL)
    dispatch = 3035 + 163  # 1089 + 120 + 10 + 1024 + 792, and 34
    assert ran.finishes[1] == 3035
    assert (ran.dispatches[2], ran.starts[2], ran.starts[3]) == (dispatch, dispatch + 86, dispatch + 96)
    stream = dispatch + 86 + 120 + 10
    assert (ran.finishes[2], ran.streams()[1], ran.finishes[3]) == (dispatch + 86 + 120 + 346, stream, stream + 1024 + 792)


def test_a_product_that_reuses_the_weights_starts_when_the_array_is_free() -> None:
    ran = run([weights(), matmul(), matmul()], **FULL)
    assert ran.streams() == [1219, 1219 + 1024 + 11 + 1]


def test_a_product_without_any_weights_is_refused() -> None:
    with pytest.raises(ProgramError, match="matmul before any ldweights"):
        run([matmul()])


# --- the clock gate --------------------------------------------------------------------------------------------------


def test_a_stream_of_products_rises_to_full_rate_at_the_edge_in_the_middle_of_one() -> None:
    """37/100 of a window are 12125 of 32768 units, two to a tick at full rate and one at half: 7 x 2048 + 808 streamed by 16384."""
    ran = run([step for _ in range(9) for step in product()])
    streams = [1233 + 2049 * k for k in range(8)]
    assert ran.streams()[:8] == streams
    # The eighth has streamed 16384 - 15576 = 808 of its 2048 units; the other 1240 go two a tick.
    end = 16384 + 620
    assert ran.finishes[15] == end + 792
    assert (ran.starts[17], ran.streams()[8]) == (end + 11, end + 12)
    assert ran.finishes[17] == end + 12 + 1024 + 792
    assert ran.finishes[16] == streams[7] + 12 + 144 + 557  # its weights had been loaded before the edge
    assert ran.timeline.gate == ((0, 0), (16384, 1))


def test_a_product_falls_to_half_rate_at_the_edge_of_a_window_that_streamed_too_little() -> None:
    """By the edge at 1600 it has streamed 381 x 2 of 2048 units; the other 1286 go one a tick."""
    ran = run(product(), phase_ticks=1600, **FULL)
    assert ran.finishes[1] == 1600 + 1286 + 994
    assert ran.timeline.gate == ((0, 1), (1600, 0))


@pytest.mark.parametrize(
    ("edge", "finish", "next_matmul"),
    [
        (2244, 2243 + 792, 2243 + 11),
        (2243, 2243 + 792, 2243 + 11),  # an edge at the stream's end comes after it
        (2242, 2244 + 994, 2244),  # the last two units go one a tick
    ],
)
def test_an_edge_at_a_streams_end_leaves_it_its_rate(edge: int, finish: int, next_matmul: int) -> None:
    ran = run([*product(), *product()], phase_ticks=edge, **FULL)
    assert (ran.finishes[1], ran.starts[3]) == (finish, next_matmul)


def test_a_weight_load_that_crosses_an_edge_goes_on_in_proportion() -> None:
    """fp32 into an idle array: 107 (514) at full rate, 161 (773) at half. By the edge at 1300, 211 of 514 are gone; the
    other 303 take 303 x 773 / 514 = 455.7, rounded up."""
    ran = run(product(free=128, dtype="float32", passes="low"), phase_ticks=1300, **FULL)
    loaded = 1300 + 456
    assert ran.finishes[0] == loaded + 826
    assert ran.streams() == [loaded + 10]
    assert ran.finishes[1] == loaded + 10 + 1024 + 994


@pytest.mark.parametrize(("edge", "loaded"), [(1088, 773), (1089, 773), (1090, 1 + 772), (1602, 513 + 2), (1603, 514)])
def test_a_weight_load_takes_the_rate_after_an_edge_at_its_start_and_before_one_at_its_end(edge: int, loaded: int) -> None:
    """513 x 773 / 514 = 771.5 and 1 x 773 / 514 = 1.504, rounded up."""
    ran = run(product(free=128, dtype="float32", passes="low"), phase_ticks=edge, **FULL)
    assert ran.streams() == [FIRST + loaded + 10]


def test_just_the_threshold_of_a_window_makes_the_next_one_full() -> None:
    """At half rate six products of 2048 units are just 12288, 3/8 of 32768, when the edge comes with the sixth's end."""
    steps = [step for _ in range(6) for step in product()]
    just = {"tensor.gate.threshold": "3/8"}
    sixth_ends = 1233 + 5 * 2049 + 2048
    assert run(steps, phase_ticks=sixth_ends, **just).timeline.gate == ((0, 0), (sixth_ends, 1))
    assert run(steps, phase_ticks=sixth_ends - 1, **just).timeline.gate == ((0, 0),)


def test_an_idle_window_gates_the_next() -> None:
    """Three table loads of 6158 end at 19229; the product behind them comes after the edge at 16384, and runs at half rate."""
    steps = [on(SCALAR, TableLoad(function="exp"), add(0)) for _ in range(3)]
    ran = run([*steps, weights(Wait(0, 3)), matmul()], **FULL)
    assert ran.starts[3] == 19229 + 163 + 86
    assert ran.streams() == [19478 + 134 + 10]
    assert ran.finishes[4] == 19622 + 2048 + 994
    assert ran.timeline.gate == ((0, 1), (16384, 0))
