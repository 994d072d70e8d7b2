"""poprand: statistics of what is drawn; the same seed gives the same numbers on any tiles.

Host threads and replicas are varied in tests/poprand/test_poprand.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats

from poplar_py import poprand
from poplar_py.poplar import Tensor
from poplar_py.types import f16, i32, u32
from tests.libraries.lab import Array, Case, Lab

__all__ = ["CASES"]

Draw = Callable[[Lab, Any, Any], Tensor]
"""A tensor of a seed and a shape or reference."""


def _shape(lab: Lab) -> tuple[int, ...]:
    """Some 3,000 elements in up to three dims."""
    first = [lab.pick(1, 12) for _ in range(lab.pick(0, 2))]
    return (*first, -(-3000 // int(np.prod(first, dtype=int))))


def _reference(lab: Lab, shape: tuple[int, ...]) -> Any:
    """The shape, or a tensor on random tiles, half of them views."""
    return shape if lab.chance() else lab.put(lab.values(shape))


def _seed(lab: Lab) -> tuple[int, Any]:
    """A number, and the same as a number or a tensor."""
    number = int(lab.rng.integers(1 << 63))
    if lab.chance():
        return number, number
    words = np.array([number & 0xFFFFFFFF, number >> 32], np.uint32)
    return number, lab.put(words)


def _near_mean(x: Array, mean: float, deviation: float) -> None:
    """Within five standard errors: one draw in two million is further out."""
    wide = x.astype(np.float64)
    room = 5 * deviation / np.sqrt(x.size) + 1e-3
    assert abs(wide.mean() - mean) < room, (wide.mean(), mean)
    assert abs(wide.std() - deviation) < 2 * room + 1e-9, (wide.std(), deviation)


def _equal_to(first: list[Array]) -> Callable[[Array], None]:
    return lambda got: np.testing.assert_array_equal(got, first[0])


def _drawn(draw: Draw, statistics: Callable[[Array], None]) -> Case:
    """Twice with one seed on different tiles: the same; with another seed: not."""

    def case(lab: Lab) -> None:
        shape, (number, seed) = _shape(lab), _seed(lab)
        held: list[Array] = []

        def first(got: Array) -> None:
            held.append(got)
            statistics(got)

        def other(got: Array) -> None:
            statistics(got)
            assert (got != held[0]).mean() > 0.1

        out = draw(lab, seed, _reference(lab, shape))
        assert out.shape == shape
        lab.check(out, first)
        lab.check(draw(lab, number, _reference(lab, shape)), _equal_to(held))
        lab.check(draw(lab, number + 1, _reference(lab, shape)), other)

    return case


# ---------------------------------------------------------------------- distributions
def _uniform(lab: Lab, seed: Any, like: Any) -> Tensor:
    return poprand.uniform(lab.graph, seed, like, -1.0, 3.0, lab.prog, dtype=lab.dtype)


def _is_uniform(x: Array) -> None:
    assert x.min() >= -1
    assert x.max() <= 3
    _near_mean(x, 1, 4 / np.sqrt(12))


def _uniform_integers(lab: Lab, seed: Any, like: Any) -> Tensor:
    return poprand.uniform(lab.graph, seed, like, -3, 5, lab.prog, dtype=i32)


def _is_uniform_integers(x: Array) -> None:
    assert set(np.unique(x)) == set(range(-3, 6))
    _near_mean(x, 1, np.sqrt((81 - 1) / 12))


def _both(*cases: Case) -> Case:
    def case(lab: Lab) -> None:
        for each in cases:
            each(lab)

    return case


def _normal(lab: Lab, seed: Any, like: Any) -> Tensor:
    return poprand.normal(lab.graph, seed, like, 0.5, 2.0, lab.prog, dtype=lab.dtype, modifier=7)


def _is_normal(x: Array) -> None:
    _near_mean(x, 0.5, 2)
    assert stats.kstest(x.astype(np.float64).ravel(), "norm", (0.5, 2)).pvalue > 1e-6


def _truncated(lab: Lab, seed: Any, like: Any) -> Tensor:
    return poprand.truncated_normal(lab.graph, seed, like, 0.5, 2.0, 1.5, lab.prog, dtype=lab.dtype)


def _is_truncated(x: Array) -> None:
    assert np.abs(x.astype(np.float64) - 0.5).max() <= 3
    _near_mean(x, 0.5, 2 * stats.truncnorm(-1.5, 1.5).std())


def _log_uniform(lab: Lab, seed: Any, like: Any) -> Tensor:
    return poprand.log_uniform(lab.graph, seed, like, 0.5, 8.0, lab.prog, dtype=lab.dtype)


def _is_log_uniform(x: Array) -> None:
    assert x.min() >= 0.5
    assert x.max() <= 8
    _near_mean(np.log2(x.astype(np.float64)), 1, 4 / np.sqrt(12))


def _bernoulli(lab: Lab, seed: Any, like: Any) -> Tensor:
    dtype = i32 if lab.dtype is f16 else lab.dtype
    return poprand.bernoulli(lab.graph, seed, like, 0.3, lab.prog, dtype=dtype)


def _is_bernoulli(x: Array) -> None:
    assert set(np.unique(x)) == {0, 1}
    _near_mean(x, 0.3, np.sqrt(0.3 * 0.7))


# ---------------------------------------------------------------------- dropout
def _dropout(lab: Lab) -> None:
    """The same seed drops the same elements of another tensor on other tiles."""
    shape, (number, seed) = _shape(lab), _seed(lab)
    x, y = (lab.values(shape, 0.5, 2) for _ in range(2))
    first = poprand.dropout(lab.graph, seed, lab.put(x), 0.75, 2.0, lab.prog)
    second = poprand.dropout(
        lab.graph, number, lab.put(y), 0.75, 2.0, lab.prog, reference=lab.put(x)
    )
    masks: list[Array] = []

    def kept(got: Array) -> None:
        masks.append(got != 0)
        np.testing.assert_array_equal(got, np.where(masks[0], 2 * x, 0))
        _near_mean(masks[0], 0.75, np.sqrt(0.75 * 0.25))

    lab.check(first, kept)
    lab.check(second, lambda got: np.testing.assert_array_equal(got, 2 * y * masks[0]))
    for keep, want in ((0.0, 0 * x), (1.0, 2 * x)):
        out = poprand.dropout(lab.graph, seed, lab.put(x), keep, 2.0, lab.prog)
        lab.expect(out, want, exact=True)


def _shaped_dropout(lab: Lab) -> None:
    """One decision for every row."""
    rows, columns = lab.pick(200, 400), lab.pick(1, 9)
    x = lab.values((rows, columns), 0.5, 2)
    _, seed = _seed(lab)
    out = poprand.shaped_dropout(lab.graph, seed, lab.put(x), (rows, 1), 0.5, 4.0, lab.prog)

    def whole_rows(got: Array) -> None:
        kept = got[:, :1] != 0
        np.testing.assert_array_equal(got, np.where(kept, 4 * x, 0))
        _near_mean(kept, 0.5, 0.5)

    lab.check(out, whole_rows)


# ---------------------------------------------------------------------- generators
def _seed_tensor(lab: Lab) -> None:
    number = int(lab.rng.integers(1 << 63))
    want = np.array([number % (1 << 32), number >> 32], np.uint32)
    lab.expect(poprand.seed_tensor(lab.graph, number), want)


def _hw_seeds(lab: Lab) -> None:
    """A saved state gives the same numbers again, on other tiles."""
    shape = _shape(lab)
    _uniform(lab, None, shape)
    saved = poprand.get_hw_seeds(lab.graph, lab.prog)
    assert (saved.shape, saved.dtype) == ((2,), u32)
    held: list[Array] = []
    first, second = (_uniform(lab, None, _reference(lab, shape)) for _ in range(2))
    poprand.set_hw_seeds(lab.graph, saved, lab.prog)
    again = _uniform(lab, None, _reference(lab, shape))
    lab.check(first, held.append)
    lab.check(again, _equal_to(held))
    lab.check(second, lambda got: np.testing.assert_array_less(0.5, (got != held[0]).mean()))


def _set_seed(lab: Lab) -> None:
    """The same master seed and modifier give the same numbers, another modifier others."""
    shape, held = _shape(lab), list[Array]()
    master = lab.put(lab.values((2,), 0, 1 << 31, u32))
    outs: list[Tensor] = []
    for modifier in (3, 3, 4):
        poprand.set_seed(lab.graph, master, modifier, lab.prog)
        outs.append(_uniform(lab, None, _reference(lab, shape)))
    words = lab.put(np.zeros(2, np.uint32))
    poprand.set_seed(lab.graph, master, 3, lab.prog, out=words)
    outs.append(_uniform(lab, words, _reference(lab, shape)))
    lab.check(outs[0], held.append)
    lab.check(outs[1], _equal_to(held))
    lab.check(outs[2], lambda got: np.testing.assert_array_less(0.5, (got != held[0]).mean()))
    lab.check(outs[3], _equal_to(held))


CASES: dict[str, Case] = {
    "uniform": _both(
        _drawn(_uniform, _is_uniform), _drawn(_uniform_integers, _is_uniform_integers)
    ),
    "normal": _drawn(_normal, _is_normal),
    "truncated_normal": _drawn(_truncated, _is_truncated),
    "log_uniform": _drawn(_log_uniform, _is_log_uniform),
    "bernoulli": _drawn(_bernoulli, _is_bernoulli),
    "dropout": _dropout,
    "shaped_dropout": _shaped_dropout,
    "seed_tensor": _seed_tensor,
    "get_hw_seeds": _hw_seeds,
    "set_hw_seeds": _hw_seeds,
    "set_seed": _set_seed,
}
