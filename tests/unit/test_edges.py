"""Bad input to the studies, profiles and output paths, and contracts of the runtime at their edges."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from conftest import REPOSITORY
from nc_sim import Program, ProgramError, chip, files
from nc_sim.__main__ import main
from nc_sim.isa.errors import ChipError
from nc_sim.report.study import rmsnorm
from nc_sim.runtime import NrtError, NrtStatus, Ret, Runtime, host
from nc_sim.runtime.framework import Array, Framework
from nc_sim.runtime.objects import DeviceTensor, Model
from nc_sim.runtime.py import Model as Function

Step = Generator[Any, Any, Any]
BLOG = (REPOSITORY / "nc_sim/runtime/host_profiles/blog.toml").read_text(encoding="utf-8")
TRN2 = (REPOSITORY / "nc_sim/chips/trn2.toml").read_text(encoding="utf-8")


def cli(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def said(result: Result) -> str:
    """The one line of a refusal; a traceback would be another exception."""
    assert result.exit_code == 1
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.output.count("error: ") == 1
    return result.output


def started(**options: Any) -> Runtime:
    rt = Runtime(**options)
    assert rt.nrt_init() is NrtStatus.SUCCESS
    return rt


def made(rt: Runtime, size: int) -> DeviceTensor:
    status, tensor = rt.nrt_tensor_allocate("device", 0, size)
    assert status is NrtStatus.SUCCESS
    assert tensor is not None
    return tensor


def loaded(rt: Runtime, program: Program) -> Model:
    status, model = rt.nrt_load(program)
    assert status is NrtStatus.SUCCESS
    assert model is not None
    return model


def copy(columns: slice = slice(None)) -> Program:
    """y = x in some of 8 columns."""
    p = Program("copy")
    x, y, t = p.input("x", (4, 8), "float32"), p.output("y", (4, 8), "float32"), p.sbuf((4, 8), "float32")
    p.dma_copy(dst=t, src=x)
    p.dma_copy(dst=y[:, columns], src=t[:, columns])
    return p


# --- the command line ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["", "²,5", "４,512", "4,٣", "0,4", "99999999999999999999999,4", "4,", "1_0,4"])
@pytest.mark.parametrize("name", ["rmsnorm", "transformer"])
def test_a_shape_that_is_not_two_plain_sizes_is_refused_by_its_option(name: str, shape: str) -> None:
    assert said(cli("study", name, "--shape", shape)).startswith(f"error: --shape: {shape!r}; ROWS,COLS")


@pytest.mark.parametrize(
    "words",
    [
        ("rmsnorm", "--shape", "4,999999999999"),
        ("rmsnorm", "--shape", "100000,1000000"),
        ("transformer", "--shape", "1000000,256"),
        ("transformer", "--ff", "1000000000"),
        ("transformer", "--layers", "99999999999999999", "--shape", "16,16"),
    ],
)
def test_a_study_that_no_core_s_memory_holds_is_refused_before_it_starts(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: object, **options: object) -> None:
        raise AssertionError("work has begun")

    monkeypatch.setattr(np.random, "default_rng", never)
    text = said(cli("study", *words))
    assert text.startswith(f"error: study {words[0]} [")
    assert "the HBM of a core of trn2" in text


def test_a_machine_without_memory_ends_a_command_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **options: object) -> None:
        raise MemoryError

    monkeypatch.setattr(rmsnorm, "rmsnorm_study", full)
    assert said(cli("study", "rmsnorm")).startswith("error: memory: ")


def test_a_sweep_takes_no_shape() -> None:
    assert said(cli("study", "rmsnorm", "--sweep", "--shape", "4,4")).startswith("error: --shape: --sweep beside it; ")


@pytest.mark.parametrize("place", ["file/x", "file", "link"])
def test_a_folder_that_cannot_be_made_is_refused_before_the_study(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")

    def never(*args: object, **options: object) -> None:
        raise AssertionError("work has begun")

    monkeypatch.setattr(rmsnorm, "rmsnorm_study", never)
    assert "cannot be written" in said(cli("study", "rmsnorm", "--out", str(tmp_path / place)))
    assert (tmp_path / "file").read_text() == "mine"


def test_asking_for_a_place_makes_nothing(tmp_path: Path) -> None:
    files.require_place(tmp_path / "a" / "b" / "c.svg")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ProgramError, match="a folder"):
        files.require_place(tmp_path)


@pytest.mark.parametrize("name", ["", ".", "/"])
@pytest.mark.parametrize("option", ["--perfetto", "--picture"])
def test_an_output_without_a_name_is_refused(option: str, name: str, tmp_path: Path) -> None:
    rmsnorm.rmsnorm_study(1, 1).save(tmp_path)
    trace = str(tmp_path / "compiled")
    assert said(cli("view", trace, option, name)).startswith("error: ")


# --- profiles and chips -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("value = 6000,", f"value = {'9' * 5000},", "not TOML"),
        ('name = "blog"', "name = " + "[" * 100_000, "not TOML"),
        ('name = "blog"', "name = " + "{a=" * 5_000, "not TOML"),
        ("value = 6000,", "value = 1000000000001,", "framework_ns: 1000000000001; at most 1000000000000"),
        ("value = 13,", "value = 100000000,", "events_per_dispatch.dmem_buf_copyin: 100000000; at most 10000"),
        ('name = "blog"', 'name = " "', "name: ' '; one line of text"),
        ('name = "blog"', 'name = "a\\nb"', "name: 'a\\nb'; one line of text"),
    ],
)
def test_a_host_profile_beyond_bounds_is_refused_by_file_and_field(old: str, new: str, found: str) -> None:
    assert old in BLOG
    with pytest.raises(ChipError) as e:
        host.parse(BLOG.replace(old, new), "mine.toml")
    assert str(e.value).startswith(f"mine.toml: {found}")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (TRN2 + "\n[x]\na = " + "[" * 100_000, "not TOML"),
        (TRN2 + "\n[x]\na = " + "9" * 5_000, "not TOML"),
        (TRN2 + "\n[x]\na = 1e99999999999999999999999", "not TOML"),
        (TRN2 + f"\n[{'.'.join(['a'] * 5_000)}]\nb = 1", "unknown key"),
        ('name = "a"\ncore = "b"\nsources = 5\n', "sources: 5; a table"),
        ('name = {a = 1}\ncore = "b"\nsources = {}\n', "name: {'a': 1}; one line of text"),
        ('name = "a"\ncore = 3\nsources = {}\n', "core: 3; one line of text"),
    ],
)
def test_a_chip_file_beyond_bounds_is_refused_by_file_and_field(text: str, found: str) -> None:
    with pytest.raises(ChipError) as e:
        chip.parse(text, "mine.toml")
    assert str(e.value).startswith(f"mine.toml: {found}")


def test_what_is_no_file_is_not_read_without_end(tmp_path: Path) -> None:
    (tmp_path / "z.toml").symlink_to("/dev/zero")
    for option in ("--chip", "--host-profile"):
        words = [sys.executable, "-m", "nc_sim", "study", "rmsnorm", option, str(tmp_path / "z.toml")]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=REPOSITORY, check=False)
        assert ended.returncode == 1
        assert "not a file" in ended.stderr
        assert "Traceback" not in ended.stderr


# --- the runtime --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cores", "queue_depth", "exec_timeout_ns"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "2", None])
def test_a_limit_of_a_runtime_is_at_least_one(name: str, value: Any) -> None:
    with pytest.raises(ProgramError, match=f"Runtime: {name}="):
        Runtime(**{name: value})


@pytest.mark.parametrize("asynchronous", [False, True])
def test_reading_into_a_read_only_buffer_is_invalid_and_enqueues_nothing(asynchronous: bool) -> None:
    rt = started()
    x, into = made(rt, 16), np.full(16, 7, np.uint8)
    into.flags.writeable = False

    def body(thread: int) -> Step:
        if asynchronous:
            status, _ = yield from rt.nrta_tensor_read(into, x, 0, 0, Ret(), thread=thread)
            return status
        return (yield from rt.nrt_tensor_read(x, into, thread=thread))

    assert rt.run(body) == [NrtStatus.INVALID]
    assert rt.now == 0
    assert (into == 7).all()
    assert rt.nrt_tensor_free(x) is NrtStatus.SUCCESS


@pytest.mark.parametrize("size", [1 << 62, 1 << 70])
def test_a_host_buffer_beyond_the_machine_is_a_status(size: int) -> None:
    assert started().nrt_tensor_allocate("host", 0, size) == (NrtStatus.FAIL_HOST_MEM_ALLOC, None)


def test_what_a_program_does_not_write_of_an_output_stays() -> None:
    rt = started()
    model, x, y = loaded(rt, copy(slice(0, 4))), made(rt, 128), made(rt, 128)

    def body(thread: int) -> Step:
        yield from rt.nrt_tensor_write(x, np.ones((4, 8), np.float32), thread=thread)
        yield from rt.nrt_tensor_write(y, np.full((4, 8), 5, np.float32), thread=thread)
        status = yield from rt.nrt_execute(model, {"x": x}, {"y": y}, thread=thread)
        out = np.empty((4, 8), np.float32)
        yield from rt.nrt_tensor_read(y, out, thread=thread)
        return status, out

    ((status, out),) = rt.run(body)
    assert status is NrtStatus.SUCCESS
    assert (out[:, :4] == 1).all()
    assert (out[:, 4:] == 5).all()


def test_a_loaded_program_is_what_it_was_when_it_was_loaded() -> None:
    rt, program = started(), copy()
    model = loaded(rt, program)
    program.input("late", (1, 1), "float32")
    assert [t.name for t in rt.nrt_get_model_tensor_info(model)[1]] == ["x", "y"]


def test_threads_that_wait_for_nothing_are_named() -> None:
    rt = started()
    x = made(rt, 16)

    def waits(thread: int) -> Step:
        return (yield from rt.nrt_tensor_check_output_completion(x, -1, 1))

    def ends(thread: int) -> Step:
        yield rt.spend(5)

    with pytest.raises(ProgramError, match=r"Runtime\.run at 5 ns: host threads 1 wait, and nothing is in flight"):
        rt.run(ends, waits)


def test_an_error_of_a_host_thread_is_its_own() -> None:
    rt = started()

    def fails(thread: int) -> Step:
        yield rt.spend(5)
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        rt.run(fails)


def test_an_error_of_what_a_host_thread_started_is_its_own() -> None:
    rt = started()
    x = made(rt, 16)

    def fails() -> Step:
        yield rt.spend(5)
        raise RuntimeError("mine")

    def waits(thread: int) -> Step:
        rt.env.process(fails())
        return (yield from rt.nrt_tensor_check_output_completion(x, -1, 1))

    with pytest.raises(RuntimeError, match="mine"):
        rt.run(waits)


def test_rows_of_different_lengths_are_bad_input() -> None:
    with pytest.raises(NrtError, match="input x") as e:
        Function.load(Runtime(), copy())(inputs={"x": [[1, 2], [3]]})  # type: ignore[dict-item]
    assert e.value.status is NrtStatus.EXEC_BAD_INPUT


def test_an_operator_with_another_type_of_result_is_another_program() -> None:
    """1/3 is 0.33325 in float16 and 0.33398 in bfloat16, both of two bytes."""
    rt = started()
    f = Framework(rt)

    def to(dtype: str) -> Program:
        p = Program("to")
        x, y, t = p.input("x", (1, 1), "float32"), p.output("out", (1, 1), dtype), p.sbuf((1, 1), "float32")
        u = p.sbuf((1, 1), dtype)
        p.dma_copy(dst=t, src=x)
        p.tensor_copy(dst=u, src=t)
        p.dma_copy(dst=y, src=u)
        return p

    def body(thread: int) -> Step:
        x: Array = yield from f.put(np.full((1, 1), 1 / 3, np.float32), "float32")
        found = []
        for dtype in ("bfloat16", "float16"):
            out = yield from f.op("aten::to", lambda d=dtype: to(d), [x], f.array((1, 1), dtype))
            found.append(float((yield from f.get(out))[0, 0]))
        return found

    ((bf16, half),) = rt.run(body)
    assert (round(bf16, 5), round(half, 5)) == (0.33398, 0.33325)
