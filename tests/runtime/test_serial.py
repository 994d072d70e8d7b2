"""Which barriers go: only those between stretches of thread 0's own."""

from __future__ import annotations

import numpy as np
import pytest

from poplar_py.codegen.program_words import WORDS, Op
from poplar_py.runtime.serial import drop, gain_ns, needless_barriers

SMALL, LARGE = 0, 1
NS = np.array([100.0, 50_000.0])


def code_of(*lines: tuple[int, ...]) -> np.ndarray:
    out = np.zeros((len(lines), WORDS), np.int64)
    for row, line in zip(out, lines, strict=True):
        row[: len(line)] = line
    return out


def kept(code: np.ndarray, entries: dict[str, int]) -> list[int]:
    gone = needless_barriers(code, [], entries, NS)
    return [i for i in range(len(code)) if code[i, 0] == Op.BARRIER and not gone[i]]


def test_barriers_between_small_steps_go() -> None:
    small, large, barrier = (Op.CALL, SMALL), (Op.CALL, LARGE), (Op.BARRIER,)
    code = code_of(
        large, barrier, small, barrier, (Op.STEP, 0), small, barrier, small, barrier, large,
        barrier,
        (Op.HALT,),
    )  # fmt: skip
    assert kept(code, {"main": 0}) == [1, 8, 10]
    out, _, entries = drop(code, [], {"main": 0}, needless_barriers(code, [], {"main": 0}, NS))
    assert len(out) == len(code) - 2
    assert entries == {"main": 0}


def test_barriers_at_joins_and_branches_stay() -> None:
    small, barrier = (Op.CALL, SMALL), (Op.BARRIER,)
    code = code_of(
        small, barrier, (Op.SET, 0, 3), small, barrier, small, barrier, (Op.LOOP, 0, 3), small,
        barrier, (Op.BRANCH, 0, 4, 12), barrier, small, barrier, (Op.HALT,),
    )  # fmt: skip
    # the loop's first stretch joins from two sides, its last ends in the branch back
    assert kept(code, {"main": 0}) == [1, 4, 6, 9, 11, 13]


def test_a_long_stretch_keeps_some_barriers() -> None:
    lines: list[tuple[int, ...]] = []
    for _ in range(200):
        lines += [(Op.CALL, SMALL), (Op.BARRIER,)]
    code = code_of(*lines, (Op.HALT,))
    left = kept(code, {"main": 0})
    assert 2 < len(left) < 10


def test_what_a_second_thread_saves() -> None:
    """Rounds of a counted loop count; steps that one thread takes anyway save nothing."""
    small, large, barrier, halt = (Op.CALL, SMALL), (Op.CALL, LARGE), (Op.BARRIER,), (Op.HALT,)
    once = gain_ns(code_of(large, barrier, halt), NS)
    assert 0 < once < NS[LARGE] / 2
    looped = code_of((Op.SET, 0, 10), large, barrier, (Op.LOOP, 0, 1), halt)
    assert gain_ns(looped, NS) == pytest.approx(10 * once)
    assert gain_ns(code_of(small, barrier, small, barrier, halt), NS) < 0
    assert gain_ns(code_of(large, barrier, large, barrier, halt), NS) == pytest.approx(2 * once)


def test_targets_are_renumbered() -> None:
    small, barrier = (Op.CALL, SMALL), (Op.BARRIER,)
    code = code_of(
        barrier, small, barrier, small, barrier, small, barrier, (Op.JUMP, 0), (Op.HALT,)
    )  # fmt: skip
    gone = needless_barriers(code, [], {"main": 8}, NS)
    out, _, entries = drop(code, [], {"main": 8}, gone)
    assert entries["main"] == len(out) - 1
    assert out[-2].tolist()[:2] == [Op.JUMP, 0]
