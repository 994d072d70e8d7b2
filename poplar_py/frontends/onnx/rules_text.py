"""ONNX TfIdfVectorizer over integers: n-grams are counted by comparing with all of the pool."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from poplar_py.diagnostics import InputError
from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.node import Node, imports
from poplar_py.frontends.onnx.values import Val
from poplar_py.types import f32, i32

__all__: list[str] = []


@imports("TfIdfVectorizer")
def tf_idf(b: Builder, n: Node) -> Val:
    if n.set("pool_strings"):
        raise b.refuse("TfIdfVectorizer over strings is not supported: tiles hold none")
    x = n[0] if n[0].rank == 2 else b.reshape(n[0], (1, n[0].numel))
    pool, places = n.ints("pool_int64s"), n.ints("ngram_indexes")
    width = max(places, default=-1) + 1
    found: list[Val] = []
    first = 0
    for size, grams in _pool(n, pool):
        wanted = n.int("min_gram_length", 1) <= size <= n.int("max_gram_length", 1)
        if wanted and len(grams):
            count = _counted(b, n, x, grams)  # [B, grams]
            columns = np.zeros((len(grams), width))
            columns[np.arange(len(grams)), places[first : first + len(grams)]] = 1
            found.append(b.matmul(b.cast(count, f32), b.const(columns, f32)))
        first += len(grams)
    total = found[0] if found else b.const(np.zeros((x.shape[0], width)), f32)
    for more in found[1:]:
        total = total + more
    out = _weighted(b, n, total, places, width)
    return out if n[0].rank == 2 else b.reshape(out, (width,))


def _pool(n: Node, pool: tuple[int, ...]) -> list[tuple[int, np.ndarray]]:
    """(length, grams[count, length]) for the lengths from 1."""
    starts = [*n.ints("ngram_counts"), len(pool)]
    out: list[tuple[int, np.ndarray]] = []
    for i, (begin, end) in enumerate(pairwise(starts)):
        if not 0 <= begin <= end <= len(pool) or (end - begin) % (i + 1):
            raise InputError("ngram_counts do not fit the pool", n.loc)
        out.append((i + 1, np.asarray(pool[begin:end], np.int64).reshape(-1, i + 1)))
    if sum(len(grams) for _, grams in out) != len(n.ints("ngram_indexes")):
        raise InputError("ngram_indexes do not fit the pool", n.loc)
    return out


def _counted(b: Builder, n: Node, x: Val, grams: np.ndarray) -> Val:
    """How often each gram occurs in each row, with up to max_skip_count items left out between."""
    rows, length = x.shape
    size = grams.shape[1]
    total = b.const(np.zeros((rows, len(grams))), i32)
    for skip in range(n.int("max_skip_count") + 1 if size > 1 else 1):
        windows = length - (size - 1) * (skip + 1)
        if windows < 1:
            break
        b.table(rows * windows * len(grams))
        hit: Val | None = None
        for k in range(size):
            item = b.unsqueeze(b.slice(x, 1, k * (skip + 1), windows), 1)  # [B, 1, windows]
            same = b.equal(item, b.const(grams[:, k].reshape(1, -1, 1), x.dtype))
            hit = same if hit is None else b.both(hit, same)
        assert hit is not None
        total = total + b.sum(b.cast(hit, i32), (2,))
    return total


def _weighted(b: Builder, n: Node, counts: Val, places: tuple[int, ...], width: int) -> Val:
    mode = n.str("mode")
    if mode == "TF":
        return counts
    weights = np.ones(width)
    given = n.floats("weights")
    if given:
        weights[list(places)] = given
    table = b.const(weights[None, :], f32)
    if mode == "TFIDF":
        return counts * table
    if mode == "IDF":
        return b.select(b.equal(counts, 0), 0.0, b.expand(table, counts.shape))
    raise InputError(f"no mode is called {mode!r}", n.loc)
