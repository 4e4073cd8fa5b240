"""A golden file lists the cost of every instruction: a timing change shows as a diff to review.

`python tests/golden/test_costs.py` writes the file anew.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from nc_sim import Program, Unsupported, chip, simulate
from nc_sim.isa import REGISTRY, Engine, View
from nc_sim.table import Rule

GOLDEN = Path(__file__).parent
LINE = re.compile(r"^\S+\.py:\d+ ")
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
    p.tensor_scalar(dst=d, data=a, op0="add", operand0=1.0, engine="gpsimd")
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
    return out


def listing(name: str) -> str:
    """Issue interval and latency of every row by state, and the shares of every DMA."""
    lines = [f"# costs on {name}, in ticks; 1 ns = {float(chip.load(name).ticks_per_ns)} ticks"]
    for label, program in cases():
        lines += ["", label]
        try:
            r = simulate(program, name, values=False)
        except Unsupported as e:
            lines.append(f"  Unsupported: {LINE.sub('', str(e))}")
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
    seen = {s.instruction.mnemonic for _, p in cases() for s in simulate(p, values=False).steps}
    assert {m for m, c in REGISTRY.items() if c.machine} <= seen | {"event_semaphore"}  # timed as nop


if __name__ == "__main__":
    for each in chip.names():
        (GOLDEN / f"costs_{each}.txt").write_text(listing(each))
