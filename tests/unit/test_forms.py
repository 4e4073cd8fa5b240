"""Whole programs as text and msgpack: what the files hold, and the message for every way to spoil one."""
# ruff: noqa: E501  (messages stand whole beside what causes them)

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import msgpack
import numpy as np
import pytest

from nc_sim import forms
from nc_sim.forms import (
    canonical_hash,
    decode_step,
    encode_step,
    load_program,
    program_from_msgpack,
    program_from_text,
    program_to_msgpack,
    program_to_text,
    save_program,
)
from nc_sim.isa import Engine
from nc_sim.isa.errors import ProgramError
from nc_sim.program import Program

MAX = 2**63 - 1
LIMITS = "msgpack, text of at most 1024 bytes, lists of at most 1024, 4096 lists, no extension types, no repeated keys"

TEXT = """\
program small

input x float32 [4,8] # small.py:1
output y float32 [4,8] # small.py:2
constant c float32 [1,2] data=AACAPwAAAMA= # small.py:3
hbm spare int8 [3]
sbuf t float32 [4,8] address=0x100 # small.py:4
psum u float32 [4,8] partition=32

semaphore s
semaphore t-1

gpsimd? dma_copy dst=sbuf:t+0x0:float32[1][8]@0:4 src=hbm:x+0x0:float32[8,1][4,8] priority=none oob_mode=error dge_mode=unknown dst_rmw_op=none unique_indices=1 update=s+16@complete # small.py:9
vector memset dst=psum:u+0x4:float32[1][7]@32:36 value=0.5 wait=s>=16 update=t-1=1@read
"""


def small() -> Program:
    """The program of TEXT."""
    p = Program("small")
    x, _ = p.input("x", (4, 8), "float32"), p.output("y", (4, 8), "float32")
    p.constant(np.array([[1.0, -2.0]]), "float32", "c")
    p.hbm((3,), "int8", "spare")
    t, u = p.sbuf((4, 8), "float32", "t", address=256), p.psum((4, 8), "float32", "u", partition=32)
    s, d = p.semaphore("s"), p.semaphore("t-1")
    p.dma_copy(dst=t, src=x, update=[s.add(16)])
    p.memset(dst=u[:, 1:], value=0.5, engine="vector", wait=[s >= 16], update=[d.set(1, when="read")])
    lines = {"x": "small.py:1", "y": "small.py:2", "c": "small.py:3", "t": "small.py:4"}
    p.tensors = {name: attrs.evolve(tensor, line=lines.get(name, "")) for name, tensor in p.tensors.items()}
    p.steps[0].line, p.steps[1].line = "small.py:9", ""
    return p


def raw(lines: bool = True) -> dict[str, Any]:
    """What the msgpack form of `small` holds, by hand. Memories: 0 HBM, 1 SBUF, 2 PSUM; engines: 1 Vector, 3 GpSimd."""
    x = ["x", 0, "float32", 0, 0, 0, [8, 1], [4, 8]]
    tensors: list[list[Any]] = [
        ["x", 0, "float32", [4, 8], "input", None, 0, None, "small.py:1"],
        ["y", 0, "float32", [4, 8], "output", None, 0, None, "small.py:2"],
        ["c", 0, "float32", [1, 2], "constant", None, 0, bytes.fromhex("0000803f 000000c0"), "small.py:3"],
        ["spare", 0, "int8", [3], "internal", None, 0, None, ""],
        ["t", 1, "float32", [4, 8], "internal", 256, 0, None, "small.py:4"],
        ["u", 2, "float32", [4, 8], "internal", None, 32, None, ""],
    ]
    ways = {"priority": None, "oob_mode": "error", "dge_mode": "unknown", "dst_rmw_op": None, "unique_indices": True}
    copy = {"dst": ["t", 1, "float32", 0, 4, 0, [1], [8]], "src": x, **ways}
    memset = {"dst": ["u", 2, "float32", 32, 4, 4, [1], [7]], "value": 0.5}
    steps: list[list[Any]] = [
        [3, False, "dma_copy", copy, [], [[0, 0, 16, 1]], 0, "small.py:9"],  # s: op 0 adds, moment 1 is completion
        [1, True, "memset", memset, [[0, 16]], [[1, 2, 1, 0]], 1, ""],  # t-1: op 2 sets, moment 0 is the read
    ]
    for row in (*tensors, *steps):
        row[-1] = row[-1] if lines else ""
    return {"format": "nc-sim program", "version": 1, "name": "small", "tensors": tensors, "semaphores": ["s", "t-1"], "steps": steps}


def parts(p: Program) -> tuple[Any, ...]:
    return p.name, p.tensors, [t.line for t in p.tensors.values()], p.semaphores, p.steps, p._positions


def refusal(read: Callable[[Any], Any], data: Any) -> str:
    with pytest.raises(ProgramError) as e:
        read(data)
    return str(e.value)


# --- what the forms hold -----------------------------------------------------------------------------------------


def test_text_holds_tensors_semaphores_and_calls_in_words_of_program_s_methods() -> None:
    assert program_to_text(small()) == TEXT
    assert parts(program_from_text(TEXT)) == parts(small())


def test_msgpack_holds_one_map_of_plain_values() -> None:
    assert msgpack.unpackb(program_to_msgpack(small())) == raw()
    assert parts(program_from_msgpack(msgpack.packb(raw()))) == parts(small())


def test_the_hash_is_of_the_msgpack_form_without_lines() -> None:
    digest = hashlib.sha256(msgpack.packb(raw(lines=False))).digest()
    assert canonical_hash(small()) == f"{int.from_bytes(digest[:8], 'big'):020d}"


def test_the_hash_has_twenty_digits_even_for_a_small_number(monkeypatch: pytest.MonkeyPatch) -> None:
    class Digest:
        def update(self, data: bytes) -> None:
            pass

        def digest(self) -> bytes:
            return (7).to_bytes(8, "big") + bytes(24)

    monkeypatch.setattr(hashlib, "sha256", Digest)
    assert canonical_hash(small()) == "00000000000000000007"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("program small", "program other"),
        ("AACAPw", "AACAQA"),
        ("0x100", "0x104"),
        ("address=0x100 # small.py:4", "# small.py:4"),
        ("value=0.5", "value=1.0"),
        ("value=0.5", "value=1"),
        ("value=0.5", "value=0.0"),
        ("value=0.5", "value=-0.0"),
        ("vector memset", "gpsimd memset"),
        ("vector memset", "vector? memset"),
        ("gpsimd? dma", "gpsimd dma"),
        ("s>=16", "s>=17"),
        ("@read", "@complete"),
        ("semaphore s\nsemaphore t-1", "semaphore t-1\nsemaphore s"),
        ("int8 [3]", "uint8 [3]"),
    ],
)  # fmt: skip
def test_every_part_but_the_lines_changes_the_hash(before: str, after: str) -> None:
    assert TEXT.count(before) == 1
    changed = TEXT.replace(before, after)
    assert canonical_hash(program_from_text(changed)) != canonical_hash(program_from_text(TEXT))
    assert len({canonical_hash(program_from_text(TEXT.replace("value=0.5", f"value={v}"))) for v in ("1", "1.0", "0", "0.0", "-0.0")}) == 5


def test_a_moved_comment_does_not_change_the_hash() -> None:
    assert canonical_hash(program_from_text(TEXT.replace("small.py:", "moved.py:1"))) == canonical_hash(small())


def test_every_nan_is_stored_as_the_same_nan() -> None:
    minus = msgpack.unpackb(b"\xcb\xff\xf8\x00\x00\x00\x00\x00\x01")
    assert math.copysign(1, minus) == -1
    data = []
    for nan in (math.nan, minus):
        p = small()
        p.memset(dst=p.tensors["t"].view(), value=nan)
        p.steps[-1].line = ""
        data.append(program_to_msgpack(p))
    assert data[0] == data[1]
    assert math.isnan(program_from_msgpack(data[0]).steps[-1].instruction.value)  # type: ignore[attr-defined]


def test_comments_blank_lines_and_indentation_are_free_in_text() -> None:
    loose = "# a program\n\n" + TEXT.replace("\n", "\n\n  # more\r\n  ")
    assert parts(program_from_text(loose)) == parts(small())


def test_declarations_may_stand_between_calls() -> None:
    head, _, tail = TEXT.partition("psum u float32 [4,8] partition=32\n")
    first, _, second = tail.partition("vector memset")
    moved = f"{head}{first}psum u float32 [4,8] partition=32\nvector memset{second}"
    assert parts(program_from_text(moved)) == parts(small())


def test_a_program_may_have_more_steps_than_a_step_may_have_entries() -> None:
    p = program_from_text(TEXT + "sync nop\n" * 70_000)
    back = program_from_msgpack(program_to_msgpack(p))
    assert len(back) == 70_002
    assert back.steps == p.steps


def test_a_read_program_can_be_built_further() -> None:
    p = program_from_text(TEXT)
    p.memset(dst=p.tensors["t"].view(), value=0.0)
    assert p.steps[-1].call == 2
    with pytest.raises(ProgramError, match=r"vector\[2\] memset"):
        p.memset(dst=p.tensors["x"].view(), value=0.0)
    assert p.semaphore("third").id == 2


def test_a_step_goes_through_plain_values() -> None:
    step = small().steps[1]
    assert encode_step(step) == raw()["steps"][1]
    assert decode_step(raw()["steps"][1]) == step


# --- files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["p.ncasm", "p.msgpack", "name.with.dots.ncasm"])
def test_a_saved_program_is_loaded_again(tmp_path: Path, name: str) -> None:
    save_program(small(), tmp_path / name)
    assert parts(load_program(tmp_path / name)) == parts(small())
    assert parts(load_program(str(tmp_path / name))) == parts(small())
    assert [f.name for f in tmp_path.iterdir()] == [name]


def test_saving_replaces_a_file_whole_or_leaves_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "p.ncasm"
    save_program(Program("old"), path)

    def fail(*paths: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as m:
        m.setattr(os, "replace", fail)
        assert (
            refusal(lambda p: save_program(small(), p), path)
            == f"{path}: cannot be written: No space left on device; a file in a folder that exists"
        )
    assert [f.name for f in tmp_path.iterdir()] == ["p.ncasm"]
    assert load_program(path).name == "old"
    save_program(small(), path)
    assert load_program(path).name == "small"


def test_a_program_that_cannot_be_stored_leaves_no_file(tmp_path: Path) -> None:
    p = small()
    p.steps[0].line = "a\nb"
    for suffix in (".ncasm", ".msgpack"):
        with pytest.raises(ProgramError):
            save_program(p, tmp_path / f"p{suffix}")
    assert list(tmp_path.iterdir()) == []


def test_the_suffix_chooses_the_form_and_no_other_is_guessed(tmp_path: Path) -> None:
    required = ".ncasm for text or .msgpack"
    assert refusal(lambda p: save_program(small(), p), tmp_path / "p.txt") == f"{tmp_path / 'p.txt'}: suffix '.txt'; {required}"
    assert refusal(load_program, "p") == f"p: suffix ''; {required}"


def test_a_file_that_cannot_be_read_or_written_is_said(tmp_path: Path) -> None:
    missing = tmp_path / "none.msgpack"
    assert refusal(load_program, missing) == f"{missing}: cannot be read: No such file or directory; a program file"
    inside_a_file = tmp_path / "file" / "p.ncasm"
    inside_a_file.parent.write_bytes(b"")
    assert refusal(load_program, inside_a_file).startswith(f"{inside_a_file}: cannot be read: ")
    assert refusal(lambda p: save_program(small(), p), inside_a_file).startswith(f"{inside_a_file}: cannot be written: ")
    folder = tmp_path / "folder.ncasm"
    folder.mkdir()
    assert refusal(load_program, folder) == f"{folder}: cannot be read: Is a directory; a program file"


def test_errors_in_a_file_name_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "p.ncasm"
    path.write_text(TEXT.replace("value=0.5", "value=x"))
    assert refusal(load_program, path) == "p.ncasm:14 vector memset value: 'x'; a number"
    path.write_bytes(TEXT.encode() + b"# caf\xe9\n")
    assert refusal(load_program, path) == "p.ncasm:15: byte 0xe9; UTF-8 text"
    path.write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
    assert load_program(path).name == "small"


def test_errors_in_a_file_name_file_and_part(tmp_path: Path) -> None:
    path = tmp_path / "p.msgpack"
    path.write_bytes(program_to_msgpack(small())[:-1])
    assert refusal(load_program, path).startswith("p.msgpack steps[1]: the data end after ")


# --- text that is refused ----------------------------------------------------------------------------------------


def swapped(before: str, after: str) -> str:
    assert before in TEXT
    return TEXT.replace(before, after)


DMA = "dst=sbuf:t+0x0:float32[1][8]@0:4"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f: no program; program NAME on its first line"),
        ("# only this\n", "f: no program; program NAME on its first line"),
        ("input x float32 [4]", "f:1: 'input x float32 [4]'; program NAME, once, before everything else"),
        ("program", "f:1: 'program'; program NAME, once, before everything else"),
        ("program a b", "f:1: 'program a b'; program NAME, once, before everything else"),
        ("program 1", "f:1 program: name '1'; a letter or _, then letters, digits and _ . $ -"),
        (TEXT + "program more", "f:15: 'program more'; program NAME, once, before everything else"),
        (swapped("input x float32 [4,8]", "input x float32"), "f:3 input: 'x float32'; NAME DTYPE [dim,dim]"),
        (swapped("input x float32", "input x float"), "f:3 input x: element type 'float' (near: float32, float16, "),
        (swapped("input x float32 [4,8]", "input x float32 4,8"), "f:3 input x: shape '4,8'; [dim,dim] without spaces"),
        (swapped("input x float32 [4,8]", "input x float32 [4,]"), f"f:3 input x shape: number ''; a whole number from 0 to {MAX}"),
        (swapped("input x float32 [4,8]", "input x float32 []"), "f:3 tensor x: shape []; at least one dimension, each at least 1"),
        (swapped("input x float32 [4,8]", "input x float32 [0,8]"), "f:3 tensor x: shape [0, 8]; at least one dimension, each at least 1"),
        (swapped("[4,8] # small.py:1", "[4,8] address=1"), "f:3 input x: 'address=1'; nothing after the shape"),
        (swapped("address=0x100", "adress=0x100"), "f:7 sbuf t: 'adress=0x100'; address= and partition=, each once"),
        (swapped("address=0x100", "address=1 address=2"), "f:7 sbuf t: 'address=2'; address= and partition=, each once"),
        (swapped("address=0x100", "address=-1"), f"f:7 sbuf t address: number '-1'; a whole number from 0 to {MAX}"),
        (swapped("[4,8] address=0x100", "[4]"), "f:7 tensor t: shape [4]; [partitions, free...] for an on-chip tensor"),
        (swapped("spare int8 [3]", f"spare int8 [{MAX},2]"), "f:6 tensor spare: a number of 64 bits; whole numbers of at most 63 bits and a sign"),
        (swapped("spare int8 [3]", f"spare int8 [{'1,' * 1024}1]"), "f:6 tensor spare: 1025 entries; at most 1024"),
        (swapped("spare int8", f"{'s' * 1025} int8"), "f:6 hbm: 'sssssssssss"),
        (swapped("spare int8", "x int8"), "f:6 tensor x: the name is taken; a name of its own"),
        (swapped(" data=AACAPwAAAMA=", ""), "f:5 tensor c: no bytes of data; data for constants and for nothing else"),
        (swapped("AACAPwAAAMA=", "AACAPw=="), "f:5 tensor c: 4 bytes of data; 8 for [1, 2] of float32"),
        (swapped("AACAPwAAAMA=", "AACAPwAAAMA"), "f:5 data: 'AACAPwAAAMA'; base64"),
        (swapped("semaphore t-1", "semaphore s"), "f:11 semaphore s: the name is taken or unfit; a name of its own"),
        (swapped("semaphore t-1", "semaphore t 1"), "f:11: 'semaphore t 1'; semaphore NAME"),
        (swapped("wait=s>=16", "wait=t_1>=16"), "f:14 vector memset: semaphore 't_1' (near: t-1); one that a line above declares: semaphore NAME"),
        (swapped("@read", "@read call=1"), "f:14: call=1; no call= in a program: a call is numbered by its place"),
        (swapped("gpsimd? dma_copy", "sync? dma_copy"), "f:13 sync dma_copy: engine sync that nobody chose; gpsimd, the default of dma_copy"),
        (swapped("vector memset", "vectr memset"), "f:14: engine 'vectr' (near: vector); one of tensor, vector, scalar, gpsimd, sync"),
        (swapped(DMA, "dst=sbuf:tt+0x0:float32[1][8]@0:4"), "f:13 gpsimd dma_copy dst: tensor 'tt' (near: t); a tensor that the program declares"),
        (swapped(DMA, "dst=hbm:t+0x0:float32[8,1][4,8]"), "f:13 gpsimd dma_copy dst: hbm:t+0x0:float32[8,1][4,8]"),
        (swapped(DMA, "dst=psum:t+0x0:float32[1][8]@0:4"), "f:13 gpsimd dma_copy dst: psum:t+0x0:float32[1][8]@0:4 is in PSUM; SBUF, where tensor t is"),
        (swapped(DMA, "dst=sbuf:t+0x1a:int8[1][8]@0:4"), "f:13 gpsimd dma_copy dst: sbuf:t+0x1a:int8[1][8]@0:4 reaches bytes 26 to 34; 0 to 32 of tensor t"),
        (swapped("dst=psum:u+0x4", "dst=psum:u+0x2"), "f:14 vector memset dst: psum:u+0x2:float32[1][7]@32:36 starts at byte 2; a multiple of 4"),
        (swapped("dst=psum:u+0x4", "dst=psum:u+0x8"), "f:14 vector memset dst: psum:u+0x8:float32[1][7]@32:36 reaches bytes 8 to 36; 0 to 32 of tensor u"),
        (swapped("dst=psum:u+0x4", "dst=psum:u+-0x4"), "f:14 vector memset dst: psum:u+-0x4:float32[1][7]@32:36 reaches bytes -4 to 24; 0 to 32 of tensor u"),
        (swapped("@32:36", "@32:37"), "f:14 vector memset dst: psum:u+0x4:float32[1][7]@32:37 reaches partitions 32 to 37; the 4 of tensor u"),
        (swapped("[1][8]@0:4 src", "[1][7]@0:4 src"), "f:13 gpsimd dma_copy: dst has 28 elements, src has 32; they must match (nki.isa.dma_copy)"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_text_is_said_with_its_line(text: str, message: str) -> None:
    assert refusal(lambda t: program_from_text(t, "f"), text).startswith(message)


def test_without_a_file_the_line_is_still_said() -> None:
    assert refusal(program_from_text, "program p\nnop") == "program text:2: 'nop'; engine mnemonic field=value ..."


def test_more_semaphores_than_the_hardware_has_are_refused() -> None:
    text = "program p\n" + "".join(f"semaphore s{k}\n" for k in range(257))
    assert refusal(program_from_text, text) == "program text:258 semaphore s256: 256 semaphores before it; at most 256"


# --- msgpack that is refused -------------------------------------------------------------------------------------


def changed(*path: Any, to: Any) -> dict[str, Any]:
    out = raw()
    at: Any = out
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = to
    return out


def without(*path: Any) -> dict[str, Any]:
    out = raw()
    at: Any = out
    for key in path[:-1]:
        at = at[key]
    del at[path[-1]]
    return out


STEP = "a list of 8: engine, chosen, mnemonic, fields, waits, updates, call, line"
TENSOR = "a list of 9: name, memory, dtype, shape, kind, address, partition, data, line"
KEYS = "the keys format, version, name, tensors, semaphores, steps, in this order"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (changed("format", to="nc-sim trace"), "f: format 'nc-sim trace'; format 'nc-sim program', the only one that this nc-sim reads"),
        (changed("version", to=2), "f: version 2; version 1, the only one that this nc-sim reads"),
        (changed("version", to=True), "f: version True; version 1, the only one that this nc-sim reads"),
        (changed("version", to=1.0), "f: version 1.0; version 1, the only one that this nc-sim reads"),
        ({}, f"f: no key 'format'; {KEYS}"),
        (without("version"), f"f: key 'name'; {KEYS}"),
        (without("steps"), f"f: no key 'steps'; {KEYS}"),
        ({"version": 1, **without("version")}, f"f: key 'version'; {KEYS}"),
        (changed("more", to=1), "f: key 'more'; only format, version, name, tensors, semaphores, steps"),
        (changed("name", to=1), "f name: 1; of type str"),
        (changed("name", to="1"), "f program: name '1'; a letter or _, then letters, digits and _ . $ -"),
        (changed("tensors", to={}), "f tensors: unreadable data near byte"),
        (changed("tensors", 0, to=3), f"f tensors[0]: 3; {TENSOR}"),
        (changed("tensors", 0, to=[]), f"f tensors[0]: []; {TENSOR}"),
        (changed("tensors", 0, 1, to=3), "f tensors[0]: memory 3; 0 to 2"),
        (changed("tensors", 0, 1, to=False), "f tensors[0] memory: False; of type int"),
        (changed("tensors", 0, 2, to="fp32"), "f tensors[0] tensor 'x': element type 'fp32'; one of float32, "),
        (changed("tensors", 0, 3, to=[4, 8.0]), "f tensors[0] tensor 'x': shape [4, 8.0]; whole numbers"),
        (changed("tensors", 0, 3, to=[4, True]), "f tensors[0] tensor 'x': shape [4, True]; whole numbers"),
        (changed("tensors", 0, 3, to=[2**64 - 1]), "f tensors[0] tensor x: a number of 64 bits; whole numbers of at most 63 bits and a sign"),
        (changed("tensors", 0, 4, to="inputs"), "f tensors[0] tensor x: 'inputs' in HBM; input, output, constant or internal in HBM, internal on chip"),
        (changed("tensors", 4, 4, to="input"), "f tensors[4] tensor t: 'input' in SBUF; input, output, constant or internal in HBM, internal on chip"),
        (changed("tensors", 0, 5, to=0), "f tensors[0] tensor x: address 0, partition 0 in HBM; no address and partition 0"),
        (changed("tensors", 4, 5, to="0"), "f tensors[4] address: '0'; of type int | None"),
        (changed("tensors", 4, 5, to=-1), "f tensors[4] tensor t: address -1; a whole number of at least 0"),
        (changed("tensors", 0, 7, to=b"1"), "f tensors[0] tensor x: 1 bytes of data; data for constants and for nothing else"),
        (changed("tensors", 2, 7, to=b"1"), "f tensors[2] tensor c: 1 bytes of data; 8 for [1, 2] of float32"),
        (changed("tensors", 2, 7, to="12345678"), "f tensors[2] data: '12345678'; of type bytes | None"),
        (changed("tensors", 1, 0, to="x"), "f tensors[1] tensor x: the name is taken; a name of its own"),
        (changed("tensors", 1, 8, to="\t"), "f tensors[1]: the user's line '\\t'; printable characters, no space at either end"),
        (changed("semaphores", 1, to=1), "f semaphores[1]: 1; of type str"),
        (changed("semaphores", 1, to="s"), "f semaphores[1] semaphore s: the name is taken or unfit; a name of its own"),
        (changed("steps", 1, to={}), f"f steps[1]: {{}}; {STEP}"),
        (changed("steps", 1, to=raw()["steps"][1][:7]), "f steps[1]: [1, True, 'memset', {"),
        (changed("steps", 1, 0, to=5), "f steps[1] memset: engine 5; 0 to 4"),
        (changed("steps", 1, 0, to=0), "f steps[1] memset: engine tensor; one of vector, gpsimd (nki.isa.memset)"),
        (changed("steps", 1, 1, to=1), "f steps[1] chosen: 1; of type bool"),
        (changed("steps", 0, 0, to=4), "f steps[0] sync dma_copy: engine sync that nobody chose; gpsimd, the default of dma_copy"),
        (changed("steps", 1, 2, to="memst"), "f steps[1]: instruction 'memst' (near: memset); an instruction that nc-sim knows"),
        (changed("steps", 1, 3, to=[]), "f steps[1] fields: []; of type dict"),
        (changed("steps", 1, 3, "valu", to=1), "f steps[1] memset: field 'valu' (near: value); one of dst, value (nki.isa.memset)"),
        (without("steps", 1, 3, "value"), "f steps[1] memset: no value; dst, value are required (nki.isa.memset)"),
        (changed("steps", 1, 3, "value", to="1"), "f steps[1] memset value: '1'; a number or a [P, 1] view"),
        (changed("steps", 1, 3, "value", to=True), "f steps[1] memset value: True; a number or a [P, 1] view"),
        (changed("steps", 1, 3, "value", to=2**63), "f steps[1] memset value: a number of 64 bits; whole numbers of at most 63 bits and a sign"),
        (changed("steps", 1, 3, "dst", to=[]), "f steps[1] memset dst: view []; eight values"),
        (changed("steps", 1, 3, "dst", to="u"), "f steps[1] memset dst: view 'u'; eight values"),
        (changed("steps", 1, 3, "dst", 0, to="v"), "f steps[1] vector memset dst: tensor 'v'; a tensor that the program declares"),
        (changed("steps", 1, 3, "dst", 3, to="32"), "f steps[1] memset dst: view ['u', 2, 'float32', '32', 4, 4, [1], [7]]; names and whole numbers"),
        (changed("steps", 1, 3, "dst", 3, to=32.0), "f steps[1] memset dst: view ['u', 2, 'float32', 32.0, 4, 4, [1], [7]]; names and whole numbers"),
        (changed("steps", 1, 3, "dst", 7, to=[True]), "f steps[1] memset dst: view ['u', 2, 'float32', 32, 4, 4, [1], [True]]; names and whole numbers"),
        (changed("steps", 1, 3, "dst", 6, to=[1, 1]), "f steps[1] memset dst: 2 strides and 1 counts; one stride for each count"),
        (changed("steps", 1, 3, "dst", 7, to=[8]), "f steps[1] vector memset dst: psum:u+0x4:float32[1][8]@32:36 reaches bytes 4 to 36; 0 to 32 of tensor u"),
        (changed("steps", 1, 4, to=[[0]]), "f steps[1] memset wait: [0]; a list of 2: semaphore, value"),
        (changed("steps", 1, 4, to=[[0, 1.0]]), "f steps[1] memset wait value: 1.0; of type int"),
        (changed("steps", 1, 4, to=[[2, 1]]), "f steps[1] vector memset: semaphore 2; one of the 2 of the program"),
        (changed("steps", 1, 4, to=[[0, -1]]), f"f steps[1] memset: wait value -1; a whole number from 0 to {MAX}"),
        (changed("steps", 1, 4, to=[[0, 2**63]]), f"f steps[1] memset: wait value {2**63}; a whole number from 0 to {MAX}"),
        (changed("steps", 1, 5, to=[[2, 0, 1, 0]]), "f steps[1] vector memset: semaphore 2; one of the 2 of the program"),
        (changed("steps", 1, 5, to=[[0, 3, 1, 0]]), "f steps[1] memset: update op 3; 0 to 2"),
        (changed("steps", 1, 5, to=[[0, 0, 1, 2]]), "f steps[1] memset: update when 2; 0 to 1"),
        (changed("steps", 1, 5, to=[[0, 0, 1]]), "f steps[1] memset update: [0, 0, 1]; a list of 4: semaphore, op, value, when"),
        (changed("steps", 1, 6, to=0), "f steps[1] memset: call 0; 1: a call is numbered by its place"),
        (changed("steps", 1, 6, to=-2), "f steps[1] memset: call -2; -1 or the number of a call"),
        (changed("steps", 1, 7, to="\n"), "f steps[1] memset: the user's line '\\n'; printable characters, no space at either end"),
        (changed("steps", 1, 7, to=None), "f steps[1] line: None; of type str"),
        (changed("steps", 0, 3, "dst", 7, to=[7]), "f steps[0] gpsimd dma_copy: dst has 28 elements, src has 32; they must match (nki.isa.dma_copy)"),
        (changed("steps", 0, 3, "dge_mode", to="DGEMode.none"), "f steps[0] dma_copy dge_mode: 'DGEMode.none'; one of unknown, none, swdge, hwdge"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_msgpack_is_said_with_its_part(data: Any, message: str) -> None:
    found = refusal(lambda d: program_from_msgpack(d, "f"), msgpack.packb(data))
    assert found.startswith(message)


HEAD = program_to_msgpack(Program("p")).removesuffix(b"\x90\xaasemaphores\x90\xa5steps\x90")  # ends before the tensors


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "f start: the data end after 0 bytes; a complete program; is it cut off?"),
        (b"\x90", "f start: unreadable data near byte"),
        (b"\xc1", "f start: unreadable data near byte"),
        (b"program p\n", "f start: unreadable data near byte"),
        (b"\x86\xa6format\xc1", "f format: unreadable data near byte"),
        (HEAD + b"\xdc\x00", f"f tensors: the data end after {len(HEAD) + 2} bytes; a complete program; is it cut off?"),
        (HEAD, f"f tensors: the data end after {len(HEAD)} bytes; a complete program; is it cut off?"),
        (HEAD + b"\xdd\xff\xff\xff\xff", f"f tensors[0]: the data end after {len(HEAD) + 5} bytes; a complete program; is it cut off?"),
        (HEAD + b"\x91\xdd\xff\xff\xff\xff", "f tensors[0]: unreadable data near byte"),
        (HEAD + b"\x91\xdc\x04\x01", "f tensors[0]: unreadable data near byte"),
        (HEAD + b"\x91\xda\x04\x01" + b"a" * 1025, "f tensors[0]: unreadable data near byte"),
        (HEAD + b"\x91\xc6\x0f\xff\xff\xff", f"f tensors[0]: the data end after {len(HEAD) + 6} bytes; a complete program; is it cut off?"),
        (HEAD + b"\x91" * 2000, "f tensors[0]: unreadable data near byte"),
        (HEAD + b"\x91\xc7\x00\x05", "f tensors[0]: unreadable data near byte"),
        (HEAD + b"\x91\xd6\xff\x00\x00\x00\x00", "f tensors[0]: unreadable data near byte"),
        (HEAD + b"\x91\x82\xa1a\x01\xa1a\x01", "f tensors[0]: unreadable data near byte"),
        (HEAD + b"\x91\x81\x01\x01", "f tensors[0]: unreadable data near byte"),
        (HEAD + b"\x91\xa1\xff", "f tensors[0]: unreadable data near byte"),
        (HEAD + b"\x91" + b"\xdc\x04\x00" * 5 + b"\x90" * 9999, "f tensors[0]: unreadable data near byte"),
        (program_to_msgpack(Program("p")) + b"\x00", "f: 1 bytes after the program; none"),
    ],
)  # fmt: skip
def test_bytes_that_are_no_such_msgpack_are_refused_where_they_go_wrong(data: bytes, message: str) -> None:
    found = refusal(lambda d: program_from_msgpack(d, "f"), data)
    assert found.startswith(message)
    assert "unreadable" not in message or found.endswith(f"; {LIMITS}")


def test_a_claimed_length_costs_neither_memory_nor_time() -> None:
    import tracemalloc

    tracemalloc.start()
    start = time.perf_counter()
    for claim in (b"\xdd\xff\xff\xff\xff", b"\x91" + b"\xdc\x04\x00" * 1000, b"\x91" + b"\xdc\x04\x00" * 3 + b"\x90" * 10**6):
        refusal(program_from_msgpack, HEAD + claim)
    assert time.perf_counter() - start < 5
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()


def test_a_file_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = program_to_msgpack(small())
    monkeypatch.setattr(forms, "MAX_BYTES", len(whole) - 1)
    assert refusal(program_from_msgpack, whole) == f"program bytes: more than {len(whole) - 1} bytes; at most {len(whole) - 1}"
    path = tmp_path / "p.msgpack"
    assert refusal(lambda p: save_program(small(), p), path) == f"{path}: {len(whole)} bytes; at most {len(whole) - 1}"


# --- programs that no file holds ---------------------------------------------------------------------------------


def test_a_number_that_no_reader_takes_cannot_be_built() -> None:
    p = small()
    with pytest.raises(ProgramError, match="memset value: a number of 64 bits; whole numbers of at most 63 bits and a sign"):
        p.memset(dst=p.tensors["t"].view(), value=2**63)


def test_a_name_that_no_reader_takes_is_refused_when_writing() -> None:
    p = Program()
    p.hbm((1,), "int8", "a" * 1025)
    assert refusal(program_to_msgpack, p).endswith("of 1025 bytes; text of at most 1024")


def test_semaphores_with_gaps_are_refused_when_writing() -> None:
    p = small()
    del p.semaphores[0]
    for write in (program_to_text, program_to_msgpack):
        assert refusal(write, p) == "semaphores: numbers [1]; 0, 1, 2 and so on, as Program.semaphore gives them"


def test_a_step_on_an_engine_that_lacks_the_instruction_is_not_read() -> None:
    row = encode_step(small().steps[1])
    row[0] = int(Engine.SYNC)
    assert refusal(decode_step, row) == "memset: engine sync; one of vector, gpsimd (nki.isa.memset)"
