"""Every kind of error by real use, with its message: `where: what was found; what was required (source)`."""

from __future__ import annotations

import importlib
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner

from nc_sim import (
    ChipError,
    Deadlock,
    InternalError,
    NcSimError,
    Program,
    ProgramError,
    Race,
    Unimplemented,
    Unspecified,
    Unsupported,
    chip,
    simulate,
)
from nc_sim.__main__ import main
from nc_sim.expand import Expanded
from nc_sim.isa import Engine
from nc_sim.lower import lower
from nc_sim.mechanisms import MECHANISMS
from nc_sim.program import Tensor

CLASSES = (ProgramError, Race, Deadlock, Unsupported, Unimplemented, Unspecified, ChipError, InternalError)


# --- the form --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CLASSES)
def test_a_message_reads_where_found_required_source(kind: type[NcSimError]) -> None:
    assert str(kind("a.py:1", "2 partitions", "they must match", "nki.isa")) == "a.py:1: 2 partitions; they must match (nki.isa)"
    assert str(kind("a.py:1", "2 partitions", "they must match")) == "a.py:1: 2 partitions; they must match"
    assert str(kind("", "2 partitions", "they must match")) == "2 partitions; they must match"


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_is_placed_in_front_of_what_its_raiser_knew(kind: type[NcSimError]) -> None:
    error = kind("memset", "found", "required", "source")
    placed = error.at("a.py:1 vector[0]")
    assert type(placed) is kind
    assert str(placed) == "a.py:1 vector[0] memset: found; required (source)"
    assert str(error) == "memset: found; required (source)"  # the same as before
    assert str(error.at("")) == str(error)
    assert str(kind("", "found", "required").at("a.py:1")) == "a.py:1: found; required"


def test_errors_of_a_program_are_told_apart_from_those_of_the_model() -> None:
    assert {k for k in CLASSES if issubclass(k, ProgramError)} == {ProgramError, Race, Deadlock}
    assert all(issubclass(k, NcSimError) for k in CLASSES)
    assert not any(issubclass(k, other) for k in CLASSES for other in CLASSES if k is not other and other is not ProgramError)


def test_an_error_survives_the_way_to_another_process() -> None:
    for kind in CLASSES:
        assert str(pickle.loads(pickle.dumps(kind("a", "b", "c", "d")))) == "a: b; c (d)"
    assert pickle.loads(pickle.dumps(Deadlock("a", "b", "c", blocked=[(1, 2, 3, 4, 5)]))).blocked == ((1, 2, 3, 4, 5),)


def test_a_deadlock_that_is_placed_keeps_what_is_blocked() -> None:
    assert Deadlock("a", "b", "c", blocked=[(1, 2, 3, 4, 5)]).at("x").blocked == ((1, 2, 3, 4, 5),)  # type: ignore[attr-defined]


# --- one program for each kind ---------------------------------------------------------------------------------------

HEAD = """import nc_sim


def build():
    p = nc_sim.Program("wrong")
    s = p.semaphore("s")
    a, b = p.sbuf((32, 32), "float32", name="a"), p.sbuf((32, 32), "float32", name="b")
    p.memset(dst=a, value=1.0)
"""
SBUF = "sbuf:{}+0x0:float32[1][32]@0:32"


def unspecified_chip() -> str:
    """trn2's file without the time of a memset."""
    text = (Path(chip.__file__).parent / "chips" / "trn2.toml").read_text()
    head, _, tail = text.partition("[vector.memset]")
    lines = tail.split("\n")
    at = next(k for k, line in enumerate(lines) if line.startswith("sbuf_fixed_ns"))
    lines[at] = 'sbuf_fixed_ns = { status = "unspecified", source = "arch: nobody says" }'
    return head + "[vector.memset]" + "\n".join(lines)


# name: (class, line 9 of the program, options of the command line, message)
CASES: dict[str, tuple[type[NcSimError], str, tuple[str, ...], str]] = {
    "program": (
        ProgramError,
        "p.tensor_copy(dst=a, src=b)",
        (),
        f"wrong.py:9 vector[1] tensor_copy: {SBUF.format('b')} is read before anything writes it; a write earlier in the program",
    ),
    "call": (
        ProgramError,
        "p.tensor_copy(dst=a, src=b[:, :31])",
        (),
        "wrong.py:9 vector[1] tensor_copy: src has 31 elements per partition, dst has 32; they must match (nki.isa.tensor_copy)",
    ),
    "race": (
        Race,
        "p.tensor_copy(dst=b, src=a, engine='scalar', update=[s.add(1)])",
        (),
        f"race: wrong.py:8 vector[0] memset writes {SBUF.format('a')}, wrong.py:9 scalar[0] tensor_copy reads {SBUF.format('a')}; "
        "a semaphore that orders the two",
    ),
    "deadlock": (
        Deadlock,
        "p.tensor_copy(dst=b, src=a, engine='scalar', wait=[s >= 1])",
        (),
        "deadlock: wrong.py:9 scalar[0] tensor_copy waits for s >= 1, which reached 0 "
        f"[tensor_copy dst={SBUF.format('b')} src={SBUF.format('a')}]; every wait must be reached",
    ),
    "unsupported": (
        Unsupported,
        "p.nc_matmul(dst=p.psum((32, 32)), stationary=a, moving=a, is_transpose=True)",
        ("--what-if", "tensor.transpose_mode=false"),
        "wrong.py:9 nc_matmul: is_transpose=True; a chip with the PE's transpose mode (NeuronCore-v3 and later) (nki.isa.nc_matmul)",
    ),
    "unimplemented": (
        Unimplemented,
        "p.sendrecv(src=a, dst=a, send_to_rank=1, recv_from_rank=1, pipe_id=0)",
        (),
        "wrong.py:9 sendrecv: sendrecv on one core; two cores, which nc-sim does not run together yet (nki.isa.sendrecv)",
    ),
    "unspecified": (
        Unspecified,
        "p.memset(dst=b, value=1.0)",
        ("--chip", "other.toml"),
        "wrong.py:8 vector memset trn2: vector.memset.sbuf_fixed_ns has no published value; a source, or an override by --what-if"
        " (arch: nobody says)",
    ),
    "chip": (
        ChipError,
        "p.memset(dst=b, value=1.0)",
        ("--what-if", "vector.gap=1"),
        "what-if vector.gap: unknown key 'vector.gap'; a key of the chip schema; did you mean 'vector.gap_ns'?",
    ),
    "value": (
        ChipError,
        "p.memset(dst=b, value=1.0)",
        ("--what-if", "vector.gap_ns=-1"),
        "what-if vector.gap_ns: -1; a number of at least 0",
    ),
    "file": (
        ChipError,
        "p.memset(dst=b, value=1.0)",
        ("--chip", "missing.toml"),
        "missing.toml: cannot be read: No such file or directory; a chip file",
    ),
    "name": (
        ChipError,
        "p.memset(dst=b, value=1.0)",
        ("--chip", "trn99"),
        f"chip: 'trn99'; one of {', '.join(chip.names())}, or the path of a .toml file",
    ),
}


@pytest.fixture
def wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Writes wrong.py with a given line 9, and other.toml, and goes there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.toml").write_text(unspecified_chip())

    def write(line: str) -> None:
        (tmp_path / "wrong.py").write_text(f"{HEAD}    {line}\n    return p\n")

    return write


@pytest.mark.parametrize("case", CASES)
def test_each_kind_of_error_arises_from_use_with_its_message(case: str, wrong: Callable[[str], None]) -> None:
    kind, line, options, wanted = CASES[case]
    wrong(line)
    namespace: dict[str, Any] = {"__name__": "wrong"}
    exec(compile(Path("wrong.py").read_text(), "wrong.py", "exec"), namespace)
    given = dict(zip(options[::2], options[1::2], strict=True))
    what_if = dict([pair.split("=")]) if (pair := given.get("--what-if")) else None
    with pytest.raises(NcSimError) as caught:
        simulate(namespace["build"](), given.get("--chip", "trn2"), what_if=what_if)
    assert type(caught.value) is kind
    assert str(caught.value) == wanted


@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize("case", CASES)
def test_the_command_line_prints_the_error_and_no_traceback(case: str, command: str, wrong: Callable[[str], None]) -> None:
    _, line, options, wanted = CASES[case]
    wrong(line)
    done = CliRunner().invoke(main, [command, "wrong.py", *options], prog_name="nc-sim")
    assert done.exit_code == 1
    assert done.output == f"error: {wanted}\n"
    assert isinstance(done.exception, SystemExit)
    assert not Path("out").exists()


def test_an_internal_error_is_told_like_any_other(wrong: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault put in on purpose: calls reach the lowering as they are."""

    def forgets(program: Program, *_: object) -> Expanded:
        return Expanded(program.name, tuple(program.steps), program.tensors, explicit=True)

    monkeypatch.setattr(importlib.import_module("nc_sim.simulate"), "expand", forgets)  # the package has a function so named
    wrong("p.activation(dst=a, op='exp', data=a)")
    done = CliRunner().invoke(main, ["check", "wrong.py"], prog_name="nc-sim")
    assert done.exit_code == 1
    assert done.output == "error: lower: activation is a call; machine instructions only: expand first\n"


def test_a_call_that_was_not_expanded_is_an_internal_error() -> None:
    p = Program("call")
    a = p.sbuf((32, 32), "float32")
    p.activation(dst=a, op="exp", data=a)
    with pytest.raises(InternalError) as caught:
        lower(p.steps, chip.load("trn2"))
    assert str(caught.value) == "lower: activation is a call; machine instructions only: expand first"


def test_an_error_of_pythons_own_in_a_users_file_is_told_with_its_line(wrong: Callable[[str], None]) -> None:
    wrong("1 / 0")
    done = CliRunner().invoke(main, ["check", "wrong.py"], prog_name="nc-sim")
    assert done.exit_code == 1
    assert re.fullmatch(r"error: wrong\.py:\d+: ZeroDivisionError: division by zero; build\(\*\*sizes\).*\n", done.output)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("check", "nothing"), "program: 'nothing'; one of "),
        (("check", "nothing.py"), "nothing.py: cannot be read; a Python file with build()"),
        (("check", "empty.py"), "empty.py: no build(); a function build() that returns a Program"),
        (("check", "none.py"), "none.py: build() returned NoneType; a Program"),
        (("check", "nothing.msgpack"), "nothing.msgpack: cannot be read: No such file or directory; a program file"),
        (("run", "none.py", "--size", "rows"), "--size: 'rows'; NAME=VALUE"),
        (("run", "none.py", "--size", "rows=1"), "none.py --size: 'rows'; one of none"),
        (("check", "none.py", "--what-if", "x"), "--what-if: 'x'; NAME=VALUE"),
        (("chips", "trn99"), "chip: 'trn99'; one of "),
    ],
)
def test_the_command_line_says_what_it_cannot_use(
    words: tuple[str, ...], wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.py").write_text("")
    Path("none.py").write_text("from nc_sim import Program\n\n\ndef build():\n    return None\n")
    if "--what-if" in words:
        Path("none.py").write_text("from nc_sim import Program\n\n\ndef build():\n    return Program()\n")
    done = CliRunner().invoke(main, list(words), prog_name="nc-sim")
    assert done.exit_code == 1
    assert done.output.startswith(f"error: {wanted}")
    assert done.output.count("\n") == 1


# --- what simulate() is given ----------------------------------------------------------------------------------------


def copying() -> Program:
    p = Program("copying")
    x, y, t = p.input("x", (2, 3), "float32"), p.output("y", (2, 3), "float32"), p.sbuf((2, 3), "float32")
    p.dma_copy(dst=t, src=x)
    p.dma_copy(dst=y, src=t)
    return p


def refused(inputs: Any, **options: Any) -> str:
    with pytest.raises(ProgramError) as caught:
        simulate(copying(), inputs=inputs, **options)
    return str(caught.value)


ZEROS = np.zeros((2, 3), np.float32)


def test_inputs_must_be_those_of_the_program() -> None:
    assert refused({"z": ZEROS}) == "simulate: an input 'z'; one of x"
    assert refused({"x": ZEROS, "y": ZEROS}) == "simulate: an input 'y'; one of x"
    assert refused({"z": ZEROS}, values=False) == "simulate: an input 'z'; one of x"
    assert refused({}, values=True) == "simulate: no array for input 'x'; one for every input, or values=False for time only"
    p = Program("none")
    p.memset(dst=p.sbuf((4, 4), "float32"), value=1.0)
    with pytest.raises(ProgramError) as caught:
        simulate(p, inputs={"x": ZEROS})
    assert str(caught.value) == "simulate: an input 'x'; one of none: the program has no inputs"


def test_without_inputs_only_time_is_computed() -> None:
    assert simulate(copying()).outputs == {}
    assert simulate(copying(), inputs={"x": ZEROS}, values=False).outputs == {}
    assert list(simulate(copying(), inputs={"x": ZEROS}).outputs) == ["y"]


@pytest.mark.parametrize("shape", [(3, 2), (6,), (2, 3, 1), (), (1, 3), (0, 3)])
def test_an_input_must_have_its_tensors_shape(shape: tuple[int, ...]) -> None:
    assert refused({"x": np.zeros(shape, np.float32)}).endswith(f"input x: shape {list(shape)}; [2, 3]")


@pytest.mark.parametrize(
    ("array", "name"),
    [
        (np.zeros((2, 3), complex), "complex128"),
        (np.full((2, 3), "1"), "<U1"),
        (np.zeros((2, 3), object), "object"),
        (np.zeros((2, 3), "M8[s]"), "datetime64[s]"),
        (np.zeros((2, 3), ">f4"), ">f4"),
        (np.zeros((2, 3), [("a", "f4")]), "[('a', '<f4')]"),
    ],
)
def test_an_input_must_hold_numbers(array: np.ndarray, name: str) -> None:
    assert refused({"x": array}).endswith(f"input x: type {name}; numbers that convert to float32")


@pytest.mark.parametrize(
    "array", [[[1, 2, 3], [4, 5, 6]], np.array([[1, 2, 3], [4, 5, 6]], np.int64), np.array([[1, 2, 3], [4, 5, 6]], ml_dtypes.bfloat16)]
)
def test_an_input_may_be_a_list_or_an_array_of_any_number_type(array: Any) -> None:
    assert simulate(copying(), inputs={"x": array}).outputs["y"].tolist() == [[1, 2, 3], [4, 5, 6]]


def test_an_input_that_is_none_is_refused() -> None:
    assert refused({"x": None}) == "simulate: no array for input 'x'; one for every input, or values=False for time only"


@pytest.mark.parametrize("inputs", [[ZEROS], ZEROS, "x"])
def test_inputs_must_be_a_mapping(inputs: Any) -> None:
    assert refused(inputs) == f"simulate: inputs of type {type(inputs).__name__}; a mapping of names to arrays"


def test_a_program_must_be_a_program() -> None:
    with pytest.raises(ProgramError) as caught:
        simulate("rmsnorm")  # type: ignore[arg-type]
    assert str(caught.value) == "simulate: str 'rmsnorm'; a Program"


@pytest.mark.parametrize("phase", [float("nan"), float("inf"), "0", True])
def test_a_gate_phase_must_be_a_finite_number(phase: Any) -> None:
    assert refused(None, gate_phase_ns=phase) == f"simulate: gate_phase_ns={phase!r}; a finite number of ns"


def test_a_mechanism_that_does_not_exist_is_refused() -> None:
    assert refused(None, without=["gravity"]) == f"without: 'gravity'; one of {', '.join(MECHANISMS)}"


# --- what a call is given --------------------------------------------------------------------------------------------


def misused(call: Callable[[Program], object]) -> str:
    p = Program("misused")
    p.sbuf((4, 4), "float32", name="a")
    p.sbuf((4, 4), "float32", name="b")
    with pytest.raises(NcSimError) as caught:
        call(p)
    line, _, rest = str(caught.value).partition(" ")
    assert line == f"test_errors.py:{call.__code__.co_firstlineno}"
    assert len(p) == 0
    return rest


def view(p: Program, name: str = "a") -> Any:
    return p.tensors[name].view()


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        (lambda p: p.memset(dst=view(p)), "vector[0] memset: no value; dst, value are required (nki.isa.memset)"),
        (
            lambda p: p.memset(dst=view(p), val=1.0),
            "vector[0] memset: unknown keyword 'val'; one of dst, value; did you mean 'value'? (nki.isa.memset)",
        ),
        (lambda p: p.memset(view(p), 1.0, 2.0), "vector[0] memset: 3 operands; at most 2: dst, value"),
        (lambda p: p.memset(view(p), dst=view(p), value=1.0), "vector[0] memset: dst is given twice; once, by position or by name"),
        (lambda p: p.memset(dst=1, value=1.0), "vector[0] memset dst: 1; a view of a tensor"),
        (lambda p: p.memset(dst=view(p), value="1"), "vector[0] memset value: '1'; a number or a [P, 1] view"),
        (
            lambda p: p.memset(dst=view(p), value=1.0, engine="scalar"),
            "memset: engine scalar; one of vector, gpsimd (nki.isa.memset)",
        ),
        (
            lambda p: p.memset(dst=view(p), value=1.0, engine="pe"),
            "memset: engine 'pe'; one of tensor, vector, scalar, gpsimd, sync",
        ),
        (
            lambda p: p.activation(dst=view(p), op="expo", data=view(p)),
            "scalar[0] activation op: activation function 'expo' (near: exp); one of ",
        ),
        (
            lambda p: p.tensor_tensor(dst=view(p), data1=view(p), data2=view(p)[:, :3], op="add"),
            "vector[0] tensor_tensor: data2 has 3 elements per partition, dst has 4; they must match (nki.isa.tensor_tensor)",
        ),
        (
            lambda p: p.memset(dst=view(p), value=1.0, wait=[1]),
            "vector[0] memset: wait=1; [s >= value]",
        ),
        (
            lambda p: p.memset(dst=view(p), value=1.0, update=[Program("q").semaphore("s").add(1)]),
            "vector[0] memset: update=Update(semaphore=0, op=<UpdateOp.ADD: 0>, value=1, when=<When.COMPLETE: 1>); "
            "[s.add(value)], s from p.semaphore(name)",
        ),
        (lambda p: p.semaphore("s") >= -1, "semaphore s: value -1; a whole number, 0 to 2147483647"),
        (lambda p: p.semaphore("s").add(1.5), "semaphore s: value 1.5; a whole number, 0 to 2147483647"),
        (lambda p: p.sbuf((4, 4), "float32", name="a"), "tensor a: the name is taken; a name of its own"),
        (lambda p: p.sbuf((4, 0), "float32", name="c"), "tensor c: shape [4, 0]; at least one dimension, each at least 1, "),
        (lambda p: p.sbuf((4,), "float32", name="c"), "tensor c: shape [4]; [partitions, free...] for an on-chip tensor"),
        (lambda p: p.sbuf((4, 4.0), "float32", name="c"), "tensor c: shape (4, 4.0); whole numbers"),
        (lambda p: p.sbuf((4, 4), "float64", name="c"), "tensor c: element type 'float64' (near: "),
        (lambda p: p.sbuf((4, 4), "float32", name="c", address=-4), "tensor c: address -4; a whole number of at least 0"),
        (lambda p: p.sbuf((4, 4), "float32", name="4c"), "tensor 4c: name '4c'; a letter or _, then letters, digits and _ . $ -"),
    ],
)
def test_a_call_that_is_misused_is_refused_at_its_line_and_leaves_no_trace(call: Callable[[Program], object], wanted: str) -> None:
    got = misused(call)
    assert got == wanted or (wanted.endswith((" ", "(near: ")) and got.startswith(wanted))


def test_a_misused_update_names_the_semaphore() -> None:
    s = Program("p").semaphore("s")
    with pytest.raises(ProgramError) as caught:
        s.add(1, when="later")
    assert str(caught.value) == "semaphore s: when='later'; 'read' or 'complete'"


def test_an_unknown_instruction_is_an_attribute_error_with_a_hint() -> None:
    with pytest.raises(AttributeError) as caught:
        Program("p").tensor_tensr(dst=1)
    assert str(caught.value) == "Program has no attribute or instruction 'tensor_tensr'; did you mean 'tensor_tensor'?"


def test_a_traceback_gives_the_hint_about_an_unknown_instruction_once() -> None:
    done = subprocess.run([sys.executable, "-c", "import nc_sim; nc_sim.Program('p').top8"], capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert last == "AttributeError: Program has no attribute or instruction 'top8'; did you mean 'topk'?"


def test_a_position_counts_the_calls_of_its_queue() -> None:
    p = Program("positions")
    a = p.sbuf((4, 4), "float32")
    p.memset(dst=a, value=1.0)
    p.memset(dst=a, value=1.0, engine="gpsimd")
    p.memset(dst=a, value=1.0)
    for engine, position in ((None, "vector[2]"), ("gpsimd", "gpsimd[1]"), (Engine.VECTOR, "vector[2]")):
        with pytest.raises(ProgramError) as caught:
            p.memset(dst=a, engine=engine)
        assert f" {position} memset: no value" in str(caught.value)


# --- updates that a DMA cannot make ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("update", "found"),
    [
        (lambda s: s.add(1), "update add 1 on complete"),
        (lambda s: s.add(16, when="read"), "update add 16 on read"),
        (lambda s: s.sub(16), "update sub 16 on complete"),
        (lambda s: s.set(16), "update set 16 on complete"),
    ],
)
def test_a_dma_adds_a_multiple_of_sixteen_when_it_is_complete_and_nothing_else(update: Callable[[Any], Any], found: str) -> None:
    p = Program("update")
    s, x, t = p.semaphore("s"), p.input("x", (4, 4), "float32"), p.sbuf((4, 4), "float32")
    p.dma_copy(dst=t, src=x, update=[update(s)])
    with pytest.raises(ProgramError) as caught:
        simulate(p, values=False)
    assert str(caught.value) == (
        f"{p.steps[0].line} dma_direct2d: {found}; add(16) on completion: each of the 16 DMA engines adds its share"
    )


def test_a_tensor_without_a_line_is_named_without_one() -> None:
    """As in a program that a file holds."""
    p = Program("lines")
    p.memset(dst=p.sbuf((129, 4), "float32", name="t"), value=1.0)
    p.tensors["t"] = Tensor(**{k: getattr(p.tensors["t"], k) for k in ("name", "memory", "shape", "dtype")})
    with pytest.raises(ProgramError) as caught:
        simulate(p)
    assert str(caught.value) == "tensor t: partitions 0 to 129; at most 128 partitions (trn2)"


@pytest.mark.parametrize(("dma", "most"), [(False, 14), (True, 14)])
def test_one_more_update_than_an_instruction_takes_is_refused_with_the_number_it_takes(dma: bool, most: int) -> None:
    """15 to a row; a compute instruction's row also says that it began, a DMA's may say that there is room in its ring."""

    def program(count: int) -> Program:
        p = Program("many")
        t, x = p.sbuf((128, 8), "float32"), p.input("x", (128, 8), "float32")
        semaphores = [p.semaphore(f"s{k}") for k in range(count)]
        if dma:
            p.dma_copy(dst=t, src=x, engine="sync", dge_mode="hwdge", update=[s.add(16) for s in semaphores])
        else:
            p.memset(dst=t, value=0.0, update=[s.add(1) for s in semaphores])
        return p

    simulate(program(most), values=False)
    with pytest.raises(Unimplemented, match=f"{most + 1} updates on one .*; at most {most}$"):
        simulate(program(most + 1), values=False)
