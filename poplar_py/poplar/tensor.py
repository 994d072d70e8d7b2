"""Tensor: a shaped view of variables' elements. No data on the host; every operation is a view."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import numpy as np
import numpy.typing as npt

from poplar_py.poplar.arrays import I8, Ints, as_ints, coalesce, unique_sorted
from poplar_py.poplar.errors import GraphError, TensorIndexError, TensorTypeError
from poplar_py.poplar.mapping import Interval
from poplar_py.poplar.views import Affine, Cat, View, concat_views
from poplar_py.poplar.where import caller, source_text
from poplar_py.types import DType

if TYPE_CHECKING:
    from poplar_py.poplar.graph import Graph
    from poplar_py.poplar.variable import Variable

Index = int | slice


def fail(kind: type[GraphError], message: str, remedy: str = "") -> NoReturn:
    """Raise an error at the user's line."""
    loc = caller()
    raise kind(message, loc, remedy, source_text(loc))


def whole_number(value: Any, what: str) -> int:
    """An index or a size as an int: floats are not cut. Raises TensorIndexError."""
    try:
        return operator.index(value)
    except TypeError:
        fail(TensorIndexError, f"{what} is {value!r}", "give a whole number")


class Tensor:
    """Elements of variables under a shape. Immutable; cheap to make and to pass around.

    ``dtype`` is the element type, ``shape`` a tuple of ints, ``view`` the stored form (libraries
    use ``runs()`` and ``Edges``, never the view).
    """

    __slots__ = ("dtype", "graph", "view")

    def __init__(self, graph: Graph, view: View, dtype: DType) -> None:
        self.graph = graph
        self.view = view
        self.dtype = dtype

    # ------------------------------------------------------------------ size and type
    @property
    def shape(self) -> tuple[int, ...]:
        return self.view.shape

    @property
    def rank(self) -> int:
        return len(self.view.shape)

    @property
    def numel(self) -> int:
        return prod(self.view.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements the view lists (repeats counted)."""
        return self.numel * self.dtype.size

    def element_type(self) -> DType:
        return self.dtype

    def dim(self, index: int) -> int:
        """Size of one dim."""
        return self.view.shape[self._dim(index)]

    def dim_size(self, index: int) -> int:
        return self.dim(index)

    def num_elements(self) -> int:
        return self.numel

    def valid(self) -> bool:
        """A tensor that exists is valid; kept for programs written for Poplar."""
        return True

    def has_metadata(self) -> bool:
        """Whether the type carries scaling metadata (quarter): never here."""
        return False

    def __len__(self) -> int:
        if not self.view.shape:
            fail(TensorIndexError, "a tensor of rank 0 has no length")
        return self.view.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self.index(i) for i in range(len(self)))

    def __repr__(self) -> str:
        return f"<tensor {self.dtype.name}{list(self.view.shape)}>"

    def __bool__(self) -> bool:
        fail(
            TensorTypeError,
            "a tensor has no truth value while the graph is built",
            "use program.If for a decision on the device",
        )

    # ------------------------------------------------------------------ helpers
    def _dim(self, dim: int) -> int:
        rank = len(self.view.shape)
        if 0 <= dim < rank:
            return dim
        if -rank <= dim < 0:
            return dim + rank
        fail(TensorIndexError, f"dim {dim} of a tensor of rank {rank}")

    def _make(self, view: View) -> Tensor:
        return Tensor(self.graph, view, self.dtype)

    # ------------------------------------------------------------------ parts
    def slice(
        self,
        begin: int | Sequence[int] | Interval,
        end: int | Sequence[int] | None = None,
        dim: int = 0,
    ) -> Tensor:
        """Elements ``begin`` to ``end`` of a dim.

        Also ``slice(Interval, dim=d)``, and ``slice([begins], [ends])`` for the first dims.
        """
        if not isinstance(begin, int) or not isinstance(end, int):
            return self._slice_any(begin, end, dim)
        view = self.view
        if type(view) is Affine and len(view.dims) == 1 and dim == 0:  # the common case, inline
            digits = view.dims[0]
            if len(digits) == 1 and 0 <= begin <= end <= digits[0][0]:
                stride, n = digits[0][1], end - begin
                part = Affine(view.offset + begin * stride, (((n, stride),),), (n,))
                return Tensor(self.graph, part, self.dtype)
        if dim < 0:
            dim = self._dim(dim)
        if dim >= len(view.shape) or not 0 <= begin <= end <= view.shape[dim]:
            self._bad_slice(begin, end, dim)
        return Tensor(self.graph, view.slice(begin, end, dim), self.dtype)

    def _slice_any(
        self, begin: int | Sequence[int] | Interval, end: int | Sequence[int] | None, dim: int
    ) -> Tensor:
        if isinstance(begin, Interval) or (isinstance(begin, Sequence) and end is None):
            if len(begin) != 2:
                fail(TensorIndexError, f"an interval of {len(begin)} numbers")
            return self.slice(int(begin[0]), int(begin[1]), dim)
        if isinstance(begin, Sequence) and isinstance(end, Sequence):
            if len(begin) != len(end) or len(begin) > self.rank:
                fail(
                    TensorIndexError,
                    f"{len(begin)} begins and {len(end)} ends on a tensor of rank {self.rank}",
                )
            out = self
            for d, (b, e) in enumerate(zip(begin, end, strict=True)):
                out = out.slice(int(b), int(e), d)
            return out
        if isinstance(begin, Sequence) or isinstance(end, Sequence) or end is None:
            fail(TensorIndexError, f"slice of {begin} to {end}")
        return self.slice(int(begin), int(end), dim)  # NumPy integers

    def _bad_slice(self, begin: int, end: int, dim: int) -> NoReturn:
        self._dim(dim)
        size = self.view.shape[dim]
        fail(
            TensorIndexError,
            f"slice {begin} to {end} of dim {dim}, which has {size} elements",
            "0 <= begin <= end <= size must hold",
        )

    def slices(
        self, parts: Sequence[tuple[int, int] | Interval | int], dim: int = 0
    ) -> list[Tensor]:
        """One slice per interval, or one row per index (the dim stays, of size 1)."""
        out: list[Tensor] = []
        for p in parts:
            b, e = (p, p + 1) if isinstance(p, int) else (p[0], p[1])
            out.append(self.slice(b, e, dim))
        return out

    def index(self, i: int, dim: int = 0) -> Tensor:
        """Element ``i`` of a dim; the dim goes."""
        view = self.view
        shape = view.shape
        if dim < 0 or dim >= len(shape):
            dim = self._dim(dim)
        if not 0 <= i < shape[dim]:
            if -shape[dim] <= i < 0:
                i += shape[dim]
            else:
                fail(TensorIndexError, f"index {i} of dim {dim}, which has {shape[dim]} elements")
        if type(view) is Affine and len(view.dims[dim]) == 1:
            stride = view.dims[dim][0][1]
            dims = view.dims
            view = Affine(
                view.offset + i * stride,
                dims[:dim] + dims[dim + 1 :],
                shape[:dim] + shape[dim + 1 :],
            )
            return Tensor(self.graph, view, self.dtype)
        rest = (*shape[:dim], *shape[dim + 1 :])
        return self._make(view.slice(i, i + 1, dim).reshape(rest))

    def __getitem__(self, key: Index | tuple[Index, ...]) -> Tensor:
        """``t[i]``, ``t[a:b]``, ``t[i, a:b]``: an index drops its dim, a range keeps it."""
        if isinstance(key, int):
            return self.index(key)
        keys = key if isinstance(key, tuple) else (key,)
        if len(keys) > self.rank:
            fail(TensorIndexError, f"{len(keys)} indices on a tensor of rank {self.rank}")
        out, dim = self, 0
        for k in keys:
            if not isinstance(k, slice):
                out = out.index(whole_number(k, "an index"), dim)
                continue
            out = out._range(k, dim)
            dim += 1
        return out

    def _range(self, key: slice, dim: int) -> Tensor:
        try:
            begin, end, step = key.indices(self.view.shape[dim])
        except (TypeError, ValueError) as error:
            fail(TensorIndexError, f"the range of dim {dim}: {error}")
        if step < 0:
            last = range(begin, end, step)
            if not last:
                return self.slice(0, 0, dim)
            return self.slice(last[-1], begin + 1, dim).reverse(dim).sub_sample(-step, dim)
        part = self.slice(begin, max(begin, end), dim)
        return part if step == 1 else part.sub_sample(step, dim)

    def take(self, index: npt.ArrayLike, dim: int = 0) -> Tensor:
        """The listed elements of a dim, in that order; repeats alias."""
        d = self._dim(dim)
        idx = as_ints(index).ravel()
        if len(idx) == 0:
            return self.slice(0, 0, d)
        if int(idx.min()) < 0 or int(idx.max()) >= self.shape[d]:
            fail(
                TensorIndexError,
                f"indices {int(idx.min())} to {int(idx.max())} of dim {d}, which has "
                f"{self.shape[d]} elements",
            )
        return self._make(self.view.take(idx, d))

    def sub_sample(self, step: int, dim: int = 0) -> Tensor:
        """Elements 0, step, 2 step, ... of a dim."""
        d = self._dim(dim)
        if step < 1:
            fail(TensorIndexError, f"sub_sample with step {step}", "the step is at least 1")
        return self if step == 1 else self._make(self.view.sub_sample(step, d))

    # ------------------------------------------------------------------ shapes
    def reshape(self, shape: Sequence[int]) -> Tensor:
        """The same elements under another shape; one size may be -1."""
        new = tuple([whole_number(n, "a size") for n in shape])
        if min(new, default=0) < 0:
            new = self._infer(new)
        if prod(new) != prod(self.view.shape):
            fail(
                TensorIndexError,
                f"reshape of {list(self.view.shape)} to {list(new)}: "
                f"{self.numel} and {prod(new)} elements",
            )
        return Tensor(self.graph, self.view.reshape(new), self.dtype)

    def _infer(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        known = prod(n for n in shape if n >= 0)
        if shape.count(-1) != 1 or min(shape) < -1 or known == 0 or self.numel % known:
            fail(TensorIndexError, f"reshape of {list(self.shape)} to {list(shape)}")
        return tuple(self.numel // known if n == -1 else n for n in shape)

    def reshape_partial(self, begin: int, end: int, shape: Sequence[int]) -> Tensor:
        """Dims ``begin`` to ``end`` replaced by ``shape``."""
        old = self.view.shape
        if not 0 <= begin <= end <= len(old):
            fail(TensorIndexError, f"dims {begin} to {end} of a tensor of rank {len(old)}")
        return self.reshape((*old[:begin], *shape, *old[end:]))

    def flatten(self, begin: int = 0, end: int | None = None) -> Tensor:
        """All dims, or dims ``begin`` to ``end``, as one."""
        shape = self.view.shape
        if begin == 0 and end is None:
            if len(shape) == 1:
                return self
            return Tensor(self.graph, self.view.reshape((prod(shape),)), self.dtype)
        stop = len(shape) if end is None else end
        if not 0 <= begin <= stop <= len(shape):
            fail(TensorIndexError, f"dims {begin} to {stop} of a tensor of rank {len(shape)}")
        return self.reshape((*shape[:begin], prod(shape[begin:stop]), *shape[stop:]))

    def expand(self, dims: Sequence[int]) -> Tensor:
        """A dim of size 1 before each listed dim (of this tensor)."""
        shape: list[int] = []
        rank = self.rank
        if any(not 0 <= d <= rank for d in dims):
            fail(TensorIndexError, f"expand at {list(dims)} of a tensor of rank {rank}")
        for d in range(rank + 1):
            shape += [1] * list(dims).count(d)
            if d < rank:
                shape.append(self.shape[d])
        return self.reshape(shape)

    def squeeze(self, dims: Sequence[int] | None = None) -> Tensor:
        """Without the listed dims, which must be of size 1; None: all of size 1."""
        if dims is None:
            return self.reshape([n for n in self.shape if n != 1])
        drop = {self._dim(d) for d in dims}
        for d in drop:
            if self.shape[d] != 1:
                fail(TensorIndexError, f"squeeze of dim {d}, which has {self.shape[d]} elements")
        return self.reshape([n for d, n in enumerate(self.shape) if d not in drop])

    # ------------------------------------------------------------------ order
    def dim_shuffle(self, perm: Sequence[int]) -> Tensor:
        """Result dim i is this tensor's dim ``perm[i]``."""
        if sorted(perm) != list(range(self.rank)):
            fail(TensorIndexError, f"{list(perm)} is no permutation of {self.rank} dims")
        return Tensor(self.graph, self.view.dim_shuffle(perm), self.dtype)

    def dim_shuffle_partial(self, source: Sequence[int], destination: Sequence[int]) -> Tensor:
        """Move each ``source[i]`` to place ``destination[i]``; the other dims keep their order."""
        src = [self._dim(d) for d in source]
        dst = [self._dim(d) for d in destination]
        if len(src) != len(dst) or len(set(src)) != len(src) or len(set(dst)) != len(dst):
            fail(TensorIndexError, f"dims {src} moved to places {dst}")
        rest = iter([d for d in range(self.rank) if d not in src])
        place = dict(zip(dst, src, strict=True))
        return self.dim_shuffle([place[i] if i in place else next(rest) for i in range(self.rank)])

    def dim_roll(self, source: int, destination: int = 0) -> Tensor:
        """Dim ``source`` moved to place ``destination``."""
        return self.dim_shuffle_partial([source], [destination])

    def transpose(self) -> Tensor:
        """The dims in reverse order."""
        return self.dim_shuffle(range(self.rank)[::-1])

    def reverse(self, dim: int = 0) -> Tensor:
        """A dim backwards."""
        return self._make(self.view.reverse(self._dim(dim)))

    # ------------------------------------------------------------------ repeats
    def broadcast(self, times: int, dim: int = 0) -> Tensor:
        """A dim repeated as a whole; the copies alias."""
        d = self._dim(dim)
        if times < 0:
            fail(TensorIndexError, f"broadcast {times} times")
        if times == 0:
            return self.slice(0, 0, d)
        return self if times == 1 else self._make(self.view.broadcast(times, d))

    def upsample(self, times: int, dim: int = 0, method: str = "repeat") -> Tensor:
        """Every element of a dim repeated in place; the copies alias. The only method is repeat."""
        d = self._dim(dim)
        if method.lower() != "repeat":
            fail(TensorTypeError, f"upsample method {method!r}", "the method is 'repeat'")
        if times < 0:
            fail(TensorIndexError, f"upsample {times} times")
        if times == 0:
            return self.slice(0, 0, d)
        return self if times == 1 else self._make(self.view.upsample(times, d))

    def broadcast_to(self, shape: Sequence[int]) -> Tensor:
        """NumPy's broadcast: leading dims are added, dims of size 1 repeated."""
        new = tuple(shape)
        out = self
        if len(new) > self.rank:
            out = self.reshape((*([1] * (len(new) - self.rank)), *self.shape))
        for d, (have, want) in enumerate(zip(out.shape, new, strict=False)):
            if have != want and have == 1:
                out = out.broadcast(want, d)
        if out.shape != new:
            fail(TensorIndexError, f"{list(self.shape)} does not broadcast to {list(new)}")
        return out

    # ------------------------------------------------------------------ types
    def reinterpret(self, dtype: DType) -> Tensor:
        """The same bits as another type of the same size."""
        if dtype.size != self.dtype.size:
            fail(
                TensorTypeError,
                f"reinterpret {self.dtype.name} as {dtype.name}: "
                f"{self.dtype.size} and {dtype.size} bytes",
                "use popops.cast to convert values",
            )
        return Tensor(self.graph, self.view, dtype)

    # ------------------------------------------------------------------ questions
    def runs(self) -> tuple[Ints, Ints]:
        """Starts and lengths, in global element addresses and row-major order."""
        return self.view.runs()

    def is_contiguous(self) -> bool:
        """Whether the elements are one ascending run of one variable."""
        view = self.view
        if isinstance(view, Affine):
            digits = view.digits()
            return 0 in view.shape or not digits or (len(digits) == 1 and digits[0][1] == 1)
        return len(coalesce(*view.runs())[0]) <= 1

    def contains_aliases(self) -> bool:
        """Whether some element occurs twice."""
        return self.view.aliased()

    def variables(self) -> list[Variable]:
        """The variables the elements belong to, by ascending address."""
        return self.graph.variables_of(self.view)

    def contains_constant(self) -> bool:
        """Whether an element belongs to a constant."""
        return any(v.constant is not None for v in self.variables())

    def is_parallel_writeable(self) -> bool:
        """Whether every element may be written: no aliases, no constants."""
        return not self.contains_aliases() and not self.contains_constant()

    def get_contiguous_regions(self) -> list[Interval]:
        """Intervals of the flattened tensor that are contiguous in memory."""
        end = np.cumsum(coalesce(*self.view.runs())[1]).tolist()
        return [Interval(b, e) for b, e in zip([0, *end[:-1]], end, strict=True) if e > b]

    def get_var_regions(self) -> list[tuple[int, Interval]]:
        """(variable id, elements of that variable) of each run, in order."""
        start, length = coalesce(*self.view.runs())
        ids, bases = self.graph.locate_variables(start)
        first = start - bases
        rows = zip(ids.tolist(), first.tolist(), (first + length).tolist(), strict=True)
        return [(v, Interval(b, e)) for v, b, e in rows]

    def intersects_with(self, other: Tensor) -> bool:
        """Whether the two share an element."""
        start, length = self.view.runs()
        order = np.argsort(start, kind="stable")
        s = start[order]
        reach = np.maximum.accumulate(s + length[order]) if len(s) else s
        s2, n2 = other.view.runs()
        if len(s) == 0 or len(s2) == 0:
            return False
        last = np.searchsorted(s, s2 + n2, "left") - 1  # runs that begin before the other's end
        return bool(((last >= 0) & (reach[np.maximum(last, 0)] > s2)).any())

    def addresses(self) -> Ints:
        """One global element address per element: int64 of this shape. For small tensors."""
        start, length = self.view.runs()
        run = np.repeat(np.arange(len(start)), length)
        first = np.cumsum(length) - length
        flat = start[run] + (np.arange(len(run), dtype=I8) - first[run])
        return flat.reshape(self.view.shape)

    def dump(self, out: TextIO) -> None:
        """Write the regions as text."""
        out.write(f"{self.dtype.name}{list(self.shape)}:\n")
        names = self.graph.variables
        for var, interval in self.get_var_regions():
            out.write(f"  {names[var].name}[{interval.begin}:{interval.end}]\n")

    def pieces(self) -> list[tuple[tuple[int, ...], Tensor]]:
        """The parts a joined tensor is made of: (position of the first element, tensor), or just
        itself. Parts cover the tensor without overlap."""
        return [(at, self._make(v)) for at, v in _pieces(self.view, (0,) * self.rank)]


def _pieces(view: View, at: tuple[int, ...]) -> list[tuple[tuple[int, ...], View]]:
    if not isinstance(view, Cat):
        return [(at, view)]
    out: list[tuple[tuple[int, ...], View]] = []
    a, begin = view.axis, 0
    for p in view.parts:
        out += _pieces(p, (*at[:a], at[a] + begin, *at[a + 1 :]))
        begin += p.shape[a]
    return out


def concat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors joined along a dim; the other sizes and the types agree."""
    if not tensors:
        fail(TensorIndexError, "concat of no tensors")
    first = tensors[0]
    d = first._dim(dim)  # pyright: ignore[reportPrivateUsage]
    for t in tensors[1:]:
        if not t.graph.same_graph(first.graph):
            fail(GraphError, "concat of tensors of two graphs")
        if t.dtype is not first.dtype:
            fail(TensorTypeError, f"concat of {first.dtype.name} and {t.dtype.name}")
        if t.rank != first.rank or any(
            a != b for i, (a, b) in enumerate(zip(t.shape, first.shape, strict=True)) if i != d
        ):
            fail(
                TensorIndexError,
                f"concat of {list(first.shape)} and {list(t.shape)} along dim {d}",
                "all other dims must agree",
            )
    return Tensor(
        first.graph,
        concat_views([t.view for t in tensors], d, first.graph.same_variable),
        first.dtype,
    )


def append(a: Tensor, b: Tensor, dim: int | None = None) -> Tensor:
    """``b``, of a rank one lower, put behind ``a`` as one more row."""
    d = 0 if dim is None else dim
    return concat([a, b.expand([d])], d)


def variable_ids(view: View, bases: Ints) -> list[int]:
    """Ids of the variables under a view, ascending."""
    if isinstance(view, Affine):
        return [int(np.searchsorted(bases, view.offset, "right")) - 1] if view.size else []
    if isinstance(view, Cat):
        found: set[int] = set()
        for p in view.parts:
            found.update(variable_ids(p, bases))
        return sorted(found)
    start, _ = view.runs()
    ids = np.searchsorted(bases, start, "right").astype(I8) - 1
    return unique_sorted(ids).tolist()
