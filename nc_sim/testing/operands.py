"""Random views, instructions and steps. The registry drives them: a new instruction is covered the day it lands.

`instructions` draws operands that pass `check()`: it finds one legal combination by search, then keeps each random change
that stays legal. `unchecked_instructions` draws every field from its kind, whether or not the operands fit together. A new
kind of field needs a line in `values` and in `_candidates`; an instruction whose operands the search cannot guess needs one in
`EXAMPLES`. Both say so themselves.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import attrs
from hypothesis import strategies as st

from ..isa import DTYPES, REGISTRY, Instruction, Memory, Step, Update, UpdateOp, View, Wait, When, fields_of
from ..isa.dynamic import INDEX_TYPES, Dynamic, Register
from ..isa.errors import ProgramError, Unspecified
from ..isa.fields import (
    KEEP,
    QUADRANT,
    Axes,
    Choice,
    ElementType,
    Flag,
    Integer,
    Mask,
    Maybe,
    Operand,
    Operands,
    Pair,
    Pattern,
    Real,
    Reals,
    Scalar,
    Value,
)
from ..isa.registers import RegisterOperand, RegisterOrNumber

INT32 = st.integers(-(2**31), 2**31 - 1)
NUMBERS = INT32 | st.floats(allow_nan=False)
NAMES = st.from_regex(r"[A-Za-z_][\w.$-]{0,8}", fullmatch=True)
LINES = st.sampled_from(["", "rmsnorm.py:41", "<stdin>:1", "my kernels #2.py:7", "ядро.py:3", "#:0", "wait=s>=1"])
SEARCHED = 100_000  # combinations tried before an instruction counts as too hard to guess
PLAIN = (4, 9)  # partitions and elements of the combinations tried

# What operands look like, from p partitions and f elements: [P, F], [P, 1], [F, P], [P, P], then what only some take.
SHAPES = (lambda p, f: (p, f), lambda p, f: (p, 1), lambda p, f: (f, p), lambda p, f: (p, p))
NARROW: tuple[Callable[[int, int], tuple[int, int]], ...] = (
    lambda p, f: (p, 8),
    lambda p, f: (p, 6),
    lambda p, f: (p, 2),
)  # results and tables of fixed length, in SBUF
PLACES = (Memory.SBUF, Memory.PSUM, Memory.HBM)


def _example(**fields: Any) -> Callable[[int, int], dict[str, Any]]:
    """Fields of a legal instruction for p partitions and f elements; shapes are functions of both, with a type behind."""

    def made(p: int, f: int) -> dict[str, Any]:
        return {n: view_of(v[0](p, f), dtype=v[1]) if isinstance(v, tuple) and callable(v[0]) else v for n, v in fields.items()}

    return made


EXAMPLES: dict[str, Callable[[int, int], dict[str, Any]]] = {
    "select_reduce": _example(
        dst=(lambda p, f: (p, f), "float32"), predicate=(lambda p, f: (p, f), "uint8"), on_true=(lambda p, f: (p, f), "float32"),
        on_false=0.0,
    ),
    "tensor_partition_reduce": _example(dst=(lambda p, f: (1, f), "float32"), op="add", data=(lambda p, f: (p, f), "float32")),
    "sequence_bounds": _example(dst=(lambda p, f: (1, 2 * f), "int32"), segment_ids=(lambda p, f: (1, f), "int32")),
    "local_gather": _example(
        dst=(lambda p, f: (16, 16 * f), "float32"), src_buffer=(lambda p, f: (16, f), "float32"), index=(lambda p, f: (16, f), "uint16"),
    ),
    "nonzero_with_count": _example(dst=(lambda p, f: (p, f + 1), "int32"), src=(lambda p, f: (p, f), "int32")),
    "topk": _example(
        val_dst=(lambda p, f: (16, min(f, 16)), "bfloat16"), idx_dst=(lambda p, f: (16, min(f, 16)), "uint32"),
        src=(lambda p, f: (16, f), "bfloat16"), n=16,
    ),
    "core_barrier": lambda p, f: {"data": view_of((p, f), Memory.HBM), "cores": (0, 1)},
    "quantize_mx": _example(
        dst=(lambda p, f: (32, f), "float8_e4m3fn_x4"), src=(lambda p, f: (32, 4 * f), "bfloat16"),
        dst_scale=(lambda p, f: (4, f), "uint8"),
    ),
    "nc_matmul_mx": lambda p, f: {
        "dst": view_of((2 * p, f), Memory.PSUM), "stationary": view_of((32, 2 * p), dtype="float8_e4m3fn_x4"),
        "moving": view_of((32, f), dtype="float4_e2m1fn_x4"), "stationary_scale": view_of((4, 2 * p), dtype="uint8"),
        "moving_scale": view_of((4, f), dtype="uint8"),
    },
    "activate2": _example(
        dst=(lambda p, f: (p, f), "float32"), op="exp", data=(lambda p, f: (p, f), "float32"), imm0=1.0, imm1=0.0,
        op0="multiply", op1="add",
    ),
    "activate_tensor_scalar": _example(
        dst=(lambda p, f: (p, f), "float32"), op="exp", data=(lambda p, f: (p, f), "float32"), imm0=1.0, imm1=0.0,
        op0="multiply", op1="add",
    ),
    "set_rng_seed": _example(src_seeds=(lambda p, f: (1, 1), "uint32")),
    "rand_set_state": _example(src_seeds=(lambda p, f: (p, 6), "uint32")),
    "rand_get_state": _example(dst=(lambda p, f: (p, 6), "uint32")),
    "rand2": _example(dst=(lambda p, f: (p, f), "float32"), min=0.0, max=1.0),
}  # fmt: skip


# --- fields one by one -------------------------------------------------------------------------------------------


def views(elements: int | None = None) -> st.SearchStrategy[View]:
    """Well-formed views of any memory, type and pattern, absolute ones (without a tensor) included.

    With `elements`, all have that many elements per partition. Every view is one that its class takes; none is promised
    to lie inside a tensor or a memory. Shrinks to a float32 view of SBUF without dimensions.
    """

    @st.composite
    def build(draw: st.DrawFn) -> View:
        memory = draw(st.sampled_from(Memory))
        on_chip = memory is not Memory.HBM
        dims = draw(st.integers(0, 4 if on_chip else 6))
        counts = draw(st.lists(st.integers(0, 1000), min_size=dims, max_size=dims))
        if elements is not None:
            counts = [elements, *(1 for _ in counts)]
        strides = draw(st.lists(st.integers(-1000, 1000), min_size=len(counts), max_size=len(counts)))
        partition, partitions = (draw(st.integers(0, 127)), draw(st.integers(0, 128))) if on_chip else (0, 0)
        tensor, dtype, offset = draw(NAMES | st.just("")), draw(st.sampled_from(list(DTYPES.values()))), draw(st.integers(-(2**20), 2**40))
        return View(tensor, memory, dtype, partition, partitions, offset, tuple(strides), tuple(counts))

    return build()


@st.composite
def dynamic_views(draw: st.DrawFn, rows: bool, elements: int | None = None) -> View:
    """Views whose address is known at run time: from whole numbers in SBUF, with `rows` perhaps one for each, or a register.

    Shrinks to one number in SBUF for all of it.
    """
    view = draw(views(elements))
    vector = rows and view.memory is Memory.HBM and len(view.counts) > 0 and draw(st.booleans())
    partitions = draw(st.integers(1, 128)) if vector else 1
    index: View | Register | int = view_of(
        (partitions, draw(st.integers(1, 3)) if vector else 1), dtype=draw(st.sampled_from(INDEX_TYPES)), tensor=draw(NAMES)
    )
    if not vector and draw(st.booleans()):
        index = draw(NAMES.map(Register) | st.integers(-(2**31), 2**31 - 1))
    low = draw(st.integers(0, 1000))
    return attrs.evolve(
        view, dynamic=Dynamic(index, "rows" if vector else "start", draw(st.integers(-1000, 1000)), low, low + draw(st.integers(0, 2**20)))
    )


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Any value that a kind of field takes."""
    if isinstance(kind, Maybe):
        return st.none() | values(kind.kind)
    if isinstance(kind, Operand):
        return views() | dynamic_views(kind.rows) if kind.dynamic else views()
    if isinstance(kind, Operands):
        return st.lists(views() | dynamic_views(True), min_size=1, max_size=4).map(tuple)
    if isinstance(kind, Reals):
        return st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=4).map(tuple)
    if isinstance(kind, Scalar):
        return NUMBERS | views(elements=1) | dynamic_views(False, elements=1)
    if isinstance(kind, Value):
        return NUMBERS | views() | dynamic_views(False)
    if isinstance(kind, Choice):
        return st.sampled_from(kind.names)
    if isinstance(kind, ElementType):
        return st.sampled_from(list(DTYPES.values()))
    if isinstance(kind, Flag):
        return st.booleans()
    if isinstance(kind, Integer):
        return st.integers(kind.low, kind.high)
    if isinstance(kind, Real):
        return st.floats(allow_nan=False, allow_infinity=False)
    if isinstance(kind, Pattern):
        return st.lists(st.tuples(st.integers(1 - 2**31, 2**31 - 1), st.integers(1, 2**31 - 1)), max_size=5).map(tuple)
    if isinstance(kind, Axes):
        return st.lists(st.integers(-5, 5), min_size=1, max_size=5).map(tuple)
    if isinstance(kind, Mask):
        places = st.integers(0, QUADRANT - 1) | st.just(KEEP)
        return st.lists(places, min_size=QUADRANT, max_size=QUADRANT).map(tuple)
    if isinstance(kind, RegisterOperand):
        return NAMES.map(Register)
    if isinstance(kind, RegisterOrNumber):
        return st.integers(kind.number.low, kind.number.high) | NAMES.map(Register)
    if isinstance(kind, Pair):
        sizes = st.sampled_from((0, 32, 64, 128)) | st.integers(0, 2**31 - 1)
        return st.just(()) | st.tuples(sizes, sizes)
    raise NotImplementedError(f"{kind!r} is a new kind of field: say in nc_sim/testing/operands.py what it takes")


def unchecked_instructions(cls: type[Instruction]) -> st.SearchStrategy[Instruction]:
    """Instructions of a class whose operands are legal one by one; most do not pass `check()`."""
    return st.fixed_dictionaries({name: values(kind) for name, kind in fields_of(cls).items()}).map(lambda fields: cls(**fields))


def steps(cls: type[Instruction], semaphores: int = 256) -> st.SearchStrategy[Step]:
    """Unchecked instructions in a queue, with waits and updates of any of the semaphores."""
    numbers, amounts = st.integers(0, semaphores - 1), st.integers(0, 2**31)
    return st.builds(
        Step,
        unchecked_instructions(cls),
        st.sampled_from(cls.engines),
        st.lists(st.builds(Wait, numbers, amounts), max_size=3).map(tuple),
        st.lists(st.builds(Update, numbers, st.sampled_from(UpdateOp), amounts, st.sampled_from(When)), max_size=3).map(tuple),
        LINES,
        st.integers(-1, 2**31),
        st.booleans(),
    )


# --- operands that fit together ----------------------------------------------------------------------------------


def view_of(shape: tuple[int, ...], memory: Memory = Memory.SBUF, dtype: str = "float32", tensor: str = "t") -> View:
    """The view of a whole tensor of this shape, [partitions, free...] on chip."""
    free = shape if memory is Memory.HBM else shape[1:]
    strides = tuple(math.prod(free[k + 1 :]) for k in range(len(free)))
    return View(tensor, memory, DTYPES[dtype], 0, 0 if memory is Memory.HBM else shape[0], 0, strides, free)


def _candidates(kind: Any, p: int, f: int) -> list[Any]:
    """Values to search through, as many for any p and f."""
    if isinstance(kind, Maybe):
        return [None, *_candidates(kind.kind, p, f)]
    if isinstance(kind, Operand):
        usual = [view_of(shape(p, f), memory) for memory in PLACES for shape in SHAPES]
        narrow = [view_of(shape(p, f)) for shape in NARROW]
        found = attrs.evolve(view_of((p, f), Memory.HBM), dynamic=Dynamic(view_of((1, 1), dtype="uint32"), "start", 1, 0, 4 * p * f))
        moved = [found] if kind.rows else []
        return [*usual, *narrow, view_of((p, f), dtype="uint32"), view_of((p, 8), dtype="uint32"), view_of((1, 1), dtype="int32"), *moved]
    if isinstance(kind, Operands):
        return [(view_of((p, f)), view_of((p, f), memory)) for memory in PLACES]
    if isinstance(kind, Reals):
        return [(1.0, 1.0)]
    if isinstance(kind, Scalar):
        return [1.0]
    if isinstance(kind, Value):
        return [1.0, *(view_of(shape(p, f), memory) for memory in PLACES for shape in SHAPES)]
    if isinstance(kind, Choice):
        return sorted(kind.names, key=lambda name: name != "add")
    if isinstance(kind, ElementType):
        return [DTYPES["float32"]]
    if isinstance(kind, Flag):
        return [False, True]
    if isinstance(kind, Integer):
        return [min(max(n, kind.low), kind.high) for n in (p, f, 0, 1)]
    if isinstance(kind, Real):
        return [0.0]
    if isinstance(kind, Pattern):
        return [((1, f),)]
    if isinstance(kind, Axes):
        return [(1,), (1, 0)]
    if isinstance(kind, Mask):
        return [(0,) * QUADRANT]
    if isinstance(kind, RegisterOperand):
        return [Register("r")]
    if isinstance(kind, RegisterOrNumber):
        return [1, Register("r")]
    if isinstance(kind, Pair):
        return [()]
    raise NotImplementedError(f"{kind!r} is a new kind of field: say in nc_sim/testing/operands.py what to try")


def _required(cls: type[Instruction]) -> list[str]:
    return [a.name for a in attrs.fields(cls) if a.default is attrs.NOTHING]


def _made(cls: type[Instruction], chosen: tuple[int, ...], p: int, f: int) -> Instruction:
    if cls.mnemonic in EXAMPLES:
        return cls(**EXAMPLES[cls.mnemonic](p, f))
    kinds = fields_of(cls)
    return cls(**{name: _candidates(kinds[name], p, f)[k] for name, k in zip(_required(cls), chosen, strict=True)})


def _passes(instruction: Instruction) -> bool:
    try:
        instruction.check()
        instruction.check_destinations()
    except (ProgramError, Unspecified):
        return False
    return True


def _changed(made: Instruction, changes: dict[str, Any]) -> Instruction:
    """The changed instruction if that is legal, else the same."""
    try:
        changed = attrs.evolve(made, **changes)
        changed.check()
        changed.check_destinations()
    except (ProgramError, Unspecified):
        return made
    return changed


@functools.cache
def template(mnemonic: str) -> tuple[int, ...]:
    """Which candidate of each required field makes a legal instruction: the first combination found; none for an example."""
    cls = REGISTRY[mnemonic]
    if mnemonic in EXAMPLES:
        return ()
    kinds = fields_of(cls)
    indices = (range(len(_candidates(kinds[name], *PLAIN))) for name in _required(cls))
    for chosen in itertools.islice(itertools.product(*indices), SEARCHED):
        if _passes(_made(cls, chosen, *PLAIN)):
            return chosen
    raise NotImplementedError(f"no legal {mnemonic} found: say in nc_sim/testing/operands.py what its operands look like")


def instructions(cls: type[Instruction] | None = None) -> st.SearchStrategy[Instruction]:
    """Instructions and calls that pass `check()`, of one class or, without one, of any in the registry.

    Each operand is a window of a tensor that has the name of its field: up to 32 partitions and 48 elements, of any type
    and memory that the instruction takes, with gaps, reversed order or a split dimension. Whether a chip executes it
    (engines, start partitions, sizes of memories) is not promised. `instructions(REGISTRY["activation"])` draws one kind.
    """
    if cls is not None:
        return _legal(cls)
    return st.sampled_from([REGISTRY[name] for name in sorted(REGISTRY)]).flatmap(_legal)


@st.composite
def _legal(draw: st.DrawFn, cls: type[Instruction]) -> Instruction:
    size = draw(st.tuples(st.integers(1, 32), st.integers(1, 48)))
    made = _made(cls, template(cls.mnemonic), *size)
    if not _passes(made):
        made = _made(cls, template(cls.mnemonic), *PLAIN)
    kinds = fields_of(cls)
    dtype = draw(st.sampled_from(list(DTYPES.values())))
    proposals: list[dict[str, Any]] = [with_views(made, lambda _, v: attrs.evolve(v, dtype=dtype))]
    for name, kind in draw(st.permutations(list(kinds.items()))):
        value = getattr(made, name)
        inner = kind.kind if isinstance(kind, Maybe) else kind
        if isinstance(inner, Operands):
            proposals.append({name: tuple(draw(_redressed(v)) for v in value)})
            proposals.append({name: (*value, *value)[: draw(st.integers(1, inner.most))]})
        elif isinstance(value, View) or isinstance(inner, Operand):
            redressed = draw(_redressed(value if isinstance(value, View) else view_of((size[0], 1))))
            proposals.append({name: redressed})
            if isinstance(inner, Operand) and inner.dynamic and draw(st.booleans()):
                proposals.append({name: draw(_moved(redressed, inner.rows))})
        elif isinstance(inner, Scalar | Value):
            shape = (size[0], 1) if isinstance(inner, Scalar) else size
            proposals.append({name: draw(NUMBERS | _redressed(view_of(shape)))})
        else:
            proposals.append({name: draw(values(kind))})
    for changes in proposals:
        made = _changed(made, changes)
    return attrs.evolve(made, **with_views(made, lambda name, v: attrs.evolve(v, tensor=name)))


def with_views(made: Instruction, change: Callable[[str, View], View]) -> dict[str, Any]:
    """The fields that hold views, each view changed; a list's views are of one tensor each."""
    out: dict[str, Any] = {}
    for name in fields_of(type(made)):
        value = getattr(made, name)
        if isinstance(value, View):
            out[name] = change(name, value)
        elif isinstance(value, tuple) and value and all(isinstance(v, View) for v in value):
            out[name] = tuple(change(f"{name}{k}", v) for k, v in enumerate(value))
    return out


@st.composite
def _moved(draw: st.DrawFn, view: View, rows: bool) -> View:
    """The view with an index of its own: for the whole, or with `rows` perhaps for every row of HBM."""
    vector = rows and view.memory is Memory.HBM and draw(st.booleans())
    index = view_of((view.shape[0] if vector else 1, 1), dtype=draw(st.sampled_from(INDEX_TYPES)), tensor="index")
    size = view.extent[1] + draw(st.integers(0, 9)) * view.dtype.itemsize
    return attrs.evolve(view, dynamic=Dynamic(index, "rows" if vector else "start", draw(st.integers(1, 50)), 0, size))


@st.composite
def _redressed(draw: st.DrawFn, view: View) -> View:
    """A window of the same shape elsewhere: other memory, type, place, split of the last dimension, gaps, reversed order."""
    memory = draw(st.sampled_from((view.memory, *PLACES)))
    dtype = draw(st.sampled_from((view.dtype, *DTYPES.values())))
    free = list(view.counts if view.memory is not Memory.HBM else view.counts[1:])
    partitions = view.partitions if view.memory is not Memory.HBM else view.counts[0]
    last = free.pop()
    inner = draw(st.sampled_from([d for d in range(1, last + 1) if last % d == 0]))
    counts = [*free, last // inner, inner] if draw(st.booleans()) else [*free, last]
    counts = [partitions, *counts] if memory is Memory.HBM else counts
    gap = draw(st.integers(1, 3))
    strides = [gap * math.prod(counts[k + 1 :]) for k in range(len(counts))]
    offset = draw(st.integers(0, 9))
    if draw(st.booleans()):
        offset += strides[-1] * (counts[-1] - 1)
        strides[-1] = -strides[-1]
    on_chip = memory is not Memory.HBM
    first = draw(st.integers(0, 3)) if on_chip else 0
    return View(
        view.tensor, memory, dtype, first, partitions if on_chip else 0, offset * dtype.itemsize, tuple(strides), tuple(counts)
    )  # fmt: skip
