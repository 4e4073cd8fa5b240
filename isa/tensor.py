"""TensorEngine: matrix multiplication and transposes.

A call `nc_matmul` becomes a weight load (LDWEIGHTS) and a pass of the moving operand (MATMUL); fp32 takes two of each,
LOW and HIGH (trn2 traces, lowering rule B3). The product is computed once, on the last pass. fp8 double rows, MX formats and
tiles of the array make both of their own kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import attrs
import numpy as np

from .dtypes import DTYPES
from .errors import Unimplemented, Unsupported
from .fields import QUADRANT, READ, WRITE, Flag, Integer, Maybe, Pair, of, one_of
from .instruction import Engine, Instruction, Target, Work, has, instruction
from .mx import PACKED, check_scales, dequantised
from .vector import packed_alike, streamed
from .view import Memory, View

MAX_CONTRACTION = 128  # rows of the array (NeuronCore architecture guides)
MAX_COLUMNS = 128  # columns of the array
PASSES = one_of(("single", "low", "high"))
PERF_MODES = one_of(("none", "double_row"))
MODES = one_of(("plain", "double_row", "mx"))  # numbers of an operand that meet in one cell of the array: 1, 2 or 4
DOUBLED = ("float8_e4m3", "float8_e5m2", "float8_e4m3fn")
TILES = (32, 64, 128)  # rows, or columns
NONE: tuple[int, ...] = ()


def _rate(dtype: str) -> str:
    """The row of the chip's PE tables: the array knows fp32 and everything narrower (tf32 runs at the 16-bit rate)."""
    return "fp32" if dtype == "float32" else "bf16"


@instruction(Engine.TENSOR, source="trn2 hardware traces, LDWEIGHTS", mnemonic="ldweights")
class LoadWeights(Instruction):
    """Load the stationary operand into the array."""

    src: View = of(READ)
    passes: str = of(PASSES, default="single")
    transpose: bool = of(Flag(), default=False)

    @property
    def columns(self) -> int:
        """Columns of the array that it fills."""
        return self.src.elements

    def check(self) -> None:
        self.require(self.src.memory is Memory.SBUF, f"src is in {self.src.memory.name}", "the stationary operand is read from SBUF")
        self.require(self.src.elements <= MAX_COLUMNS, f"{self.src.elements} stationary columns", f"at most {MAX_COLUMNS}")

    def work(self) -> Work:
        kind = _rate(self.src.dtype.name) + ("_transpose" if self.transpose else "")
        return Work(kind=kind, elements=self.src.elements, columns=self.src.elements, transpose=self.transpose)

    def signals(self) -> bool:
        return False

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        state["weights"] = operands["src"].reshape(self.src.partitions, -1)
        return {}

    def attributes(self) -> str:
        mode = "" if self.passes == "single" else f"fp32_mode={self.passes.upper()} "
        return f"{mode}transpose_mode={'ENABLED' if self.transpose else 'DISABLED'}"


@instruction(Engine.TENSOR, source="trn2 hardware traces, MATMUL", mnemonic="matmul")
class Matmul(Instruction):
    """Stream the moving operand through the array: dst (+)= weights.T @ src."""

    dst: View = of(WRITE)
    src: View = of(READ)
    columns: int = of(Integer(1, MAX_COLUMNS))
    accumulate: bool = of(Flag(), default=False)
    passes: str = of(PASSES, default="single")
    transpose: bool = of(Flag(), default=False)
    ends: bool = of(Flag(), default=True)  # the last of its sum, as the compiler marks it; changes neither value nor time

    def accumulates(self) -> bool:
        return self.accumulate

    def check(self) -> None:
        self.require(self.dst.memory is Memory.PSUM, f"dst is in {self.dst.memory.name}", "matmul writes PSUM")
        self.require(self.src.memory is Memory.SBUF, f"src is in {self.src.memory.name}", "the moving operand is read from SBUF")
        self.require(
            self.dst.partitions == self.columns, f"dst has {self.dst.partitions} partitions", f"{self.columns}, one per stationary column"
        )
        self.same_shape("src", "dst", free_only=True)
        if not self.transpose:
            check_numbers(self, self.dst, self.src)

    def work(self) -> Work:
        kind = _rate(self.src.dtype.name) + ("_transpose" if self.transpose else "")
        macs = self.src.partitions * self.columns * self.src.elements
        half = 1 if self.passes == "single" else 2  # an fp32 product is two passes of half the flops each
        return Work(
            kind=kind, elements=self.src.elements, columns=self.columns, macs=macs // half, flops=2 * macs // half,
            psum_write=True, transpose=self.transpose,
        )  # fmt: skip

    def signals(self) -> bool:
        return self.passes != "low"

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        if self.passes == "low":
            return {}
        weights = state["weights"]
        moving = operands["src"].reshape(self.src.partitions, -1)
        if self.transpose:  # bit exact: the stationary data passes through, the identity only routes it
            return {"dst": weights.T.reshape(self.dst.shape)}
        with np.errstate(all="ignore"):
            product = weights.astype(np.float32).T @ moving.astype(np.float32)
        return {"dst": product.reshape(self.dst.shape)}

    def attributes(self) -> str:
        # Bit 0 starts a sum, bit 1 ends it. A HIGH pass adds to what its LOW wrote (trn2 traces, 36 of 36).
        flags = int(not self.accumulate and self.passes != "high") | (2 if self.ends and self.passes != "low" else 0)
        return f"acc_flags={flags}" + ("" if self.passes == "single" else " fp32_mode=LOW_HIGH")


@instruction(Engine.TENSOR, source="nki.isa.nc_matmul and nc_matmul_mx: a load of another kind", mnemonic="ldweights_mode")
class LoadWeightsMode(LoadWeights):
    """Load fp8 double rows, MX data with their scales, or a tile of the array."""

    mode: str = of(MODES, default="plain")
    scales: View | None = of(Maybe(READ), default=None)
    tile: tuple[int, ...] = of(Pair(), default=NONE)  # rows and columns of the tile

    opcode = "LDWEIGHTS"

    @property
    def columns(self) -> int:
        return self.src.elements // (2 if self.mode == "double_row" else 1)

    def check(self) -> None:
        self.require(self.src.memory is Memory.SBUF, f"src is in {self.src.memory.name}", "the stationary operand is read from SBUF")
        self.require(self.columns <= MAX_COLUMNS, f"{self.columns} stationary columns", f"at most {MAX_COLUMNS}")
        check_mode(self, self.columns)

    def work(self) -> Work:
        kind = "mx" if self.mode == "mx" else _rate(self.src.dtype.name) + ("_transpose" if self.transpose else "")
        return Work(kind=kind, elements=self.columns, columns=self.columns, transpose=self.transpose, tiled=bool(self.tile))

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        state["weights"] = contracted(self, operands)
        return {}

    def attributes(self) -> str:
        return f"{_plain_attributes(self)}{_mode_attributes(self)}"


@instruction(Engine.TENSOR, source="nki.isa.nc_matmul and nc_matmul_mx: a product of another kind", mnemonic="matmul_mode")
class MatmulMode(Matmul):
    """Stream fp8 double rows or MX data with their scales through the array, or anything through a tile of it."""

    mode: str = of(MODES, default="plain")
    scales: View | None = of(Maybe(READ), default=None)
    tile: tuple[int, ...] = of(Pair(), default=NONE)

    opcode = "MATMUL"

    def check(self) -> None:
        self.require(self.dst.memory is Memory.PSUM, f"dst is in {self.dst.memory.name}", "matmul writes PSUM")
        self.require(self.src.memory is Memory.SBUF, f"src is in {self.src.memory.name}", "the moving operand is read from SBUF")
        self.require(
            self.dst.partitions == self.columns, f"dst has {self.dst.partitions} partitions", f"{self.columns}, one per stationary column"
        )
        wanted = self.dst.elements * (2 if self.mode == "double_row" else 1)
        self.require(self.src.elements == wanted, f"src has {self.src.elements} elements per partition", f"{wanted}")
        check_numbers(self, self.dst, *(() if self.mode == "mx" else (self.src,)))
        check_mode(self, self.dst.elements)

    def work(self) -> Work:
        kind = "mx" if self.mode == "mx" else _rate(self.src.dtype.name) + ("_transpose" if self.transpose else "")
        deep = self.src.partitions * {"plain": 1, "double_row": 2, "mx": 4}[self.mode]
        macs = deep * self.columns * self.dst.elements // (1 if self.passes == "single" else 2)
        return Work(
            kind=kind, elements=self.dst.elements, columns=self.columns, macs=macs, flops=2 * macs, psum_write=True,
            transpose=self.transpose, tiled=bool(self.tile),
        )  # fmt: skip

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        if self.passes == "low":
            return {}
        weights = state["weights"]
        if self.transpose:
            return {"dst": weights.T.reshape(self.dst.shape)}
        with np.errstate(all="ignore"):
            wide = np.float64 if self.mode == "mx" else np.float32
            product = weights.astype(wide).T @ contracted(self, operands).astype(wide)
        return {"dst": product.astype(np.float32).reshape(self.dst.shape)}

    def attributes(self) -> str:
        return f"{_plain_attributes(self)}{_mode_attributes(self)}"


def check_numbers(i: Instruction, *views: View) -> None:
    """No packed elements where a product takes or makes single numbers."""
    for v in views:
        i.require(v.dtype.kind != "packed", f"an operand is {v.dtype.name}", "a type of single numbers")


def _plain_attributes(i: LoadWeightsMode | MatmulMode) -> str:
    return LoadWeights.attributes(i) if isinstance(i, LoadWeights) else Matmul.attributes(i)


def _mode_attributes(i: LoadWeightsMode | MatmulMode) -> str:
    mode = "" if i.mode == "plain" else f" perf_mode={i.mode.upper()}"
    return mode + (f" tile={'*'.join(map(str, i.tile))}" if i.tile else "")


def check_mode(i: LoadWeightsMode | MatmulMode, columns: int) -> None:
    """Types, scales and tile of the mode."""
    i.require(
        (i.scales is not None) == (i.mode == "mx"),
        f"mode={i.mode} {'without' if i.scales is None else 'with'} scales",
        "scales for mx alone",
    )
    if i.mode == "double_row":
        i.require(i.src.dtype.name in DOUBLED, f"src is {i.src.dtype.name}", f"one of {', '.join(DOUBLED)}")
        i.require(i.src.elements % 2 == 0, f"src has {i.src.elements} elements per partition", "two rows of them")
    elif i.mode == "mx":
        i.require(i.src.dtype.name in PACKED, f"src is {i.src.dtype.name}", f"one of {', '.join(PACKED)}")
        i.require(i.src.partitions % QUADRANT == 0, f"src has {i.src.partitions} partitions", f"a multiple of {QUADRANT}")
        assert i.scales is not None
        check_scales(i, "scales", i.scales, "src", i.src, columns)
    if i.tile:
        i.require(all(n in TILES for n in i.tile), f"a tile of {'x'.join(map(str, i.tile))}", "32, 64 or 128 rows and columns")


def contracted(i: LoadWeightsMode | MatmulMode, operands: Mapping[str, np.ndarray]) -> np.ndarray:
    """The operand as [numbers along the contraction, columns], in the order that both sides of a product have."""
    data = operands["src"]
    if i.mode == "mx":
        assert i.scales is not None
        return dequantised(data.reshape(data.shape[0], -1), i.src.dtype, operands["scales"].reshape(i.scales.partitions, -1))
    rows = data.shape[0] * (2 if i.mode == "double_row" else 1)
    return data.reshape(rows, -1)


def check_tile(i: Instruction, position: tuple[int, ...], size: tuple[int, ...], stationary: View, columns: int) -> None:
    """tile_position and tile_size name one tile of the array, into which the stationary operand fits."""
    i.require(bool(position) == bool(size), f"tile_position={position}, tile_size={size}", "both, or neither")
    if not size:
        return
    for what, start, length, used in zip(("row", "column"), position, size, (stationary.partitions, columns), strict=True):
        i.require(length in TILES, f"a {what} size of {length}", "32, 64 or 128")
        fits = start % length == 0 and start + length <= MAX_COLUMNS
        i.require(fits, f"a start {what} of {start} with tiles of {length}", f"a multiple of {length} below {MAX_COLUMNS}")
        i.require(used <= length, f"{used} {what}s of the stationary operand", f"at most {length}, the {what}s of the tile")


def check_tiles_of(i: Instruction, size: tuple[int, ...], target: Target) -> None:
    """The chip's array has tiles of this size."""
    least = target.feature("tensor.smallest_tile")
    if size and min(size) < least:
        raise Unsupported(
            i.mnemonic, f"a tile of {'x'.join(map(str, size))}", f"at least {least} rows and columns; NeuronCore-v3 has 32", i.source
        )


@instruction(Engine.TENSOR, source="nki.isa.nc_matmul", machine=False)
class NcMatmul(Instruction):
    """dst[M, N] (+)= stationary[K, M].T @ moving[K, N]; K runs along partitions, dst is in PSUM.

    `accumulate=None`: the first write to the destination overwrites, later ones accumulate. Before NeuronCore-v4 a product adds
    only to what products wrote. The `onezero` flags say
    that an operand holds only 0 and 1, which saves fp32 a pass. `perf_mode="double_row"`: fp8 operands [K, 2, M] and [K, 2, N]
    contract over 2 K numbers. `tile_position` and `tile_size`, both (row, column), choose a tile of the array.
    """

    dst: View = of(WRITE)
    stationary: View = of(READ)
    moving: View = of(READ)
    is_stationary_onezero: bool = of(Flag(), default=False)
    is_moving_onezero: bool = of(Flag(), default=False)
    is_transpose: bool = of(Flag(), default=False)
    accumulate: bool | None = of(Maybe(Flag()), default=None)
    tile_position: tuple[int, ...] = of(Pair(), default=NONE)
    tile_size: tuple[int, ...] = of(Pair(), default=NONE)
    perf_mode: str = of(PERF_MODES, default="none")

    def accumulates(self) -> bool:
        return self.accumulate is True

    @property
    def columns(self) -> int:
        """Stationary columns."""
        return self.stationary.elements // (2 if self.perf_mode == "double_row" else 1)

    def check(self) -> None:
        s, m, d = self.stationary, self.moving, self.dst
        per = 2 if self.perf_mode == "double_row" else 1
        for name, v in (("stationary", s), ("moving", m)):
            self.require(v.memory is Memory.SBUF, f"{name} is in {v.memory.name}", "both operands are read from SBUF")
        self.require(d.memory is Memory.PSUM, f"dst is in {d.memory.name}", "the result is written to PSUM")
        self.require(
            s.partitions == m.partitions,
            f"stationary has {s.partitions} partitions, moving has {m.partitions}",
            "they must match: the contraction runs along partitions",
        )
        self.require(s.partitions <= MAX_CONTRACTION, f"{s.partitions} partitions", f"at most {MAX_CONTRACTION} rows of the array")
        for name, v in (("stationary", s), ("moving", m)):
            rows = per == 1 or (len(v.shape) > 2 and v.shape[1] == 2)
            self.require(rows, f"{name} is {list(v.shape)} with perf_mode=double_row", "[K, 2, ...]: the first free dimension is 2")
        self.require(self.columns <= MAX_COLUMNS, f"{self.columns} stationary columns", f"at most {MAX_COLUMNS} columns of the array")
        self.require(d.partitions == self.columns, f"dst has {d.partitions} partitions", f"{self.columns}, one per stationary column")
        wanted, of_each = m.elements // per, "as moving" if per == 1 else "half of moving's"
        self.require(d.elements == wanted, f"dst has {d.elements} elements per partition", f"{wanted}, {of_each}")
        check_tile(self, self.tile_position, self.tile_size, s, self.columns)
        wide = {v.dtype.name in ("float32", "tfloat32") for v in (s, m)}
        self.require(
            len(wide) == 1, f"stationary is {s.dtype.name}, moving is {m.dtype.name}", "fp32 and tf32 do not mix with narrower types"
        )
        for name, v in (("stationary", s), ("moving", m)):
            factors = v.dtype.kind == "float" and v.dtype.name != "float8_e8m0fnu"
            self.require(factors, f"{name} is {v.dtype.name}", "a floating-point type")
            self.require(
                per == 1 or v.dtype.name in DOUBLED, f"{name} is {v.dtype.name} with perf_mode=double_row", f"one of {', '.join(DOUBLED)}"
            )
        both = {s.dtype.name, m.dtype.name} == {"float8_e4m3", "float8_e4m3fn"}
        self.require(not both, "float8_e4m3 and float8_e4m3fn", "one of the two formats in one product")
        if per == 2:
            self.require(not self.is_transpose, "is_transpose with perf_mode=double_row", "one of the two")
            whole = not self.tile_size or self.tile_size[1] == MAX_COLUMNS
            self.require(whole, f"tile_size={self.tile_size} with perf_mode=double_row", "all columns: it does not go with column tiles")
        if self.is_transpose:
            self.require(d.dtype == s.dtype, f"dst is {d.dtype.name}, stationary is {s.dtype.name}", "a transpose keeps the type")
        else:
            check_result(self, d)

    def expand(self, target: Target, engine: Engine) -> Iterable[Instruction]:
        if self.perf_mode == "double_row" and not target.feature("tensor.double_row"):
            raise Unsupported(self.mnemonic, "perf_mode=double_row", "NeuronCore-v3 or newer", self.source)
        check_chip_result(self, self.dst, target)
        check_tiles_of(self, self.tile_size, target)
        if self.is_transpose and not target.feature("tensor.transpose_mode"):
            raise Unsupported(
                self.mnemonic, "is_transpose=True", "a chip with the PE's transpose mode (NeuronCore-v3 and later)", self.source
            )
        names: tuple[str, ...] = ("single",)
        if self.moving.dtype.name == "float32" and not self.is_transpose:
            zero_one = self.is_stationary_onezero or self.is_moving_onezero
            passes = target.feature("tensor.fp32_onezero_passes" if zero_one else "tensor.fp32_passes")
            if passes not in (1, 2):
                raise Unimplemented(self.mnemonic, f"{passes} passes for fp32", "1 or 2: LOW and HIGH are the passes known", self.source)
            names = ("single",) if passes == 1 else ("low", "high")
        plain = self.perf_mode == "none" and not self.tile_size
        mode = "plain" if self.perf_mode == "none" else self.perf_mode
        for name in names:
            load: dict[str, Any] = {"src": self.stationary, "passes": name, "transpose": self.is_transpose}
            product: dict[str, Any] = {
                "dst": self.dst, "src": self.moving, "columns": self.columns, "passes": name,
                "accumulate": bool(self.accumulate), "transpose": self.is_transpose,
            }  # fmt: skip
            if plain:
                yield from (LoadWeights(**load), Matmul(**product))
            else:
                yield from (LoadWeightsMode(**load, mode=mode, tile=self.tile_size), MatmulMode(**product, mode=mode, tile=self.tile_size))


def check_result(i: Instruction, dst: View) -> None:
    """What a product may be written as."""
    i.require(dst.dtype.name in ("float32", "bfloat16"), f"dst is {dst.dtype.name}", "float32, or bfloat16 on NeuronCore-v4")


def check_chip_result(i: Instruction, dst: View, target: Target) -> None:
    """The chip writes products so."""
    if dst.dtype.name == "bfloat16" and not getattr(i, "is_transpose", False) and not target.feature("tensor.bf16_results"):
        raise Unsupported(i.mnemonic, "a bfloat16 result", "float32, or NeuronCore-v4 or newer", i.source)


@instruction(Engine.TENSOR, source="nki.isa.nc_matmul_mx", machine=False)
class NcMatmulMx(Instruction):
    """dst[M, N] (+)= stationary[K, M].T @ moving[K, N] of packed MX operands, each number times its group's scale.

    K is the partitions times the four numbers of an element. `accumulate` and tiles as in nc_matmul, rows only.
    NeuronCore-v4 and newer.
    """

    since: ClassVar[Mapping[Engine, int]] = {Engine.TENSOR: 4}
    dst: View = of(WRITE)
    stationary: View = of(READ)
    moving: View = of(READ)
    stationary_scale: View = of(READ)
    moving_scale: View = of(READ)
    tile_position: tuple[int, ...] = of(Pair(), default=NONE)
    tile_size: tuple[int, ...] = of(Pair(), default=NONE)
    accumulate: bool | None = of(Maybe(Flag()), default=None)

    def accumulates(self) -> bool:
        return self.accumulate is True

    def check(self) -> None:
        s, m, d = self.stationary, self.moving, self.dst
        for name, v in (("stationary", s), ("moving", m)):
            self.require(v.memory is Memory.SBUF, f"{name} is in {v.memory.name}", "both operands are read from SBUF")
            self.require(v.dtype.name in PACKED, f"{name} is {v.dtype.name}", f"one of {', '.join(PACKED)}")
        self.require(d.memory is Memory.PSUM, f"dst is in {d.memory.name}", "the result is written to PSUM")
        self.require(
            s.partitions == m.partitions, f"stationary has {s.partitions} partitions, moving has {m.partitions}", "they must match"
        )
        deep = 0 < s.partitions <= MAX_CONTRACTION and s.partitions % QUADRANT == 0
        self.require(deep, f"stationary has {s.partitions} partitions", f"a multiple of {QUADRANT}, at most {MAX_CONTRACTION}")
        even = 0 < s.elements <= MAX_COLUMNS and s.elements % 2 == 0
        self.require(even, f"{s.elements} stationary columns", f"an even number, at most {MAX_COLUMNS}")
        self.require(d.partitions == s.elements, f"dst has {d.partitions} partitions", f"{s.elements}, one per stationary column")
        self.require(d.elements == m.elements, f"dst has {d.elements} elements per partition", f"{m.elements}, as moving")
        check_scales(self, "stationary_scale", self.stationary_scale, "stationary", s, s.elements)
        check_scales(self, "moving_scale", self.moving_scale, "moving", m, m.elements)
        check_tile(self, self.tile_position, self.tile_size, s, s.elements)
        rows_only = not self.tile_size or (self.tile_position[1], self.tile_size[1]) == (0, MAX_COLUMNS)
        self.require(rows_only, f"tile_position={self.tile_position}, tile_size={self.tile_size}", "tiles of rows, with all 128 columns")
        check_result(self, d)

    def expand(self, target: Target, engine: Engine) -> Iterable[Instruction]:
        if not target.feature("tensor.mx.cycles_per_row"):
            raise Unsupported(self.mnemonic, "MX products on this chip", has(self, engine), self.source)
        check_chip_result(self, self.dst, target)
        check_tiles_of(self, self.tile_size, target)
        yield LoadWeightsMode(src=self.stationary, mode="mx", scales=self.stationary_scale, tile=self.tile_size)
        yield MatmulMode(
            dst=self.dst, src=self.moving, columns=self.stationary.elements, accumulate=bool(self.accumulate), mode="mx",
            scales=self.moving_scale, tile=self.tile_size,
        )  # fmt: skip


@instruction(Engine.TENSOR, Engine.VECTOR, source="nki.isa.nc_transpose", machine=False)
class NcTranspose(Instruction):
    """dst[F, P] = data[P, F].T: on the TensorEngine up to [128, 128] into PSUM, on the VectorEngine up to [32, 32]."""

    dst: View = of(WRITE)
    data: View = of(READ)

    def check(self) -> None:
        s, d = self.data, self.dst
        self.require(
            d.partitions == s.elements and d.elements == s.partitions,
            f"dst is [{d.partitions}, {d.elements}], data is [{s.partitions}, {s.elements}]",
            "dst must be data transposed",
        )
        self.require(s.elements <= 128, f"data has {s.elements} elements per partition", "at most 128")
        self.require(d.dtype == s.dtype, f"dst is {d.dtype.name}, data is {s.dtype.name}", "a transpose keeps the type")

    def default_engine(self, target: Target) -> Engine:
        return Engine.TENSOR if self.dst.memory is Memory.PSUM and self.data.memory is Memory.SBUF else Engine.VECTOR

    def expand(self, target: Target, engine: Engine) -> Iterable[Instruction]:
        if engine is Engine.VECTOR:
            return [TransposeVector(dst=self.dst, src=self.data)]
        self.require(self.dst.memory is Memory.PSUM, f"dst is in {self.dst.memory.name}", "the TensorEngine writes PSUM")
        self.require(self.data.memory is Memory.SBUF, f"data is in {self.data.memory.name}", "the TensorEngine reads SBUF")
        self.require(
            not target.explicit,
            "nc_transpose on the TensorEngine in a program with semaphores of its own",
            "nc_matmul(is_transpose=True) with an identity you load and wait for: nothing is inserted here",
        )
        identity = target.identity(self.data.dtype)
        k = self.data.partitions
        if not target.feature("tensor.transpose_mode"):  # a product with the identity, which is exact for finite numbers
            product = NcMatmul(dst=attrs.evolve(self.dst, dtype=DTYPES["float32"]), stationary=self.data, moving=identity[:k, :k])
            return [attrs.evolve(i, dst=self.dst) if isinstance(i, Matmul) else i for i in product.expand(target, engine)]
        return [
            LoadWeights(src=self.data, transpose=True, passes="single"),
            Matmul(dst=self.dst, src=identity[:k, :k], columns=self.data.elements, transpose=True),
        ]


@instruction(Engine.VECTOR, source="nki.isa.nc_transpose on the VectorEngine", mnemonic="transpose")
class TransposeVector(Instruction):
    """dst = src.T for one block of up to [32, 32]."""

    dst: View = of(WRITE)
    src: View = of(READ)

    def check(self) -> None:
        self.require(
            self.src.partitions <= 32 and self.src.elements <= 32,
            f"src is [{self.src.partitions}, {self.src.elements}]",
            "at most [32, 32] on the VectorEngine",
        )
        self.require(
            self.dst.shape[0] == self.src.elements and self.dst.elements == self.src.partitions,
            f"dst is {list(self.dst.shape)}",
            "src transposed",
        )
        packed_alike(self, self.dst, self.src)

    def work(self) -> Work:
        return streamed("transpose", self.dst, self.src)

    def execute(self, operands: Mapping[str, np.ndarray], state: dict[str, Any]) -> Mapping[str, np.ndarray]:
        return {"dst": operands["src"].reshape(self.src.partitions, -1).T.reshape(self.dst.shape)}
