"""NeuronCore-v2 (trn1, inf2): closed forms of its timing rules, and what this generation lacks, worked out by hand.

A tick is 1/5.6 ns: PE cycles are 2 ticks, VectorE's 5, ScalarE's and GpSimdE's 4.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from nc_sim import Program, Result, Unsupported, simulate
from nc_sim.report.text import summary

TICK = 1 / 5.6
CHIPS = ("trn1", "inf2")


def spans(result: Result, opcode: str, engine: str = "") -> list[tuple[float, float]]:
    """Start and end of every instruction with an opcode, in order of its start."""
    return [(i.start_ns, i.end_ns) for i in result.instructions if i.opcode == opcode and engine in ("", i.engine)]


def products(*rows: int, idle_ns: int = 0) -> Result:
    """fp16 products one behind the other, or apart by VectorE's work between them."""
    p = Program("products")
    s, m = p.sbuf((128, 128), "float16"), p.sbuf((128, 512), "float16")
    for t in (s, m):
        p.memset(dst=t, value=1.0)
    for n in rows:
        p.nc_matmul(dst=p.psum((128, 512))[:, :n], stationary=s, moving=m[:, :n])
    return simulate(p, "trn1", values=False)


# ---- the array


@pytest.mark.parametrize("n", [128, 256, 512])
def test_a_product_that_finds_the_array_idle_ends_164_1_ns_and_its_rows_at_2_8_ghz_after_its_weight_load_began(n: int) -> None:
    """Rule: 22 to load and fill, N / 2.8, 142 of result latency. 512 rows are the 182.86 ns that run at full rate."""
    r = products(n)
    ((load, _),), ((_, end),) = spans(r, "LDWEIGHTS"), spans(r, "MATMUL")
    assert end - load == pytest.approx(164.1 + n / 2.8, abs=3 * TICK)


@pytest.mark.parametrize("n", [8, 256, 512])
def test_a_product_directly_behind_one_of_512_rows_ends_its_rows_at_2_45_ghz_after_it(n: int) -> None:
    """But for a wait of 64 cycles in all: 8 rows end 8 / 2.45 ns later, as measured."""
    (_, first), (_, second) = spans(products(512, n), "MATMUL")
    assert second - first == pytest.approx(n / 2.45, abs=2 * TICK)


def test_the_limit_falls_into_the_middle_of_the_second_of_two_products_of_400_rows() -> None:
    """112 of its rows are still at full rate (512 in all), 288 at 7/8 of it: 40 + 117.55 ns."""
    (_, first), (_, second) = spans(products(400, 400), "MATMUL")
    assert second - first == pytest.approx(112 / 2.8 + 288 / 2.45, abs=2 * TICK)


def test_sustained_products_run_at_seven_eighths_of_the_peak() -> None:
    ends = [end for _, end in spans(products(*[512] * 12), "MATMUL")]
    assert ends[-1] - ends[1] == pytest.approx(10 * 512 / 2.45, abs=20 * TICK)  # 80.28 TFLOP/s; two ticks each to enter


def test_without_the_clock_gate_they_run_at_the_peak() -> None:
    p = products(*[512] * 12).program
    ends = [end for _, end in spans(simulate(p, "trn1", values=False, without=["clock-gate"]), "MATMUL")]
    assert ends[-1] - ends[1] == pytest.approx(10 * 512 / 2.8, abs=20 * TICK)


def test_the_throttle_has_no_phase() -> None:
    """Streaming time decides, wherever the kernel begins."""
    program = products(*[512] * 4).program
    r = simulate(program, "trn1", values=False, phase_range=True)
    assert r.phase_range_ns == (r.duration_ns, r.duration_ns)
    assert simulate(program, "trn1", values=False, gate_phase_ns=1234).duration_ns == r.duration_ns
    assert "  gate phase none: the throttle has no free-running windows" in summary(r).splitlines()


def test_an_fp32_product_takes_four_cycles_a_row_in_two_passes() -> None:
    p = Program("fp32")
    s, m = p.sbuf((128, 128), "float32"), p.sbuf((128, 512), "float32")
    for t in (s, m):
        p.memset(dst=t, value=1.0)
    for _ in range(4):
        p.nc_matmul(dst=p.psum((128, 512)), stationary=s, moving=m)
    ends = [end for _, end in spans(simulate(p, "trn1", values=False), "MATMUL")]
    assert len(ends) == 8
    assert ends[-1] - ends[-3] == pytest.approx(4 * 512 / 2.45, abs=4 * TICK)  # measured: 830.6 ns at 20.2 TFLOP/s


def traced(n: int) -> Program:
    """The program of the 117 public profiles: fp16 [128, 128] x [128, N], A transposed on the array, copies on ScalarE."""
    p = Program("traced")
    a, b = p.input("a", (128, 128), "float16"), p.input("b", (128, n), "float16")
    y = p.output("y", (128, n), "float32")
    ta, tb, turned = p.sbuf((128, 128), "float16"), p.sbuf((128, n), "float16"), p.sbuf((128, 128), "float16")
    p.dma_copy(dst=ta, src=a)
    p.dma_copy(dst=tb, src=b)
    flipped, product, out = p.psum((128, 128), "float16"), p.psum((128, n)), p.sbuf((128, n), "float32")
    p.nc_transpose(dst=flipped, data=ta)
    p.tensor_copy(dst=turned, src=flipped, engine="scalar")
    p.nc_matmul(dst=product, stationary=turned, moving=tb)
    p.tensor_copy(dst=out, src=product, engine="scalar")
    p.dma_copy(dst=y, src=out)
    return p


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("n", [128, 512])
def test_the_traced_program_s_compute_stretch_is_the_sum_of_the_rules(chip: str, n: int) -> None:
    """Transpose 164.1 + 128 / 2.8, semaphore 38.5, copy 156.6 + 128 / 1.4; then the same with N for the product and its copy.

    Between the two the product may wait for B, which is loaded after A.
    """
    r = simulate(traced(n), chip, values=False)
    first, products_ = spans(r, "LDWEIGHTS")[0], spans(r, "MATMUL")
    copies = spans(r, "ACTIVATE", "Scalar")
    assert products_[0][1] - first[0] == pytest.approx(164.1 + 128 / 2.8, abs=3 * TICK)
    assert copies[0][0] - products_[0][1] == pytest.approx(38.5, abs=2 * TICK)
    assert copies[0][1] - copies[0][0] == pytest.approx(156.6 + 128 / 1.4, abs=2 * TICK)
    second = spans(r, "LDWEIGHTS")[1]
    assert products_[1][1] - second[0] == pytest.approx(164.1 + n / 2.8, abs=3 * TICK)
    assert copies[1][0] - products_[1][1] == pytest.approx(38.5, abs=2 * TICK)
    assert copies[1][1] - copies[1][0] == pytest.approx(156.6 + n / 1.4, abs=2 * TICK)


# ---- ScalarE and VectorE


@pytest.mark.parametrize("n", [8, 512])
def test_a_queued_copy_on_scalar_ends_its_elements_and_15_ns_after_the_one_before(n: int) -> None:
    """No minimum of 64 cycles: 8 elements take 5.7 + 15 ns, measured 21."""
    p = Program("queued")
    a, d = p.psum((128, 512)), p.sbuf((128, 512), "float32")
    p.memset(dst=a, value=1.0)
    p.tensor_copy(dst=d, src=a, engine="scalar")
    p.tensor_copy(dst=p.sbuf((128, n), "float32"), src=a[:, :n], engine="scalar")
    (_, first), (_, second) = spans(simulate(p, "inf2", values=False), "ACTIVATE", "Scalar")
    assert second - first == pytest.approx(n / 1.4 + 15, abs=2 * TICK)


def test_two_input_instructions_take_two_cycles_an_element_in_sbuf_and_one_with_an_operand_in_psum() -> None:
    p = Program("pairs")
    a, b, c = p.sbuf((64, 512), "float32"), p.sbuf((64, 512), "float32"), p.psum((64, 512))
    for t in (a, b, c):
        p.memset(dst=t, value=1.0)
    for other in (b, b, c, c):
        p.tensor_tensor(dst=p.sbuf((64, 512), "float32"), data1=a, data2=other, op="add")
    times = spans(simulate(p, "trn1", values=False), "TENSOR_TENSOR")
    assert [end - start for start, end in times] == pytest.approx(
        [143 + 1024 / 1.12] * 2 + [148 + 512 / 1.12] * 2, abs=TICK
    )  # fmt: skip
    starts = [start for start, _ in times]
    assert starts[1] - starts[0] == pytest.approx(1024 / 1.12 + 96, abs=TICK)  # measured: 1010.5
    assert starts[3] - starts[2] == pytest.approx(512 / 1.12 + 76, abs=TICK)


# ---- DMA


def loads(*shapes: tuple[int, int], chip: str = "trn1", **way: Any) -> Result:
    p = Program("loads")
    for k, shape in enumerate(shapes):
        p.dma_copy(dst=p.sbuf(shape, "float32"), src=p.input(f"x{k}", shape, "float32"), **way)
    return simulate(p, chip, values=False)


@pytest.mark.parametrize("chip", CHIPS)
def test_descriptors_made_in_hardware_are_refused_with_the_generation_that_has_them(chip: str) -> None:
    with pytest.raises(Unsupported, match=r"dge_mode=hwdge; a chip with hardware descriptor generation \(NeuronCore-v3 and later\)"):
        loads((128, 64), chip=chip, engine="sync", dge_mode="hwdge")


def test_what_does_not_say_who_makes_its_descriptors_has_them_made_by_gpsimd_or_beforehand_on_another_queue() -> None:
    made = [loads((128, 64)), loads((128, 64), engine="sync"), loads((128, 64), dge_mode="none")]
    assert [(s.engine.label, s.instruction.generation) for r in made for s in r.steps] == [  # type: ignore[attr-defined]
        ("GpSimd", "software"), ("Sync", "static"), ("Sync", "static"),
    ]  # fmt: skip


@pytest.mark.parametrize(("rows", "interval"), [(128, 648.4), (64, 600.0), (16, 600.0)])
def test_gpsimd_takes_5_07_ns_a_descriptor_and_600_at_least(rows: int, interval: float) -> None:
    starts = [start for start, _ in spans(loads((rows, 64), (rows, 64), (rows, 64)), "DMA_DIRECT2D")]
    assert [b - a for a, b in itertools.pairwise(starts)] == pytest.approx([interval] * 2, abs=2 * TICK)


@pytest.mark.parametrize(("partitions", "engines"), [(1, 1), (4, 4), (16, 16), (128, 16)])
def test_rows_spread_evenly_over_as_many_dma_engines_as_there_are_partitions(partitions: int, engines: int) -> None:
    table = loads((partitions, 64)).table
    assert int((table.packets > 0).sum()) == engines


@pytest.mark.parametrize(("elements", "packets"), [(64, 1), (128, 1), (250, 2), (1024, 8)])
def test_rows_of_software_descriptors_join_until_a_packet_has_4_kib(elements: int, packets: int) -> None:
    """8 rows on each engine: 16 of 256 B would make 4 KiB, 8 of 512 B do; 5 of 1000 B, and 3; rows of 4 KiB stay alone."""
    assert loads((128, elements)).table.packets.tolist() == [packets] * 16


def test_sixteen_engines_move_273_bytes_a_ns_in_a_load_and_275_in_a_store_but_for_its_first_200_kb() -> None:
    p = Program("both")
    x, y, t = p.input("x", (128, 8192), "float32"), p.output("y", (128, 8192), "float32"), p.sbuf((128, 8192), "float32")
    p.dma_copy(dst=t, src=x)
    p.dma_copy(dst=y, src=t)
    r = simulate(p, "trn1", values=False)
    rows = [slice(r.table.rows, r.table.rows + 16), slice(r.table.rows + 16, r.table.rows + 32)]
    load, store = ((r.timeline.finish[k].max() - r.timeline.start[k].min()) * TICK for k in rows)
    moved = 4 << 20
    assert load == pytest.approx(moved / 273 + 116, rel=0.01)  # 109 + 7 from the last data to the end of the semaphore packet
    assert store == pytest.approx(moved / 275 + 193, rel=0.01)


# ---- ports


def side_by_side(chip: str, **options: Any) -> tuple[tuple[float, float], tuple[float, float]]:
    """VectorE and GpSimdE on tensors of their own in SBUF."""
    p = Program("beside")
    a, b = p.sbuf((128, 2048), "float32"), p.sbuf((128, 2048), "float32")
    p.memset(dst=a, value=1.0, engine="vector")
    p.memset(dst=b, value=1.0, engine="gpsimd")
    r = simulate(p, chip, values=False, **options)
    return spans(r, "MEMSET", "Vector")[0], spans(r, "MEMSET", "GpSimd")[0]


def overlap(a: tuple[float, float], b: tuple[float, float]) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def test_vector_and_gpsimd_do_not_use_sbuf_at_once_before_neuroncore_v3() -> None:
    vector, gpsimd = side_by_side("trn1")
    assert gpsimd[0] == pytest.approx(vector[1])  # it comes second, and begins when the other is done
    assert overlap(*side_by_side("trn1", without=["ports"]))
    assert overlap(*side_by_side("trn2"))


def test_where_only_fast_modes_exclude_gpsimd_a_slow_instruction_does_not() -> None:
    def run(dtype: str) -> bool:
        p = Program("fast")
        a, b, d = p.sbuf((128, 4096), dtype), p.sbuf((128, 4096), "float32"), p.sbuf((128, 4096), dtype)
        p.memset(dst=a, value=1)
        p.tensor_reduce(dst=d[:, :1], op="add", data=a, axis=1) if dtype == "int8" else p.tensor_copy(dst=d, src=a)
        p.memset(dst=b, value=1.0, engine="gpsimd")
        r = simulate(p, "trn2", values=False, what_if={"ports.vector_gpsimd_sbuf": "fast", "sequencer.gpsimd.release_ns": 4000})
        vector = next((i.start_ns, i.end_ns) for i in r.instructions if i.engine == "Vector" and i.opcode != "MEMSET")
        return overlap(vector, spans(r, "MEMSET", "GpSimd")[0])

    assert not run("float32")  # a copy in SBUF at two elements a cycle
    assert run("int8")  # a reduction at one


def test_vector_and_scalar_do_not_use_psum_at_once_before_neuroncore_v3() -> None:
    def run(chip: str, **options: Any) -> bool:
        p = Program("psum")
        a, b = p.psum((128, 512)), p.psum((128, 512))
        p.memset(dst=a, value=1.0)
        p.memset(dst=b, value=1.0)
        p.tensor_copy(dst=p.sbuf((128, 512), "float32"), src=a, engine="scalar")
        r = simulate(p, chip, values=False, **options)
        return overlap(spans(r, "ACTIVATE", "Scalar")[0], spans(r, "MEMSET", "Vector")[1])

    assert not run("inf2")
    assert run("inf2", without=["ports"])
