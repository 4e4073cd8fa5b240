"""Every instruction and program comes back equal from text and from msgpack; damaged files give ProgramError alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nc_sim import forms
from nc_sim.isa import REGISTRY, Step, fields_of
from nc_sim.isa.errors import ProgramError
from nc_sim.isa.text import RESERVED, build, parse_step, step_to_text
from nc_sim.program import Program
from nc_sim.testing import drafts, instructions
from nc_sim.testing.operands import LINES, NAMES, steps

RANDOM = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
EACH = settings(RANDOM, max_examples=30)  # for every instruction
MNEMONICS = pytest.mark.parametrize("mnemonic", sorted(REGISTRY))
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=5) | st.binary(max_size=5)
)  # fmt: skip
ANYTHING = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=5), inner, max_size=3))


def name(semaphore: int) -> str:
    return f"s-{semaphore}"


def number(text: str) -> int:
    return int(text.removeprefix("s-"))


def bits(step: Step) -> Any:
    """Unlike ==, tells 1 from 1.0 and 0.0 from -0.0."""
    return msgpack.packb(forms.encode_step(step))


def parts(p: Program) -> tuple[Any, ...]:
    lines = [t.line for t in p.tensors.values()]
    return p.name, p.tensors, lines, p.semaphores, p.steps, [bits(s) for s in p.steps], p._positions


def accepted(read: Callable[[Any], Program], data: Any) -> Program | None:
    """What was read, or None after a ProgramError of bearable length. Any other exception fails the test."""
    try:
        return read(data)
    except ProgramError as e:
        message = str(e)
    assert 0 < len(message) < 4000
    return None


# --- instructions ------------------------------------------------------------------------------------------------


@MNEMONICS
@EACH
@given(data=st.data())
def test_a_step_comes_back_equal_from_text(mnemonic: str, data: st.DataObject) -> None:
    step = data.draw(steps(REGISTRY[mnemonic]))
    line = step_to_text(step, name)
    back = parse_step(line, number)
    assert back == step
    assert bits(back) == bits(step)
    assert step_to_text(back, name) == line


@MNEMONICS
@EACH
@given(data=st.data())
def test_a_step_comes_back_equal_from_msgpack(mnemonic: str, data: st.DataObject) -> None:
    step = data.draw(steps(REGISTRY[mnemonic]))
    back = forms.decode_step(msgpack.unpackb(bits(step)))
    assert back == step
    assert bits(back) == bits(step)


@MNEMONICS
@EACH
@given(data=st.data())
def test_a_step_prints_as_one_line_of_words(mnemonic: str, data: st.DataObject) -> None:
    step = data.draw(steps(REGISTRY[mnemonic]))
    words = step_to_text(attrs.evolve(step, line=""), name).split(" ")
    assert all(word.isprintable() and word for word in words)
    given_fields = [w.partition("=")[0] for w in words[2:]]
    assert [f for f in given_fields if f not in RESERVED] == list(fields_of(REGISTRY[mnemonic]))


@MNEMONICS
@EACH
@given(data=st.data())
def test_every_instruction_has_legal_examples(mnemonic: str, data: st.DataObject) -> None:
    made = data.draw(instructions(REGISTRY[mnemonic]))
    made.check()
    assert made == build(type(made), {n: getattr(made, n) for n in fields_of(type(made))})


@MNEMONICS
def test_no_field_takes_the_name_of_a_word_of_the_grammar(mnemonic: str) -> None:
    assert not set(fields_of(REGISTRY[mnemonic])) & set(RESERVED)


@MNEMONICS
def test_optional_fields_may_be_left_out_of_either_form(mnemonic: str) -> None:
    cls = REGISTRY[mnemonic]
    required = [a.name for a in attrs.fields(cls) if a.default is attrs.NOTHING]
    whole = legal_example(mnemonic)
    short = attrs.evolve(whole, line="")
    words = step_to_text(short, name).split(" ")
    few = [w for w in words if "=" not in w or w.partition("=")[0] in required]
    defaults = cls(**{n: getattr(whole.instruction, n) for n in required})
    assert parse_step(" ".join(few), number).instruction == defaults
    raw = forms.encode_step(short)
    raw[3] = {n: v for n, v in raw[3].items() if n in required}
    assert forms.decode_step(raw).instruction == defaults


def legal_example(mnemonic: str) -> Step:
    cls = REGISTRY[mnemonic]
    found: list[Any] = []

    @settings(RANDOM, max_examples=1)
    @given(instructions(cls))
    def take(made: Any) -> None:
        found.append(made)

    take()
    return Step(found[0], cls.engines[0])


# --- programs ----------------------------------------------------------------------------------------------------


@RANDOM
@given(drafts())
def test_a_program_comes_back_equal_from_text(p: Program) -> None:
    text = forms.program_to_text(p)
    back = forms.program_from_text(text)
    assert parts(back) == parts(p)
    assert forms.program_to_text(back) == text


@RANDOM
@given(drafts())
def test_a_program_comes_back_equal_from_msgpack(p: Program) -> None:
    data = forms.program_to_msgpack(p)
    back = forms.program_from_msgpack(data)
    assert parts(back) == parts(p)
    assert forms.program_to_msgpack(back) == data


@RANDOM
@given(drafts(), st.lists(LINES, min_size=9, max_size=9))
def test_the_hash_does_not_depend_on_the_form_nor_on_the_lines(p: Program, lines: list[str]) -> None:
    before = forms.canonical_hash(p)
    assert forms.canonical_hash(forms.program_from_text(forms.program_to_text(p))) == before
    for step, line in zip(p.steps, lines, strict=False):
        step.line = line
    for tensor, line in zip(list(p.tensors.values()), lines, strict=False):
        p.tensors[tensor.name] = attrs.evolve(tensor, line=line)
    assert forms.canonical_hash(p) == before
    assert len(before) == 20
    assert before.isdigit()


@RANDOM
@given(drafts(), drafts())
def test_different_programs_have_different_hashes(a: Program, b: Program) -> None:
    for p in (a, b):
        p.tensors = {n: attrs.evolve(t, line="") for n, t in p.tensors.items()}
        for step in p.steps:
            step.line = ""
    same = parts(a) == parts(b)
    assert (forms.canonical_hash(a) == forms.canonical_hash(b)) == same


# --- damage ------------------------------------------------------------------------------------------------------


@RANDOM
@given(drafts(most=3), st.data())
def test_flipped_bytes_of_msgpack_give_a_program_error_or_a_program(p: Program, data: st.DataObject) -> None:
    damaged = bytearray(forms.program_to_msgpack(p))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    read = accepted(forms.program_from_msgpack, bytes(damaged))
    if read is not None:
        assert parts(forms.program_from_msgpack(forms.program_to_msgpack(read))) == parts(read)


@RANDOM
@given(drafts(most=2), st.data())
def test_every_truncation_of_msgpack_is_a_program_error(p: Program, data: st.DataObject) -> None:
    whole = forms.program_to_msgpack(p)
    with pytest.raises(ProgramError, match="cut off"):
        forms.program_from_msgpack(whole[: data.draw(st.integers(0, len(whole) - 1))])


@RANDOM
@given(drafts(most=2), st.binary(min_size=1, max_size=9))
def test_bytes_after_the_program_are_a_program_error(p: Program, tail: bytes) -> None:
    with pytest.raises(ProgramError, match=f"{len(tail)} bytes after the program"):
        forms.program_from_msgpack(forms.program_to_msgpack(p) + tail)


@settings(RANDOM, max_examples=500)
@given(drafts(most=2), st.data())
def test_a_replaced_part_of_msgpack_is_refused_or_stored_as_it_was(p: Program, data: st.DataObject) -> None:
    raw = msgpack.unpackb(forms.program_to_msgpack(p))
    at = raw
    while True:
        key = data.draw(st.sampled_from(list(at) if isinstance(at, dict) else list(range(len(at)))))
        if not isinstance(at[key], list | dict) or not at[key] or data.draw(st.integers(0, 5)) == 0:
            break
        at = at[key]
    at[key] = data.draw(ANYTHING)
    damaged = msgpack.packb(raw)
    read = accepted(forms.program_from_msgpack, damaged)
    if read is not None:
        assert forms.program_to_msgpack(read) == damaged


@RANDOM
@given(st.binary(max_size=200) | ANYTHING.map(msgpack.packb))
def test_random_bytes_are_a_program_error(data: bytes) -> None:
    assert accepted(forms.program_from_msgpack, data) is None


@settings(RANDOM, max_examples=300)
@given(drafts(most=3), st.data())
def test_damaged_text_gives_a_program_error_or_a_program(p: Program, data: st.DataObject) -> None:
    text = forms.program_to_text(p)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 4)))
    damaged = text[:start] + data.draw(st.text(max_size=4) | st.sampled_from(list("0123456789=@,+-[]:x?# \n"))) + text[end:]
    read = accepted(forms.program_from_text, damaged)
    if read is not None:
        assert parts(forms.program_from_text(forms.program_to_text(read))) == parts(read)


@RANDOM
@given(drafts(most=3), st.data())
def test_exchanged_words_of_text_give_a_program_error_or_a_program(p: Program, data: st.DataObject) -> None:
    lines = forms.program_to_text(p).split("\n")
    words = [word for line in lines for word in line.split()]
    row = data.draw(st.sampled_from([k for k, line in enumerate(lines) if line]))
    mine = lines[row].split()
    mine[data.draw(st.integers(0, len(mine) - 1))] = data.draw(st.sampled_from(words) | NAMES | st.text(max_size=5))
    lines[row] = " ".join(mine)
    accepted(forms.program_from_text, "\n".join(lines))


@RANDOM
@given(st.text(max_size=200).filter(lambda text: "program" not in text))  # a header alone is a program
def test_random_text_is_a_program_error(text: str) -> None:
    assert accepted(forms.program_from_text, text) is None
