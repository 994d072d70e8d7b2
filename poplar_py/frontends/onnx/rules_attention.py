"""Attention as onnxruntime's optimisers and model builders write it (domain com.microsoft)."""

from __future__ import annotations

import math

import numpy as np

from poplar_py.diagnostics import InputError, ShapeError
from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.node import Node, imports
from poplar_py.frontends.onnx.rules_quant import centred, lone
from poplar_py.frontends.onnx.values import Val
from poplar_py.ops import elementwise as ew
from poplar_py.ops import nn
from poplar_py.types import f32, i32

__all__: list[str] = []

_DOMAIN = "com.microsoft"


@imports("Attention", domain=_DOMAIN)
def attention(b: Builder, n: Node) -> list[Val]:
    """Self-attention with packed weights: x[B, L, I] @ w[I, 3D] + bias, heads, mask, past."""
    packed = b.matmul(n[0], n[1])
    packed = packed + n[2] if n.has(2) else packed
    if n.int("do_rotary") or n.has(6):
        raise b.refuse("rotary embeddings and shared caches inside Attention are not supported")
    return _self_attention(b, n, packed, n.get(3), n.get(4), n.get(5))


@imports("QAttention", domain=_DOMAIN)
def quantised_attention(b: Builder, n: Node) -> list[Val]:
    """Attention by an integer product: x, w, bias, scales, mask, zero points, past."""
    zx, zw = n.get(6), n.get(7)
    x = centred(b, n[0], None if zx is None else lone(b, zx))
    w = centred(b, n[1], None if zw is None else lone(b, zw))
    scale = b.cast(lone(b, n[3]), f32) * (n[4] if n[4].numel > 1 else lone(b, n[4]))
    packed = b.cast(b.emit(nn.MatMulInteger, x, w), f32) * scale + n[2]
    return _self_attention(b, n, packed, n.get(5), n.get(8), None)


def _self_attention(
    b: Builder, n: Node, packed: Val, mask: Val | None, past: Val | None, extra: Val | None
) -> list[Val]:
    """Heads of packed [B, L, 3D]; `past` and its successor are [2, B, heads, P, D / heads]."""
    sizes = n.ints("qkv_hidden_sizes", [packed.shape[-1] // 3] * 3)
    heads = n.int("num_heads", 1)
    if sum(sizes) != packed.shape[-1] or any(size % heads for size in sizes):
        raise InputError(f"{list(sizes)} channels in {heads} heads", n.loc)
    q, k, v = (_heads(b, part, heads) for part in b.split(packed, sizes, -1))
    if past is not None:
        k = b.concat([b.pick(past, 0, 0), k], 2)
        v = b.concat([b.pick(past, 0, 1), v], 2)
    bias = _mask_bias(b, n, k, mask)
    if extra is not None:
        bias = extra if bias is None else bias + extra
    present = [b.concat([b.unsqueeze(k, 0), b.unsqueeze(v, 0)], 0)] if len(n.outputs) > 1 else []
    return [_attend(b, n, q, k, v, bias), *present]


@imports("MultiHeadAttention", domain=_DOMAIN)
def multi_head_attention(b: Builder, n: Node) -> list[Val]:
    """Query [B, L, D]; key and value [B, S, D] or in heads [B, heads, S, H]; past keys, values."""
    if not n.has(1) or not n.has(2) or n[1].rank not in (3, 4) or n.has(8):
        raise b.refuse("packed keys and values, and shared caches, are not supported")
    q, k, v = n[0], n[1], n[2]
    heads = n.int("num_heads", 1)
    if n.has(3):
        width = q.shape[-1]
        bq, bk, bv = b.split(n[3], [width, width, n[3].shape[0] - 2 * width], 0)
        q = q + bq
        k, v = (k + bk, v + bv) if k.rank == 3 else (k, v)
    q, k, v = (x if x.rank == 4 else _heads(b, x, heads) for x in (q, k, v))
    if n.has(6) and n.has(7):
        k, v = b.concat([n[6], k], 2), b.concat([n[7], v], 2)
    bias = _mask_bias(b, n, k, n.get(4))
    if n.has(5):
        bias = n[5] if bias is None else bias + n[5]
    return [_attend(b, n, q, k, v, bias), k, v]


@imports("GroupQueryAttention", domain=_DOMAIN)
def group_query_attention(b: Builder, n: Node) -> list[Val]:
    """Causal attention whose groups of heads share keys, with a cache of its own past.

    Without a cache, or where the cache is as long as its past (`seqlens_k` + 1 places in all for
    every batch entry), the present is past and new ones in a row.
    """
    heads, shared = n.int("num_heads", 1), n.int("kv_num_heads", 1)
    q, k, v = _grouped_operands(b, n, heads, shared)
    past = n[3].shape[2] if n.has(3) else 0
    if n.int("do_rotary"):
        places = b.const(np.arange(past, past + q.shape[2])[None, :], i32)
        paired = bool(n.int("rotary_interleaved"))
        q = _rotated(b, q, places, n[7], n[8], paired)
        k = _rotated(b, k, places, n[7], n[8], paired)
    if past:
        k, v = b.concat([n[3], k], 2), b.concat([n[4], v], 2)
    total = b.integer(n[6], "the total length")
    if total != k.shape[2]:
        raise b.refuse("a cache longer than what is in it is not supported")
    length = b.reshape(b.cast(n[5], i32), (n[5].numel, 1, 1, 1)) + 1
    keys = b.const(np.arange(total).reshape(1, 1, 1, -1), i32)
    queries = b.const(np.arange(past, total).reshape(1, 1, -1, 1), i32)
    seen = b.both(b.less(keys, length), b.emit(ew.LessEqual, keys, queries))
    window = n.int("local_window_size", -1)
    if window > 0:
        seen = b.both(seen, b.less(queries - window, keys))
    bias = b.select(seen, b.like(0, q), b.like(-np.inf, q))
    wide = [_repeated(b, x, heads // shared) for x in (k, v)]
    return [_attend(b, n, q, wide[0], wide[1], bias), k, v]


def _grouped_operands(b: Builder, n: Node, heads: int, shared: int) -> tuple[Val, Val, Val]:
    if shared < 1 or heads % shared:
        raise InputError(f"{heads} heads over {shared} keys", n.loc)
    if n.float("softcap") or n.has(9) or n.has(10):
        raise b.refuse("soft caps, given positions and biases are not supported here")
    if n.has(1):
        return _heads(b, n[0], heads), _heads(b, n[1], shared), _heads(b, n[2], shared)
    width = n[0].shape[-1] // (heads + 2 * shared)
    q, k, v = b.split(n[0], [heads * width, shared * width, shared * width], -1)
    return _heads(b, q, heads), _heads(b, k, shared), _heads(b, v, shared)


def _repeated(b: Builder, x: Val, times: int) -> Val:
    """[B, K, L, H] with each of the K heads `times` times in a row."""
    batch, heads, length, width = x.shape
    spread = b.expand(b.unsqueeze(x, 2), (batch, heads, times, length, width))
    return b.reshape(spread, (batch, heads * times, length, width))


@imports("RotaryEmbedding", domain=_DOMAIN)
def rotary_embedding(b: Builder, n: Node) -> Val:
    """x[B, L, D] or [B, heads, L, H] turned by the angles of its positions [1] or [B, L]."""
    x, positions, cos, sin = n[0], n[1], n[2], n[3]
    flat = x.rank == 3
    width = n.int("rotary_embedding_dim") or 2 * cos.shape[-1]
    if flat:
        x = _heads(b, x, n.int("num_heads") or x.shape[-1] // (2 * cos.shape[-1]))
    if n.int("is_packed_batching") or width > x.shape[-1]:
        raise b.refuse("packed batches are not supported")
    places = positions
    if positions.numel == 1 and positions.rank == 1:
        places = b.const(np.arange(x.shape[2])[None, :], positions.dtype) + positions
    part = _rotated(b, b.slice(x, 3, 0, width), places, cos, sin, bool(n.int("interleaved")))
    rest = b.slice(x, 3, width, x.shape[3] - width) if width < x.shape[3] else None
    y = part if rest is None else b.concat([part, rest], 3)
    return _merged(b, y) if flat else y


def _rotated(b: Builder, x: Val, places: Val, cos: Val, sin: Val, paired: bool) -> Val:
    """Pairs of x[B, heads, L, H], neighbours or halves apart, turned by tables [max, H / 2]."""
    half = x.shape[-1] // 2
    index = b.index(places, cos.shape[0])
    c, s = (b.unsqueeze(b.gather(t, index, 0), 1) for t in (cos, sin))
    if not paired:
        first, second = b.split(x, [half, half], -1)
        return b.concat([first * c - second * s, second * c + first * s], -1)
    first, second = b.slice(x, -1, 0, half, 2), b.slice(x, -1, 1, half, 2)
    turned = [first * c - second * s, second * c + first * s]
    return b.reshape(b.concat([b.unsqueeze(t, -1) for t in turned], -1), x.shape)


def _mask_bias(b: Builder, n: Node, like: Val, mask: Val | None) -> Val | None:
    """Something to add to the scores: a large negative number where keys are masked."""
    if mask is None:
        return None
    away = n.float("mask_filter_value", -10000.0)
    length = like.shape[2]
    if mask.rank == 1:
        if mask.shape[0] != like.shape[0]:
            raise b.refuse(f"a mask of type {mask.type} is not supported")
        places = b.const(np.arange(length)[None, :], i32)
        keep = b.less(places, b.unsqueeze(b.cast(mask, i32), 1))
        shape = (mask.shape[0], 1, 1, length)
    elif mask.rank in (2, 3):
        keep = b.flag(mask)
        middle = (1, 1) if mask.rank == 2 else (1, mask.shape[1])
        shape = (mask.shape[0], *middle, mask.shape[-1])
    else:
        raise b.refuse(f"a mask of type {mask.type} is not supported")
    return b.select(b.reshape(keep, shape), b.like(0, like), b.like(away, like))


def _heads(b: Builder, x: Val, heads: int) -> Val:
    """[B, L, heads * H] as [B, heads, L, H]."""
    batch, length, width = x.shape
    if heads < 1 or width % heads:
        raise ShapeError(f"{width} channels in {heads} heads", b.loc)
    return b.transpose(b.reshape(x, (batch, length, heads, width // heads)), (0, 2, 1, 3))


def _merged(b: Builder, x: Val) -> Val:
    """[B, heads, L, H] as [B, L, heads * H]."""
    y = b.transpose(x, (0, 2, 1, 3))
    return b.reshape(y, (*y.shape[:2], y.shape[2] * y.shape[3]))


def _attend(b: Builder, n: Node, q: Val, k: Val, v: Val, bias: Val | None) -> Val:
    """softmax(q k' scale + bias) v over heads, merged."""
    scale = n.float("scale") or 1 / math.sqrt(q.shape[-1])
    scores = b.matmul(q, b.swap(k, -1, -2)) * scale
    scores = scores if bias is None else scores + bias
    if n.int("unidirectional"):
        rows, cols = scores.shape[-2:]
        seen = np.tril(np.ones((rows, cols), bool), cols - rows)
        scores = b.select(b.const(seen), scores, n.float("mask_filter_value", -10000.0))
    return _merged(b, b.matmul(b.emit(nn.Softmax, scores), v))
