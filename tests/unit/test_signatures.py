"""Every call of nki.isa, with the parameters it has there (public stubs of nki.isa, SDK 2.32)."""

from __future__ import annotations

import attrs
import pytest

from nc_sim import Program, ProgramError, Unimplemented, simulate
from nc_sim.isa import REGISTRY, fields_of
from tiles import tile

# call: (parameters in order but `name`, which every call takes, how many of them are required)
CALLS = {
    "activate2": ("dst op data imm0 imm1 op0 op1 relu_param reverse0 reverse1 reduce_op reduce_res reduce_cmd", 7),
    "activation": ("dst op data bias scale reduce_op reduce_res reduce_cmd", 3),
    "activation_reduce": ("dst op data reduce_op reduce_res bias scale", 5),
    "affine_select": ("dst pattern channel_multiplier on_true_tile on_false_value cmp_op offset", 5),
    "bn_aggr": ("dst data", 2),
    "bn_stats": ("dst data", 2),
    "core_barrier": ("data cores engine", 2),
    "dma_compute": ("dst srcs reduce_op scales unique_indices oob_mode", 3),
    "dma_copy": ("dst src priority oob_mode dge_mode engine", 2),
    "dma_transpose": ("dst src axes priority dge_mode oob_mode", 2),
    "dropout": ("dst data prob", 3),
    "exponential": ("dst src max_value reduce_res reduce_cmd reduce_init", 2),
    "iota": ("dst pattern offset channel_multiplier", 2),
    "local_gather": ("dst src_buffer index num_elem_per_idx num_valid_indices", 3),
    "max8": ("dst src", 2),
    "memset": ("dst value engine", 2),
    "nc_find_index8": ("dst data vals", 3),
    "nc_match_replace8": ("dst data vals imm dst_idx", 4),
    "nc_matmul": (
        "dst stationary moving is_stationary_onezero is_moving_onezero is_transpose accumulate tile_position tile_size perf_mode",
        3,
    ),
    "nc_matmul_mx": ("dst stationary moving stationary_scale moving_scale tile_position tile_size accumulate", 5),
    "nc_n_gather": ("dst data indices", 3),
    "nc_stream_shuffle": ("dst src shuffle_mask", 3),
    "nc_transpose": ("dst data engine", 2),
    "nonzero_with_count": ("dst src index_offset padding_val", 2),
    "quantize_mx": ("dst src dst_scale", 3),
    "rand2": ("dst min max", 3),
    "rand_get_state": ("dst engine", 1),
    "rand_set_state": ("src_seeds engine", 1),
    "range_select": ("dst on_true_tile comp_op0 comp_op1 bound0 bound1 reduce_cmd reduce_res reduce_op range_start on_false_value", 6),
    "reciprocal": ("dst data", 2),
    "register_alloc": ("x", 0),
    "register_load": ("dst src", 2),
    "register_move": ("dst src", 2),
    "register_store": ("dst src", 2),
    "rng": ("dst engine", 1),
    "scalar_tensor_tensor": ("dst data op0 operand0 op1 operand1 reverse0 reverse1", 6),
    "select_reduce": ("dst predicate on_true on_false reduce_res reduce_cmd reduce_op reverse_pred", 4),
    "sendrecv": ("src dst send_to_rank recv_from_rank pipe_id dma_engine", 5),
    "sequence_bounds": ("dst segment_ids", 2),
    "set_rng_seed": ("src_seeds", 1),
    "tensor_copy": ("dst src engine", 2),
    "tensor_copy_predicated": ("dst src predicate reverse_pred", 3),
    "tensor_partition_reduce": ("dst op data", 3),
    "tensor_reduce": ("dst op data axis negate keepdims", 4),
    "tensor_scalar": ("dst data op0 operand0 reverse0 op1 operand1 reverse1 engine", 4),
    "tensor_scalar_cumulative": ("dst src op0 op1 imm0 imm1 reduce_cmd", 5),
    "tensor_scalar_reduce": ("dst data op0 operand0 reduce_op reduce_res reverse0 reduce_cmd reduce_init reduce_res_negate", 5),
    "tensor_tensor": ("dst data1 data2 op engine", 4),
    "tensor_tensor_scan": ("dst data0 data1 initial op0 op1 reverse0 reverse1", 6),
    "topk": ("val_dst idx_dst src n", 4),
}
# not there yet: registers and the other kinds of DMA
# taken with one value only, which changes nothing
ONE_VALUE: set[tuple[str, str]] = set()
EARLIER = {("dma_copy", "dst_rmw_op"), ("dma_copy", "unique_indices")}  # of earlier SDKs; kernels in public use have them
OPTIONAL = {("tensor_scalar", "operand0")}  # a unary operator has none


def test_every_call_is_there() -> None:
    assert set(CALLS) <= set(REGISTRY)


@pytest.mark.parametrize("call", sorted(set(CALLS) - {"register_alloc"}))  # which is a method that returns the register
def test_a_call_has_the_parameters_of_nki_isa_and_no_other(call: str) -> None:
    names, required = CALLS[call]
    cls = REGISTRY[call]
    wanted = [n for n in names.split() if n != "engine"]
    earlier = {n for c, n in EARLIER if c == call}
    assert {*fields_of(cls), *cls.only} == {*wanted, *earlier}
    # by position they mean the same
    ours = [n for n in fields_of(cls) if n not in earlier]
    assert ours == [n for n in wanted if n in ours]
    needed = [n for n in wanted[:required] if (call, n) not in OPTIONAL]
    assert [a.name for a in attrs.fields(cls) if a.default is attrs.NOTHING] == needed
    for given in cls.only:
        assert (call, given) in ONE_VALUE


@pytest.mark.parametrize("call", [c for c in sorted(CALLS) if "engine" in CALLS[c][0].split() and c in REGISTRY])
def test_a_call_that_names_its_engine_has_several(call: str) -> None:
    assert len(REGISTRY[call].engines) > 1


# --- two cores -------------------------------------------------------------------------------------------------------


def test_two_cores_are_needed() -> None:
    p, q = Program(), Program()
    t = tile(p, (4, 8))
    p.sendrecv(src=t, dst=t, send_to_rank=1, recv_from_rank=1, pipe_id=0)
    q.core_barrier(data=q.hbm((4, 8), "float32"), cores=(0, 1), engine="scalar")
    for program, name in ((p, "sendrecv"), (q, "core_barrier")):
        with pytest.raises(Unimplemented, match=f"{name} on one core; two cores, which nc-sim does not run together yet"):
            simulate(program, values=False)


def own(dtype: str) -> dict[str, object]:
    """257 elements by GpSimd's own DMA."""
    return {"src": ((4, 257), dtype), "dst": ((4, 257), dtype), "dma_engine": "gpsimd_dma"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dst": ((4, 7), "float32")}, r"src is \[4, 8\], dst is \[4, 7\]; they must match \(nki\.isa\.sendrecv\)"),
        ({"dst": ((4, 8), "int32")}, "src is float32, dst is int32; they must match"),
        ({"send_to_rank": 2}, "send_to_rank: 2; 0 to 1"),
        ({"recv_from_rank": -1}, "recv_from_rank: -1; 0 to 1"),
        ({"pipe_id": "a"}, "pipe_id: 'a'; a whole number"),
        ({"dma_engine": "sync"}, "dma_engine: 'sync'; one of dma, gpsimd_dma"),
        (own("float32"), "1028 bytes per partition .* 1024 of 32-bit"),
        (own("bfloat16"), "514 bytes per partition .* 512 of 16-bit"),
        (own("int8"), "257 bytes per partition .* 256 of 8-bit"),
    ],
)  # fmt: skip
def test_sendrecv_refuses(changes: dict[str, object], message: str) -> None:
    p = Program()
    usual: dict[str, object] = {
        "src": ((4, 8), "float32"), "dst": ((4, 8), "float32"), "send_to_rank": 1, "recv_from_rank": 1, "pipe_id": 0
    }  # fmt: skip
    with pytest.raises(ProgramError, match=message):
        p.sendrecv(**{n: p.sbuf(*v) if isinstance(v, tuple) else v for n, v in {**usual, **changes}.items()})


def test_what_two_cores_share_is_in_hbm_and_what_they_swap_in_sbuf() -> None:
    p = Program()
    x, t = p.hbm((4, 8), "float32"), p.sbuf((4, 8), "float32")
    with pytest.raises(ProgramError, match="data is in SBUF; HBM, where both cores see it"):
        p.core_barrier(data=t, cores=(0, 1))
    for cores in ((0,), (0, 2), (1, 0), 2):
        with pytest.raises(ProgramError, match=r"cores: .*; \(0, 1\)"):
            p.core_barrier(data=x, cores=cores)
    with pytest.raises(ProgramError, match="src is in HBM; SBUF"):
        p.sendrecv(src=x, dst=t, send_to_rank=0, recv_from_rank=0, pipe_id=0)
