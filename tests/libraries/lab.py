"""One random program: operands on random tiles, half of them views, and what the results are.

A test of a library function puts arrays, calls the function, says what it expects, and runs. What
a view leaves out of its variable must hold the same values after the run, so that a function that
writes beside its target is found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from poplar_py.poplar import Engine, Graph, Target, Tensor, concat, program
from poplar_py.types import DType, dtype_of, f16
from tests.poplin.mappings import scatter_mapping

__all__ = ["TILES", "Array", "Case", "Lab"]

Array = npt.NDArray[Any]
TILES = 16
TIMEOUT = 60.0


class Lab:
    """A graph of 16 tiles with its program, the arrays it is given and the checks of the results.

    ``seed`` fixes shapes, mappings, views and values; odd seeds run with faithful exchange.
    ``dtype`` (f32 or f16) is the type of `values` unless a call says otherwise.
    """

    def __init__(self, dtype: DType, seed: int = 0, views: bool = True) -> None:
        self.rng = np.random.default_rng([seed, dtype.size])
        self.dtype = dtype
        self.graph = Graph(Target.ipu("gc200", 1, TILES))
        self.prog = program.Sequence()
        self._faithful = bool(seed % 2)
        self._views = views
        self._given: list[tuple[Tensor, Array]] = []
        self._checks: list[tuple[Tensor, Callable[[Array], None]]] = []

    # ------------------------------------------------------------------ chance
    def shape(self, low: int = 1, high: int = 3, limit: int = 12) -> tuple[int, ...]:
        """A random rank in [low, high], each dim in [1, limit]."""
        rank = int(self.rng.integers(low, high + 1))
        return tuple(self.rng.integers(1, limit + 1, rank).tolist())

    def odd_shape(self, low: int = 0, high: int = 4) -> tuple[int, ...]:
        """As `shape`, but a dim in four is 1 and one shape in ten has a dim of 0."""
        dims = [1 if self.pick(0, 3) == 0 else n for n in self.shape(low, high, 9)]
        if dims and self.pick(0, 9) == 0:
            dims[self.pick(0, len(dims) - 1)] = 0
        return tuple(dims)

    def pick(self, low: int, high: int) -> int:
        """A whole number in [low, high]."""
        return int(self.rng.integers(low, high + 1))

    def chance(self) -> bool:
        return bool(self.rng.integers(2))

    def values(
        self,
        shape: Sequence[int],
        low: float = -2.0,
        high: float = 2.0,
        dtype: DType | None = None,
    ) -> Array:
        """Random numbers in [low, high), of integer types whole ones in [low, high]."""
        dtype = dtype or self.dtype
        if dtype.kind == "b":
            return self.rng.random(tuple(shape)) < 0.5
        if dtype.is_float:
            return np.asarray(self.rng.uniform(low, high, tuple(shape))).astype(dtype.numpy)
        return self.rng.integers(int(low), int(high) + 1, tuple(shape)).astype(dtype.numpy)

    # ------------------------------------------------------------------ operands
    def put(self, array: Array, like: Tensor | None = None) -> Tensor:
        """A tensor that holds the array before the run: `like`, a variable on random intervals
        of random tiles, or a view of one."""
        array = np.asarray(array)
        if like is not None:
            assert like.shape == array.shape
            return self._hold(like, array)
        return self._view(array, self.pick(0, 2) if self._views else 0)

    def variable(self, dtype: DType, shape: Sequence[int]) -> Tensor:
        """A variable on random intervals of random tiles."""
        size = int(np.prod(tuple(shape), dtype=np.int64))
        mapping = scatter_mapping(self.rng, size, TILES) if size else None
        return self.graph.add_variable(dtype, tuple(shape), mapping=mapping)

    def _hold(self, tensor: Tensor, array: Array) -> Tensor:
        if tensor.numel:
            self._given.append((tensor, np.ascontiguousarray(array)))
        return tensor

    def _view(self, array: Array, depth: int) -> Tensor:
        if depth == 0 or array.ndim == 0:
            return self._hold(self.variable(dtype_of(array), array.shape), array)
        make = (self._turned, self._reversed, self._cut, self._strided, self._joined, self._flat)
        return make[self.pick(0, len(make) - 1)](array, depth - 1)

    def _turned(self, array: Array, depth: int) -> Tensor:
        order = self.rng.permutation(array.ndim)
        back = np.argsort(order).tolist()
        return self._view(array.transpose(order), depth).dim_shuffle(back)

    def _reversed(self, array: Array, depth: int) -> Tensor:
        axis = self.pick(0, array.ndim - 1)
        return self._view(np.flip(array, axis), depth).reverse(axis)

    def _cut(self, array: Array, depth: int) -> Tensor:
        """A slice, whose neighbours must not change."""
        axis = self.pick(0, array.ndim - 1)
        before, after = self.pick(0, 2), self.pick(0, 2)
        n = array.shape[axis]
        wide = self._around(array, axis, before, n + before + after)
        held = self._view(wide, depth)
        for low, high in ((0, before), (before + n, before + n + after)):
            if high > low:
                self._still(held.slice(low, high, axis), wide.take(range(low, high), axis))
        return held.slice(before, before + n, axis)

    def _strided(self, array: Array, depth: int) -> Tensor:
        """Every second element along an axis; the ones between must not change."""
        axis = self.pick(0, array.ndim - 1)
        n = array.shape[axis]
        between = self.values(array.shape, 0, 2, dtype_of(array))
        wide = np.stack([array, between], axis + 1).reshape(
            (*array.shape[:axis], 2 * n, *array.shape[axis + 1 :])
        )
        pairs = self._view(wide, depth)
        split = pairs.reshape((*array.shape[:axis], n, 2, *array.shape[axis + 1 :]))
        self._still(split.index(1, axis + 1), between)
        return pairs.sub_sample(2, axis) if n else split.index(0, axis + 1)

    def _around(self, array: Array, axis: int, at: int, size: int) -> Array:
        """Random values with the array at `at` along the axis, of which there are `size`."""
        shape = (*array.shape[:axis], size, *array.shape[axis + 1 :])
        out = self.values(shape, 0, 2, dtype_of(array))
        here = (*(slice(None),) * axis, slice(at, at + array.shape[axis]))
        out[here] = array
        return out

    def _joined(self, array: Array, depth: int) -> Tensor:
        axis = self.pick(0, array.ndim - 1)
        cut = self.pick(0, array.shape[axis])
        if cut in (0, array.shape[axis]):
            return self._view(array, depth)
        low, high = np.split(array, [cut], axis)
        return concat([self._view(low, depth), self._view(high, depth)], axis)

    def _flat(self, array: Array, depth: int) -> Tensor:
        return self._view(array.reshape(-1), depth).reshape(array.shape)

    # ------------------------------------------------------------------ results
    def expect(
        self, tensor: Tensor, array: Any, tolerance: float | None = None, exact: bool = False
    ) -> None:
        """After the run the tensor has the array's shape and values.

        Integers and bools must be equal, as floats with `exact` (after rounding to the tensor's
        type). Else NaNs and infinities must be in the same places, and the rest may differ by
        `tolerance` (f32 1e-5, f16 4e-3) times 1 + the largest magnitude expected.
        """
        want = np.asarray(array)
        assert tensor.shape == want.shape, f"shape {tensor.shape}, expected {want.shape}"
        if tolerance is None:
            tolerance = 4e-3 if tensor.dtype is f16 else 1e-5
        whole = exact or not tensor.dtype.is_float
        self.check(tensor, lambda got: _equal(got, want) if whole else _near(got, want, tolerance))

    def check(self, tensor: Tensor, predicate: Callable[[Array], None]) -> None:
        """After the run the predicate gets the tensor's values, in its shape; it asserts."""
        self._checks.append((tensor, predicate))

    def _still(self, tensor: Tensor, array: Array) -> None:
        self.expect(tensor, array, exact=True)

    def run(self) -> None:
        """Compile, write the operands, run once, check everything."""
        assert self._checks, "the case expects nothing"
        for i, (tensor, _) in enumerate(self._given):
            self.graph.create_host_write(f"in{i}", tensor)
        for i, (tensor, _) in enumerate(self._checks):
            if tensor.numel:
                self.graph.create_host_read(f"out{i}", tensor)
        engine = Engine(self.graph, self.prog, threads=1, faithful_exchange=self._faithful)
        for i, (_, array) in enumerate(self._given):
            engine.write_tensor(f"in{i}", array)
        engine.run(timeout=TIMEOUT)
        got = [self._read(engine, i) for i in range(len(self._checks))]
        engine.close()
        for (_, predicate), values in zip(self._checks, got, strict=True):
            predicate(values)

    def _read(self, engine: Engine, i: int) -> Array:
        tensor = self._checks[i][0]
        if not tensor.numel:
            return np.zeros(tensor.shape, tensor.dtype.numpy)
        return engine.read_tensor(f"out{i}").reshape(tensor.shape)


Case = Callable[[Lab], None]


def _equal(got: Array, want: Array) -> None:
    np.testing.assert_array_equal(got, want.astype(got.dtype))


def _near(got: Array, want: Array, tolerance: float) -> None:
    with np.errstate(over="ignore"):  # what overflows the type is infinite on the tiles too
        want = np.where(np.isinf(want.astype(got.dtype)), want.astype(got.dtype), want)
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.abs(b[np.isfinite(b)])
    room = tolerance * (1 + float(finite.max(initial=0.0)))
    np.testing.assert_allclose(a, b, rtol=0, atol=room)
