"""A chip that has what trn2 lacks: trn2's text with NeuronCore-v4's rows filled in, for values and costs of newer calls."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

from nc_sim import chip
from nc_sim.chip import Chip
from nc_sim.schema import VECTOR_LACKS

# Cycles an element by kind: base, both in SBUF, 16 bits. 4 elements a cycle where the vendor says so (trainium3_arch.rst).
VECTOR = {"exponential": (1, "1/2", "1/4"), "quantize_mx": (1, "1/4", "1/4"), "rand2": (1, "1/4", "1/4"), "rand_state": (1, 1, 1)}
FLAGS = ("types.float8_e4m3fn", "types.mx", "tensor.bf16_results", "scalar.activate2", "vector.magnitude_operators")


@cache
def newer() -> Chip:
    """The chip, called "newer"."""
    text = (resources.files("nc_sim") / "chips" / "trn2.toml").read_text().replace('name = "trn2"', 'name = "newer"')
    sections = re.split(r"(?m)^(?=\[)", text)
    filled = {f"vector.{k}": _vector(k, *rates) for k, rates in VECTOR.items()} | {"tensor.mx": _like(sections, "tensor.bf16")}
    out = []
    for section in sections:
        name = section[1 : section.find("]")] if section.startswith("[") else ""
        if name in filled:
            section = f"[{name}]\n{filled[name]}\n"
        for flag in FLAGS:
            group, _, key = flag.rpartition(".")
            if group == name:
                section = re.sub(rf"(?m)^{key} = .*$", f"{key} = {_value('true')}", section)
        if name == "tensor":
            section = re.sub(r"(?m)^result_banks = .*$", f"result_banks = {_value(8)}", section)
        out.append(section)
    return chip.parse("".join(out), "newer")


def _value(value: object) -> str:
    return f'{{ value = {value}, status = "assumed", source = "arch: made up for a test" }}'


def _vector(kind: str, base: object, sbuf: object, small: object) -> str:
    rows = {"cycles_per_element": base, "sbuf_ratio": sbuf, "sixteen_bit_ratio": small, "sbuf_fixed_ns": 125, "psum_fixed_ns": 130}
    kept = {k: f'"{v}"' if isinstance(v, str) else v for k, v in rows.items() if k not in VECTOR_LACKS.get(kind, ())}
    return "".join(f"{k} = {_value(v)}\n" for k, v in kept.items())


def _like(sections: list[str], name: str) -> str:
    return next(s for s in sections if s.startswith(f"[{name}]")).partition("\n")[2]
