"""Views: strided windows of one memory, the operands of every instruction."""

from __future__ import annotations

import enum
import functools
import math
from functools import cached_property
from typing import Any

import attrs
import numpy as np

from .dtypes import DTYPES, DType
from .dtypes import dtype as as_dtype
from .dynamic import COLUMN_TYPES, INDEX_TYPES, Dynamic, DynamicSlice, Register, fixed
from .errors import ProgramError
from .lines import user_line
from .patterns import comb, combs_meet, nested, reach, regroup


class Memory(enum.IntEnum):
    """Where bytes live. On-chip memories have partitions; HBM is linear."""

    HBM = 0
    SBUF = 1
    PSUM = 2

    __hash__ = int.__hash__  # an enumeration's own hashes the name, in Python: a key of many dictionaries


MAX_FREE_DIMS = 4  # "free-dim access pattern: up to 4-D" (NeuronCore architecture guides)
MOST_COMPARED = 1 << 22  # elements of a pattern whose dimensions run through each other


@attrs.frozen(slots=True, cache_hash=True, repr=False)
class View:
    """`partitions` rows of a strided pattern in one memory.

    `offset` counts bytes from the start of `tensor`, inside each partition (SBUF, PSUM) or linearly (HBM). An empty
    `tensor` makes the offset absolute, as in a recorded trace. `strides` (in elements) and `counts` describe the free
    dimensions, outermost first; HBM has no partitions (0) and keeps every dimension in the pattern.

    `storage`, the bytes of the tensor (of one partition on chip), is known for views cut from `whole`; it only tells
    `ap` what it may reach, and 0 says unknown.
    """

    tensor: str
    memory: Memory
    dtype: DType
    partition: int
    partitions: int
    offset: int
    strides: tuple[int, ...]
    counts: tuple[int, ...]
    dynamic: Dynamic | None = None
    storage: int = attrs.field(default=0, eq=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """[partitions, free...] on chip, the pattern's counts in HBM."""
        return self.counts if self.memory is Memory.HBM else (self.partitions, *self.counts)

    @property
    def elements(self) -> int:
        """Elements per partition; of the whole view in HBM."""
        return math.prod(self.counts)

    @property
    def size(self) -> int:
        """Elements of the whole view."""
        elements = math.prod(self.counts)
        return elements if self.memory is Memory.HBM else elements * self.partitions

    @property
    def nbytes(self) -> int:
        """Bytes the view's elements take, over all partitions."""
        return self.size * self.dtype.itemsize

    @cached_property
    def extent(self) -> tuple[int, int]:
        """First byte touched and one past the last, relative to the tensor, per partition (linear in HBM).

        Of a dynamic view, the bytes that it may touch.
        """
        if self.dynamic is not None:
            return self.dynamic.low, self.dynamic.high
        low, high = reach(self.strides, self.counts)
        size = self.dtype.itemsize
        return self.offset + low * size, self.offset + (high + 1) * size

    @property
    def region(self) -> View:
        """What it may touch: itself, or everything that is in bounds of a dynamic one."""
        if self.dynamic is None:
            return self
        low, high = self.dynamic.low, self.dynamic.high
        size = self.dtype.itemsize
        dtype, size = (self.dtype, size) if low % size == high % size == 0 else (DTYPES["uint8"], 1)
        return View(self.tensor, self.memory, dtype, self.partition, self.partitions, low, (1,), ((high - low) // size,))

    @cached_property
    def dense(self) -> bool:
        """True if the bytes of `extent` are exactly the bytes of the elements (in any order)."""
        low, high = self.extent
        return high - low == self.elements * self.dtype.itemsize and self._injective()

    @cached_property
    def _inner(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Strides and counts below the first dimension: one object for all its slices."""
        return self.strides[1:], self.counts[1:]

    @property
    def contiguous(self) -> bool:
        """True if consecutive elements are neighbours in memory, in order."""
        return self.run() == self.elements

    def run(self) -> int:
        """Elements of the longest tail of the pattern that lies contiguously in memory."""
        if self.dynamic is not None and self.dynamic.kind == "columns":
            return 1
        length, outer = 1, 1 if self.dynamic is not None and self.dynamic.vector else 0  # rows of their own lie anywhere
        for stride, count in zip(self.strides[outer:][::-1], self.counts[outer:][::-1], strict=True):
            if count == 1:
                continue
            if stride != length:
                break
            length *= count
        return length

    @property
    def repeats(self) -> bool:
        """True if an element is visited twice. Rows of their own, which indices name, may lie anywhere: they are not compared."""
        if self._injective():
            return False
        outer = 1 if self.dynamic is not None and self.dynamic.vector else 0
        strides, counts = self.strides[outer:], self.counts[outer:]
        low, high = reach(strides, counts)
        elements = math.prod(counts)
        if elements > high - low + 1:
            return True
        if not elements or elements > MOST_COMPARED:  # no pattern of whole loops is like this
            return False
        places = np.zeros(1, np.int64)
        for stride, count in zip(strides, counts, strict=True):
            places = np.add.outer(places, stride * np.arange(count)).ravel()
        return len(np.unique(places)) < elements

    def _injective(self) -> bool:
        """True if it is plain that no element is visited twice."""
        return nested(self.strides, self.counts)

    def __getitem__(self, key: Any) -> View:
        """A slice, as numpy slices: integers drop a free dimension, `...` and steps work; the partition stays.

        One key may be a register, or `ds(register, size)`: then the place in its dimension is known at run time.
        """
        # What long loops write.
        if type(key) is int and self.dynamic is None and self.memory is Memory.HBM and self.counts and 0 <= key < self.counts[0]:
            offset = self.offset + key * self.strides[0] * self.dtype.itemsize
            return View(
                self.tensor, self.memory, self.dtype, self.partition, self.partitions, offset, *self._inner, storage=self.storage
            )  # fmt: skip
        self._static("slice")
        keys = list(key) if isinstance(key, tuple) else [key]
        if sum(k is Ellipsis for k in keys) > 1:
            raise ProgramError(_where(self), "two ellipses in one index", "at most one is allowed")
        dims = len(self.shape)
        if not any(k is Ellipsis for k in keys):
            keys.append(Ellipsis)
        at = next(i for i, k in enumerate(keys) if k is Ellipsis)
        missing = dims - (len(keys) - 1)
        if missing < 0:
            raise ProgramError(_where(self), f"{len(keys) - 1} indices", f"a view of shape {list(self.shape)} takes at most {dims}")
        keys[at : at + 1] = [slice(None)] * missing
        moved = self._chosen(keys)
        partition, partitions = self.partition, self.partitions
        if self.memory is not Memory.HBM:
            first, count, step = _bounds(self, 0, keys.pop(0), self.partitions)
            if count is None:
                raise ProgramError(
                    _where(self), "an integer index on the partition dimension", f"write t[{first}:{first + 1}] to keep the dimension"
                )
            if step != 1:
                raise ProgramError(
                    _where(self), f"partition step {step}", "partitions are contiguous: step must be 1", "NeuronCore architecture guide"
                )
            partition, partitions = self.partition + first, count
        offset, strides, counts = self.offset, [], []
        for axis, (k, stride, size) in enumerate(zip(keys, self.strides, self.counts, strict=True)):
            first, count, step = _bounds(self, axis + dims - len(self.counts), k, size)
            offset += first * stride * self.dtype.itemsize
            if count is not None:
                strides.append(stride * step)
                counts.append(count)
        return View(
            self.tensor, self.memory, self.dtype, partition, partitions, offset, _shared(tuple(strides)), _shared(tuple(counts)),
            moved, self.storage,
        )  # fmt: skip

    def _chosen(self, keys: list[Any]) -> Dynamic | None:
        """What the one register among the keys of all dimensions makes of the view; its key becomes that of the first entries."""
        at = [k for k, key in enumerate(keys) if isinstance(key, Register | DynamicSlice)]
        if not at:
            return None
        if len(at) > 1:
            raise ProgramError(_where(self), f"registers in {len(at)} dimensions", "one at most", "nki.isa access patterns")
        key, size = keys[at[0]], self.shape[at[0]]
        register, wanted = (key, 1) if isinstance(key, Register) else (key.start, key.size)
        if wanted > size:
            raise ProgramError(_where(self), f"{wanted} entries from register {register.name} on", f"at most the {size} of axis {at[0]}")
        moved = self._moved(list(zip(self.strides, self.counts, strict=True)), register, None, at[0], self.dtype)
        keys[at[0]] = 0 if isinstance(key, Register) else slice(0, wanted)
        return moved

    def _static(self, what: str) -> None:
        if self.dynamic is not None:
            raise ProgramError(
                _where(self), f"{what} of a view with a dynamic offset", "the wanted pattern in the call of ap", "nki.isa access patterns"
            )

    def reshape(self, *shape: int | tuple[int, ...]) -> View:
        """The same elements under another shape; the partition dimension stays, and no copy is made."""
        self._static("reshape")
        dims = [_whole(self, d) for s in shape for d in (s if isinstance(s, tuple | list) else (s,))]
        if self.memory is not Memory.HBM:
            if not dims or dims[0] != self.partitions:
                raise ProgramError(_where(self), f"reshape to {dims}", f"the partition dimension must stay {self.partitions}")
            dims = dims[1:]
        if dims.count(-1) == 1 and math.prod(d for d in dims if d != -1) > 0:
            dims[dims.index(-1)] = self.elements // math.prod(d for d in dims if d != -1)
        if math.prod(dims) != self.elements or any(d < 0 for d in dims):
            raise ProgramError(_where(self), f"reshape to {dims}", f"{self.elements} elements must stay")
        strides = regroup(self.strides, self.counts, dims)
        if strides is None:
            raise ProgramError(_where(self), f"reshape to {dims}", "strides of this view do not allow it without a copy")
        return attrs.evolve(self, strides=strides, counts=tuple(dims))

    def permute(self, *axes: int) -> View:
        """The free dimensions in another order (`axes` count free dimensions; all dimensions in HBM)."""
        self._static("permute")
        if sorted(_whole(self, a) for a in axes) != list(range(len(self.counts))):
            raise ProgramError(_where(self), f"axes {list(axes)}", f"a permutation of {list(range(len(self.counts)))}")
        return attrs.evolve(self, strides=tuple(self.strides[a] for a in axes), counts=tuple(self.counts[a] for a in axes))

    def broadcast(self, axis: int, count: int) -> View:
        """A dimension of size 1 read `count` times (stride 0); `axis` counts as in `shape`."""
        self._static("broadcast")
        axis, count = _whole(self, axis), _whole(self, count)
        if count < 1:
            raise ProgramError(_where(self), f"broadcast to {count}", "a count of at least 1")
        free = axis if self.memory is Memory.HBM else axis - 1
        if not 0 <= free < len(self.counts) or self.counts[free] != 1:
            raise ProgramError(_where(self), f"broadcast of axis {axis}", "a free axis of size 1")
        strides, counts = list(self.strides), list(self.counts)
        strides[free], counts[free] = 0, count
        return attrs.evolve(self, strides=tuple(strides), counts=tuple(counts))

    def ap(
        self, pattern: list[list[int]], offset: int | None = None, scalar_offset: View | Register | None = None,
        vector_offset: View | None = None, indirect_dim: int = 0, dtype: Any = None,
    ) -> View:  # fmt: skip
        """An explicit access pattern [[stride, count], ...] in elements, the partition first on chip, as nki's `.ap`.

        It addresses the tensor's storage; of this view only the start counts, to which `offset` elements are added
        (through the partitions one after the other, on chip). `scalar_offset`, a register or one whole number in SBUF, moves
        the whole pattern at run time by so many strides of this view's `indirect_dim`. `vector_offset`, [P, 1] in SBUF, gives each
        of the P entries of the first dimension its own place: HBM only, `indirect_dim` 0. `dtype` reads the same bytes as
        another type, in whose elements pattern and offset then count.
        """
        self._static("ap")
        try:
            dims = [(int(s.__index__()), int(c.__index__())) for s, c in pattern]
        except (TypeError, ValueError, AttributeError):
            raise ProgramError(_where(self), f"pattern {pattern!r}", "pairs [stride, count] of whole numbers") from None
        if any(c < 1 for _, c in dims) or (self.memory is not Memory.HBM and not dims):
            raise ProgramError(_where(self), f"pattern {pattern!r}", "counts of at least 1, the partition first on chip")
        to = self.dtype if dtype is None else as_dtype(dtype)
        start = self.offset + (0 if offset is None else _whole(self, offset)) * to.itemsize
        partition, partitions = self.partition, self.partitions
        if self.memory is not Memory.HBM:
            row = self.storage or self.elements * self.dtype.itemsize
            (stride, partitions), *dims = dims
            if partitions > 1 and stride * to.itemsize != row:
                found = f"a partition stride of {stride}"
                required = f"{row // to.itemsize}, the elements of a partition: partitions are consecutive"
                raise ProgramError(_where(self), found, required)
            if self.storage and start >= 0:
                partition, start = partition + start // row, start % row
        moved = self._moved(dims, scalar_offset, vector_offset, indirect_dim, to)
        strides, counts = tuple(s for s, _ in dims), tuple(c for _, c in dims)
        return View(self.tensor, self.memory, to, partition, partitions, start, strides, counts, moved, self.storage)

    def _moved(
        self, dims: list[tuple[int, int]], scalar: View | Register | None, vector: View | None, dim: int, to: DType
    ) -> Dynamic | None:
        """What `ap` makes of a dynamic offset."""
        if scalar is None and vector is None:
            return None
        where, source, on_chip = _where(self), "nki.isa access patterns", self.memory is not Memory.HBM
        if scalar is not None and vector is not None:
            raise ProgramError(where, "scalar_offset and vector_offset", "at most one of the two", source)
        index, dim = scalar if scalar is not None else vector, _whole(self, dim)
        if not (index is scalar and isinstance(index, Register)) and (
            not isinstance(index, View) or index.memory is not Memory.SBUF or index.dtype.name not in INDEX_TYPES
        ):
            raise ProgramError(
                where,
                f"an offset in {index!r}",
                f"an SBUF tensor of {' or '.join(INDEX_TYPES)}" + " or a register" * (index is scalar),
                source,
            )
        if isinstance(index, View):
            fixed(index, where)
        if not on_chip <= dim < len(self.shape):
            raise ProgramError(
                where, f"indirect_dim {dim}", f"{int(on_chip)} to {len(self.shape) - 1}" + " (not the partition)" * on_chip, source
            )
        if isinstance(scalar, View) and scalar.size != 1:
            raise ProgramError(where, f"a scalar_offset of shape {list(scalar.shape)}", "one number, [1, 1]", source)
        if vector is not None and (on_chip or dim or not dims):
            found = f"a vector_offset in {self.memory.name} on dimension {dim}"
            raise ProgramError(where, found, "a pattern in HBM, and indirect_dim 0", source)
        stride = self.strides[dim - on_chip] * self.dtype.itemsize
        if stride % to.itemsize:
            raise ProgramError(where, f"a stride of {stride} bytes", f"whole elements of {to.name}")
        low, high = (0, self.storage) if self.storage else self.extent
        return Dynamic(index, "start" if vector is None else "rows", stride // to.itemsize, low, high)

    def select(self, dim: int, index: int | View | Register) -> View:
        """One entry of a dimension, which goes; `index` is a whole number, a register, or one in SBUF that is read at run time."""
        dim, rank = _whole(self, dim), len(self.shape)
        on_chip = int(self.memory is not Memory.HBM)
        if not on_chip <= dim < rank:
            raise ProgramError(_where(self), f"select of dimension {dim}", f"{on_chip} to {rank - 1}" + " (not the partition)" * on_chip)
        if not isinstance(index, View | Register):
            return self[(slice(None),) * dim + (index,)]
        pattern = self._pattern()
        return self.ap(pattern[:dim] + pattern[dim + 1 :], scalar_offset=index, indirect_dim=dim)

    def vector_select(self, dim: int, vector_offset: View) -> View:
        """Entry `vector_offset[p]` of the first dimension for each p: rows of an HBM tensor, chosen at run time."""
        if dim != 0 or not isinstance(vector_offset, View) or not self.counts:
            raise ProgramError(_where(self), f"vector_select({dim}, {vector_offset!r})", "dimension 0, and an SBUF tensor [P, 1]")
        if (by := vector_offset).memory is not Memory.SBUF or by.elements != 1:
            found = f"vector_select by {by.tensor}, {by.dtype.name} of shape {list(by.shape)} in {by.memory.name}"
            raise ProgramError(_where(self), found, "one index for each row: [P, 1] in SBUF", "nki.isa access patterns")
        pattern = self._pattern()
        return self.ap([[pattern[0][0], vector_offset.partitions], *pattern[1:]], vector_offset=vector_offset)

    def indirect(self, index: View, num_elem: int | None = None) -> View:
        """Columns of a tensor on chip, [P, num_elem], that offsets in SBUF choose at run time, as nki's `.indirect`.

        `index`, [P, K] of uint16, holds the offsets of each group of partitions snakewise: offset i of a group that starts at
        partition p is index[p + i % G, i // G], where G is 16, or 32 on the TensorEngine. NeuronCore-v4 and later.
        """
        self._static("indirect")
        where, source = _where(self), "nki.language.NkiTensor.indirect"
        if self.memory is Memory.HBM or len(self.counts) != 1 or self.strides[0] < 1:
            raise ProgramError(where, f"columns of {self}", "a tensor [P, F] in SBUF or PSUM", source)
        if not isinstance(index, View) or index.memory is not Memory.SBUF or index.dtype.name not in COLUMN_TYPES:
            raise ProgramError(where, f"offsets in {index!r}", f"an SBUF tensor of {' or '.join(COLUMN_TYPES)}", source)
        fixed(index, where)
        if index.partitions != self.partitions:
            raise ProgramError(where, f"offsets in {index.partitions} partitions", f"{self.partitions}, as the data", source)
        count = index.size if num_elem is None else _whole(self, num_elem)
        if count < 1:
            raise ProgramError(where, f"num_elem={count}", "at least 1", source)
        moved = Dynamic(index, "columns", self.strides[0], *self.extent)
        return attrs.evolve(self, strides=(1,), counts=(count,), dynamic=moved)

    def _pattern(self) -> list[list[int]]:
        """The view as a pattern for `ap`."""
        row = (self.storage // self.dtype.itemsize) or self.elements
        free = [[s, c] for s, c in zip(self.strides, self.counts, strict=True)]
        return free if self.memory is Memory.HBM else [[row, self.partitions], *free]

    def with_dtype(self, dtype: Any) -> View:
        """The same bytes read as another type of the same size; `ap` takes any."""
        to = as_dtype(dtype)
        if to.itemsize != self.dtype.itemsize:
            raise ProgramError(_where(self), f"a view as {to.name}", f"an element of {self.dtype.itemsize} bytes")
        return attrs.evolve(self, dtype=to)

    def moved_to(self, number: int) -> View | None:
        """Where a view whose start is dynamic lies if its index is `number`; None if that is out of bounds."""
        moved = self.dynamic
        assert moved is not None
        at = View(
            self.tensor, self.memory, self.dtype, self.partition, self.partitions, self.offset + number * moved.step * self.dtype.itemsize,
            self.strides, self.counts, storage=self.storage,
        )  # fmt: skip
        low, high = at.extent
        return at if moved.low <= low and high <= moved.high else None

    def overlaps(self, other: View, mine: int = 0, theirs: int = 0) -> bool:
        """True if the two touch a common byte. `mine` and `theirs` are the addresses of their tensors."""
        if self.memory is not other.memory or not self.size or not other.size:
            return False
        if self.dynamic is not None or other.dynamic is not None:
            return self.region.overlaps(other.region, mine, theirs)
        if self.memory is not Memory.HBM and (
            self.partition >= other.partition + other.partitions or other.partition >= self.partition + self.partitions
        ):
            return False
        (a0, a1), (b0, b1) = self.extent, other.extent
        if a0 + mine >= b1 + theirs or b0 + theirs >= a1 + mine:
            return False
        if self.dense and other.dense:
            return True
        a, b = (comb(v.strides, v.counts, v.dtype.itemsize) for v in (self, other))
        if a is not None and b is not None and (a[0] == b[0] or 1 in (a[1], b[1])):
            return combs_meet(a0 + mine, a, b0 + theirs, b)
        (starts, length), (others, reach) = self.runs, other.runs
        starts, others = starts + mine, others + theirs
        after = np.searchsorted(others, starts - reach, side="right")  # the first run of the other that ends after mine begins
        near = after < len(others)
        return bool((others[after[near]] < starts[near] + length).any())

    @cached_property
    def runs(self) -> tuple[np.ndarray, int]:
        """Sorted first bytes of the pattern's contiguous runs, relative to the tensor, and the bytes of each."""
        run, at, left = self.run(), np.zeros(1, np.int64), self.elements
        for stride, count in zip(self.strides, self.counts, strict=True):
            if left <= run:
                break
            left //= count
            at = (at[:, None] + np.arange(count, dtype=np.int64) * (stride * self.dtype.itemsize)).reshape(-1)
        return np.unique(at + self.offset), run * self.dtype.itemsize

    def __str__(self) -> str:
        strides, counts = ",".join(map(str, self.strides)), ",".join(map(str, self.counts))
        body = f"{self.memory.name.lower()}:{self.tensor}+{self.offset:#x}:{self.dtype.name}[{strides}][{counts}]"
        place = "" if self.memory is Memory.HBM else f"@{self.partition}:{self.partition + self.partitions}"
        return f"{body}{place}" if self.dynamic is None else f"{body}{place}{self.dynamic}"

    __repr__ = __str__


def whole(tensor: str, memory: Memory, shape: tuple[int, ...], dtype: DType, partition: int = 0) -> View:
    """The view of a whole tensor, laid out row-major."""
    free = shape if memory is Memory.HBM else shape[1:]
    strides = tuple(math.prod(free[i + 1 :]) for i in range(len(free)))
    size = math.prod(free) * dtype.itemsize
    return View(tensor, memory, dtype, partition, 0 if memory is Memory.HBM else shape[0], 0, strides, tuple(free), storage=size)


@functools.lru_cache(maxsize=4096)
def _shared(numbers: tuple[int, ...]) -> tuple[int, ...]:
    """One object for equal strides or counts: slices of one tensor are many."""
    return numbers


def _whole(view: View, value: Any) -> int:
    """A whole number from a user's hand."""
    try:
        if isinstance(value, bool):
            raise TypeError
        return int(value.__index__())
    except (AttributeError, TypeError):
        raise ProgramError(_where(view), f"{value!r}", "a whole number") from None


def _where(view: View) -> str:
    return f"{user_line()} {view}".strip()


def _chosen_at_run_time(view: View, axis: int, *parts: Any) -> None:
    """Raise the error of a key, or of a slice's bounds, that is known at run time and stands where a number must."""
    part = next((x for x in parts if isinstance(x, View | Register)), None)
    if part is None:
        return
    if isinstance(part, Register):
        found, works = f"a slice by register {part.name} on axis {axis}", f"ds({part.name}, n): n entries from it on, n a number"
    else:
        found = f"{part.tensor} as an index on axis {axis}"
        works = f"select({axis}, index) or ap(pattern, scalar_offset=index, indirect_dim={axis}) for one number in SBUF"
    if axis == 0 and view.memory is not Memory.HBM:
        works = "numbers: partitions are known when the program is built"
    raise ProgramError(_where(view), found, works) from None


def _bounds(view: View, axis: int, key: Any, size: int) -> tuple[int, int | None, int]:
    """First index, count (None: a single element) and step of one key, checked against the size."""
    if isinstance(key, slice):
        if key.start is None and key.stop is None and key.step is None:
            return 0, size, 1
        try:
            start, stop, step = key.indices(size)
        except (TypeError, ValueError, ProgramError) as e:
            _chosen_at_run_time(view, axis, key.start, key.stop, key.step)
            raise ProgramError(_where(view), f"index {key} on axis {axis}", f"integer bounds and a non-zero step: {e}") from None
        for bound in (key.start, key.stop):
            if bound is not None and not -size <= bound <= size:
                raise ProgramError(_where(view), f"index {bound} on axis {axis}", f"0 to {size}: a slice past the end is an error here")
        count = len(range(start, stop, step))
        return (start if count else 0), count, step
    try:
        if isinstance(key, bool):
            raise TypeError
        index = int(key.__index__())
    except (AttributeError, TypeError):
        _chosen_at_run_time(view, axis, key)
        raise ProgramError(_where(view), f"index {key!r} on axis {axis}", "an integer, a slice or ...") from None
    if not -size <= index < size:
        raise ProgramError(_where(view), f"index {index} on axis {axis}", f"-{size} to {size - 1}")
    return index % size, None, 1
