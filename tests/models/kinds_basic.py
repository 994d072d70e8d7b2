"""Blocks that many networks are made of: residuals, pyramids, attention, experts, graphs."""

from __future__ import annotations

import numpy as np
from kind_cases import Inputs, Kind, floats, i64


def tokens(r: np.random.Generator) -> Inputs:
    mask = np.ones((2, 6), np.int64)
    mask[1, 4:] = 0
    return {"ids": r.integers(0, 30, (2, 6)), "mask": mask}


BASIC = {
    "inverted_residual": Kind(
        "float[n, 8, h, w] x",
        "y",
        """a = Conv<kernel_shape=[1, 1]>(x, w1) z = Constant<value_float=0.0>()
        six = Constant<value_float=6.0>() b = Clip(a, z, six)
        c = Conv<kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=24>(b, w2) d = HardSwish(c)
        p = GlobalAveragePool(d) q = Conv<kernel_shape=[1, 1]>(p, w3) s = HardSigmoid(q)
        e = Mul(d, s) f = Conv<kernel_shape=[1, 1]>(e, w4) y = Add(f, x)""",
        {"w1": (24, 8, 1, 1), "w2": (24, 1, 3, 3), "w3": (24, 24, 1, 1), "w4": (8, 24, 1, 1)},
        floats(x=(1, 8, 14, 10)),
    ),
    "unet": Kind(
        "float[n, 3, h, w] x",
        "y",
        """a = Conv<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(x, w1) b = Relu(a)
        c = MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(b)
        d = Conv<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(c, w2) e = Relu(d)
        f = ConvTranspose<kernel_shape=[2, 2], strides=[2, 2]>(e, w3) g = Concat<axis=1>(f, b)
        h1 = Conv<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(g, w4) y = Sigmoid(h1)""",
        {"w1": (8, 3, 3, 3), "w2": (16, 8, 3, 3), "w3": (16, 8, 2, 2), "w4": (2, 16, 3, 3)},
        floats(x=(1, 3, 16, 12)),
    ),
    "feature_pyramid": Kind(
        "float[n, 3, h, w] x",
        "y",
        """a = Conv<kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]>(x, w1)
        b = Conv<kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]>(a, w2) s = Shape(a)
        r = Resize<mode="linear", coordinate_transformation_mode="half_pixel">(b, , , s)
        y = Add(a, r)""",
        {"w1": (8, 3, 3, 3), "w2": (8, 8, 3, 3)},
        floats(x=(1, 3, 18, 14)),
    ),
    "generator": Kind(
        "float[n, 16] z",
        "y",
        """a = MatMul(z, w1) s = Constant<value_ints=[-1, 16, 4, 4]>() b = Reshape(a, s)
        c = ConvTranspose<kernel_shape=[4, 4], strides=[2, 2], pads=[1, 1, 1, 1]>(b, w2)
        one = Constant<value_floats=[1.0, 0.5, 2.0, 1.0, 1.0, 1.5, 0.5, 1.0]>()
        d = InstanceNormalization(c, one, one) e = LeakyRelu<alpha=0.2>(d)
        f = Conv<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(e, w3)
        g = DepthToSpace<blocksize=2, mode="CRD">(f) y = Tanh(g)""",
        {"w1": (16, 256), "w2": (16, 8, 4, 4), "w3": (12, 8, 3, 3)},
        floats(z=(2, 16)),
    ),
    "encoder": Kind(
        "int64[b, s] ids, int64[b, s] mask",
        "y, pooled",
        """e = Gather(w1, ids) m = Cast<to=1>(mask) one = Constant<value_float=1.0>()
        off = Sub(one, m) low = Constant<value_float=-10000.0>() bias = Mul(off, low)
        ax = Constant<value_ints=[1]>() key = Unsqueeze(bias, ax)
        q = MatMul(e, w2) k = MatMul(e, w3) v = MatMul(e, w4) kt = Transpose<perm=[0, 2, 1]>(k)
        s0 = MatMul(q, kt) s1 = Add(s0, key) p = Softmax<axis=-1>(s1) o = MatMul(p, v)
        t = Add(e, o) scale = ConstantOfShape<value=float[1] {1.0}>(width)
        y = LayerNormalization<axis=-1>(t, scale) last = Constant<value_ints=[-1]>()
        rows = Unsqueeze(m, last) kept = Mul(y, rows) total = ReduceSum<keepdims=0>(kept, ax)
        n = ReduceSum<keepdims=0>(rows, ax) pooled = Div(total, n)
        """,
        {"w1": (30, 16), "w2": (16, 16), "w3": (16, 16), "w4": (16, 16), "width": i64(16)},
        tokens,
    ),
    "decoder_step": Kind(
        "float[b, t, 16] x, float[b, 2, past, 8] pk",
        "y, present",
        """q0 = MatMul(x, w1) k0 = MatMul(x, w2) s = Constant<value_ints=[0, -1, 2, 8]>()
        q1 = Reshape(q0, s) q = Transpose<perm=[0, 2, 1, 3]>(q1) k1 = Reshape(k0, s)
        k2 = Transpose<perm=[0, 2, 1, 3]>(k1) present = Concat<axis=2>(pk, k2)
        kt = Transpose<perm=[0, 1, 3, 2]>(present) a = MatMul(q, kt) p = Softmax<axis=-1>(a)
        y = MatMul(p, present)""",
        {"w1": (16, 16), "w2": (16, 16)},
        floats(x=(1, 1, 16), pk=(1, 2, 5, 8)),
    ),
    "wavenet": Kind(
        "float[n, 8, t] x",
        "y",
        """p = Constant<value_ints=[0, 0, 2, 0, 0, 0]>() a = Pad(x, p)
        b = Conv<kernel_shape=[2], dilations=[2]>(a, w1) f, g = Split<axis=1>(b)
        c = Tanh(f) d = Sigmoid(g) e = Mul(c, d) r = Conv<kernel_shape=[1]>(e, w2)
        y = Add(x, r)""",
        {"w1": (16, 8, 2), "w2": (8, 8, 1)},
        floats(x=(2, 8, 21)),
    ),
    "recogniser": Kind(
        "float[n, 1, 8, w] x",
        "y",
        """a = Conv<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(x, w1) b = Relu(a)
        c = MaxPool<kernel_shape=[8, 1]>(b) two = Constant<value_ints=[2]>() d = Squeeze(c, two)
        e = Transpose<perm=[2, 0, 1]>(d)
        f, h, cc = LSTM<hidden_size=6, direction="bidirectional">(e, w2, w3)
        g = Transpose<perm=[0, 2, 1, 3]>(f) s = Constant<value_ints=[0, 0, -1]>()
        i = Reshape(g, s) j = MatMul(i, w4) y = LogSoftmax<axis=-1>(j)""",
        {"w1": (8, 1, 3, 3), "w2": (2, 24, 8), "w3": (2, 24, 6), "w4": (12, 5)},
        floats(x=(1, 1, 8, 14)),
    ),
    "detector": Kind(
        "float[1, 3, 16, 16] x",
        "boxes, which",
        """a = Conv<kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]>(x, w1)
        s = Constant<value_ints=[1, 7, -1]>() b = Reshape(a, s)
        parts = Constant<value_ints=[4, 3]>() c, d = Split<axis=1>(b, parts)
        all = Transpose<perm=[0, 2, 1]>(c) scores = Sigmoid(d) most = Constant<value_ints=[3]>()
        iou = Constant<value_floats=[0.5]>() low = Constant<value_floats=[0.3]>()
        which = NonMaxSuppression(all, scores, most, iou, low)
        two = Constant<value_int=2>() i = Gather<axis=1>(which, two)
        zero = Constant<value_ints=[0]>() flat = Squeeze(all, zero) boxes = Gather(flat, i)""",
        {"w1": (7, 3, 3, 3)},
        floats(x=(1, 3, 16, 16)),
    ),
    "message_passing": Kind(
        "float[nodes, 6] x, int64[2, edges] links",
        "y",
        """h = MatMul(x, w1) zero = Constant<value_int=0>() one = Constant<value_int=1>()
        from = Gather(links, zero) to = Gather(links, one) m = Gather(h, from)
        last = Constant<value_ints=[-1]>() t = Unsqueeze(to, last) ms = Shape(m)
        i = Expand(t, ms) hs = Shape(h) none = ConstantOfShape(hs)
        y = ScatterElements<axis=0, reduction="add">(none, i, m)""",
        {"w1": (6, 4)},
        lambda r: {
            "x": r.standard_normal((9, 6)).astype(np.float32),
            "links": r.integers(0, 9, (2, 20)),
        },
    ),
    "mixture": Kind(
        "float[n, 8] x",
        "y",
        """g0 = MatMul(x, w1) g = Softmax<axis=-1>(g0) two = Constant<value_ints=[2]>()
        v, i = TopK(g, two) e = Gather(w2, i) o = Einsum<equation="bkio,bi->bko">(e, x)
        last = Constant<value_ints=[-1]>() u = Unsqueeze(v, last) p = Mul(o, u)
        one = Constant<value_ints=[1]>() y = ReduceSum<keepdims=0>(p, one)""",
        {"w1": (8, 4), "w2": (4, 8, 8)},
        floats(x=(5, 8)),
    ),
}
