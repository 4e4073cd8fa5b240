"""Element types, one row each, and the rounding rules between them.

Sources, all from the public Neuron documentation (SDK 2.32):
[types] nki/api/nki.api.shared.rst, Supported Data Types · [trn1] about-neuron/arch/neuron-features/data-types.rst
[casts] release-notes/components/nki.rst, NKI 0.6.0, Bug Fixes · [copy] nki.isa.tensor_copy · [dma] nki.isa.dma_copy
[select] nki.isa.range_select, advanced notes · [trace] operands in published device profiles
"""

from __future__ import annotations

import difflib
from functools import cached_property
from typing import Any, Literal

import attrs
import ml_dtypes
import numpy as np
import numpy.typing as npt

from .errors import ProgramError

_TYPES = "nki.api.shared, Supported Data Types"
_E4M3_MAXIMA: dict[int | None, np.dtype[Any]] = {
    240: np.dtype(ml_dtypes.float8_e4m3),
    448: np.dtype(ml_dtypes.float8_e4m3fn),
}


@attrs.frozen(cache_hash=True)
class DType:
    """One element type. `numpy` is how nc-sim stores it; for tfloat32 that is float32 with 13 low bits of zero.

    `trace_name` is what device profiles print in front of `@0xADDR`. A packed type holds four elements of `lane`, the
    first in the lowest bits, which only MX instructions take apart; `numpy` is then an unsigned integer of its width.
    """

    name: str
    numpy: np.dtype[Any]
    kind: Literal["float", "int", "uint", "packed"]
    exponent_bits: int
    mantissa_bits: int
    trace_name: str
    aliases: tuple[str, ...] = ()
    lane: np.dtype[Any] | None = None

    @cached_property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return int(self.numpy.itemsize)

    def __str__(self) -> str:
        return self.name


# name, storage, kind, exponent and mantissa bits [types; float8_e3m4 and its bits: trn1], trace name, other spellings.
# Trace names: fp32, bfloat16, fp16, uint32 are seen in published profiles [trace]; the others are assumed by analogy.
_ROWS = (
    DType("float32", np.dtype(np.float32), "float", 8, 23, "fp32"),
    DType("tfloat32", np.dtype(np.float32), "float", 8, 10, "tf32"),
    DType("bfloat16", np.dtype(ml_dtypes.bfloat16), "float", 8, 7, "bfloat16", ("bf16",)),
    DType("float16", np.dtype(np.float16), "float", 5, 10, "fp16"),
    DType("float8_e4m3", _E4M3_MAXIMA[240], "float", 4, 3, "fp8_e4m3", ("float8e4", "fp8e4")),
    # The OCP format, its own type in NKI: on NeuronCore-v4 both exist and cannot be mixed in one matmul (nc_matmul).
    DType("float8_e4m3fn", _E4M3_MAXIMA[448], "float", 4, 3, "fp8_e4m3fn"),
    DType("float8_e5m2", np.dtype(ml_dtypes.float8_e5m2), "float", 5, 2, "fp8_e5m2", ("float8e5", "fp8e5")),
    DType("float8_e3m4", np.dtype(ml_dtypes.float8_e3m4), "float", 3, 4, "fp8_e3m4", ("float8e3", "fp8e3")),
    # Scales of MX types: a power of two without a sign.
    DType("float8_e8m0fnu", np.dtype(ml_dtypes.float8_e8m0fnu), "float", 8, 0, "fp8_e8m0fnu"),
    DType("int8", np.dtype(np.int8), "int", 0, 0, "int8"),
    DType("int16", np.dtype(np.int16), "int", 0, 0, "int16"),
    DType("int32", np.dtype(np.int32), "int", 0, 0, "int32"),
    # "boolean stored as uint8" [types]
    DType("uint8", np.dtype(np.uint8), "uint", 0, 0, "uint8", ("bool_", "bool")),
    DType("uint16", np.dtype(np.uint16), "uint", 0, 0, "uint16"),
    DType("uint32", np.dtype(np.uint32), "uint", 0, 0, "uint32"),
    # "4x packed elements, custom data type for nki.isa.nc_matmul_mx and nki.isa.quantize_mx on NeuronCore-v4" [types].
    # fp8 lanes make 32 bits, fp4 lanes 16 (nki/deep-dives/mxfp-matmul.rst). Which lane is lowest is assumed.
    DType("float8_e4m3fn_x4", np.dtype(np.uint32), "packed", 4, 3, "fp8_e4m3fn_x4", lane=np.dtype(ml_dtypes.float8_e4m3fn)),
    DType("float8_e5m2_x4", np.dtype(np.uint32), "packed", 5, 2, "fp8_e5m2_x4", lane=np.dtype(ml_dtypes.float8_e5m2)),
    DType("float4_e2m1fn_x4", np.dtype(np.uint16), "packed", 2, 1, "fp4_e2m1fn_x4", lane=np.dtype(ml_dtypes.float4_e2m1fn)),
)
LANES = 4  # elements of a packed one

DTYPES: dict[str, DType] = {row.name: row for row in _ROWS}
_SPELLINGS: dict[str, DType] = {spelling: row for row in _ROWS for spelling in (row.name, row.trace_name, *row.aliases)}
# Types that no engine has, or names that they go by elsewhere: what is nearest.
_INSTEAD = {
    **dict.fromkeys(("float64", "double", "float", "fp64", "f64", "f32"), ("float32",)),
    **dict.fromkeys(("half", "f16"), ("float16",)),
    **dict.fromkeys(("int64", "long", "int"), ("int32",)),
    **dict.fromkeys(("uint64", "uint"), ("uint32",)),
}
_PREFIXES = ("nki.language.", "nl.", "numpy.", "np.", "ml_dtypes.")

# What `cast` reads besides the types of the device: host arrays.
_HOST = frozenset(map(np.dtype, (np.float64, np.int64, np.uint64, np.bool_)))
_SOURCES = _HOST | {row.numpy for row in _ROWS}


def dtype(of: str | np.dtype[Any] | type | DType) -> DType:
    """The row for a canonical name, an alias, a trace name, or a numpy or ml_dtypes type.

    A string may carry the module NKI code writes in front: `nl.bfloat16`. `ProgramError` for anything else, float64
    and int64 included: no engine has them.
    """
    if isinstance(of, DType):
        return of
    name = ""
    if isinstance(of, str):
        prefix = next((p for p in _PREFIXES if of.startswith(p)), "")
        name = of.removeprefix(prefix)
    elif isinstance(of, np.dtype) or (isinstance(of, type) and issubclass(of, (np.generic, bool, int, float))):
        found = np.dtype(of)
        # numpy's and ml_dtypes' names are the canonical ones. A byte-swapped type shares the name but not the bits.
        name = found.name if found.isnative else ""
    if name in _SPELLINGS:
        return _SPELLINGS[name]
    close = (_SPELLINGS[s].name for s in difflib.get_close_matches(name.lower(), _SPELLINGS, n=3))
    near = list(dict.fromkeys([*_INSTEAD.get(name, ()), *close]))[:3]
    hint = f" (near: {', '.join(near)})" if near else ""
    raise ProgramError("", f"element type {of!r}{hint}", f"one of {', '.join(DTYPES)}", _TYPES)


def storage(of: DType, e4m3_max: int | None = None) -> np.dtype[Any]:
    """The numpy dtype whose bits `of` has in memory; for float8_e4m3 that depends on the chip.

    `e4m3_max` is the largest finite float8_e4m3: 240 (exponent 15 is inf and NaN) or 448 (one NaN, no inf). It has no
    default because it is chip data; only float8_e4m3 reads it.
    """
    if of.name != "float8_e4m3":
        return of.numpy
    if e4m3_max not in _E4M3_MAXIMA:
        raise ProgramError("", f"float8_e4m3 with e4m3_max={e4m3_max}", "e4m3_max=240 or 448, as the chip has it")
    return _E4M3_MAXIMA[e4m3_max]


def cast(x: npt.NDArray[Any], to: DType, *, e4m3_max: int | None = None) -> npt.NDArray[Any]:
    """`x` converted to `to` as the engines and the DMA do it: a new array of dtype `storage(to, e4m3_max)`.

    - Equal types copy bits; NaN payloads survive [copy]. tfloat32 is stored as float32, so it is rounded.
    - Otherwise through float32: source to float32, then float32 to destination [dma, copy]. A 32-bit integer beyond
      2**24 therefore loses low bits, even into another integer type.
    - To float: round to nearest, ties to even, the default rounding mode [trn1]. Too large becomes inf ("-INF since HW
      performs a downcast from FP32_MIN") [select], and NaN in float8_e4m3fn, which has no inf: assumed, the ml_dtypes
      types on which AWS's own simulator stores these formats. Subnormals are kept: assumed.
    - To integer: "round to nearest, ties to even; saturate to the destination range" [casts]. NaN becomes 0: assumed.
    - int64 and uint64 are host data, which no engine reads: to integer they saturate exactly, without float32: assumed.
    - To a packed type: bits of its width, as unsigned integers. Nothing else converts to or from it.

    `ProgramError` if `x` has a type that is neither the device's nor float64, int64, uint64 or bool.
    """
    if x.dtype not in _SOURCES:
        required = "a device type, float64, int64, uint64 or bool"
        raise ProgramError("", f"a cast of {x.dtype.str} to {to.name}", required, _TYPES)
    target = storage(to, e4m3_max)
    if to.kind == "packed" and x.dtype != target:
        raise ProgramError("", f"a cast of {x.dtype.name} to {to.name}", f"its bits as {target.name}: nothing converts to it", _TYPES)
    if x.dtype == target and target != np.float32:  # float32 bits may still have to be rounded to tfloat32
        return x.copy()
    with np.errstate(all="ignore"):
        if to.kind != "float":
            return _to_integer(x, target)
        single = x.astype(np.float32)
        if target == np.float32:
            return _round_mantissa(single, to.mantissa_bits)
        return single.astype(target)


def _round_mantissa(x: npt.NDArray[np.float32], mantissa_bits: int) -> npt.NDArray[np.float32]:
    """float32 `x` with its mantissa rounded to `mantissa_bits`, ties to even.

    Works on the bits: a carry out of the mantissa raises the exponent, which is the right neighbour, up to inf.
    """
    drop = 23 - mantissa_bits
    if drop == 0:
        return x
    bits = x.view(np.uint32)
    below_half = np.uint32((1 << (drop - 1)) - 1)
    keep = np.uint32(0xFFFFFFFF << drop & 0xFFFFFFFF)
    odd = (bits >> np.uint32(drop)) & np.uint32(1)
    # A NaN must not lose its last mantissa bit (it would become inf) nor carry into the sign: it is made quiet.
    quiet = bits | np.uint32(0x00400000)
    return (np.where(np.isnan(x), quiet, bits + below_half + odd) & keep).view(np.float32)


def _to_integer(x: npt.NDArray[Any], target: np.dtype[Any]) -> npt.NDArray[Any]:
    """`x` rounded to nearest even and saturated to the range of the integer type `target`; NaN is 0."""
    info = np.iinfo(target)
    if x.dtype in (np.int64, np.uint64):
        own = np.iinfo(x.dtype)
        return np.asarray(np.clip(x, max(info.min, own.min), min(info.max, own.max))).astype(target)
    # float64 holds every float32 and every bound of a 32-bit integer, so the clip is exact.
    whole = np.rint(x.astype(np.float32).astype(np.float64))
    bounded: npt.NDArray[np.float64] = np.clip(np.where(np.isnan(whole), 0.0, whole), info.min, info.max)
    return bounded.astype(target)


def unpack(x: npt.NDArray[Any], of: DType) -> npt.NDArray[np.float32]:
    """The lanes of packed elements in float32, along a new last axis of 4."""
    assert of.lane is not None, of.name
    bits = 8 * of.itemsize // LANES
    lanes = (x[..., None] >> (np.arange(LANES) * bits).astype(x.dtype)) & x.dtype.type((1 << bits) - 1)
    wide: npt.NDArray[np.float32] = lanes.astype(np.uint8).view(of.lane).astype(np.float32)
    return wide


def pack(lanes: npt.NDArray[Any], to: DType) -> npt.NDArray[Any]:
    """Packed elements from float32 lanes along a last axis of 4: `unpack` in reverse, rounding as `cast` does."""
    assert to.lane is not None, to.name
    with np.errstate(all="ignore"):
        codes = lanes.astype(np.float32).astype(to.lane).view(np.uint8).astype(to.numpy)
    bits = 8 * to.itemsize // LANES
    parts = (codes & to.numpy.type((1 << bits) - 1)) << (np.arange(LANES) * bits).astype(to.numpy)
    packed: npt.NDArray[Any] = np.bitwise_or.reduce(parts, axis=-1).astype(to.numpy)
    return packed
