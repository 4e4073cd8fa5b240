"""Host profiles: what ships, and the exact words in which a wrong file is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from nc_sim import ChipError
from nc_sim.isa import REGISTRY
from nc_sim.runtime import HostProfile, Runtime, host
from nc_sim.workloads import NAMES

KEYS = ["framework_ns", "schedule_ns", "process_ns", "switch_ns", "completion_ns", "copy_ns", "copy_bytes_per_us"]
STATUSES = ("measured", "documented", "derived", "fitted", "assumed")
FORM = "{ value = ..., status = ..., source = ... }"
# as users of PyTorch and of the blog's three variants name them
OPERATORS = {
    "mul", "add", "sub", "div", "mean", "rsqrt", "sqrt", "pow", "exp", "silu", "gelu", "relu", "sigmoid", "softmax", "rms_norm",
    "rmsnorm", "layer_norm", "mse_loss", "linear", "matmul", "bmm", "mm", "addmm", "attention", "naive", "fused", "compiled", "eager",
}  # fmt: skip


def entry(value: str = "1", status: str = '"assumed"', source: str = '"a test"') -> str:
    return f"{{ value = {value}, status = {status}, source = {source} }}"


def text(**replaced: str | None) -> str:
    """A profile with every value 1; a line replaced, left out (None) or added."""
    lines = {"name": '"hand"', **{k: entry() for k in KEYS}, **replaced}
    return "\n".join(f"{k} = {v}" for k, v in lines.items() if v is not None)


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(ChipError) as caught:
        act()
    return str(caught.value)


def parsed(**replaced: str | None) -> HostProfile:
    return host.parse(text(**replaced), "p.toml")


# --- what ships ------------------------------------------------------------------------------------------------------


def test_blog_is_the_profile_that_ships_and_the_default() -> None:
    assert host.names() == ["blog"]
    assert Runtime().profile == host.load("blog")
    assert host.load("blog").name == "blog"


@pytest.mark.parametrize("name", host.names())
def test_a_shipped_profile_has_at_most_eight_numbers_and_no_others(name: str) -> None:
    numbers = {k: v for k, v in attrs.asdict(host.load(name)).items() if k not in ("name", "events", "provenance")}
    assert list(numbers) == KEYS
    assert len(numbers) <= 8
    assert all(type(v) is int and v >= 0 for v in numbers.values())


def test_no_number_is_named_after_an_operator_or_a_variant() -> None:
    forbidden = OPERATORS | set(REGISTRY) | set(NAMES)
    for key in KEYS:
        assert not forbidden & {key, re.sub(r"_(ns|bytes_per_us)$", "", key)}, key
        assert not OPERATORS & set(key.split("_")), key


@pytest.mark.parametrize("name", host.names())
def test_every_shipped_number_has_a_status_and_a_source(name: str) -> None:
    provenance = host.load(name).provenance
    assert sorted(provenance) == sorted(KEYS)
    for key, (status, source) in provenance.items():
        assert status in STATUSES, key
        assert len(source.strip()) > 10, key


def test_the_blog_profile_holds_the_published_numbers() -> None:
    blog = host.load("blog")
    assert (blog.schedule_ns, blog.process_ns, blog.switch_ns) == (113_000, 56_000, 20_000)  # read off the published picture
    assert blog.framework_ns == 119_000 - 113_000  # the published period less the schedule call
    assert 4_000 <= blog.copy_bytes_per_us <= 5_700  # 4 to 5.7 GB/s


def test_the_blog_profile_holds_the_published_event_counts() -> None:
    """ESM-2 650M, one forward: 13,785 dmem_buf_copyin and 5,196 nrt_dma_mem_alloc over 1,050 eager dispatches."""
    events = host.load("blog").events
    assert {k: c.value for k, c in events.items()} == {"dmem_buf_copyin": round(13_785 / 1_050), "nrt_dma_mem_alloc": round(5_196 / 1_050)}
    assert {k: c.value for k, c in events.items()} == {"dmem_buf_copyin": 13, "nrt_dma_mem_alloc": 5}
    assert all(c.status == "derived" and "1,050" in c.source for c in events.values())


# --- loading ---------------------------------------------------------------------------------------------------------


def test_a_file_of_the_same_form_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text(switch_ns=entry("7", '"fitted"', '"by hand"')))
    for given in (path, str(path)):
        got = host.load(given)
        assert (got.name, got.switch_ns, got.copy_ns) == ("hand", 7, 1)
        assert got.provenance["switch_ns"] == ("fitted", "by hand")


def test_a_profile_passes_through_unchanged() -> None:
    profile = parsed()
    assert host.load(profile) is profile
    assert Runtime(profile).profile is profile


@pytest.mark.parametrize("key", [k for k in KEYS if k != "copy_bytes_per_us"])
def test_zero_is_a_time(key: str) -> None:
    assert getattr(parsed(**{key: entry("0")}), key) == 0


# --- refusals --------------------------------------------------------------------------------------------------------


def test_an_unknown_name_is_refused_with_the_names_there_are() -> None:
    assert refusal(lambda: host.load("fast")) == "host profile: 'fast'; one of blog, or the path of a .toml file"
    assert refusal(lambda: Runtime("fast")) == "host profile: 'fast'; one of blog, or the path of a .toml file"


def test_a_file_that_is_not_there_is_refused() -> None:
    assert refusal(lambda: host.load("none/at/all.toml")) == "none/at/all.toml: cannot be read: No such file or directory; a host profile"


def test_a_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "x.toml"
    folder.mkdir()
    assert refusal(lambda: host.load(folder)) == f"{folder}: cannot be read: Is a directory; a host profile"


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "latin.toml"
    path.write_bytes(b'name = "\xff\xfe"\n')
    assert refusal(lambda: host.load(path)) == f"{path}: not UTF-8 text; a host profile"


def test_text_that_is_not_toml_is_refused() -> None:
    message = refusal(lambda: host.parse("name =", "p.toml"))
    assert message.startswith("p.toml: not TOML: ")
    assert message.endswith("; a host profile")


@pytest.mark.parametrize("name", [None, "3"])
def test_a_profile_without_a_name_is_refused(name: str | None) -> None:
    assert refusal(lambda: parsed(name=name)) == "p.toml: no name; name = ..."


@pytest.mark.parametrize("key", KEYS)
def test_every_number_is_required(key: str) -> None:
    assert refusal(lambda: parsed(**{key: None})) == f"p.toml: no {key!r}; {FORM}"


@pytest.mark.parametrize("key", ["rms_norm_ns", "aten::mul", "Switch_ns", "provenance"])
def test_an_unknown_key_is_refused_with_the_keys_there_are(key: str) -> None:
    assert (
        refusal(lambda: parsed(**{f'"{key}"': entry()}))
        == f"p.toml: unknown key {key!r}; one of {', '.join(KEYS)}, or [events_per_dispatch]"
    )


def test_a_profile_may_count_events_per_dispatch() -> None:
    assert parsed().events == {}
    line = "nrt_dma_mem_alloc = { value = 3, status = 'measured', source = 'by hand' }"
    got = host.parse(f"{text()}\n[events_per_dispatch]\n{line}", "p.toml")
    assert got.events == {"nrt_dma_mem_alloc": host.Count(3, "measured", "by hand")}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("cc_running = 1", "p.toml: events_per_dispatch: {'cc_running': 1}; a table of dmem_buf_copyin, nrt_dma_mem_alloc"),
        ("dmem_buf_copyin = 13", f"p.toml: events_per_dispatch.dmem_buf_copyin: 13; {FORM}"),
        (f"dmem_buf_copyin = {entry('-1')}", "p.toml: events_per_dispatch.dmem_buf_copyin: -1; a whole number of at least 0"),
    ],
)
def test_a_count_of_events_has_the_form_of_a_number(line: str, said: str) -> None:
    assert refusal(lambda: host.parse(text() + f"\n[events_per_dispatch]\n{line}", "p.toml")) == said


def test_a_bare_number_is_refused() -> None:
    assert refusal(lambda: parsed(copy_ns="5")) == f"p.toml: copy_ns: 5; {FORM}"


def test_a_number_without_source_or_status_or_with_more_is_refused() -> None:
    assert refusal(lambda: parsed(copy_ns='{ value = 1, status = "assumed" }')) == (
        f"p.toml: copy_ns: {{'value': 1, 'status': 'assumed'}}; {FORM}"
    )
    assert refusal(lambda: parsed(copy_ns='{ value = 1, source = "s" }')) == f"p.toml: copy_ns: {{'value': 1, 'source': 's'}}; {FORM}"
    assert refusal(lambda: parsed(copy_ns='{ value = 1, status = "assumed", source = "s", unit = "ns" }')) == (
        f"p.toml: copy_ns: {{'value': 1, 'status': 'assumed', 'source': 's', 'unit': 'ns'}}; {FORM}"
    )


@pytest.mark.parametrize(("value", "shown"), [("-1", "-1"), ("1.5", "1.5"), ("true", "True"), ('"12"', "'12'"), ("[]", "[]")])
def test_a_value_that_is_no_whole_number_is_refused(value: str, shown: str) -> None:
    assert refusal(lambda: parsed(process_ns=entry(value))) == f"p.toml: process_ns: {shown}; a whole number of at least 0"


def test_a_copy_rate_of_zero_is_refused() -> None:
    assert refusal(lambda: parsed(copy_bytes_per_us=entry("0"))) == "p.toml: copy_bytes_per_us: 0; at least 1"


@pytest.mark.parametrize("status", ["guessed", "", "Measured", "carried-over"])
def test_a_status_that_is_none_is_refused(status: str) -> None:
    assert refusal(lambda: parsed(completion_ns=entry(status=f'"{status}"'))) == (
        f"p.toml: completion_ns: status {status!r}; one of measured, documented, derived, fitted, assumed"
    )


@pytest.mark.parametrize(("source", "shown"), [('""', "''"), ('" "', "' '"), ("5", "5"), ("[]", "[]")])
def test_a_number_whose_source_says_nothing_is_refused(source: str, shown: str) -> None:
    assert refusal(lambda: parsed(copy_ns=entry(source=source))) == (
        f"p.toml: copy_ns: source {shown}; text that says where the number is from"
    )
