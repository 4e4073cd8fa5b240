"""Every legal machine instruction computes: results have the shape of what they are written to, and only documented errors come."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nc_sim.isa import REGISTRY, Engine, Instruction, View
from nc_sim.isa.control import Control
from nc_sim.isa.dma import Dma
from nc_sim.isa.dtypes import DType, cast, storage
from nc_sim.isa.errors import ProgramError, Unspecified, Unsupported
from nc_sim.isa.tensor import Matmul
from nc_sim.testing import instructions

RANDOM = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), max_examples=40)
EXECUTED = sorted(n for n, c in REGISTRY.items() if c.machine and not issubclass(c, Control | Dma))  # those have tests of their own
E4M3 = 240


class Newest:
    """A chip that has everything, as far as calls may ask."""

    explicit = False

    def feature(self, name: str) -> Any:
        return 32 if name == "tensor.smallest_tile" else True

    def identity(self, dtype: DType) -> View:
        raise NotImplementedError

    def hbm_kind(self, tensor: str) -> str:
        return "internal"


NEWEST = Newest()


def numbers(view: View, seed: int) -> np.ndarray:
    """Small whole numbers in the view's type, so that indices and sums stay in bounds."""
    rng = np.random.default_rng(seed)
    kind = storage(view.dtype, E4M3)
    if view.dtype.kind == "packed":
        return rng.integers(0, 1 << 8, view.shape).astype(kind)
    return cast(rng.integers(0, 2, view.shape), view.dtype, e4m3_max=E4M3)


def computed(i: Instruction, engine: Engine, seed: int) -> dict[str, Any]:
    """Results by field, of an accumulator that was reset and weights that fit."""
    list(i.expand(NEWEST, engine))  # what an engine does not take is refused here
    operands = {n: numbers(v, seed + k) for k, (n, v, written) in enumerate(i.views) if not written or i.keeps() or i.spares()}
    state: dict[str, Any] = {"engine": engine}
    what, partitions = i.accumulator()
    if what in ("adds", "reads"):
        state["accumulator"] = np.zeros(partitions, np.float32)
    if isinstance(i, Matmul):
        depth = {"mx": 4, "double_row": 2}.get(getattr(i, "mode", ""), 1)
        rows = i.dst.elements if i.transpose else i.src.partitions * depth  # a transpose routes the stationary data through
        state["weights"] = np.ones((rows, i.columns), storage(i.dst.dtype, E4M3) if i.transpose else np.float32)
    return dict(i.execute(operands, state))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numbers beyond float32
@pytest.mark.parametrize("mnemonic", EXECUTED)
@RANDOM
@given(data=st.data())
def test_a_legal_instruction_computes_what_it_writes(mnemonic: str, data: st.DataObject) -> None:
    i = data.draw(instructions(REGISTRY[mnemonic]))
    engine = data.draw(st.sampled_from(i.engines))
    seed = data.draw(st.integers(0, 99))
    try:
        results = computed(i, engine, seed)
    except (ProgramError, Unspecified, Unsupported):
        return
    written = {n: v for n, v, w in i.views if w}
    assert set(results) <= set(written)
    if written and not (isinstance(i, Matmul) and i.passes == "low"):
        assert results
    for name, values in results.items():
        assert values.size == written[name].size
        cast(values.reshape(written[name].shape), written[name].dtype, e4m3_max=E4M3)
    again = computed(i, engine, seed)
    assert {n: np.asarray(v).tobytes() for n, v in results.items()} == {n: np.asarray(v).tobytes() for n, v in again.items()}
