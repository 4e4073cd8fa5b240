"""Every call of nki.isa with formulas of its own, and sizes to try: 1, 127, 128 and the largest.

Sizes are (partitions, elements per partition) unless a call's samples say otherwise; the formulas are written from the
definitions in nki.isa (SDK 2.32) and share nothing with the code under test.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import attrs
import numpy as np

import calls_other as other
import calls_vector as vector
from samples import BF16, Sample

CHIPS = {"trn1": 2, "inf2": 2, "trn2": 3, "trn3": 4}  # NeuronCore version
SIZES = ((1, 1), (127, 1), (1, 127), (127, 127), (128, 128), (128, 1), (1, 128), (127, 128))
TWO, THREE = (1, 20_000), (1, 14_000)  # what two and three fp32 tiles may have in the smallest SBUF
Make = Callable[[int, int, int, np.random.Generator], Sample]
Size = tuple[int, int]


def any_size(p: int, n: int) -> Size:
    return p, n


@attrs.frozen
class Call:
    """Samples of a call, and sizes that it takes: `legal` turns any size into one; `since` is a NeuronCore version."""

    make: Make
    sizes: Sequence[Size] = SIZES
    largest: Sequence[Size] = ()
    since: int = 2
    legal: Callable[[int, int], Size] = any_size


def numbers(name: str, more: int = 0) -> np.random.Generator:
    """Random numbers of a call, the same in every run."""
    return np.random.default_rng(zlib.crc32(name.encode()) + more)


def groups(p: int, n: int) -> Size:
    """Whole groups of GpSimd's 16 partitions, and enough numbers for topk."""
    return -(-p // 16) * 16, max(n, 8)


def eights(p: int, n: int) -> Size:
    return p, max(n, 8)


def quadrants(p: int, n: int) -> Size:
    """Whole quadrants of 32 partitions, and groups of four elements."""
    return -(-p // 32) * 32, -(-n // 4) * 4


def one_row(p: int, n: int) -> Size:
    return 1, n


GROUPS = ((16, 1), (112, 127), (128, 128), (16, 128))  # whole groups of GpSimd's 16 partitions
MX_ROWS = ((32, 1), (32, 127), (64, 128), (128, 128), (96, 127))
ONE = ((1, 1), (1, 127), (1, 128))
PLANES = ((1, 1), (127, 127), (128, 128), (1, 127), (127, 1), (128, 127))

CALLS: dict[str, list[Call]] = {
    "tensor_tensor": [Call(vector.tensor_tensor, largest=[THREE]), Call(vector.integers_on_gpsimd, largest=[THREE])],
    "tensor_scalar": [Call(vector.tensor_scalar, largest=[TWO]), Call(vector.bits_of_tensor_scalar, largest=[TWO])],
    "scalar_tensor_tensor": [Call(vector.scalar_tensor_tensor, largest=[THREE])],
    "tensor_tensor_scan": [Call(vector.tensor_tensor_scan, largest=[(1, 8192)])],
    "tensor_reduce": [Call(vector.tensor_reduce, largest=[(1, 40_000)])],
    "tensor_copy": [Call(vector.tensor_copy, largest=[TWO])],
    "reciprocal": [Call(vector.reciprocal, largest=[TWO])],
    "memset": [Call(vector.memset, largest=[(1, 40_000)])],
    "tensor_scalar_reduce": [Call(vector.tensor_scalar_reduce, largest=[TWO])],
    "tensor_scalar_cumulative": [Call(vector.tensor_scalar_cumulative, largest=[(1, 8192)])],
    "exponential": [Call(vector.exponential, largest=[TWO], since=4)],
    "activation": [Call(vector.activation, largest=[TWO])],
    "activation_reduce": [Call(lambda *a: vector.activation(*a, call="activation_reduce"), largest=[TWO])],
    "activate2": [Call(vector.activate2, largest=[TWO], since=4)],
    "tensor_copy_predicated": [Call(vector.tensor_copy_predicated, largest=[(1, 10_000)])],
    "range_select": [Call(vector.range_select, largest=[TWO], since=3)],
    "select_reduce": [Call(vector.select_reduce, largest=[THREE])],
    "nc_stream_shuffle": [Call(vector.nc_stream_shuffle, largest=[TWO])],
    "max8": [Call(vector.max8, sizes=((1, 8), (127, 127), (128, 128), (128, 9)), largest=[(2, 16_384)], legal=eights)],
    "nc_find_index8": [Call(vector.nc_find_index8, sizes=((1, 8), (127, 127), (128, 128), (128, 9)), largest=[(2, 16_384)], legal=eights)],
    "nc_match_replace8": [
        Call(vector.nc_match_replace8, sizes=((1, 8), (127, 127), (128, 128), (128, 9)), largest=[(2, 16_384)], legal=eights)
    ],
    "bn_stats": [Call(vector.bn_stats, largest=[(128, 512), (1, 511)])],
    "bn_aggr": [Call(vector.bn_aggr, largest=[(1, 5_000)])],
    "iota": [Call(other.iota, largest=[(1, 40_000)])],
    "affine_select": [Call(other.affine_select, largest=[TWO])],
    "nc_n_gather": [Call(other.nc_n_gather, largest=[(2, 513), (1, 10_000)])],
    "local_gather": [Call(other.local_gather, sizes=GROUPS, largest=[(16, 4096)], legal=groups)],
    "tensor_partition_reduce": [Call(other.tensor_partition_reduce, largest=[TWO])],
    "sequence_bounds": [Call(other.sequence_bounds, sizes=ONE, largest=[THREE], legal=one_row)],
    "nonzero_with_count": [Call(other.nonzero_with_count, largest=[TWO], since=3)],
    "topk": [Call(other.topk, sizes=((16, 8), (112, 127), (128, 128)), largest=[(16, 65_535)], legal=groups)],
    "rng": [Call(other.rng, largest=[(1, 16_384)])],
    "set_rng_seed": [Call(other.rng, sizes=ONE)],
    "dropout": [Call(other.dropout, largest=[(1, 16_384)])],
    "rand_set_state": [Call(other.gpsimd_state, largest=[(1, 16_384)], since=3)],
    "rand_get_state": [Call(other.gpsimd_state, sizes=ONE, since=3)],
    "rand2": [Call(other.rand2, largest=[(1, 16_384)], since=4)],
    "nc_matmul": [
        Call(other.nc_matmul, sizes=(*PLANES, (128, 512), (127, 511), (128, 1), (1, 512))),
        Call(other.sums_of_products, sizes=((1, 1), (127, 127), (128, 512))),
        Call(other.nc_matmul, sizes=(), largest=[(128, 4096)], since=4),
        Call(lambda *a: other.nc_matmul(*a, dtype=BF16), sizes=((127, 127),), largest=[(128, 8192)], since=4),
    ],
    "nc_matmul_mx": [Call(other.nc_matmul_mx, sizes=MX_ROWS, largest=[(128, 4096)], since=4, legal=quadrants)],
    "quantize_mx": [Call(other.quantize_mx, sizes=((32, 4), (96, 128), (128, 512)), largest=[(32, 20_000)], since=4, legal=quadrants)],
    "nc_transpose": [Call(other.nc_transpose, sizes=(*PLANES, (32, 32), (1, 1), (31, 32), (32, 1)))],
    "dma_copy": [
        Call(other.dma_copy, largest=[(1, 40_000)]),
        Call(other.rows_found, sizes=((1, 1), (127, 127), (128, 128)), largest=[(1, 20_000)]),
    ],
    "dma_compute": [Call(other.dma_compute, largest=[(1, 10_000)])],
    "dma_transpose": [
        Call(other.dma_transpose, sizes=((1, 1), (127, 127), (128, 128), (1, 128), (128, 1), (127, 1)), largest=[(2_000, 1)])
    ],
    "register_alloc": [Call(other.registers, sizes=((1, 1),) * 4)],
    "register_load": [Call(other.registers, sizes=((1, 1),))],
    "register_move": [Call(other.registers, sizes=((1, 1),))],
    "register_store": [Call(other.registers, sizes=((1, 1),))],
}
# what is no call with values of its own: the test that has it, and a word of it
ELSEWHERE = {
    "core_barrier": ("test_signatures.py", "core_barrier"), "sendrecv": ("test_signatures.py", "sendrecv"),  # two cores do not run yet
    "loop_for": ("test_loops.py", "dynamic_range"), "loop_while": ("test_loops.py", "while_loop"), "loop_end": ("test_loops.py", "for "),
    "register_alu": ("test_registers.py", "register_alu"), "compare_branch": ("test_registers.py", "compare_branch"),
}  # fmt: skip
MADE_BY = {  # machine instructions, and a call that becomes them
    "activate": "activation", "act_read_accumulator": "activation", "act_table_load": "activation", "activate_tensor_scalar": "activate2",
    "gather": "nc_n_gather", "ldweights": "nc_matmul", "matmul": "nc_matmul", "ldweights_mode": "nc_matmul_mx",
    "matmul_mode": "nc_matmul_mx", "transpose": "nc_transpose", "dma_direct2d": "dma_copy", "dma_indirect": "dma_copy",
    "dma_compute2d": "dma_compute", "dma_transpose2d": "dma_transpose",
}  # fmt: skip
WITHOUT_VALUES = {"nop", "event_semaphore"}
