"""A replayed profile for the Perfetto viewer: measured above simulated, read back with the package's own classes."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner
from test_perfetto import needs_perfetto, read
from test_profile_json import KERNEL, export, written

from nc_sim import replay
from nc_sim.__main__ import main
from nc_sim.report import replayed
from nc_sim.trace import pftrace

pytestmark = needs_perfetto


def test_measured_stands_above_simulated_with_the_same_engines(tmp_path: Path) -> None:
    tracks = pftrace.load(replayed.save(replay(written(tmp_path, export())), tmp_path / "both.pftrace"))
    folders = [t.name for t in tracks if t.level == 1]
    assert folders == ["measured", "simulated"]
    below = {name: [] for name in folders}  # type: dict[str, list[str]]
    for t in tracks:
        if t.level == 1:
            now = t.name
        elif t.level > 1:
            below[now].append(t.name)
    engines = ["Scalar Engine", "GpSimd Engine", "Sync Engine"]
    assert below["measured"] == [*engines, *(f"DMA Engine {k}" for k in range(16))]
    assert below["simulated"] == [*below["measured"], "Throttling"]


def test_every_instruction_is_there_twice_and_says_where_the_other_side_has_it(tmp_path: Path) -> None:
    r = replay(written(tmp_path, export()))
    seen = read(replayed.save(r, tmp_path / "both.pftrace"))
    sides = {
        side: {s.arguments["instruction"]: s for s in seen.slices if s.track.startswith(f"{side}/") and "pc" in s.arguments}
        for side in replayed.SIDES
    }
    for side in replayed.SIDES:
        assert sorted(sides[side]) == list(range(len(KERNEL)))
    for k, (start, length, _, opcode, operands) in enumerate(KERNEL):
        measured, simulated = sides["measured"][k], sides["simulated"][k]
        assert (measured.start, measured.end, measured.name) == (start - 1000, start - 1000 + length, opcode)
        assert measured.arguments["operands"] == simulated.arguments["operands"] == operands
        assert simulated.start == round(float(r.starts[k]))
        assert measured.arguments["other_side_later_ns"] == simulated.start - measured.start
        assert simulated.arguments["other_side_later_ns"] == measured.start - simulated.start


def test_a_transfer_is_one_slice_of_a_dma_engine_on_both_sides(tmp_path: Path) -> None:
    seen = read(replayed.save(replay(written(tmp_path, export())), tmp_path / "both.pftrace"))
    load, store = seen.on("measured/DMA Engine 3")
    assert (load.start, load.end) == (3050 + 30 - 1000, 3050 + 30 + 624 + 9 - 1000)
    assert (load.name, load.arguments["bytes"], load.arguments["packets"]) == ("queue 0", 4 * 4096 + 4, 5)
    assert store.start == 7200 + 30 - 1000
    there = seen.on("simulated/DMA Engine 3")
    assert [(s.name, s.arguments["bytes"], s.arguments["instruction"]) for s in there] == [
        ("qGpSimdDynamic", 16384, 1), ("qGpSimdDynamic", 16384, 3),
    ]  # fmt: skip


def test_a_profile_without_packets_has_engines_only_on_the_measured_side(tmp_path: Path) -> None:
    seen = read(replayed.save(replay(written(tmp_path, export(dma=[]))), tmp_path / "both.pftrace"))
    assert not [t for t in seen.descriptors if t.startswith("measured/DMA")]
    assert [t for t in seen.descriptors if t.startswith("simulated/DMA")]


def test_what_is_measured_before_time_zero_moves_both_sides_alike(tmp_path: Path) -> None:
    data = export()
    data["instruction"][3]["timestamp"] = 700  # the load's trigger, before Sync's first instruction at 1000
    r = replay(written(tmp_path, data))
    seen = read(replayed.save(r, tmp_path / "both.pftrace"))
    sync = [next(iter(seen.on(f"{side}/Sync Engine"))).start for side in replayed.SIDES]
    assert sync == [300, 300]  # time zero is Sync's release on both
    assert min(s.start for s in seen.slices) == 0
    assert seen.on("measured/DMA Engine 3")[0].start == 3050 + 30 - 1000 + 300
    first = r.timeline.start[r.table.rows :][(r.table.server == 3)].min()
    assert seen.on("simulated/DMA Engine 3")[0].start == round(float(first / r.table.ticks_per_ns)) + 300


def test_the_command_writes_both_and_names_them(tmp_path: Path) -> None:
    path, out = written(tmp_path, export()), tmp_path / "both.pftrace"
    run = CliRunner().invoke(main, ["replay", str(path), "--perfetto", str(out)])
    assert run.stdout.splitlines()[-1] == f"perfetto: {out}"
    first = out.read_bytes()
    got = json.loads(CliRunner().invoke(main, ["replay", str(path), "--perfetto", str(out), "--json"]).stdout)
    assert got["perfetto"] == str(out)
    assert out.read_bytes() == first


def test_a_window_without_a_picture_is_refused_before_anything_is_read() -> None:
    run = CliRunner().invoke(main, ["replay", "none.json", "--from-us", "1"])
    assert run.stderr == "error: --from-us, --to-us: no picture; --picture FILE\n"


def test_real_streams_are_drawn_with_measured_and_simulated_products(traces: Path, tmp_path: Path) -> None:
    r = replay(traces / "fused_fp32_s512.instr.csv")
    seen = read(replayed.save(r, tmp_path / "both.pftrace"))
    for side in replayed.SIDES:
        assert sum(s.name == "MATMUL" for s in seen.slices if s.track.startswith(f"{side}/")) == 60
        assert len([s for s in seen.slices if s.track.startswith(f"{side}/DMA Engine")]) == 16 * 5
