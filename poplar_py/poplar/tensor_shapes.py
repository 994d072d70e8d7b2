"""The same elements under another shape, in another order of dims, or several times over."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Self

from poplar_py.poplar.errors import TensorIndexError, TensorTypeError
from poplar_py.poplar.faults import a_text, fail, whole_number, whole_numbers
from poplar_py.poplar.tensor_parts import TensorParts

__all__ = ["TensorShapes"]


class TensorShapes(TensorParts):
    """The operations that keep every element."""

    __slots__ = ()

    # ------------------------------------------------------------------ shapes
    def reshape(self, shape: Sequence[int]) -> Self:
        """The same elements under another shape; one size may be -1."""
        new = whole_numbers(shape, "the sizes of a shape")
        if min(new, default=0) < 0:
            new = self._infer(new)
        if prod(new) != prod(self.view.shape):
            fail(
                TensorIndexError,
                f"reshape of {list(self.view.shape)} to {list(new)}: "
                f"{self.numel} and {prod(new)} elements",
            )
        return self._make(self.view.reshape(new))

    def _infer(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        known = prod(n for n in shape if n >= 0)
        if shape.count(-1) != 1 or min(shape) < -1 or known == 0 or self.numel % known:
            fail(TensorIndexError, f"reshape of {list(self.shape)} to {list(shape)}")
        return tuple(self.numel // known if n == -1 else n for n in shape)

    def reshape_partial(self, begin: int, end: int, shape: Sequence[int]) -> Self:
        """Dims ``begin`` to ``end`` replaced by ``shape``."""
        old = self.view.shape
        begin, end = whole_numbers((begin, end), "the dims of a partial reshape")
        shape = whole_numbers(shape, "the sizes of a shape")
        if not 0 <= begin <= end <= len(old):
            fail(TensorIndexError, f"dims {begin} to {end} of a tensor of rank {len(old)}")
        return self.reshape((*old[:begin], *shape, *old[end:]))

    def flatten(self, begin: int = 0, end: int | None = None) -> Self:
        """All dims, or dims ``begin`` to ``end``, as one."""
        shape = self.view.shape
        if begin == 0 and end is None:
            if len(shape) == 1:
                return self
            return self._make(self.view.reshape((prod(shape),)))
        stop = len(shape) if end is None else end
        begin, stop = whole_numbers((begin, stop), "the dims to flatten")
        if not 0 <= begin <= stop <= len(shape):
            fail(TensorIndexError, f"dims {begin} to {stop} of a tensor of rank {len(shape)}")
        return self.reshape((*shape[:begin], prod(shape[begin:stop]), *shape[stop:]))

    def expand(self, dims: Sequence[int]) -> Self:
        """A dim of size 1 before each listed dim (of this tensor)."""
        shape: list[int] = []
        rank, at = self.rank, whole_numbers(dims, "the dims to expand at")
        if any(not 0 <= d <= rank for d in at):
            fail(TensorIndexError, f"expand at {list(at)} of a tensor of rank {rank}")
        for d in range(rank + 1):
            shape += [1] * at.count(d)
            if d < rank:
                shape.append(self.shape[d])
        return self.reshape(shape)

    def squeeze(self, dims: Sequence[int] | None = None) -> Self:
        """Without the listed dims, which must be of size 1; None: all of size 1."""
        if dims is None:
            return self.reshape([n for n in self.shape if n != 1])
        drop = {self._dim(d) for d in whole_numbers(dims, "the dims to squeeze")}
        for d in drop:
            if self.shape[d] != 1:
                fail(TensorIndexError, f"squeeze of dim {d}, which has {self.shape[d]} elements")
        return self.reshape([n for d, n in enumerate(self.shape) if d not in drop])

    # ------------------------------------------------------------------ order
    def dim_shuffle(self, perm: Sequence[int]) -> Self:
        """Result dim i is this tensor's dim ``perm[i]``."""
        order = whole_numbers(perm, "the dims of a shuffle")
        if sorted(order) != list(range(self.rank)):
            fail(TensorIndexError, f"{list(order)} is no permutation of {self.rank} dims")
        return self._make(self.view.dim_shuffle(order))

    def dim_shuffle_partial(self, source: Sequence[int], destination: Sequence[int]) -> Self:
        """Move each ``source[i]`` to place ``destination[i]``; the other dims keep their order."""
        src = [self._dim(d) for d in whole_numbers(source, "the dims to move")]
        dst = [self._dim(d) for d in whole_numbers(destination, "the places of dims")]
        if len(src) != len(dst) or len(set(src)) != len(src) or len(set(dst)) != len(dst):
            fail(TensorIndexError, f"dims {src} moved to places {dst}")
        rest = iter([d for d in range(self.rank) if d not in src])
        place = dict(zip(dst, src, strict=True))
        return self.dim_shuffle([place[i] if i in place else next(rest) for i in range(self.rank)])

    def dim_roll(self, source: int, destination: int = 0) -> Self:
        """Dim ``source`` moved to place ``destination``."""
        return self.dim_shuffle_partial([source], [destination])

    def transpose(self) -> Self:
        """The dims in reverse order."""
        return self.dim_shuffle(range(self.rank)[::-1])

    # ------------------------------------------------------------------ repeats
    def broadcast(self, times: int, dim: int = 0) -> Self:
        """A dim repeated as a whole; the copies alias."""
        d = self._dim(dim)
        times = whole_number(times, "a number of repeats")
        if times < 0:
            fail(TensorIndexError, f"broadcast {times} times")
        if times == 0:
            return self.slice(0, 0, d)
        return self if times == 1 else self._make(self.view.broadcast(times, d))

    def upsample(self, times: int, dim: int = 0, method: str = "repeat") -> Self:
        """Every element of a dim repeated in place; the copies alias. The only method is repeat."""
        d = self._dim(dim)
        if a_text(method, "an upsample method").lower() != "repeat":
            fail(TensorTypeError, f"upsample method {method!r}", "the method is 'repeat'")
        times = whole_number(times, "a number of repeats")
        if times < 0:
            fail(TensorIndexError, f"upsample {times} times")
        if times == 0:
            return self.slice(0, 0, d)
        return self if times == 1 else self._make(self.view.upsample(times, d))

    def broadcast_to(self, shape: Sequence[int]) -> Self:
        """NumPy's broadcast: leading dims are added, dims of size 1 repeated."""
        new = whole_numbers(shape, "the sizes of a shape")
        out = self
        if len(new) > self.rank:
            out = self.reshape((*([1] * (len(new) - self.rank)), *self.shape))
        for d, (have, want) in enumerate(zip(out.shape, new, strict=False)):
            if have != want and have == 1:
                out = out.broadcast(want, d)
        if out.shape != new:
            fail(TensorIndexError, f"{list(self.shape)} does not broadcast to {list(new)}")
        return out
