"""GpSimd across partitions, against loops over elements; who is refused, and what it costs."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from nc_sim import Program, ProgramError, Unspecified, simulate
from tiles import Tiles, computed, tile

SIZES = [(128, 1), (1, 127), (127, 128), (3, 16384)]


# --- tensor_partition_reduce -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["add", "average", "maximum", "bitwise_or", "bitwise_and"])
@pytest.mark.parametrize(("partitions", "n"), SIZES)
def test_partitions_are_reduced_to_one(partitions: int, n: int, op: str) -> None:
    bits = op.startswith("bitwise")
    rng = np.random.default_rng(n)
    x = rng.integers(-(2**31), 2**31, (partitions, n)) if bits else rng.uniform(-1, 1, (partitions, n)).astype(np.float32)
    kind = "int32" if bits else "float32"
    got = computed(lambda p, t: p.tensor_partition_reduce(dst=t["r"], op=op, data=t["x"]), {"x": (x, kind)}, {"r": ((1, n), kind)})["r"]
    for k in range(0, n, 101):
        column = x[:, k].tolist()
        if bits:
            wanted = 0 if op == "bitwise_or" else -1
            for v in column:
                wanted = wanted | v if op == "bitwise_or" else wanted & v
            assert got[0, k] == wanted
        else:
            wanted = {"add": sum(column), "average": sum(column) / partitions, "maximum": max(column)}[op]
            assert got[0, k] == pytest.approx(wanted, rel=1e-5, abs=1e-5)


def test_every_spelling_of_a_reduction_across_partitions() -> None:
    p = Program()
    one, x = p.sbuf((1, 8), "float32"), p.sbuf((4, 8), "float32")
    for op in ("nl.average", np.average, np.add, "max", np.max, "nki.language.add"):
        p.tensor_partition_reduce(dst=one, op=op, data=x)
    assert [s.instruction.op for s in p.steps] == ["average", "average", "add", "maximum", "maximum", "add"]


# --- sequence_bounds -------------------------------------------------------------------------------------------------


def test_the_documented_example_of_sequence_bounds() -> None:
    # nki/test/test_nki_isa_sequence_bounds.py, Expected output for this example
    ids = np.array([[0, 1, 1, 2, 2, 2, 0, 3, 3]])
    got = bounds(ids, "int32")
    assert got.tolist() == [[9, 1, 1, 3, 3, 3, 9, 7, 7], [-1, 3, 3, 6, 6, 6, -1, 9, 9]]


def bounds(ids: np.ndarray, dtype: str) -> np.ndarray:
    n = ids.shape[1]
    build = lambda p, t: p.sequence_bounds(dst=t["r"].reshape(1, 2, n), segment_ids=t["ids"])  # noqa: E731
    return computed(build, {"ids": (ids, dtype)}, {"r": ((1, 2 * n), dtype)})["r"].reshape(2, n)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("n", [1, 127, 128, 8192])
def test_sequence_bounds_by_looking_left_and_right(n: int, dtype: str) -> None:
    ids = np.repeat(np.random.default_rng(n).integers(0, 4, n), 3)[:n][None]
    got = bounds(ids, dtype)
    row = ids[0].tolist()
    for i in range(0, n, 37):
        left, right = i, i + 1
        while left > 0 and row[left - 1] == row[i]:
            left -= 1
        while right < n and row[right] == row[i]:
            right += 1
        assert got[:, i].tolist() == ([n, -1] if row[i] == 0 else [left, right])


@pytest.mark.parametrize(("ids", "dtype"), [([[1, -1]], "int32"), ([[0.5, 1]], "float32")])
def test_segment_ids_are_whole_and_not_negative(ids: Any, dtype: str) -> None:
    with pytest.raises(ProgramError, match="an ID that is negative or not whole; whole numbers from 0 on"):
        bounds(np.array(ids), dtype)


# --- local_gather ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8"])
@pytest.mark.parametrize(
    ("partitions", "source", "columns", "e", "valid"),
    [(16, 32, 1, 1, None), (128, 127, 8, 1, None), (112, 128, 3, 4, 41), (128, 2048, 16, 32, 129), (32, 16000, 256, 1, 4096)],
)
def test_local_gather_by_groups(partitions: int, source: int, columns: int, e: int, valid: int | None, dtype: str) -> None:
    rng = np.random.default_rng(columns)
    src = rng.integers(0, 255, (partitions, source)).astype(np.float32)
    index = rng.integers(0, source - e + 1, (partitions, columns))
    count = valid or 16 * columns

    def build(p: Program, t: Tiles) -> None:
        p.local_gather(dst=t["r"], src_buffer=t["s"], index=t["i"], num_elem_per_idx=e, num_valid_indices=valid)

    got = computed(build, {"s": (src, dtype), "i": (index, "uint16")}, {"r": ((partitions, count * e), dtype)})["r"].astype(float)
    stored = src.astype(ml_dtypes.bfloat16).astype(float) if dtype == "bfloat16" else src
    for p in range(0, partitions, 5):
        base = p - p % 16
        order = [index[base + r, c] for c in range(columns) for r in range(16)][:count]
        wanted = [stored[p, i + j] for i in order for j in range(e)]
        assert got[p].tolist() == wanted


def test_an_index_out_of_bounds_is_an_error() -> None:
    p = Program()
    s, i, r = tile(p, (16, 4)), p.sbuf((16, 1), "uint16"), p.sbuf((16, 32), "float32")
    p.memset(dst=i, value=3)
    p.local_gather(dst=r, src_buffer=s, index=i, num_elem_per_idx=2)
    with pytest.raises(ProgramError, match="an index that reaches 4; 0 to 3"):
        simulate(p)


# --- nonzero_with_count ----------------------------------------------------------------------------------------------


def test_the_documented_example_of_nonzero_with_count() -> None:
    # nki.isa.nonzero_with_count: [0, 1, 1, 0, 0, 1, 0, 0] with index_offset 16
    got = nonzero(np.array([[0, 1, 1, 0, 0, 1, 0, 0]]), "int32", index_offset=16, padding_val=-1)
    assert got.tolist() == [[17, 18, 21, -1, -1, -1, -1, -1, 3]]


def nonzero(x: np.ndarray, dtype: str, **how: int) -> np.ndarray:
    def build(p: Program, t: Tiles) -> None:
        p.memset(dst=t["r"], value=77)
        p.nonzero_with_count(dst=t["r"], src=t["x"], **how)

    return computed(build, {"x": (x, dtype)}, {"r": ((x.shape[0], x.shape[1] + 1), "int32")})["r"]


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize(("partitions", "n"), SIZES)
def test_places_of_nonzero_elements_in_the_first_partition_of_each_group(partitions: int, n: int, dtype: str) -> None:
    x = np.random.default_rng(n).integers(-1, 2, (partitions, n))
    got = nonzero(x, dtype, index_offset=-5, padding_val=9)
    for p in range(partitions):
        places = [k - 5 for k, v in enumerate(x[p].tolist()) if v]
        wanted = [*places, *[9] * (n - len(places)), len(places)] if p % 16 == 0 else [77] * (n + 1)
        assert got[p].tolist() == wanted


def test_its_destination_need_not_have_been_written() -> None:
    # as in the example of nki.isa.nonzero_with_count
    p = Program()
    t = p.sbuf((32, 9), "int32")
    p.nonzero_with_count(dst=t, src=tile(p, (32, 8), "int32"))
    p.dma_copy(dst=p.output("y", (32, 9), "int32"), src=t)
    got = simulate(p).outputs["y"]
    assert got[16].tolist() == [*range(8), 8]
    assert (got[1] == -1).all()  # memory nobody wrote


# --- topk ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("partitions", "columns", "n", "k"), [(16, 1, 8, 1), (128, 3, 42, 8), (32, 8, 128, 127), (16, 4096, 65535, 2048), (16, 512, 8192, 8192)]
)
def test_topk_of_snakes(partitions: int, columns: int, n: int, k: int) -> None:
    x = np.random.default_rng(n).integers(-40, 40, (partitions, columns)) / 4

    def build(p: Program, t: Tiles) -> None:
        for name in ("v", "i"):
            p.memset(dst=t[name], value=3)
        p.topk(val_dst=t["v"], idx_dst=t["i"], src=t["x"], n=n)

    got = computed(build, {"x": (x, "bfloat16")}, {"v": ((partitions, k), "bfloat16"), "i": ((partitions, k), "uint32")})
    for base in range(0, partitions, 16):
        snake = [x[base + i % 16, i // 16] for i in range(n)]
        best = sorted(range(n), key=lambda i: (-snake[i], i))[:k][::-1]
        values = [float(got["v"][base + j % 16, j // 16]) for j in range(k)]
        assert values == [snake[i] for i in best]
        assert [int(got["i"][base + j % 16, j // 16]) for j in range(k)] == best
    written = np.zeros((partitions, k), bool)
    for p, j in itertools.product(range(partitions), range(k)):
        written[p, j] = j * 16 + p % 16 < k
    assert (got["v"][~written].astype(float) == 3).all()
    assert (got["i"][~written] == 3).all()


def test_where_nan_stands_is_not_said() -> None:
    p = Program()
    t = p.sbuf((16, 1), "bfloat16")
    p.memset(dst=t, value=float("nan"))
    p.topk(val_dst=p.sbuf((16, 1), "bfloat16"), idx_dst=p.sbuf((16, 1), "uint32"), src=t, n=16)
    with pytest.raises(Unspecified, match="NaN in src; numbers: where NaN stands in the order is not said"):
        simulate(p)


# --- refusals and costs ----------------------------------------------------------------------------------------------

F, N, U, H, B = "float32", "int32", "uint32", "uint16", "bfloat16"
USUAL: dict[str, dict[str, Any]] = {
    "tensor_partition_reduce": {"dst": ((1, 8), F), "op": "add", "data": ((4, 8), F)},
    "sequence_bounds": {"dst": ((1, 16), N), "segment_ids": ((1, 8), N)},
    "local_gather": {"dst": ((16, 16), F), "src_buffer": ((16, 8), F), "index": ((16, 1), H)},
    "nonzero_with_count": {"dst": ((4, 9), N), "src": ((4, 8), N)},
    "topk": {"val_dst": ((16, 4), B), "idx_dst": ((16, 4), U), "src": ((16, 2), B), "n": 20},
}


@pytest.mark.parametrize(
    ("call", "changes", "message"),
    [
        ("tensor_partition_reduce", {"dst": ((2, 8), F)}, r"dst has 2 partitions; 1 \(nki\.isa\.tensor_partition_reduce\)"),
        ("tensor_partition_reduce", {"dst": ((1, 7), F)}, "data has 8 elements per partition, dst has 7"),
        ("tensor_partition_reduce", {"op": "minimum"}, "op: 'minimum'; one of add, average, maximum, bitwise_or, bitwise_and"),
        ("tensor_partition_reduce", {"op": "bitwise_or"}, "bitwise_or of float32; integer types of one width"),
        ("sequence_bounds", {"dst": ((1, 15), N)}, "dst has 15 elements; 16, a start and an end for each ID"),
        ("sequence_bounds", {"dst": ((2, 16), N)}, "dst has 2 partitions; 1"),
        ("sequence_bounds", {"segment_ids": ((2, 8), N)}, "segment_ids has 2 partitions; 1"),
        ("sequence_bounds", {"segment_ids": ((1, 8), H)}, "segment_ids is uint16; float32 or int32"),
        ("sequence_bounds", {"dst": ((1, 16), B)}, "dst is bfloat16; float32 or int32"),
        ("local_gather", {"src_buffer": ((15, 8), F)}, "src_buffer has 15 partitions; a multiple of 16"),
        ("local_gather", {"index": ((32, 1), H)}, "index has 32 partitions, src_buffer has 16"),
        ("local_gather", {"dst": ((32, 16), F)}, "dst has 32 partitions, src_buffer has 16"),
        ("local_gather", {"index": ((16, 1), U)}, "index is uint32; uint16"),
        ("local_gather", {"dst": ((16, 16), B)}, "src_buffer is float32, dst is bfloat16; they must match"),
        ("local_gather", {"num_elem_per_idx": 3}, "num_elem_per_idx=3; one of 1, 2, 4, 8, 16, 32"),
        ("local_gather", {"num_elem_per_idx": 64}, "num_elem_per_idx: 64; 1 to 32"),
        ("local_gather", {"num_valid_indices": 17}, "num_valid_indices=17; at most 16, those of a group in index"),
        ("local_gather", {"index": ((16, 257), H)}, "4112 indices in a group; at most 4096"),
        ("local_gather", {"dst": ((16, 15), F)}, "dst has 15 elements per partition; 16"),
        ("nonzero_with_count", {"dst": ((3, 9), N)}, "dst has 3 partitions, src has 4"),
        ("nonzero_with_count", {"dst": ((4, 8), N)}, "dst has 8 elements per partition; 9, one more than src"),
        ("nonzero_with_count", {"dst": ((4, 9), F)}, "dst is float32; int32"),
        ("nonzero_with_count", {"src": ((4, 8), B)}, "src is bfloat16; float32 or int32"),
        ("nonzero_with_count", {"index_offset": 2**31}, "index_offset: 2147483648; "),
        ("topk", {"src": ((8, 2), B)}, "src has 8 partitions; a multiple of 16"),
        ("topk", {"src": ((16, 2), F)}, "src is float32; bfloat16"),
        ("topk", {"val_dst": ((16, 4), F)}, "val_dst is float32; bfloat16"),
        ("topk", {"idx_dst": ((16, 4), N)}, "idx_dst is int32; uint32"),
        ("topk", {"idx_dst": ((16, 5), U)}, "idx_dst has 5 elements per partition, val_dst has 4"),
        ("topk", {"val_dst": ((32, 4), B), "idx_dst": ((32, 4), U)}, "val_dst has 32 partitions, src has 16"),
        ("topk", {"n": 7}, "n: 7; 8 to 65535"),
        ("topk", {"n": 33}, "src has 2 elements per partition; at least 3 for n=33"),
        ("topk", {"val_dst": ((16, 21), B), "idx_dst": ((16, 21), U)}, "K=21, the elements of val_dst per partition; at most n=20"),
        ("topk", {"val_dst": ((16, 2**15), B), "idx_dst": ((16, 2**15), U)}, "K=32768, .*; at most 32767"),
    ],
)
def test_refused(call: str, changes: dict[str, Any], message: str) -> None:
    p = Program()
    operands = {n: p.sbuf(*v) if isinstance(v, tuple) else v for n, v in {**USUAL[call], **changes}.items()}
    with pytest.raises(ProgramError, match=message):
        getattr(p, call)(**operands)


@pytest.mark.parametrize("call", list(USUAL))
def test_the_gpsimd_engine_alone_runs_them_in_sbuf(call: str) -> None:
    p = Program()
    operands = {n: p.sbuf(*v) if isinstance(v, tuple) else v for n, v in USUAL[call].items()}
    with pytest.raises(ProgramError, match="engine vector; one of gpsimd"):
        getattr(p, call)(**operands, engine="vector")
    name, (shape, dtype) = next((n, v) for n, v in USUAL[call].items() if isinstance(v, tuple))
    with pytest.raises(ProgramError, match=f"{name} is in PSUM; SBUF: the GpSimdEngine does not reach PSUM"):
        getattr(p, call)(**{**operands, name: p.psum(shape, dtype)})


def test_costs_across_partitions() -> None:
    # 150 cycles of 1.2 GHz and: 16 a column, 4 an ID, 4 an element (all assumed), SDK 2.26's local_gather, SDK 2.32's topk 4 n + K
    p = Program()
    made = {n: {k: tile(p, *v) if isinstance(v, tuple) else v for k, v in o.items()} for n, o in USUAL.items()}
    for call, operands in made.items():
        getattr(p, call)(**operands)
    wide = tile(p, (16, 64), "uint8")
    p.local_gather(dst=wide, src_buffer=wide, index=made["local_gather"]["index"], num_elem_per_idx=4)
    result = simulate(p, values=False)
    took = [i.duration_ns for i in result.instructions if i.opcode != "MEMSET"]
    cycles = [16 * 8, 4 * 8, 16 * (7 + 1), 4 * 8, 4 * 20 + 4, 16 * (7 + 4) / 4]
    assert took == pytest.approx([125 + c / 1.2 for c in cycles], abs=0.25)
    assert "gpsimd.partition_reduce.cycles_per_element" in result.assumed
