"""Alignment of two sequences: a longest common subsequence, whatever is split, and the same from both sides."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nc_sim.analysis import alignment
from nc_sim.analysis.alignment import aligned

few = st.lists(st.sampled_from("abcd"), max_size=16)


def longest(a: list[str], b: list[str]) -> int:
    """The length, by the recurrence of the textbooks."""
    above = [0] * (len(b) + 1)
    for x in a:
        row = [0]
        for j, y in enumerate(b):
            row.append(above[j] + 1 if x == y else max(above[j + 1], row[j]))
        above = row
    return above[-1]


@given(few, few, st.sampled_from([1, 9, 40, 1 << 28]))
def test_pairs_are_equal_rise_on_both_sides_and_are_as_many_as_can_be(a: list[str], b: list[str], kept: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(alignment, "KEPT_BITS", kept)  # small: halves are split, as of sequences that are too long
        pairs = aligned(a, b)
    assert all(a[i] == b[j] for i, j in pairs)
    assert all(i < p and j < q for (i, j), (p, q) in itertools.pairwise(pairs))
    assert len(pairs) == longest(a, b)


@given(few, few)
def test_the_pairs_are_the_same_from_both_sides(a: list[str], b: list[str]) -> None:
    assert aligned(b, a) == [(j, i) for i, j in aligned(a, b)]


def test_what_was_put_in_or_left_out_is_alone() -> None:
    assert aligned("abcde", "abXcde") == [(0, 0), (1, 1), (2, 3), (3, 4), (4, 5)]
    assert aligned("abcabcabc", "abab") == [(0, 0), (1, 1), (6, 2), (7, 3)]  # what one side lacks lies together
    assert aligned("abc", "xyz") == aligned("", "abc") == []


def test_more_kinds_of_entries_than_places_are_kept_for_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = [k * 7 % 50 for k in range(120)], [k * 3 % 50 for k in range(110)]
    before = aligned(a, b)
    monkeypatch.setattr(alignment, "MASKS", 3)
    assert aligned(a, b) == before
    assert len(before) > 20


def test_halves_are_split_where_both_together_have_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment, "KEPT_BITS", 1)
    assert aligned("bacde", "cdeba") == [(2, 0), (3, 1), (4, 2)]  # the first half alone would take all of the other side


def test_a_step_left_out_of_every_round_of_a_long_loop_leaves_all_others_together() -> None:
    rounds = 8_000
    pairs = aligned("abc" * rounds, "ac" * rounds)
    assert len(pairs) == 2 * rounds
    assert pairs[:4] == [(0, 0), (2, 1), (3, 2), (5, 3)]
