"""One step as one line of text: the grammar, and the message for every way to get it wrong."""

from __future__ import annotations

import math
from typing import Any

import attrs
import pytest

from nc_sim.isa import Engine, Step, Update, UpdateOp, Wait, When, parse_view
from nc_sim.isa.control import Nop
from nc_sim.isa.errors import ProgramError
from nc_sim.isa.text import parse_step, step_to_text
from nc_sim.isa.vector import Memset, TensorCopy, TensorTensor

A = parse_view("sbuf:a+0x0:float32[1][512]@0:128")
B = parse_view("sbuf:b+0x40:float32[1][512]@0:128")
NAMES = {"s": 0, "t-1": 1}
COPY = "vector tensor_copy dst=sbuf:a+0x0:float32[1][512]@0:128 src=sbuf:b+0x40:float32[1][512]@0:128"


def read(line: str) -> Step:
    return parse_step(line, NAMES.__getitem__)


def written(step: Step) -> str:
    return step_to_text(step, list(NAMES).__getitem__)


def refusal(line: str) -> str:
    with pytest.raises(ProgramError) as e:
        read(line)
    return str(e.value)


# --- the grammar -------------------------------------------------------------------------------------------------


def test_a_line_holds_engine_mnemonic_fields_waits_updates_and_the_user_s_line() -> None:
    step = Step(
        TensorTensor(dst=A, data1=A, data2=B, op="add"), Engine.VECTOR, (Wait(0, 16),),
        (Update(1, UpdateOp.ADD, 1), Update(0, UpdateOp.SUB, 2, When.READ), Update(0, UpdateOp.SET, 0)), "rmsnorm.py:41",
    )  # fmt: skip
    assert written(step) == (
        "vector tensor_tensor dst=sbuf:a+0x0:float32[1][512]@0:128 data1=sbuf:a+0x0:float32[1][512]@0:128 "
        "data2=sbuf:b+0x40:float32[1][512]@0:128 op=add wait=s>=16 update=t-1+1@complete,s-2@read,s=0@complete # rmsnorm.py:41"
    )
    assert read(written(step)) == step


def test_a_question_mark_says_that_the_user_chose_no_engine() -> None:
    step = Step(TensorCopy(dst=A, src=B), Engine.VECTOR, chosen=False)
    assert written(step) == COPY.replace("vector ", "vector? ")
    assert read(written(step)) == step
    assert read(COPY).chosen


@pytest.mark.parametrize("call", [0, 7])
def test_the_call_of_a_machine_instruction_is_kept(call: int) -> None:
    step = Step(Nop(), Engine.SYNC, call=call)
    assert written(step) == f"sync nop call={call}"
    assert read(f"sync nop call={call}") == step
    assert read("sync nop").call == -1


def test_spaces_and_the_order_of_fields_do_not_matter() -> None:
    words = COPY.split()
    assert read(f"  {words[0]}\t{words[1]}   {words[3]} {words[2]}  \r") == read(COPY)


def test_fields_with_a_default_may_be_left_out() -> None:
    iota = read("gpsimd iota dst=sbuf:a+0x0:int32[1][4]@0:128 pattern=[1,4]").instruction
    assert str(iota) == "iota dst=sbuf:a+0x0:int32[1][4]@0:128 pattern=[1,4] offset=0 channel_multiplier=0"


@pytest.mark.parametrize("value", [0, 1, -1, 1.0, -0.0, 0.1, 1e-45, 3.4028234663852886e38, math.inf, -math.inf, 2**63 - 1])
def test_numbers_come_back_with_their_type_and_every_bit(value: float) -> None:
    back = read(written(Step(Memset(dst=A, value=value), Engine.VECTOR))).instruction
    assert isinstance(back, Memset)
    assert type(back.value) is type(value)
    assert repr(back.value) == repr(value)


def test_a_nan_comes_back_as_a_nan() -> None:
    back = read(written(Step(Memset(dst=A, value=math.nan), Engine.VECTOR))).instruction
    assert isinstance(back, Memset)
    assert math.isnan(back.value)


@pytest.mark.parametrize("line", ["", "a.py:1", "my kernels/a #2.py:1", "<stdin>:1", "# #:1", "wait=s>=1", "ядро.py:3"])
def test_the_user_s_line_comes_back_whatever_it_holds(line: str) -> None:
    step = Step(Nop(), Engine.SYNC, (Wait(0, 1),), (), line)
    assert read(written(step)) == step


def test_a_number_sign_inside_a_word_begins_no_comment() -> None:
    assert refusal("sync nop#1").startswith("instruction 'nop#1'")


def test_semaphores_may_be_named_as_traces_name_them() -> None:
    step = Step(Nop(), Engine.SYNC, (Wait(4, 2),), (Update(4, UpdateOp.SET, 0),))
    line = step_to_text(step, lambda s: f"S[{s}]")
    assert line == "sync nop wait=S[4]>=2 update=S[4]=0@complete"
    assert parse_step(line, lambda name: int(name[2:-1])) == step


# --- what is refused when printing -------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["a\nb.py:1", "a\x1b[31m.py:1", " a.py:1", "a.py:1 ", "\ud800.py:1"])
def test_a_line_that_would_not_come_back_is_refused(line: str) -> None:
    with pytest.raises(ProgramError) as e:
        written(Step(Nop(), Engine.SYNC, line=line))
    assert str(e.value) == f"the user's line {line!r}; printable characters, no space at either end"


def test_a_semaphore_s_name_must_be_one_word() -> None:
    with pytest.raises(ProgramError) as e:
        step_to_text(Step(Nop(), Engine.SYNC, (Wait(4, 2),)), lambda s: f"S[{s}] (Scalar)")
    assert str(e.value) == "semaphore 4: name 'S[4] (Scalar)'; a word without spaces, commas and #"


def test_a_semaphore_without_a_name_is_refused() -> None:
    with pytest.raises(ProgramError) as e:
        written(Step(Nop(), Engine.SYNC, (Wait(9, 2),)))
    assert str(e.value) == "semaphore 9: no name; a semaphore of the program"


# --- what is refused when reading --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "''; engine mnemonic field=value ..."),
        ("vector", "'vector'; engine mnemonic field=value ..."),
        ("vecter nop", "engine 'vecter' (near: vector); one of tensor, vector, scalar, gpsimd, sync"),
        ("?? nop", "engine '?'; one of tensor, vector, scalar, gpsimd, sync"),
        ("vector tensor_tensr", "instruction 'tensor_tensr' (near: tensor_tensor, {near}); an instruction that nc-sim knows"),
        ("vector frobnicate", "instruction 'frobnicate'; an instruction that nc-sim knows"),
        (COPY.replace("vector", "tensor"), "tensor tensor_copy: engine tensor; one of vector, scalar, gpsimd (nki.isa.tensor_copy)"),
        (f"{COPY} scr=1", "vector tensor_copy: field 'scr' (near: src); one of dst, src, call, wait, update (nki.isa.tensor_copy)"),
        (f"{COPY} 16", "vector tensor_copy: '16'; field=value"),
        (f"{COPY} =16", "vector tensor_copy: '=16'; field=value"),
        (f"{COPY} {COPY.split()[3]}", "vector tensor_copy: src is given twice; each field once"),
        (f"{COPY} wait=s>=1 wait=s>=2", "vector tensor_copy: wait is given twice; each field once"),
        (COPY.rpartition(" ")[0], "vector tensor_copy: no src; dst, src are required (nki.isa.tensor_copy)"),
        (f"{COPY} wait=s>1", "vector tensor_copy wait: 's>1'; semaphore>=number"),
        (f"{COPY} wait=>=1", "vector tensor_copy wait: '>=1'; semaphore>=number"),
        (f"{COPY} wait=s>=1,", "vector tensor_copy wait: ''; semaphore>=number"),
        (f"{COPY} wait=s>=-1", f"vector tensor_copy wait: number '-1'; a whole number from 0 to {2**63 - 1}"),
        (f"{COPY} wait=s>=1.0", f"vector tensor_copy wait: number '1.0'; a whole number from 0 to {2**63 - 1}"),
        (f"{COPY} wait=s>={2**63}", f"vector tensor_copy wait: number '{2**63}'; a whole number from 0 to {2**63 - 1}"),
        (f"{COPY} wait=u>=1", "vector tensor_copy wait: semaphore 'u'; a semaphore of the program"),
        (f"{COPY} update=s+1", "vector tensor_copy update: 's+1'; semaphore+number@complete; also - and =, and @read"),
        (f"{COPY} update=s*1@read", "vector tensor_copy update: 's*1@read'; semaphore+number@complete; also - and =, and @read"),
        (f"{COPY} update=s+1@start", "vector tensor_copy update: 's+1@start'; semaphore+number@complete; also - and =, and @read"),
        (f"{COPY} update=+1@read", "vector tensor_copy update: '+1@read'; semaphore+number@complete; also - and =, and @read"),
        (f"{COPY} update=s+@read", f"vector tensor_copy update: number ''; a whole number from 0 to {2**63 - 1}"),
        (f"{COPY} update=u+1@read", "vector tensor_copy update: semaphore 'u'; a semaphore of the program"),
        (f"{COPY} call=x", f"vector tensor_copy call: number 'x'; a whole number from 0 to {2**63 - 1}"),
        (f"{COPY} # a\x07.py:1", "vector tensor_copy: the user's line 'a\\x07.py:1'; printable characters, no space at either end"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_line_is_said(line: str, message: str) -> None:
    start, _, end = message.partition("{near}")
    found = refusal(line)
    assert found.startswith(start)
    assert found.endswith(end)


VIEW = "memory:tensor+0xOFFSET:dtype[strides][counts]@first:last"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("dst", "sbuf:a", f"dst: view 'sbuf:a'; {VIEW}"),
        ("dst", "sbuf:a+0x0:float33[1][512]@0:128", f"dst: view 'sbuf:a+0x0:float33[1][512]@0:128'; {VIEW}"),
        ("dst", "hbm:a+0x0:float32[1][512]@0:128", f"dst: view 'hbm:a+0x0:float32[1][512]@0:128'; {VIEW}"),
        ("dst", "sbuf:a+0x0:float32[512,1][512]@0:128", "dst: 2 strides and 1 counts; one stride for each count"),
        ("dst", "sbuf:a+0x0:float32[1-][512]@0:128", "dst: view 'sbuf:a+0x0:float32[1-][512]@0:128'; memory:tensor+0xOFFSET:dtype"),
        ("dst", "sbuf:a+0x0:float32[1][512]@9:3", "dst: partitions 9 to 3; the first up to the last; none in HBM"),
        ("dst", f"sbuf:a+0x0:float32[1][{2**70}]@0:128", "dst: a number of 71 bits; whole numbers of at most 63 bits and a sign"),
        ("op0", "plus", "op0: ALU operator 'plus'; one of "),
        ("op0", "addd", "op0: ALU operator 'addd' (near: add); one of "),
        ("operand0", "x", "operand0: 'x'; a number"),
        ("operand0", f"{2**63}", "operand0: a number of 64 bits; whole numbers of at most 63 bits and a sign"),
        ("operand0", A, "operand0: a view of shape [128, 512]; a number or a [P, 1] view"),
        ("reverse0", "True", "reverse0: 'True'; 0 or 1"),
    ],
)  # fmt: skip
def test_a_bad_value_is_said_with_its_field(field: str, value: Any, message: str) -> None:
    fields = {"dst": A, "data": B, "op0": "add", "operand0": 1.0, "reverse0": 0} | {field: value}
    line = " ".join(("vector tensor_scalar", *(f"{n}={v}" for n, v in fields.items())))
    assert refusal(line).startswith(f"vector tensor_scalar {message}")


@pytest.mark.parametrize("axes", [(32,), (-(10**12),), (1, 10**9)])
def test_an_axis_is_refused_before_anything_counts_up_to_it(axes: tuple[int, ...]) -> None:
    line = f"vector tensor_reduce dst={A} op=add data={A} axis={','.join(map(str, axes))}"
    assert refusal(line) == f"vector tensor_reduce axis: axes {list(axes)}; -31 to 31"


@pytest.mark.parametrize("word", ["9" * 5000, "[" * 5000, "x" * 100_000, "-" * 5000])
def test_what_is_quoted_of_a_long_word_is_short(word: str) -> None:
    for line in (word, f"{word} nop", f"sync {word}", f"sync nop {word}", f"sync nop wait={word}", f"sync nop wait=s>={word}"):
        assert len(refusal(line)) < 400
    for field in ("dst", "op0", "reverse0"):
        line = f"vector tensor_scalar dst={A} data={A} op0=add operand0=1 reverse0=0"
        assert len(refusal(line.replace(f"{field}=", f"{field}={word}"))) < 2500  # a refused op0 lists every operator


def test_an_error_of_the_look_up_itself_is_kept() -> None:
    def find(name: str) -> int:
        raise ProgramError("", f"no {name} here", "another")

    with pytest.raises(ProgramError) as e:
        parse_step("sync nop wait=s>=1", find)
    assert str(e.value) == "sync nop: no s here; another"


def test_operands_that_do_not_fit_together_are_left_to_check() -> None:
    small = attrs.evolve(A, partitions=64)
    step = read(f"vector tensor_copy dst={small} src={A}")
    with pytest.raises(ProgramError, match="src has 128 partitions, dst has 64"):
        step.instruction.check()
