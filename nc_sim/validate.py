"""What must hold before a program can run on a chip: engines, places, sizes, initialised reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .access import History, covers
from .chip import Reader, who_has
from .explain import place
from .isa import Engine, Memory, Step, View, fields_of, indirection
from .isa.accumulator import RESET
from .isa.dma import Dma
from .isa.errors import ProgramError, Unspecified, Unsupported
from .isa.fields import ALU
from .isa.instruction import has
from .isa.mx import STARTS, QuantizeMx
from .isa.ops import ALU_OPS
from .isa.selection import NcStreamShuffle
from .isa.tensor import LoadWeights, LoadWeightsMode, Matmul, MatmulMode
from .isa.vector import TensorScalar
from .isa.view import MAX_FREE_DIMS
from .program import Tensor
from .progress import Tell, told

OLDEST = 2  # NeuronCore version
NEWER_TYPES = {"float8_e4m3fn": "types.float8_e4m3fn", "float8_e8m0fnu": "types.mx"}  # and what packs elements: types.mx
MX_SCALES = ("dst_scale", "scales")  # operands that start where isa/mx.py says


def validate(
    steps: Sequence[Step], tensors: Mapping[str, Tensor], addresses: Mapping[str, int], chip: Reader, progress: Tell | None = None
) -> None:  # fmt: skip
    """Raise ProgramError (or Unsupported) for the first instruction that this chip cannot execute.

    `progress` is told steps done and steps in all.
    """
    known: set[object] = set()  # programs repeat themselves
    for index, step in enumerate(told(steps, progress)):
        i = step.instruction
        key: object = (i, step.engine)
        if isinstance(i, Dma):  # where in HBM it reaches makes no difference here
            key = (type(i), i.generation, step.engine, *[v.dtype.name if v.memory is Memory.HBM else v for _, v, _ in i.views])
        if key in known:
            continue
        for check in (_engine, _supported, _types, _columns, _places, _bank, _sizes):
            try:
                check(step, tensors, addresses, chip)
            except (ProgramError, Unsupported) as e:
                raise e.at(place(steps, index)) from None
        known.add(key)
    _weights(steps)
    _sums(steps, chip)
    _accumulator(steps)
    _initialised(steps, tensors, addresses)
    _outputs(steps, tensors)


def _engine(step: Step, tensors: Mapping[str, Tensor], addresses: Mapping[str, int], chip: Reader) -> None:
    engines = step.instruction.engines
    if step.engine not in engines:
        raise ProgramError("", f"it runs on {step.engine.label}", f"one of {', '.join(e.label for e in engines)}", step.instruction.source)
    if (
        isinstance(step.instruction, Dma)
        and step.instruction.generation == "hardware"
        and not (chip.has("dma.hardware.available") and chip("dma.hardware.available"))
    ):
        raise Unsupported("", "hardware descriptor generation", f"a chip that has it; {chip.chip.name} does not")
    own = "scalar.tensor_scalar.available"
    if step.engine is Engine.SCALAR and isinstance(step.instruction, TensorScalar) and not (chip.has(own) and chip(own)):
        number = chip.chip.numbers[own]
        raise Unsupported("", f"tensor_scalar on ScalarE of {chip.chip.core}", who_has(number), number.source)


def _supported(step: Step, tensors: Mapping[str, Tensor], addresses: Mapping[str, int], chip: Reader) -> None:
    """The chip is new enough for the instruction and its operators, as far as the chip file says."""
    i, numbers = step.instruction, chip.chip.numbers
    if step.engine in i.since and i.machine:
        kind = f"{step.engine.name.lower()}.{i.work().kind}"
        for key in (f"{kind}.cycles_per_element", f"{kind}.cycles_per_row"):
            if key in numbers and numbers[key].status == "unsupported":
                raise Unsupported("", f"{i.mnemonic} on {step.engine.label} of {chip.chip.name}", has(i, step.engine), numbers[key].source)
    for name, field in fields_of(type(i)).items():
        if ALU not in (field, getattr(field, "kind", None)) or (value := getattr(i, name)) is None:
            continue
        if (op := ALU_OPS[value]).since > OLDEST and not chip("vector.magnitude_operators"):
            raise Unsupported("", f"{name}={op.name} on {chip.chip.name}", f"NeuronCore-v{op.since} or newer", f"nki.language.{op.name}")


def _types(step: Step, tensors: Mapping[str, Tensor], addresses: Mapping[str, int], chip: Reader) -> None:
    """The chip has the types of all operands."""
    for name, v, _ in step.instruction.views:
        if (key := "types.mx" if v.dtype.kind == "packed" else NEWER_TYPES.get(v.dtype.name)) is None:
            continue
        if not (chip.has(key) and chip(key)):
            number = chip.chip.numbers[key]
            raise Unsupported("", f"{name} is {v.dtype.name} on {chip.chip.name}", who_has(number), number.source)


def _columns(step: Step, tensors: Mapping[str, Tensor], addresses: Mapping[str, int], chip: Reader) -> None:
    """Operands with columns of their own are on a chip and in places that have them."""
    for name, _, _ in indirection.columns(step.instruction):
        key = "memory.tensor_indirection"
        if not (chip.has(key) and chip(key)):
            number = chip.chip.numbers[key]
            raise Unsupported("", f"{name} with .indirect() on {chip.chip.name}", who_has(number), number.source)
    indirection.check(step.instruction, step.engine, chip("memory.partition_quadrant"))


def _places(step: Step, tensors: Mapping[str, Tensor], addresses: Mapping[str, int], chip: Reader) -> None:
    """Partitions, start partitions and bytes lie inside the memory."""
    partitions, quadrant = chip("memory.partitions"), chip("memory.partition_quadrant")
    together = max((v.partitions for _, v, _ in step.instruction.views), default=0) if isinstance(step.instruction, NcStreamShuffle) else 0
    for name, v, _ in step.instruction.views:
        if v.memory is Memory.HBM:
            continue
        if v.partition + v.partitions > partitions:
            raise ProgramError("", f"{name} reaches partition {v.partition + v.partitions}", f"at most {partitions}", chip.chip.name)
        if not isinstance(step.instruction, Dma):
            dims = sum(c > 1 for c in v.counts)
            if dims > MAX_FREE_DIMS:
                raise ProgramError("", f"{name} has {dims} free dimensions", f"at most {MAX_FREE_DIMS}", "NeuronCore architecture guide")
            active = max(v.partitions, together)  # a shuffle's operands start as the larger of them may
            grain = quadrant if active <= quadrant else 2 * quadrant if active <= 2 * quadrant else partitions
            if name in MX_SCALES and isinstance(i := step.instruction, QuantizeMx | LoadWeightsMode | MatmulMode):
                _scale_start(name, v, i.src, quadrant)
            elif v.partition % grain:
                raise ProgramError(
                    "",
                    f"{name} starts at partition {v.partition} with {active}",
                    f"a multiple of {grain}",
                    "NeuronCore architecture guide",
                )
        if step.engine is Engine.GPSIMD and v.memory is Memory.PSUM:
            raise ProgramError("", f"{name} is in PSUM", "SBUF: GpSimd does not reach PSUM", "NeuronCore architecture guide")
        limit = chip("memory.psum_partition_bytes" if v.memory is Memory.PSUM else "memory.sbuf_partition_bytes")
        low, high = (addresses.get(v.tensor, 0) + e for e in v.extent)
        if low < 0 or high > limit:
            raise ProgramError(
                "", f"{name} reaches bytes {low} to {high} of its partitions", f"0 to {limit} of {v.memory.name}", chip.chip.name
            )


def _scale_start(name: str, scales: View, data: View, quadrant: int) -> None:
    """MX scales start at one of a few partitions of the quadrant in which their data start."""
    found = f"{name} starts at partition {scales.partition}"
    if scales.partition % quadrant not in STARTS:
        raise ProgramError("", found, f"one of {', '.join(map(str, STARTS))} of a quadrant", "nki.isa.quantize_mx")
    if scales.partition // quadrant != data.partition // quadrant:
        raise ProgramError("", found, f"the quadrant in which the data start, at {data.partition}", "nki.isa.quantize_mx")


def _bank(step: Step, tensors: Mapping[str, Tensor], addresses: Mapping[str, int], chip: Reader) -> None:
    """A product's destination stays inside one PSUM bank."""
    if not isinstance(step.instruction, Matmul):
        return
    v, banks, bank = step.instruction.dst, chip("tensor.result_banks"), chip("memory.psum_bank_bytes")
    for number, at in [(None, v)] if v.dynamic is None else _moved(v):
        low, high = (addresses.get(v.tensor, 0) + e for e in at.extent)
        if (high - 1) // bank - low // bank >= banks:
            room = f"one bank of {bank} bytes per partition" if banks == 1 else f"at most {banks} banks of {bank} bytes per partition"
            found = f"dst spans bytes {low} to {high} of PSUM"
            if number is not None:
                found = f"{found} if its offset is {number}"
                room = f"{room}, wherever an index may put it: no step of its loop is counted, so {_blocks(v, tensors, addresses, bank)}"
            raise ProgramError("", found, room, "NeuronCore architecture guide")


def _blocks(v: View, tensors: Mapping[str, Tensor], addresses: Mapping[str, int], bank: int) -> str:
    """What keeps a product with a dynamic destination in one bank: its tensor cut into blocks of its size, if that does it."""
    block, tensor = v.elements * v.dtype.itemsize, tensors.get(v.tensor)
    dense = tensor is not None and v.storage % block == 0 and v.run() == v.elements
    if tensor is None or not dense or bank % block or addresses.get(v.tensor, 0) % block:
        return "entries that each lie in a bank"
    return f"{v.tensor}.reshape({tensor.shape[0]}, {v.storage // block}, {v.elements})[:, i]"


def _moved(v: View) -> Iterator[tuple[int, View]]:
    """Every offset that keeps a dynamic view in bounds, and where the view then lies."""
    assert v.dynamic is not None
    step = abs(v.dynamic.step) * v.dtype.itemsize
    most = (v.dynamic.high - v.dynamic.low) // step if step else 0
    return ((k, at) for k in range(-most, most + 1) if (at := v.moved_to(k)) is not None)


def _sizes(step: Step, tensors: Mapping[str, Tensor], addresses: Mapping[str, int], chip: Reader) -> None:
    if isinstance(step.instruction, Dma):
        return
    for name, v, written in step.instruction.views:
        if written and isinstance(step.instruction, Matmul):
            continue  # its banks are counted
        limit = chip("memory.psum_max_elements" if v.memory is Memory.PSUM else "memory.sbuf_max_elements")
        if v.elements > limit:
            raise ProgramError(
                "",
                f"{name} has {v.elements} elements per partition",
                f"at most {limit} in {v.memory.name}",
                "NeuronCore architecture guide",
            )


def _weights(steps: Sequence[Step]) -> None:
    """A product fits the weights in the array."""
    loaded: tuple[int, int] | None = None
    for index, step in enumerate(steps):
        i = step.instruction
        if isinstance(i, LoadWeights):
            loaded = i.src.partitions, i.columns
        elif isinstance(i, Matmul) and loaded is not None and loaded != (i.src.partitions, i.columns):
            found = f"weights [{loaded[0]}, {loaded[1]}] in the array"
            raise ProgramError(place(steps, index), found, f"[{i.src.partitions}, {i.columns}]: src's partitions, columns")


def _sums(steps: Sequence[Step], chip: Reader) -> None:
    """A product adds to what products wrote, where the chip asks for that."""
    wrote: dict[str, list[tuple[View, bool]]] = {}  # PSUM tensor -> what was written last, and if by a product
    for index, step in enumerate(steps):
        i = step.instruction
        product = isinstance(i, Matmul)
        for v in i.writes:
            if v.memory is not Memory.PSUM:
                continue
            before = wrote.setdefault(v.tensor, [])
            if i.accumulates() and any(not p and w.overlaps(v) for w, p in before) and not chip("tensor.sums_anywhere"):
                required = "accumulate=False for the first product, or NeuronCore-v4 or newer: elsewhere the sum is undefined"
                raise Unspecified(place(steps, index), f"a product that adds to {v}, which no product wrote", required, "nki.isa.nc_matmul")
            if before != [(v, product)]:
                before[:] = [(w, p) for w, p in before if w != v and not (v.dense and covers(v, w))]
                before.append((v, product))


def _accumulator(steps: Sequence[Step]) -> None:
    """An engine's accumulator is reset before it is added to or read."""
    held: dict[Engine, int] = {}
    words = {"adds": "reduce over", "reads": "sums of"}
    for index, step in enumerate(steps):
        what, partitions = step.instruction.accumulator()
        if what in words and held.get(step.engine) != partitions:
            raise ProgramError(place(steps, index), f"{words[what]} {partitions} partitions", RESET)
        if what == "sets":
            held[step.engine] = partitions
        elif what == "loses":
            held.pop(step.engine, None)


def _outputs(steps: Sequence[Step], tensors: Mapping[str, Tensor]) -> None:
    """Every output is written, at least in part."""
    written = {v.tensor for s in steps for v in s.instruction.writes}
    for t in tensors.values():
        if t.kind == "output" and t.name not in written:
            raise ProgramError(f"{t.line} output {t.name}".strip(), "nothing writes it", "a dma_copy into it")


def _initialised(steps: Sequence[Step], tensors: Mapping[str, Tensor], addresses: Mapping[str, int]) -> None:
    """A read is an error if nothing earlier in program order writes any byte of it; partly written reads show NaN."""
    history = History(tensors, addresses)

    def placed(name: str) -> bool:
        """A tensor the user put somewhere may stand for another; the allocator's choices never do."""
        return name not in tensors or tensors[name].address is not None

    read = {v.tensor for s in steps for v in s.instruction.reads}
    readable: set[View] = set()  # views of which something was written: they stay so
    written: set[View] = set()  # views that were written whole
    for index, step in enumerate(steps):
        for view in step.instruction.reads:
            tensor = tensors.get(view.tensor)
            if view in readable or (tensor is not None and tensor.kind in ("input", "constant")):
                continue
            if not history.written(view, placed):
                raise ProgramError(place(steps, index), f"{view} is read before anything writes it", "a write earlier in the program")
            readable.add(view)
        for view in step.instruction.writes:
            if view.memory is Memory.HBM and view.tensor not in read and view.tensor in tensors:
                continue  # nobody asks
            if view not in written:
                history.conflicts(index, int(step.engine), view, writes=True)
                written.add(view)
                readable.add(view)
