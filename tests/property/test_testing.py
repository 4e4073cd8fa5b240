"""`nc_sim.testing`: what its strategies promise, that its invariants hold of every run, and that each tells a broken one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st

from engines import mutant
from nc_sim import ChipError, InternalError, NcSimError, Program, ProgramError, Result, chip, core, simulate, testing, workloads
from nc_sim.isa import REGISTRY, Instruction, View
from nc_sim.isa.dma import Dma
from nc_sim.schema import SCHEMA
from nc_sim.table import Op
from nc_sim.testing import (
    check_all,
    check_not_slower,
    engine_times,
    explicit,
    explicit_programs,
    inputs,
    instructions,
    programs,
    rooflines,
    serial_sum_ns,
    views,
    what_ifs,
)
from nc_sim.testing.overrides import SOME
from nc_sim.testing.speed import HIGHER, LOWER
from test_engine_order import MUTANTS as MUTANTS_OF_THE_ENGINE

CHIP = chip.load("trn2")
SHRINK = settings(max_examples=500, derandomize=True, database=None, suppress_health_check=list(HealthCheck))


# --- what strategies promise -------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(programs(), st.data())
def test_every_invariant_holds_of_an_automatic_program(program: Program, data: st.DataObject) -> None:
    assert not program.explicit
    arrays = inputs(program, data.draw(st.integers(0, 9)))
    check_all(simulate(program, inputs=arrays), arrays)


@settings(max_examples=15)
@given(explicit_programs())
def test_every_invariant_holds_of_an_explicit_program_which_has_no_race(program: Program) -> None:
    assert program.explicit
    arrays = inputs(program)
    check_all(simulate(program, inputs=arrays, races="error"), arrays)


@settings(max_examples=25)
@given(programs(6))
def test_a_program_with_its_semaphores_written_out_runs_as_before(program: Program) -> None:
    arrays = inputs(program)
    automatic, own = simulate(program, inputs=arrays), simulate(explicit(program), inputs=arrays)
    assert own.timeline == automatic.timeline
    assert {k: v.tobytes() for k, v in own.outputs.items()} == {k: v.tobytes() for k, v in automatic.outputs.items()}


def test_an_explicit_program_that_loses_a_wait_has_a_race() -> None:
    program = explicit(workloads.load("rmsnorm").build())
    lost = next(s for s in program.steps if s.waits and s.engine.name == "VECTOR")
    lost.waits = ()
    with pytest.raises(NcSimError, match="race"):
        simulate(program, values=False)


@settings(max_examples=40)
@given(programs(6), what_ifs())
def test_a_what_if_is_taken_and_the_run_ends_or_is_refused(program: Program, overrides: dict[str, Any]) -> None:
    CHIP.what_if(overrides)
    try:
        r = simulate(program, values=False, what_if=overrides)
    except (ChipError, InternalError):
        raise
    except NcSimError:
        return
    check_all(r)


@pytest.mark.parametrize("key", [k for n, k in enumerate(sorted(SCHEMA)) if n % 12 == 0 or k in SOME or SCHEMA[k].kind in ("flag", "sets")])
def test_a_what_if_may_change_a_chip_number(key: str) -> None:
    own = CHIP.numbers[key].value
    found = find(what_ifs(names=[key]), lambda w: key in w and CHIP.what_if(w).numbers[key].value != own, settings=SHRINK)
    assert set(found) == {key}


def test_instructions_pass_their_check_and_are_of_many_classes() -> None:
    met: set[type[Instruction]] = set()

    @settings(max_examples=500)
    @given(instructions())
    def check(instruction: Instruction) -> None:
        instruction.check()
        met.add(type(instruction))

    check()
    assert len(met) > len(REGISTRY) / 2


@given(views(elements=3))
def test_a_view_has_the_elements_asked_for(view: View) -> None:
    assert view.elements == 3 or view.memory.name == "HBM"


def test_a_failing_program_shrinks_to_few_calls_on_one_element() -> None:
    """Two activations need no more than a load, themselves, and a store."""
    found = find(programs(), lambda p: sum(s.instruction.mnemonic == "activation" for s in p) >= 2, settings=SHRINK)
    assert [s.instruction.mnemonic for s in found] == ["dma_copy", "activation", "activation", "dma_copy"]
    assert {t.shape for t in found.tensors.values()} == {(1, 1)}


def test_a_drawn_program_shows_itself_as_text() -> None:
    shown = repr(find(programs(), lambda p: True, settings=settings(SHRINK, max_examples=5)))
    assert shown.startswith("program random\n\ninput x0 float32 [1,1]")
    assert "dma_copy dst=hbm:y0" in shown


def test_inputs_have_the_type_of_their_tensor_and_are_the_same_again() -> None:
    p = Program("types")
    for dtype in ("float32", "bfloat16", "int8", "uint16"):
        p.input(dtype, (2, 3), dtype)
    a, b = inputs(p), inputs(p)
    assert {n: (v.dtype, v.shape) for n, v in a.items()} == {t.name: (t.dtype.numpy, (2, 3)) for t in p.tensors.values()}
    assert all(v.tobytes() == b[n].tobytes() and np.abs(v.astype(float)).max() <= 8 for n, v in a.items())
    assert a["float32"].tobytes() != inputs(p, seed=1)["float32"].tobytes()


def test_inputs_between_bounds_take_both_and_leave_other_inputs_alone() -> None:
    p = Program("typed")
    for name, dtype in (("rows", "int32"), ("bytes", "uint8"), ("others", "int32"), ("x", "float32")):
        p.input(name, (64, 64), dtype)
    a = inputs(p, between={"rows": (3, 5), "bytes": (0, 255)})
    assert set(a["rows"].flat) == {3, 4, 5}
    assert (a["bytes"].min(), a["bytes"].max()) == (0, 255)
    assert set(a["others"].flat) == set(range(-8, 9))
    assert np.abs(a["x"]).max() <= 1
    assert set(inputs(p)["rows"].flat) == set(range(-8, 9))


@pytest.mark.parametrize(
    ("between", "found"),
    [
        ({"row": (0, 1)}, "inputs between row: no such input; one of rows, bytes, x"),
        ({"x": (0, 1)}, "inputs between x: a tensor of float32; one of whole numbers"),
        ({"rows": (5, 4)}, "inputs between rows: bounds 5 and 4; the lower, then the higher, of -2147483648 to 2147483647"),
        ({"bytes": (0, 256)}, "inputs between bytes: bounds 0 and 256; the lower, then the higher, of 0 to 255"),
        ({"bytes": (-1, 4)}, "inputs between bytes: bounds -1 and 4; the lower, then the higher, of 0 to 255"),
    ],
)
def test_bounds_that_do_not_fit_an_input_are_refused(between: dict[str, tuple[int, int]], found: str) -> None:
    p = Program("typed")
    for name, dtype in (("rows", "int32"), ("bytes", "uint8"), ("x", "float32")):
        p.input(name, (4, 4), dtype)
    with pytest.raises(ProgramError) as error:
        inputs(p, between=between)
    assert str(error.value) == found


def test_without_hypothesis_invariants_work_and_strategies_say_what_to_install() -> None:
    code = (
        "import sys; sys.modules['hypothesis'] = None\n"
        "from nc_sim import simulate, workloads\n"
        "from nc_sim.testing import check_all, explicit, inputs\n"
        "p = workloads.load('rmsnorm').build(); a = inputs(p); check_all(simulate(p, inputs=a), a); explicit(p)\n"
        "try:\n    from nc_sim.testing import programs\n"
        "except Exception as e:\n    print(type(e).__name__, e)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    wanted = "nc_sim.testing.programs: the package hypothesis is not installed; pip install '.[testing]' in the clone of nc-sim"
    assert done.stdout == f"Unsupported {wanted}\n"


# --- bounds, by hand ---------------------------------------------------------------------------------------------


def one_of_each() -> Program:
    """Load [128, 512] fp32 through one queue, exp on ScalarE, add on VectorE, one bf16 product of N = 512, store."""
    p = Program("one_of_each")
    x, y = p.input("x", (128, 512), "float32"), p.output("y", (128, 512), "float32")
    t, u = p.sbuf((128, 512), "float32"), p.sbuf((128, 512), "float32")
    s, m, c = p.sbuf((128, 128), "bfloat16"), p.sbuf((128, 512), "bfloat16"), p.psum((128, 512))
    p.dma_copy(dst=t, src=x)
    p.activation(dst=u, op="exp", data=t)
    p.tensor_tensor(dst=u, data1=u, data2=t, op="add")
    p.memset(dst=s, value=1.0)
    p.memset(dst=m, value=1.0, engine="gpsimd")
    p.nc_matmul(dst=c, stationary=s, moving=m)
    p.tensor_tensor(dst=u, data1=c, data2=u, op="add")
    p.dma_copy(dst=y, src=u)
    return p


def test_rooflines_by_hand() -> None:
    """trn2: clocks of 2.4 (PE), 0.96 (VectorE), 1.4 or 1.2 GHz; 27.2 and 26 B/ns on a DMA engine, 716 B/ns of HBM.

    A DMA engine serves 8 partitions: 8 rows of 2,048 B in, 8 out. VectorE: two fp32 adds at 1 cycle an element, and a
    memset of 128 at 4/5. Each row and each instruction is rounded to a tick of 1/4.8 ns.
    """
    found = rooflines(simulate(one_of_each(), values=False))
    ghz = {e: float(CHIP.numbers[f"clock.{e}_mhz"].value) / 1000 for e in ("tensor", "vector", "scalar", "gpsimd")}
    assert found["HBM"] == pytest.approx(2 * 128 * 2048 / 716)
    assert found["DMA engines"] == pytest.approx(8 * 2048 / 27.2 + 8 * 2048 / 26, abs=16 / 9.6)
    assert found["Tensor"] == pytest.approx(512 / ghz["tensor"], abs=0.11)
    assert found["Vector"] == pytest.approx((2 * 512 + 0.8 * 128) / ghz["vector"], abs=0.33)
    assert found["Scalar"] == pytest.approx(512 / ghz["scalar"], abs=0.11)
    assert found["GpSimd"] == pytest.approx(512 / ghz["gpsimd"], abs=0.11)


def test_a_load_that_nothing_waits_for_is_in_no_roofline() -> None:
    p = Program("unread")
    x, t = p.input("x", (128, 512), "float32"), p.sbuf((128, 512), "float32")
    p.dma_copy(dst=t, src=x)
    assert set(rooflines(simulate(p, values=False)).values()) == {0.0}


def test_one_instruction_takes_as_long_as_it_and_its_sequencer_serially() -> None:
    """A memset alone: dispatch, hand-over and the memset, one after another; the serial sum holds no more but rounding up."""
    p = Program("alone")
    p.memset(dst=p.sbuf((128, 512), "float32"), value=0.0)
    r = simulate(p)
    slack = serial_sum_ns(r) - r.duration_ns
    assert 0 <= slack < 500
    assert r.duration_ns > rooflines(r)["Vector"] > 0


def test_engine_times_by_hand() -> None:
    """One queue: a memset on VectorE. Its engine idles until it is handed over (a stall), then is busy to the end."""
    p = Program("alone")
    p.memset(dst=p.sbuf((128, 512), "float32"), value=0.0)
    r = simulate(p)
    (i,) = r.instructions
    times = engine_times(r)
    assert set(times) == {"Vector", "Vector engine"}
    assert times["Vector engine"].stall_ns == pytest.approx(i.start_ns)
    assert times["Vector engine"].busy_ns + times["Vector engine"].idle_ns == pytest.approx(i.duration_ns)
    assert times["Vector"].idle_ns > 0 == times["Vector"].stall_ns


# --- mutants -----------------------------------------------------------------------------------------------------

PROGRAM = one_of_each()
ARRAYS = inputs(PROGRAM)
RESULT = simulate(PROGRAM, inputs=ARRAYS)
VECTOR = max(k for k, s in enumerate(RESULT.steps) if s.instruction.mnemonic == "tensor_tensor")
LOAD = next(k for k, s in enumerate(RESULT.steps) if isinstance(s.instruction, Dma))


def moved(column: str, row: int, by: int, result: Result = RESULT) -> Result:
    """The result with one time of its timeline moved."""
    times = getattr(result.timeline, column).copy()
    times[row] += by
    return attrs.evolve(result, timeline=attrs.evolve(result.timeline, **{column: times}))


def changed(column: str, row: int, by: int) -> Result:
    """The result with one number of its table changed."""
    values = getattr(RESULT.table, column).copy()
    values[row] += by
    return attrs.evolve(RESULT, table=attrs.evolve(RESULT.table, **{column: values}))


def everything(column: str, factor: int) -> Result:
    times = {c: getattr(RESULT.timeline, c) * factor for c in ("ready", "start", "finish")}
    return attrs.evolve(RESULT, timeline=attrs.evolve(RESULT.timeline, **times))


def with_output(values: np.ndarray) -> Result:
    return attrs.evolve(RESULT, outputs={"y": values})


ROW = int(RESULT.table.finish_row[VECTOR])
FIRST = int(RESULT.table.rows)  # the first transfer
LAST = int(RESULT.table.finish_row[len(RESULT.steps) - 1])
SHORT = -int(RESULT.timeline.finish[LAST]) // 2
MUTANTS: dict[str, tuple[str, Callable[[], Result], str]] = {
    "a row ends before it starts": ("check_times", lambda: moved("finish", ROW, -10_000), "ends at"),
    "a time is negative": ("check_times", lambda: moved("ready", 0, -10_000), "is ready at tick -"),
    "a row was never reached": ("check_times", lambda: moved("finish", ROW, -1 - int(RESULT.timeline.finish[ROW])), "ends at -1"),
    "two rows of a stream start at once": (
        "check_times", lambda: moved("start", ROW - 1, int(RESULT.timeline.start[ROW] - RESULT.timeline.start[ROW - 1])), "starts at",
    ),
    "the gate changes twice at once": (
        "check_times", lambda: attrs.evolve(RESULT, timeline=attrs.evolve(RESULT.timeline, gate=((5, 0), (5, 1)))), "clock gate",
    ),
    "a row is ready while the one before is busy": ("check_engine_times", lambda: moved("ready", ROW, -1), "busy for"),
    "a stream begins before its release": ("check_engine_times", lambda: moved("ready", 0, 1), "released at"),
    "a row starts later than what follows lets it": ("check_engine_times", lambda: moved("start", ROW - 1, 1), "keeps its stream busy"),
    "an engine is busy for longer than the body": ("check_utilisation", lambda: moved("start", ROW, -10**6), "is busy for"),
    "a DMA engine does its work in half the time": ("check_utilisation", lambda: changed("packets", 0, 100), "DMA engine 0's work in"),
    "a packet is dropped": ("check_bytes", lambda: changed("packets", 3, -1), f"instruction {LOAD}"),
    "a packet is sent twice": ("check_bytes", lambda: changed("packets", 3, 1), f"instruction {LOAD}"),
    "a transfer is on another's DMA engine": ("check_bytes", lambda: changed("server", 3, 1), "DMA engines"),
    "a transfer belongs to another instruction": ("check_bytes", lambda: changed("step", FIRST, 1), "once on each of 16"),
    "a finish is moved earlier": ("check_dependencies", lambda: moved("finish", ROW, -1), "tensor_tensor\\) ends at tick"),
    "a row does not wait": ("check_dependencies", lambda: moved("start", ROW, -100), "tensor_tensor\\) starts at tick"),
    "a transfer is too quick": ("check_dependencies", lambda: moved("finish", FIRST, -1000), "a transfer on DMA engine 0, .* ends at"),
    "the body is shorter than its work": ("check_rooflines", lambda: everything("finish", 0), "needs"),
    "the body is longer than one thing after another": ("check_serial_sum", lambda: everything("finish", 99), "one after another"),
    "an engine gives another time": ("check_engines_agree", lambda: moved("finish", ROW, 1), "by engine='simpy'"),
    "an engine gives another gate": (
        "check_engines_agree", lambda: attrs.evolve(RESULT, timeline=attrs.evolve(RESULT.timeline, gate=((0, 1),))), "clock gate",
    ),
    "a probe changes a time": ("check_probes_change_nothing", lambda: moved("start", ROW, 1), "another timeline"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_an_invariant_tells_a_broken_result(name: str) -> None:
    check, mutant, message = MUTANTS[name]
    function = getattr(testing, check)
    function(RESULT)
    with pytest.raises(AssertionError, match=message):
        function(mutant())


def test_the_message_of_a_broken_row_names_line_instruction_and_row() -> None:
    with pytest.raises(
        AssertionError, match=rf"^row {ROW} of Vector engine \(test_testing.py:\d+ instruction {VECTOR}, Vector's tensor_tensor\) "
    ):
        testing.check_dependencies(moved("finish", ROW, -1))


def test_values_of_a_broken_output_are_told_with_their_element() -> None:
    y = RESULT.outputs["y"].copy()
    testing.check_values(RESULT, ARRAYS)
    y[2, 5] += 1
    with pytest.raises(AssertionError, match=rf"output y, element {2 * 512 + 5}: "):
        testing.check_values(with_output(y), ARRAYS)
    with pytest.raises(AssertionError, match="output y differs with a probe"):
        testing.check_probes_change_nothing(with_output(y), ARRAYS)


def test_a_lost_update_of_a_wait_is_seen_by_the_dependencies_alone() -> None:
    """The engine runs a table that lost its waits: its timeline breaks the dependencies of the right one."""
    table = RESULT.table
    free = attrs.evolve(table, wait_value=np.where(table.wait_semaphore == np.bincount(table.wait_semaphore).argmax(), 0, table.wait_value))
    with pytest.raises(AssertionError, match="at the earliest"):
        testing.check_dependencies(attrs.evolve(RESULT, timeline=core.run(free)))
    assert set(table.update_op.tolist()) == {int(Op.ADD)}


@pytest.mark.parametrize(
    "name",
    [
        "the last wait is dropped",
        "DMA latency is lost",
        "updates of beginnings are seen in the same tick",
        "a broken lump still ends",
    ],
)
def test_dependencies_tell_a_broken_engine_without_another_engine(name: str) -> None:
    """Mutants of the SimPy engine, on programs with one ring and with several."""
    run = mutant(core, "run", *MUTANTS_OF_THE_ENGINE[name])
    results = [RESULT, *(simulate(workloads.load(n).build(), values=False) for n in ("matmul", "pipeline"))]
    broken = [attrs.evolve(r, timeline=run(r.table)) for r in results]
    with pytest.raises(AssertionError, match="at the earliest"):
        list(map(testing.check_dependencies, broken))


def test_an_engine_that_differs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine with a fault of its own: the compiled one forgets a latency."""
    from nc_sim import fast

    def forgetful(table: Any, progress: Any = None) -> Any:
        return original(attrs.evolve(table, cost_latency=np.maximum(1, table.cost_latency - 1)), progress)

    original = fast.loop
    monkeypatch.setattr(fast, "loop", forgetful)
    monkeypatch.setattr(fast, "run", forgetful)
    with pytest.raises(AssertionError, match="by engine='compiled'"):
        testing.check_engines_agree(RESULT)


# --- more speed --------------------------------------------------------------------------------------------------


def faster() -> st.SearchStrategy[dict[str, Any]]:
    """One number that is faster than trn2's: half a time, twice a clock, a rate or a depth; or no gate."""
    found: list[dict[str, Any]] = [{"tensor.gate.kind": "none"}]
    for key in SCHEMA:
        own = CHIP.numbers[key].value
        if own is None:
            continue
        if key.endswith(HIGHER) and key != "tensor.gate.ratio":
            found.append({key: own * 2})
        elif key.endswith(LOWER) and key != "tensor.activity_throttle" and own:
            found.append({key: own // 2 if SCHEMA[key].kind in ("count", "natural") else own / 2})
    return st.sampled_from(found)


@settings(max_examples=40)
@given(programs(), faster())
def test_more_speed_is_never_slower_but_for_the_anomalies(program: Program, what_if: dict[str, Any]) -> None:
    check_not_slower(simulate(program, values=False), what_if)


def test_a_number_that_is_not_known_to_be_faster_is_refused() -> None:
    for key, value in (
        ("vector.gap_ns", 1000),
        ("clock.vector_mhz", 100),
        ("dma.engines", 32),
        ("memory.partitions", 256),
        ("dma.core_load_bytes_per_ns", 900),
    ):
        with pytest.raises(ProgramError, match=f"what-if {key}: .*known to be faster"):
            check_not_slower(RESULT, {key: value})


def test_a_faster_number_that_makes_an_instruction_slower_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timing rule gets the gap's sign wrong."""
    from nc_sim.timing import elementwise

    original = elementwise._streamed
    monkeypatch.setattr(elementwise, "_streamed", lambda work, engine, fixed, gap, c: original(work, engine, fixed, max(0, 500 - gap), c))
    before = simulate(PROGRAM, values=False)
    with pytest.raises(AssertionError, match=r"issue interval of row .* longer in the run that should be faster"):
        check_not_slower(before, {"vector.gap_ns": 0})


def test_a_faster_number_that_makes_the_run_longer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The faster run's body grows by an hour though no single time did."""
    slow = attrs.evolve(RESULT, timeline=attrs.evolve(RESULT.timeline, finish=RESULT.timeline.finish + 10**12))
    monkeypatch.setattr(testing.speed, "simulate", lambda *a, **k: slow)
    with pytest.raises(AssertionError, match="ns longer; anomalies explain"):
        check_not_slower(RESULT, {"vector.gap_ns": 0})
