"""Element types: what each name means, and how values round into them."""

from __future__ import annotations

import itertools
import math
import struct
import warnings
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nc_sim.isa import dtypes
from nc_sim.isa.errors import ProgramError

D = dtypes.DTYPES
FLOATS32 = st.floats(width=32)
SMALL_FLOATS = [
    ("bfloat16", None, ml_dtypes.bfloat16),
    ("float16", None, np.float16),
    ("float8_e4m3", 240, ml_dtypes.float8_e4m3),
    ("float8_e4m3", 448, ml_dtypes.float8_e4m3fn),
    ("float8_e4m3fn", None, ml_dtypes.float8_e4m3fn),
    ("float8_e5m2", None, ml_dtypes.float8_e5m2),
    ("float8_e3m4", None, ml_dtypes.float8_e3m4),
]
# scales (float8_e8m0fnu) have neither zero nor sign, and nothing converts to packed types
NUMBERS = [n for n, t in D.items() if t.kind != "packed" and n != "float8_e8m0fnu"]
INTEGERS = ["int8", "int16", "int32", "uint8", "uint16", "uint32"]


@pytest.fixture(autouse=True)
def no_warnings() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def f32(*values: float) -> npt.NDArray[np.float32]:
    return np.array(values, np.float32)


def bits32(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def tf32_reference(bits: int) -> int:
    """Round to nearest even on 13 dropped bits in plain integers; for finite values and inf only."""
    low, kept = bits & 0x1FFF, bits >> 13
    if low > 0x1000 or (low == 0x1000 and kept & 1):
        kept += 1
    return kept << 13


# --- the table ---------------------------------------------------------------------------------------------------


def test_the_table_has_these_names_sizes_and_kinds_in_this_order() -> None:
    assert [(n, t.itemsize, t.kind) for n, t in D.items()] == [
        ("float32", 4, "float"),
        ("tfloat32", 4, "float"),
        ("bfloat16", 2, "float"),
        ("float16", 2, "float"),
        ("float8_e4m3", 1, "float"),
        ("float8_e4m3fn", 1, "float"),
        ("float8_e5m2", 1, "float"),
        ("float8_e3m4", 1, "float"),
        ("float8_e8m0fnu", 1, "float"),
        ("int8", 1, "int"),
        ("int16", 2, "int"),
        ("int32", 4, "int"),
        ("uint8", 1, "uint"),
        ("uint16", 2, "uint"),
        ("uint32", 4, "uint"),
        ("float8_e4m3fn_x4", 4, "packed"),
        ("float8_e5m2_x4", 4, "packed"),
        ("float4_e2m1fn_x4", 2, "packed"),
    ]


@pytest.mark.parametrize("name", [n for n, t in D.items() if t.kind == "float" and n != "tfloat32"])
def test_exponent_and_mantissa_bits_are_those_ml_dtypes_knows(name: str) -> None:
    info: Any = ml_dtypes.finfo(D[name].numpy)  # type: ignore[no-untyped-call]
    assert (D[name].exponent_bits, D[name].mantissa_bits) == (info.nexp, info.nmant)


def test_tfloat32_has_the_8_and_10_bits_of_the_documentation() -> None:
    assert (D["tfloat32"].exponent_bits, D["tfloat32"].mantissa_bits) == (8, 10)


@pytest.mark.parametrize(("printed", "name"), [("fp32", "float32"), ("bfloat16", "bfloat16"), ("fp16", "float16"), ("uint32", "uint32")])
def test_trace_names_seen_in_published_profiles_are_printed_and_read(printed: str, name: str) -> None:
    assert D[name].trace_name == printed
    assert dtypes.dtype(printed) is D[name]


def test_trace_names_and_canonical_names_never_name_two_types() -> None:
    spellings = [s for t in D.values() for s in {t.name, t.trace_name, *t.aliases}]
    assert len(spellings) == len(set(spellings))


@pytest.mark.parametrize(
    ("of", "name"),
    [
        ("nl.float32", "float32"),
        ("nki.language.tfloat32", "tfloat32"),
        ("np.int8", "int8"),
        ("bf16", "bfloat16"),
        ("tf32", "tfloat32"),
        ("float8e4", "float8_e4m3"),
        ("float8e5", "float8_e5m2"),
        ("nl.bool_", "uint8"),
        (np.float32, "float32"),
        (np.dtype("uint16"), "uint16"),
        (np.bool_, "uint8"),
        (bool, "uint8"),
        (ml_dtypes.bfloat16, "bfloat16"),
        (ml_dtypes.float8_e4m3, "float8_e4m3"),
        (ml_dtypes.float8_e4m3fn, "float8_e4m3fn"),
        (np.dtype(ml_dtypes.float8_e3m4), "float8_e3m4"),
    ],
)
def test_dtype_accepts(of: Any, name: str) -> None:
    assert dtypes.dtype(of) is D[name]


def test_a_dtype_and_its_own_name_find_the_same_row() -> None:
    for row in D.values():
        assert dtypes.dtype(row) is row
        assert dtypes.dtype(row.name) is row
        assert dtypes.dtype(str(row)) is row


@pytest.mark.parametrize(
    "of",
    [
        "",
        "float64",
        "nl.",
        "FLOAT32",
        "float4_e2m1fn",
        np.float64,
        np.int64,
        int,
        float,
        np.dtype(">f4"),
        object,
        dict,
        None,
        32,
        b"float32",
        ["float32"],
    ],
)
def test_dtype_refuses(of: Any) -> None:
    with pytest.raises(ProgramError):
        dtypes.dtype(of)


def test_an_unknown_name_is_answered_with_near_names_the_legal_ones_and_the_source() -> None:
    with pytest.raises(ProgramError) as error:
        dtypes.dtype("bfloat61")
    assert str(error.value) == (
        "element type 'bfloat61' (near: bfloat16, float16, float32); one of float32, tfloat32, bfloat16, float16, "
        "float8_e4m3, float8_e4m3fn, float8_e5m2, float8_e3m4, float8_e8m0fnu, int8, int16, int32, uint8, uint16, uint32, "
        "float8_e4m3fn_x4, float8_e5m2_x4, float4_e2m1fn_x4 "
        "(nki.api.shared, Supported Data Types)"
    )


@pytest.mark.parametrize(
    ("of", "near"),
    [
        ("float64", "float32, float16, float8_e4m3"),
        (np.float64, "float32, float16, float8_e4m3"),
        (float, "float32, float16, float8_e4m3"),
        ("double", "float32"),
        ("float", "float32, float16, tfloat32"),
        ("fp64", "float32, float16, float8_e4m3"),  # near fp16 and fp8e4, said as the list of legal names says them
        ("half", "float16"),
        ("int64", "int32, int16, uint16"),
        ("uint64", "uint32, uint16, uint8"),
        ("int", "int32, int8, uint8"),
        ("Float32", "float32, tfloat32, float8_e3m4"),
    ],
)
def test_what_the_device_lacks_is_answered_with_the_nearest_type_that_it_has_first(of: Any, near: str) -> None:
    with pytest.raises(ProgramError) as error:
        dtypes.dtype(of)
    assert error.value.found == f"element type {of!r} (near: {near})"
    assert all(dtypes.dtype(name).name == name for name in near.split(", "))


# --- storage -----------------------------------------------------------------------------------------------------


def test_the_range_of_e4m3_chooses_its_bit_layout() -> None:
    # 240 = 1.875 * 2**7: exponent field 14 (bias 7); 448 = 1.75 * 2**8: exponent field 15.
    assert dtypes.cast(f32(240), D["float8_e4m3"], e4m3_max=240).view(np.uint8)[0] == 0b0_1110_111
    assert dtypes.cast(f32(448), D["float8_e4m3"], e4m3_max=448).view(np.uint8)[0] == 0b0_1111_110
    assert dtypes.storage(D["float8_e4m3"], 240) == ml_dtypes.float8_e4m3
    assert dtypes.storage(D["float8_e4m3"], 448) == ml_dtypes.float8_e4m3fn


@pytest.mark.parametrize("maximum", [None, 0, 256, -240])
def test_e4m3_without_the_range_of_a_chip_is_refused(maximum: int | None) -> None:
    with pytest.raises(ProgramError) as error:
        dtypes.cast(f32(1), D["float8_e4m3"], e4m3_max=maximum)
    assert str(error.value) == f"float8_e4m3 with e4m3_max={maximum}; e4m3_max=240 or 448, as the chip has it"


def test_only_e4m3_depends_on_its_range() -> None:
    for row in D.values():
        if row.name != "float8_e4m3":
            assert dtypes.storage(row, 240) == dtypes.storage(row, 448) == dtypes.storage(row) == row.numpy


# --- rounding to a float -----------------------------------------------------------------------------------------


def representable(kind: Any) -> list[tuple[Fraction, int]]:
    """All finite values of an 8- or 16-bit float with their bits, ascending; -0 is left out."""
    bits = np.arange(1 << 8 * np.dtype(kind).itemsize, dtype=f"u{np.dtype(kind).itemsize}")
    with np.errstate(invalid="ignore"):  # signalling NaNs
        values = bits.view(kind).astype(np.float64)
    finite = [(Fraction(float(v)), int(b)) for v, b in zip(values, bits, strict=True) if math.isfinite(v)]
    return sorted((v, b) for v, b in finite if v != 0 or b == 0)


@pytest.mark.parametrize(("name", "maximum", "kind"), SMALL_FLOATS)
def test_every_value_of_a_small_float_survives_float32_and_back(name: str, maximum: int | None, kind: Any) -> None:
    size = np.dtype(kind).itemsize
    bits = np.arange(1 << 8 * size, dtype=f"u{size}")
    values = bits.view(kind)
    back = dtypes.cast(values.astype(np.float32), D[name], e4m3_max=maximum)
    number = ~np.isnan(values.astype(np.float32))
    assert back.dtype == np.dtype(kind)
    assert np.array_equal(back.view(bits.dtype)[number], bits[number])
    assert np.isnan(back.astype(np.float32)[~number]).all()


@pytest.mark.parametrize(("name", "maximum", "kind"), SMALL_FLOATS)
def test_halfway_between_neighbours_rounds_to_the_even_one_and_beside_it_to_the_nearer(name: str, maximum: int | None, kind: Any) -> None:
    table = representable(kind)
    pairs = list(itertools.pairwise(table))
    middle = len(pairs) // 2  # around zero, with the subnormals
    pairs = pairs if len(pairs) < 300 else pairs[:2100] + pairs[middle - 1100 : middle + 1100] + pairs[-2100:]
    halves = np.array([float((low[0] + high[0]) / 2) for low, high in pairs], np.float32)
    assert [Fraction(float(h)) for h in halves] == [(a[0] + b[0]) / 2 for a, b in pairs]  # float32 holds them
    even = [float(low[0] if low[1] % 2 == 0 else high[0]) for low, high in pairs]
    to = D[name]

    def rounded(x: npt.NDArray[np.float32]) -> list[float]:
        return [float(v) for v in dtypes.cast(x, to, e4m3_max=maximum).astype(np.float64)]

    assert rounded(halves) == even
    assert rounded(np.nextafter(halves, np.float32(-np.inf))) == [float(low[0]) for low, _ in pairs]
    assert rounded(np.nextafter(halves, np.float32(np.inf))) == [float(high[0]) for _, high in pairs]


@pytest.mark.parametrize(
    ("name", "maximum", "above", "largest"),
    # The first value that rounds beyond the largest finite one is half a step above it.
    [
        ("float16", None, 65520.0, 65504.0),
        ("bfloat16", None, 2.0**128 * (1 - 2.0**-9), 2.0**128 * (1 - 2.0**-8)),
        ("float8_e4m3", 240, 248.0, 240.0),
        ("float8_e5m2", None, 61440.0, 57344.0),
        ("float8_e3m4", None, 15.75, 15.5),
    ],
)
def test_what_rounds_beyond_the_largest_value_is_infinite(name: str, maximum: int | None, above: float, largest: float) -> None:
    below = float(np.nextafter(np.float32(above), np.float32(0)))
    out = dtypes.cast(f32(above, -above, below, math.inf, -math.inf), D[name], e4m3_max=maximum)
    assert [float(v) for v in out] == [math.inf, -math.inf, largest, math.inf, -math.inf]


def test_beyond_448_e4m3_is_nan_because_it_has_no_infinity() -> None:
    out = dtypes.cast(f32(464, 465, -465, math.inf), D["float8_e4m3fn"]).astype(np.float32)
    assert out[0] == 448
    assert np.isnan(out[1:]).all()


def test_float64_and_integers_go_through_float32_as_the_dma_does() -> None:
    # In one step this float64 rounds up to 1 + 2**-7; its float32, 1 + 2**-8, is a tie and goes to even.
    assert float(dtypes.cast(np.array([1 + 2**-8 + 2**-40]), D["bfloat16"])[0]) == 1.0
    # 2**24 + 1 has no float32: in one step to bfloat16 it would still be 2**24, to float32 it must be.
    assert dtypes.cast(np.array([2**24 + 1], np.int32), D["float32"])[0] == 2.0**24
    # 2**30 + 2**22 + 1 in one step rounds up to 2**30 + 2**23; through float32 it is a tie and goes to even.
    assert float(dtypes.cast(np.array([2**30 + 2**22 + 1], np.int32), D["bfloat16"])[0]) == 2.0**30


@pytest.mark.parametrize(
    ("bits", "rounded"),
    [
        (0x3F800000, 0x3F800000),  # 1
        (0x3F801000, 0x3F800000),  # a tie below an even mantissa
        (0x3F803000, 0x3F804000),  # a tie below an odd mantissa
        (0x3F801001, 0x3F802000),
        (0x3FFFFFFF, 0x40000000),  # the carry raises the exponent
        (0x7F7FFFFF, 0x7F800000),  # and ends at infinity
        (0x7F7FEFFF, 0x7F7FE000),  # the last value below that
        (0xFF800000, 0xFF800000),  # -inf
        (0x80000000, 0x80000000),  # -0
        (0x00001001, 0x00002000),  # subnormal
    ],
)
def test_tfloat32_keeps_ten_mantissa_bits_ties_to_even(bits: int, rounded: int) -> None:
    x = np.array([bits], np.uint32).view(np.float32)
    assert dtypes.cast(x, D["tfloat32"]).view(np.uint32)[0] == rounded


@given(FLOATS32.filter(lambda x: not math.isnan(x)))
def test_tfloat32_agrees_with_a_reference_in_integers(x: float) -> None:
    assert dtypes.cast(f32(x), D["tfloat32"]).view(np.uint32)[0] == tf32_reference(bits32(x))


@pytest.mark.parametrize("bits", [0x7F800001, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF, 0x7FC00000])
def test_a_nan_stays_a_nan_of_its_sign_in_tfloat32(bits: int) -> None:
    out = dtypes.cast(np.array([bits], np.uint32).view(np.float32), D["tfloat32"])
    assert np.isnan(out[0])
    assert int(out.view(np.uint32)[0]) >> 31 == bits >> 31
    assert int(out.view(np.uint32)[0]) & 0x1FFF == 0


def test_equal_types_copy_bits_nan_payloads_included() -> None:
    half = np.array([0x7FA1, 0xFFFF, 0x7F81], np.uint16)
    full = np.array([0x7FA12345, 0xFFFFFFFF, 0x7F800001], np.uint32)
    assert np.array_equal(dtypes.cast(half.view(ml_dtypes.bfloat16), D["bfloat16"]).view(np.uint16), half)
    assert np.array_equal(dtypes.cast(full.view(np.float32), D["float32"]).view(np.uint32), full)
    exact = np.array([2**31 - 1, -(2**31), 2**24 + 1], np.int32)
    assert np.array_equal(dtypes.cast(exact, D["int32"]), exact)


@pytest.mark.parametrize("name", NUMBERS)
def test_a_cast_never_shares_memory_with_its_source(name: str) -> None:
    x = np.zeros(4, dtypes.storage(D[name], 240))
    assert not np.shares_memory(dtypes.cast(x, D[name], e4m3_max=240), x)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (2, 3, 4)])
def test_a_cast_keeps_the_shape(name: str, shape: tuple[int, ...]) -> None:
    for source in (np.float32, np.float64, np.int32, np.int64, np.bool_, ml_dtypes.bfloat16):
        out = dtypes.cast(np.ones(shape, source), D[name], e4m3_max=448)
        assert out.shape == shape
        assert out.dtype == dtypes.storage(D[name], 448)
        assert (out.astype(np.float32) == 1).all()


# --- rounding to an integer --------------------------------------------------------------------------------------


def test_float_to_integer_rounds_to_nearest_ties_to_even() -> None:
    x = f32(0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 2.4999998, 2.5000002, 0.99999994, -0.0)
    assert dtypes.cast(x, D["int32"]).tolist() == [0, 2, 2, 0, -2, -2, 2, 3, 1, 0]


@pytest.mark.parametrize("name", INTEGERS)
def test_float_to_integer_saturates_and_turns_nan_into_zero(name: str) -> None:
    low, high = np.iinfo(name).min, np.iinfo(name).max
    x = f32(math.inf, -math.inf, 3e38, -3e38, float(high) + 1, float(low) - 1, math.nan)
    assert dtypes.cast(x, D[name]).tolist() == [high, low, high, low, high, low, 0]


@given(FLOATS32.filter(lambda x: not math.isnan(x)), st.sampled_from(INTEGERS))
def test_float_to_integer_agrees_with_python(x: float, name: str) -> None:
    low, high = int(np.iinfo(name).min), int(np.iinfo(name).max)
    whole = (high if x > 0 else low) if math.isinf(x) else round(x)
    assert int(dtypes.cast(f32(x), D[name])[0]) == min(max(whole, low), high)


def test_between_integers_values_saturate_and_32_bits_pass_through_float32() -> None:
    x = np.array([-1, 300, 2**24 + 1, -(2**31)], np.int32)
    assert dtypes.cast(x, D["uint8"]).tolist() == [0, 255, 255, 0]
    assert dtypes.cast(x, D["uint32"]).tolist() == [0, 300, 2**24, 0]
    assert dtypes.cast(np.array([2**32 - 1], np.uint32), D["int32"]).tolist() == [2**31 - 1]


def test_64_bit_host_integers_reach_integers_exactly_or_saturated() -> None:
    x = np.array([2**24 + 1, 2**31 - 1, 2**40, -(2**40), -7])
    assert dtypes.cast(x, D["int32"]).tolist() == [2**24 + 1, 2**31 - 1, 2**31 - 1, -(2**31), -7]
    assert dtypes.cast(x, D["uint32"]).tolist() == [2**24 + 1, 2**31 - 1, 2**32 - 1, 0, 0]
    assert dtypes.cast(np.array([2**64 - 1, 5], np.uint64), D["int8"]).tolist() == [127, 5]


@pytest.mark.parametrize("source", ["complex64", "O", "U3", ">f4", "float128" if hasattr(np, "float128") else "c16"])
def test_a_source_type_the_device_lacks_is_refused(source: str) -> None:
    x = np.zeros(2, source)
    with pytest.raises(ProgramError) as error:
        dtypes.cast(x, D["float32"])
    assert str(error.value) == (
        f"a cast of {x.dtype.str} to float32; a device type, float64, int64, uint64 or bool (nki.api.shared, Supported Data Types)"
    )


# --- laws --------------------------------------------------------------------------------------------------------


@given(st.lists(FLOATS32, min_size=1, max_size=8), st.sampled_from(NUMBERS), st.sampled_from([240, 448]))
def test_casting_twice_is_casting_once(x: list[float], name: str, maximum: int) -> None:
    once = dtypes.cast(f32(*x), D[name], e4m3_max=maximum)
    through = dtypes.cast(once.astype(np.float32), D[name], e4m3_max=maximum)
    if D[name].itemsize < 4 or D[name].kind == "float":  # a 32-bit integer does not survive float32
        assert np.array_equal(once.astype(np.float64), through.astype(np.float64), equal_nan=True)
    assert np.array_equal(once.view(np.uint8), dtypes.cast(once, D[name], e4m3_max=maximum).view(np.uint8))


@given(FLOATS32, FLOATS32, st.sampled_from(NUMBERS))
def test_a_cast_is_monotone(a: float, b: float, name: str) -> None:
    if math.isnan(a) or math.isnan(b):
        return
    low, high = dtypes.cast(f32(min(a, b), max(a, b)), D[name], e4m3_max=240).astype(np.float64)
    if name != "float8_e4m3fn" or max(abs(a), abs(b)) <= 464:  # beyond lies NaN
        assert low <= high


# --- packed types ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "word", "lanes"),
    [
        # by hand: e4m3fn 0x38 = 1, 0xc0 = -2, 0x7e = 448, 0x01 = 2^-9; e5m2 0x3c = 1, 0x7b = 57344; e2m1 0x7 = 6, 0x9 = -0.5
        ("float8_e4m3fn_x4", 0x017EC038, [1, -2, 448, 2.0**-9]),
        ("float8_e5m2_x4", 0xC07B003C, [1, 0, 57344, -2]),
        ("float4_e2m1fn_x4", 0x9702, [1, 0, 6, -0.5]),
    ],
)
def test_a_packed_element_holds_four_numbers_the_first_in_the_lowest_bits(name: str, word: int, lanes: list[float]) -> None:
    packed = np.array([[word]], D[name].numpy)
    assert dtypes.unpack(packed, D[name]).tolist() == [[lanes]]
    again = dtypes.pack(f32(*lanes).reshape(1, 1, 4), D[name])
    assert (again.dtype, again.tolist()) == (D[name].numpy, [[word]])


@pytest.mark.parametrize("name", ["float8_e4m3fn_x4", "float8_e5m2_x4", "float4_e2m1fn_x4"])
def test_bits_alone_convert_to_a_packed_type(name: str) -> None:
    bits = np.arange(4, dtype=D[name].numpy)
    copy = dtypes.cast(bits, D[name])
    assert copy.tolist() == [0, 1, 2, 3]
    assert copy is not bits
    with pytest.raises(ProgramError, match=f"a cast of float32 to {name}; its bits as {bits.dtype.name}: nothing converts to it"):
        dtypes.cast(f32(1), D[name])


def test_a_scale_is_a_power_of_two_from_its_exponent() -> None:
    scales = np.array([0, 127, 130, 254], np.uint8).view(D["float8_e8m0fnu"].numpy)
    assert scales.astype(np.float64).tolist() == [2.0**-127, 1, 8, 2.0**127]
    assert dtypes.cast(f32(0.25, 1, 8), D["float8_e8m0fnu"]).view(np.uint8).tolist() == [125, 127, 130]
