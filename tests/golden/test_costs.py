"""A golden file lists the cost of every instruction: a timing change shows as a diff to review.

`python tests/golden/test_costs.py` writes the file anew.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from newer import newer

from nc_sim import Program, Unsupported, chip, simulate
from nc_sim.isa import REGISTRY, Engine, View
from nc_sim.table import Rule

GOLDEN = Path(__file__).parent
N = 512


def cases() -> list[tuple[str, Program]]:
    """One small program per instruction and operand kind; operands are filled so that every read is initialised."""
    out: list[tuple[str, Program]] = []

    def tensors(p: Program, *places: str, dtype: str = "float32", n: int = N) -> list[View]:
        made = []
        for place in places:
            v = p.psum((128, min(n, 512)), dtype) if place == "psum" else p.sbuf((128, n), dtype)
            p.memset(dst=v, value=1.0)
            made.append(v)
        return made

    def add(label: str, p: Program) -> None:
        out.append((label, p))

    for place in ("sbuf", "psum"):
        for dtype in ("float32", "bfloat16"):
            for call in ("tensor_copy", "tensor_scalar", "tensor_tensor", "scalar_tensor_tensor", "tensor_reduce", "reciprocal"):
                p = Program("case")
                a, b, d = tensors(p, place, "sbuf", "sbuf", dtype=dtype)
                (one,) = tensors(p, "sbuf", n=1)
                if call == "tensor_copy":
                    p.tensor_copy(dst=d, src=a)
                elif call == "tensor_scalar":
                    p.tensor_scalar(dst=d, data=a, op0="multiply", operand0=2.0)
                    p.tensor_scalar(dst=d, data=a, op0="multiply", operand0=one)
                elif call == "tensor_tensor":
                    p.tensor_tensor(dst=d, data1=a, data2=b, op="add")
                elif call == "scalar_tensor_tensor":
                    p.scalar_tensor_tensor(dst=d, data=a, op0="multiply", operand0=2.0, op1="add", operand1=b)
                elif call == "tensor_reduce":
                    p.tensor_reduce(dst=d[:, :1], op="add", data=a, axis=1)
                else:
                    p.reciprocal(dst=d, data=a)
                add(f"{call} {dtype} {place}", p)
        for op in ("exp", "copy"):
            p = Program("case")
            a, d = tensors(p, place, "sbuf")
            p.activation(dst=d, op=op, data=a, reduce_op="add", reduce_res=d[:, :1]) if op == "exp" else p.activation(dst=d, op=op, data=a)
            add(f"activation {op} {place}", p)
        p = Program("case")
        a, d = tensors(p, place, "sbuf")
        p.tensor_copy(dst=d, src=a, engine="scalar")
        add(f"tensor_copy on scalar {place}", p)
    p = Program("case")
    a, b, d = tensors(p, "sbuf", "sbuf", "sbuf")
    i, j = tensors(p, "sbuf", "sbuf", dtype="int32")
    (k,) = tensors(p, "sbuf", dtype="uint32")
    p.memset(dst=d, value=0.0, engine="gpsimd")
    p.iota(dst=i, pattern=[[1, N]])
    p.affine_select(dst=d, pattern=[[1, N]], channel_multiplier=1, on_true_tile=a, on_false_value=0.0)
    p.tensor_copy(dst=d, src=a, engine="gpsimd")
    p.tensor_scalar(dst=d, data=a, op0="rsqrt", engine="gpsimd")
    p.tensor_tensor(dst=j, data1=i, data2=j, op="add")
    p.nc_n_gather(dst=d, data=a, indices=k)
    p.nc_transpose(dst=d[:32, :32], data=a[:32, :32], engine="vector")
    for e in Engine:
        p.nop(engine=e.name.lower())
    add("gpsimd, transpose, control", p)
    for place in ("sbuf", "psum"):
        p = Program("case")
        a, b, d = tensors(p, place, "sbuf", "sbuf")
        (mask,) = tensors(p, "sbuf", dtype="uint8")
        (one,) = tensors(p, "sbuf", n=1)
        (eight,) = tensors(p, "sbuf", n=8)
        (six,) = tensors(p, "sbuf", n=6)
        (index,) = tensors(p, "sbuf", n=8, dtype="uint32")
        p.tensor_tensor_scan(dst=d, data0=a, data1=b, initial=0.0, op0="multiply", op1="add")
        p.tensor_tensor_scan(dst=d, data0=a, data1=b, initial=one, op0="multiply", op1="add")
        p.tensor_scalar_reduce(dst=d, data=a, op0="multiply", operand0=2.0, reduce_op="add", reduce_res=one)
        p.tensor_scalar_reduce(dst=d, data=a, op0="multiply", operand0=one, reduce_op="add", reduce_res=one)
        p.max8(dst=eight, src=a)
        p.nc_find_index8(dst=index, data=a, vals=eight)
        p.nc_match_replace8(dst=d, data=a, vals=eight, imm=0.0, dst_idx=index)
        p.bn_stats(dst=six, data=a)
        p.bn_aggr(dst=d[:, :2], data=six)
        p.tensor_copy_predicated(dst=d, src=a, predicate=mask)
        p.nc_stream_shuffle(dst=d, src=a, shuffle_mask=[31 - k for k in range(32)])
        add(f"scan, searches, statistics, selections {place}", p)
        p = Program("case")
        a, d = tensors(p, place, "sbuf")
        (one,) = tensors(p, "sbuf", n=1)
        p.range_select(dst=d, on_true_tile=a, comp_op0="greater_equal", comp_op1="less", bound0=one, bound1=one, reduce_res=d[:, :1])
        add(f"range_select {place}", p)
        p = Program("case")
        a, d = tensors(p, place, "sbuf")
        (one,) = tensors(p, "sbuf", n=1)
        p.activation_reduce(dst=d, op="exp", data=a, reduce_op="add", reduce_res=one)
        add(f"activation_reduce exp {place}", p)
    for place in ("sbuf", "psum"):
        p = Program("case")
        a, d = tensors(p, place, "sbuf")
        (mask,) = tensors(p, "sbuf", dtype="uint8")
        (one,) = tensors(p, "sbuf", n=1)
        (bits,) = tensors(p, place, dtype="uint32")
        (seed,) = tensors(p, place, n=1, dtype="uint32")
        p.tensor_scalar_reduce(dst=d, data=a, op0="add", operand0=2.0, reduce_op="max", reduce_cmd="load_reduce", reduce_init=one)
        p.tensor_scalar_cumulative(dst=d, src=a, op0="multiply", op1="add", imm0=2.0)
        p.tensor_scalar_cumulative(dst=d, src=a, op0="multiply", op1="add", imm0=one)
        p.select_reduce(dst=d, predicate=mask, on_true=a, on_false=0.0)
        p.select_reduce(dst=d, predicate=mask, on_true=a, on_false=one, reduce_res=d[:, :1], reduce_cmd="reset_reduce")
        p.tensor_copy_predicated(dst=d, src=1.0, predicate=mask, reverse_pred=True)
        p.dropout(dst=d, data=a, prob=0.5)
        p.rng(dst=bits)
        p.set_rng_seed(src_seeds=seed[:1])
        add(f"accumulator, random numbers {place}", p)
    p = Program("case")
    a, d = tensors(p, "sbuf", "sbuf")
    i, j = tensors(p, "sbuf", "sbuf", dtype="int32")
    small, best = tensors(p, "sbuf", "sbuf", dtype="bfloat16")
    (bits,), (index,) = tensors(p, "sbuf", dtype="uint32"), tensors(p, "sbuf", n=32, dtype="uint16")
    p.tensor_partition_reduce(dst=d[:1], op="add", data=a)
    p.sequence_bounds(dst=j[:1], segment_ids=i[:1, : N // 2])
    p.local_gather(dst=d, src_buffer=a, index=index)
    p.local_gather(dst=best, src_buffer=small, index=index[:, :8], num_elem_per_idx=4)
    p.topk(val_dst=best[:, :64], idx_dst=bits[:, :64], src=small, n=16 * N)
    add("across partitions", p)
    p = Program("case")
    i, j = tensors(p, "sbuf", "sbuf", dtype="int32")
    p.nonzero_with_count(dst=j, src=i[:, : N - 1])
    add("nonzero_with_count", p)
    p = Program("case")
    (bits,) = tensors(p, "sbuf", dtype="uint32")
    p.rng(dst=bits, engine="gpsimd")
    p.rand_set_state(src_seeds=bits[:, :6])
    p.rand_get_state(dst=bits[:, :6])
    add("random numbers with generators of six words", p)
    for dtype in ("float32", "bfloat16"):
        for place in ("sbuf", "psum"):
            p = Program("case")
            a, d = tensors(p, place, "sbuf", dtype=dtype)
            p.exponential(dst=d, src=a)
            p.exponential(dst=d, src=a, reduce_res=d[:, :1], reduce_cmd="reset_reduce")
            add(f"exponential {dtype} {place}", p)
    p = Program("case")
    (a,), (words,) = tensors(p, "sbuf"), tensors(p, "sbuf", n=24, dtype="uint32")
    p.rand2(dst=a, min=0.0, max=1.0)
    p.rand_set_state(src_seeds=words, engine="vector")
    p.rand_get_state(dst=words, engine="vector")
    add("random numbers of newer vector engines", p)
    p = Program("case")
    a, d = tensors(p, "sbuf", "sbuf")
    p.activate2(
        dst=d, op="exp", data=a, imm0=2.0, imm1=1.0, op0="multiply", op1="add",
        reduce_op="maximum", reduce_cmd="reset_reduce", reduce_res=d[:, :1],
    )  # fmt: skip
    add("activate2", p)
    p = Program("case")
    (a,) = tensors(p, "sbuf", n=4 * N, dtype="bfloat16")
    q, scales = p.sbuf((128, N), "float8_e4m3fn_x4"), p.sbuf((128, N), "uint8")
    p.quantize_mx(dst=q, src=a, dst_scale=scales)
    p.nc_matmul_mx(dst=p.psum((128, N)), stationary=q[:, :128], moving=q, stationary_scale=scales[:, :128], moving_scale=scales)
    add("quantize_mx, nc_matmul_mx", p)
    p = Program("case")
    (a,) = tensors(p, "sbuf", n=2 * N, dtype="float8_e4m3")
    a = a.reshape(128, 2, N)
    p.nc_matmul(dst=p.psum((128, N)), stationary=a[:, :, :128], moving=a, perf_mode="double_row")
    p.nc_matmul(dst=p.psum((32, N)), stationary=a[:64, 0, :32], moving=a[:64, 0], tile_position=(0, 0), tile_size=(64, 64))
    add("nc_matmul double_row, on a tile", p)
    for dtype in ("float32", "bfloat16"):
        p = Program("case")
        s, m = tensors(p, "sbuf", "sbuf", dtype=dtype)
        out_, turned = p.psum((128, N)), p.psum((128, 128), dtype)
        p.nc_matmul(dst=out_, stationary=s[:, :128], moving=m)
        p.nc_matmul(dst=out_[:32, :64], stationary=s[:, :32], moving=m[:, :64])
        p.nc_transpose(dst=turned, data=s[:, :128])
        add(f"nc_matmul, nc_transpose {dtype}", p)
    for way in ({"engine": "gpsimd"}, {"engine": "sync"}, {"engine": "scalar"}, {"engine": "sync", "dge_mode": "none"}):
        p = Program("case")
        x, y, t = p.input("x", (128, N), "float32"), p.output("y", (128, N), "float32"), p.sbuf((128, N), "float32")
        p.dma_copy(dst=t, src=x, **way)
        p.dma_copy(dst=t[:, :32], src=x[:, :32], **way)
        p.dma_copy(dst=y, src=t, **way)
        p.dma_copy(dst=y[:, :32], src=t[:, :32], **way)
        add(f"dma_copy {' '.join(way.values())}", p)
    p = Program("case")
    constant, kept, r = p.constant(np.array([1]), "int32"), p.hbm((1,), "int32"), p.register_alloc()
    for e in Engine:
        name = e.name.lower()
        p.register_move(r, 1, engine=name)
        p.register_alu(r, r, "add", 1, engine=name)
        p.register_load(r, constant, engine=name)
        p.register_store(kept, r, engine=name)
        p.compare_branch(r, "less", 1, engine=name)
    add("registers", p)
    for name, build in DMA_CASES.items():
        p = Program("case")
        build(p)
        add(name, p)
    return out


def _transposes(p: Program, dtype: str) -> None:
    x, wide, t = p.input("x", (N, 128), dtype), p.sbuf((128, N), dtype), p.sbuf((128, 128), dtype)
    p.dma_transpose(dst=wide, src=x)
    p.dma_transpose(dst=t[:64], src=x[:128, :64])
    p.dma_transpose(dst=t, src=wide[:, :128])


def _transpose_by_hardware(p: Program) -> None:
    x, t = p.input("x", (N, 128), "bfloat16"), p.sbuf((128, 128), "bfloat16")
    p.dma_transpose(dst=t[:, :16], src=x[:16], dge_mode="hwdge")


def _indirect(p: Program) -> None:
    x, at, one = p.input("x", (512, N), "float32"), p.sbuf((128, 1), "uint32"), p.sbuf((1, 1), "int32")
    rows, y, t = p.input("rows", (128, 1), "uint32"), p.output("y", (512, N), "float32"), p.sbuf((128, N), "float32")
    p.dma_copy(dst=at, src=rows)
    p.memset(dst=one, value=0)
    p.dma_copy(dst=t, src=x.ap([[N, 128], [1, N]], vector_offset=at))
    p.dma_copy(dst=y.ap([[N, 128], [1, N]], vector_offset=at), src=t)
    p.dma_copy(dst=t, src=x.ap([[N, 128], [1, N]], scalar_offset=one), engine="gpsimd")


def _dynamic_by_hardware(p: Program) -> None:
    x, one, t = p.input("x", (512, N), "float32"), p.sbuf((1, 1), "int32"), p.sbuf((128, N), "float32")
    p.memset(dst=one, value=0)
    p.dma_copy(dst=t, src=x.ap([[N, 128], [1, N]], scalar_offset=one), engine="sync")
    p.dma_copy(dst=t, src=x.ap([[N, 128], [1, N]], scalar_offset=one), engine="scalar", dge_mode="hwdge")


def _by_register(p: Program) -> None:
    x, t, r = p.input("x", (512, N), "float32"), p.sbuf((128, N), "float32"), p.register_alloc(1)
    p.dma_copy(dst=t, src=x.ap([[N, 128], [1, N]], scalar_offset=r), engine="gpsimd")


def _moved_operands(p: Program) -> None:
    t, u, one = p.sbuf((128, 2, N), "float32"), p.sbuf((128, N), "float32"), p.sbuf((1, 1), "int32")
    p.memset(dst=t, value=0)
    p.memset(dst=one, value=0)
    for e in ("vector", "gpsimd"):
        p.tensor_copy(dst=u, src=t.select(1, one), engine=e)
        p.tensor_copy(dst=u, src=t.select(1, p.register_alloc(1)), engine=e)
    p.activation(dst=u, op="copy", data=t.select(1, one))
    p.nc_matmul(dst=p.psum((128, N)), stationary=u[:, :128], moving=t.select(1, one))


def _transpose_with_indices(p: Program) -> None:
    many, short, turned = p.sbuf((128, 4), "uint32"), p.input("short", (512, 128), "bfloat16"), p.sbuf((128, 512), "bfloat16")
    p.memset(dst=many, value=0, engine="gpsimd")
    p.dma_transpose(dst=turned, src=short.ap([[128, 512], [1, 128]], vector_offset=many))


def _sums(p: Program) -> None:
    x, at, rows = p.input("x", (128, N), "float32"), p.sbuf((128, 1), "uint32"), p.input("rows", (128, 1), "uint32")
    y, t, z = p.hbm((512, N), "float32"), p.sbuf((128, N), "float32"), p.hbm((128, N), "float32")
    p.dma_copy(dst=at, src=rows)
    p.dma_copy(dst=t, src=x)
    p.dma_copy(dst=y[:128], src=t)
    p.dma_compute(dst=t, srcs=[x, t], reduce_op="add")
    p.dma_compute(dst=z, srcs=[x] * 16, reduce_op="add")
    found = y.ap([[N, 128], [1, N]], vector_offset=at)
    p.dma_compute(dst=found, srcs=[found, t], reduce_op="add")
    p.dma_compute(dst=t, srcs=[t, found], reduce_op="add")


DMA_CASES = {
    "dma_transpose float32": lambda p: _transposes(p, "float32"),
    "dma_transpose bfloat16": lambda p: _transposes(p, "bfloat16"),
    "dma_transpose hwdge": _transpose_by_hardware,
    "dma_copy with indices": _indirect,
    "dma_copy at a run-time address, hwdge": _dynamic_by_hardware,
    "dma_copy at an address in a register": _by_register,
    "operands moved by a number in SBUF, by a register": _moved_operands,
    "dma_transpose with indices": _transpose_with_indices,
    "dma_compute": _sums,
}


def listing(name: str) -> str:
    """Issue interval and latency of every row by state, and the shares of every DMA."""
    lines = [f"# costs on {name}, in ticks; 1 ns = {float(chip.load(name).ticks_per_ns)} ticks"]
    for label, program in cases():
        lines += ["", label]
        try:
            r = simulate(program, name, values=False)
        except Unsupported as e:
            lines.append(f"  unsupported: {e.required}")
            continue
        t = r.table
        for k, step in enumerate(r.steps):
            if step.instruction.mnemonic == "memset" and "memset" not in label and "gpsimd" not in label:
                continue
            work = step.instruction.work()
            lines.append(f"  {step.engine.label} {step.instruction.opcode} {work.kind} N={work.elements}")
            for row in np.flatnonzero(t.step[: t.rows] == k).tolist():
                c = int(t.cost[row])
                cells = [f"issue {_states(t.cost_issue[c])}", f"latency {_states(t.cost_latency[c])}"]
                cells += [f"load {_states(t.cost_load[c])}"] if t.rule[row] == Rule.LOAD else []
                cells += [f"work {t.work[row]}"] if t.work[row] else []
                lines.append(f"    {t.stream_names[t.stream_of(row)]}: {', '.join(cells)}")
            mine = np.flatnonzero(t.step[t.rows :] == k)
            for m in mine[[0, -1]].tolist() if len(mine) else []:
                lines.append(
                    f"    DMA {t.server[m]}: arrival {t.arrival[m]}, packets {t.packets[m]} x {t.packet[m]}, first {t.first[m]},"
                    f" last {t.last[m]}, busy {t.busy_delay[m]}/{t.busy_stall[m]}"
                )
    return "\n".join(lines) + "\n"


def _states(values: np.ndarray) -> str:
    return "/".join(map(str, values.tolist())) if len(set(values.tolist())) > 1 else str(values[0])


@pytest.mark.parametrize("name", chip.names())
def test_every_cost_is_as_reviewed(name: str) -> None:
    assert listing(name) == (GOLDEN / f"costs_{name}.txt").read_text(), f"costs on {name} changed: review, then write the file anew"


def test_every_machine_instruction_is_listed() -> None:
    seen = {s.instruction.mnemonic for _, p in cases() for s in simulate(p, newer(), values=False).steps}
    assert {m for m, c in REGISTRY.items() if c.machine} <= seen | {"event_semaphore"}  # timed as nop


if __name__ == "__main__":
    for each in chip.names():
        (GOLDEN / f"costs_{each}.txt").write_text(listing(each))
