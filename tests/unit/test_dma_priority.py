"""Classes of DMA priority, which NeuronCore-v4 has."""

from __future__ import annotations

import numpy as np
import pytest

from nc_sim import Program, Unsupported, simulate

X = np.arange(64 * 128, dtype=np.float32).reshape(64, 128)


def loads(priority: int | None, transpose: bool = False) -> Program:
    p = Program("priority")
    x, y = p.input("x", X.shape, "float32"), p.output("y", X.shape[::-1] if transpose else X.shape, "float32")
    t = p.sbuf(X.shape[::-1] if transpose else X.shape, "float32")
    if transpose:
        p.dma_transpose(dst=t, src=x, priority=priority)
    else:
        p.dma_copy(dst=t, src=x, priority=priority)
    p.dma_copy(dst=y, src=t, priority=priority)
    return p


@pytest.mark.parametrize("transpose", [False, True])
def test_a_priority_moves_what_a_dma_without_one_moves_and_says_that_its_time_is_assumed(transpose: bool) -> None:
    plain = simulate(loads(None, transpose), "trn3", inputs={"x": X})
    for priority in range(4):
        r = simulate(loads(priority, transpose), "trn3", inputs={"x": X})
        assert (r.outputs["y"] == (X.T if transpose else X)).all()
        assert r.duration_ns == plain.duration_ns
        assert "dma.priority" in r.assumed
    assert "dma.priority" not in plain.assumed


@pytest.mark.parametrize("name", ["inf2", "trn1", "trn2"])
@pytest.mark.parametrize("transpose", [False, True])
def test_older_generations_have_no_classes(name: str, transpose: bool) -> None:
    call = "dma_transpose" if transpose else "dma_copy"
    with pytest.raises(
        Unsupported, match=rf"test_dma_priority.py:\d+ .*{call}: priority=0; a chip with classes of DMA \(NeuronCore-v4 and later\)"
    ):
        simulate(loads(0, transpose), name, values=False)
