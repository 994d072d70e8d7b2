"""Structured prediction, geometry, old and new opsets, sequences, integers."""

from __future__ import annotations

import numpy as np
from kind_cases import Kind, floats, i64

OTHER = {
    "crf_viterbi": Kind(
        "float[t, 4] emit",
        "path, score",
        """e0 = Gather(emit, zi) one = Constant<value_int=1>() ts = Shape(emit) t0 = Gather(ts, zi)
        rest = Slice(emit, onev, big, zv) last, bp =
        Scan<num_scan_inputs=1, body = b (float[4] s, float[4] e) => (float[4] s2, int64[4]
        back) { ax = Constant<value_ints=[1]>() su = Unsqueeze(s, ax) m = Add(su, w1) v =
        ReduceMax<keepdims=0, axes=[0]>(m) back = ArgMax<axis=0, keepdims=0>(m) s2 = Add(v, e)
        }>(e0, rest) end = ArgMax<axis=0, keepdims=1>(last) score = ReduceMax<keepdims=0>(last)
        first, path =
        Scan<num_scan_inputs=1, scan_input_directions=[1], scan_output_directions=[1], body = c
        (int64[1] k, int64[4] back) => (int64[1] k2, int64[1] out) { k2 = Gather(back, k) out =
        Identity(k) }>(end, bp)""",
        {"zi": np.array(0), "onev": i64(1), "big": i64(1 << 40), "zv": i64(0), "w1": (4, 4)},
        floats(emit=(7, 4)),
    ),
    "gumbel_beam": Kind(
        "float[b, 3, 10] logp, float[b, 3] score",
        "best, token, parent",
        """su = Unsqueeze(score, two) t = Add(logp, su) f = Reshape(t, flat)
        k = Constant<value_ints=[4]>() best, i = TopK(f, k) v = Constant<value_int=10>()
        parent = Div(i, v) token = Mod(i, v)""",
        {"two": i64(2), "flat": i64(0, -1)},
        floats(logp=(2, 3, 10), score=(2, 3)),
    ),
    "kmeans_assign": Kind(
        "float[n, 5] x",
        "label, d, hist",
        """xx = ReduceSumSquare<axes=[1], keepdims=1>(x)
        cc = ReduceSumSquare<axes=[1], keepdims=0>(w1) ct = Transpose(w1) xc = MatMul(x, ct)
        m2 = Constant<value_float=-2.0>() a = Mul(xc, m2) b = Add(a, xx) c = Add(b, cc)
        label = ArgMin<axis=1, keepdims=0>(c) d0 = ReduceMin<axes=[1], keepdims=0>(c)
        d = Sqrt(d0) depth = Constant<value_int=6>() oh = Constant<value=int64[2] {0, 1}>()
        o = OneHot(label, depth, oh) hist = ReduceSum<keepdims=0>(o, zv)""",
        {"w1": (6, 5), "zv": i64(0)},
        floats(x=(12, 5)),
    ),
    "point_net": Kind(
        "float[b, n, 3] p",
        "y",
        """t = Transpose<perm=[0, 2, 1]>(p) a = Conv<kernel_shape=[1]>(t, w1) b1 = Relu(a)
        g = GlobalMaxPool(b1) sh = Shape(b1) ge = Expand(g, sh) c = Concat<axis=1>(b1, ge)
        d = Conv<kernel_shape=[1]>(c, w2) y = LogSoftmax<axis=1>(d)""",
        {"w1": (8, 3, 1), "w2": (4, 16, 1)},
        floats(p=(2, 11, 3)),
    ),
    "nerf_encoding": Kind(
        "float[n, 3] x",
        "rgb, w",
        """u = Unsqueeze(x, m1) f = Mul(u, freq) s = Sin(f) c = Cos(f) cat = Concat<axis=-1>(s, c)
        r = Reshape(cat, flat) h = MatMul(r, w1) h1 = Softplus(h) o = MatMul(h1, w2)
        rgb0, sig = Split<axis=1>(o, parts) rgb = Sigmoid(rgb0) sr = Relu(sig) n = Neg(sr)
        e = Exp(n) one = Constant<value_float=1.0>() al = Sub(one, e)
        eps = Constant<value_float=1e-10>() tr0 = Add(e, eps) lg = Log(tr0)
        ax = Constant<value_int=0>() cs = CumSum<exclusive=1>(lg, ax) tr = Exp(cs)
        w = Mul(al, tr)""",
        {
            "m1": i64(-1),
            "freq": np.float32([1, 2, 4, 8]),
            "flat": i64(0, -1),
            "w1": (24, 16),
            "w2": (16, 4),
            "parts": i64(3, 1),
        },
        floats(x=(9, 3)),
        opset=13,
    ),
    "time_series_tcn": Kind(
        "float[b, 5, t] x",
        "y",
        """p = Constant<value_ints=[0, 0, 4, 0, 0, 0]>() a = Pad(x, p)
        c = Conv<kernel_shape=[3], dilations=[2]>(a, w1, s1) e = Elu<alpha=0.7>(c) s = Selu(e)
        q = Celu<alpha=1.3>(s) t = ThresholdedRelu<alpha=0.2>(q)
        h = Shrink<lambd=0.3, bias=0.1>(t) r = Add(h, x) l = LpNormalization<axis=1, p=2>(r)
        m = MeanVarianceNormalization<axes=[0, 2]>(l)
        y = LpPool<kernel_shape=[2], p=3, strides=[2]>(m)""",
        {"w1": (5, 5, 3), "s1": (5,)},
        floats(x=(2, 5, 12)),
    ),
    "local_response": Kind(
        "float[b, 6, h, w] x",
        "y, i",
        """a = LRN<size=3, alpha=0.01, beta=0.75, bias=2.0>(x)
        b1, i = MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(a)
        y = MaxUnpool<kernel_shape=[2, 2], strides=[2, 2]>(b1, i)""",
        {},
        floats(x=(1, 6, 8, 8)),
        opset=11,
    ),
    "old_opset7": Kind(
        "float[2, 3, 8, 8] x",
        "y",
        """a = Conv<kernel_shape=[3, 3], auto_pad="SAME_LOWER", strides=[2, 2]>(x, w1)
        b = BatchNormalization<epsilon=0.001>(a, s1, bb, bb, s2) c = Relu(b)
        d = Dropout<ratio=0.3>(c) e = AveragePool<kernel_shape=[2, 2]>(d) f = Reshape(e, sh)
        g = Gemm<transB=1, alpha=0.5, beta=2.0>(f, w2, s3) h = Softmax<axis=1>(g)
        k, m = TopK<k=3>(h) y = Concat<axis=1>(h, k)""",
        {
            "w1": (4, 3, 3, 3),
            "s1": (4,),
            "bb": np.zeros(4, np.float32),
            "s2": (4,),
            "sh": i64(2, -1),
            "w2": (6, 36),
            "s3": (6,),
        },
        floats(x=(2, 3, 8, 8)),
        opset=7,
    ),
    "old_opset9": Kind(
        "float[b, s, 6] x, int64[b] n",
        "y",
        """sh = Shape(x) b = Slice<starts=[0], ends=[1]>(sh)
        c = ConstantOfShape<value=float[1] {2.0}>(b) cs = Cast<to=1>(n) w = Where(m, cs, c)
        u = Unsqueeze<axes=[1, 2]>(w) p = Mul(x, u) nz = NonZero(p)
        s = ReduceSum<axes=[1], keepdims=0>(p) y =
        Scan<num_scan_inputs=1, body = q (float[6] r) => (float[6] o) { o = Tanh(r) }>(s)""",
        {"m": np.array([True, False])},
        lambda r: {"x": r.standard_normal((2, 4, 6)).astype(np.float32), "n": np.array([3, 1])},
        opset=9,
    ),
    "string_free_bag": Kind(
        "int64[n] ids, int64[b] offsets",
        "y",
        """e = Gather(w1, ids) n0 = Shape(ids) n1 = Squeeze(n0) r = Range(zi, n1, onei)
        ru = Unsqueeze(r, one) ge = GreaterOrEqual(ru, offsets) gi = Cast<to=7>(ge)
        k = ReduceSum<keepdims=0>(gi, one) seg = Sub(k, onei) bs = Shape(offsets)
        w = Constant<value_ints=[4]>() os = Concat<axis=0>(bs, w) zero = ConstantOfShape(os)
        su = Unsqueeze(seg, one) y = ScatterND<reduction="add">(zero, su, e)""",
        {"w1": (20, 4), "zi": np.array(0), "onei": np.array(1), "one": i64(1)},
        lambda r: {"ids": r.integers(0, 20, 9), "offsets": np.array([0, 4, 5])},
        opset=16,
    ),
    "hungarian_cost": Kind(
        "float[n, 4] a, float[m, 4] b",
        "iou, best",
        """au = Unsqueeze(a, one) bu = Unsqueeze(b, zv) al, ah = Split<axis=2, num_outputs=2>(au)
        bl, bh = Split<axis=2, num_outputs=2>(bu) lo = Max(al, bl) hi = Min(ah, bh)
        wh = Sub(hi, lo) c = Relu(wh) inter = ReduceProd<keepdims=0>(c, two) aw = Sub(ah, al)
        ar = ReduceProd<keepdims=0>(aw, two) bw = Sub(bh, bl)
        br = ReduceProd<keepdims=0>(bw, two) s = Sum(ar, br) un = Sub(s, inter)
        iou = Div(inter, un) best = ArgMax<axis=1, keepdims=0>(iou)""",
        {"one": i64(1), "zv": i64(0), "two": i64(2)},
        lambda r: (lambda f: {"a": f(5), "b": f(7)})(
            lambda n: np.concatenate(
                [x := r.uniform(0, 4, (n, 2)), x + r.uniform(1, 4, (n, 2))], 1
            ).astype(np.float32)
        ),
        opset=18,
    ),
    "complex_mul_fft_conv": Kind(
        "float[b, 16] x",
        "y",
        """u = Unsqueeze(x, m1) f = DFT<axis=1>(u) re, im = Split<axis=2>(f) a = Mul(re, wr)
        b1 = Mul(im, wi) r = Sub(a, b1) c = Mul(re, wi) d = Mul(im, wr) i = Add(c, d)
        z = Concat<axis=2>(r, i) t = DFT<axis=1, inverse=1>(z) k = Constant<value_int=0>()
        y = Gather<axis=2>(t, k)""",
        {
            "m1": i64(-1),
            "wr": np.cos(np.arange(16) / 3).reshape(1, 16, 1).astype(np.float32),
            "wi": np.sin(np.arange(16) / 3).reshape(1, 16, 1).astype(np.float32),
        },
        floats(x=(2, 16)),
    ),
    "sequence_ops": Kind(
        "float[6, 4] x",
        "y, n",
        """s = SplitToSequence<axis=0>(x, parts) e = SequenceEmpty() a = SequenceAt(s, zi)
        b = SequenceInsert(e, a) c0 = SequenceAt(s, onei) c = SequenceInsert(b, c0)
        y = ConcatFromSequence<axis=0>(c) n = SequenceLength(s)""",
        {"parts": i64(2, 1, 3), "zi": np.array(0), "onei": np.array(-1)},
        floats(x=(6, 4)),
    ),
    "kv_update_scatter": Kind(
        "float[2, 2, 8, 4] cache, float[2, 2, 1, 4] new, int64[2] pos",
        "y",
        """p = Unsqueeze(pos, ax) sh = Shape(new) i = Expand(p, sh)
        y = ScatterElements<axis=2>(cache, i, new)""",
        {"ax": i64(1, 2, 3)},
        lambda r: {
            "cache": r.standard_normal((2, 2, 8, 4)).astype(np.float32),
            "new": r.standard_normal((2, 2, 1, 4)).astype(np.float32),
            "pos": np.array([3, 7]),
        },
    ),
    "tensor_scatter_op": Kind(
        "float[2, 2, 8, 4] cache, float[2, 2, 2, 4] new, int64[2] pos",
        "y",
        """y = TensorScatter(cache, new, pos)""",
        {},
        lambda r: {
            "cache": r.standard_normal((2, 2, 8, 4)).astype(np.float32),
            "new": r.standard_normal((2, 2, 2, 4)).astype(np.float32),
            "pos": np.array([3, 5]),
        },
        opset=24,
    ),
    "swish_op": Kind(
        "float[n, 6] x",
        "y, z",
        """y = Swish<alpha=1.5>(x) z0 = HardSwish(x) z = Gelu(z0)""",
        {},
        floats(x=(3, 6)),
        opset=24,
    ),
    "attention_cache_gqa": Kind(
        "float[b, s, 16] q, float[b, s, 8] k, float[b, s, 8] v, float[b, 2, p, 4] pk, "
        "float[b, 2, p, 4] pv",
        "y, nk, nv",
        """y, nk, nv = Attention<q_num_heads=4, kv_num_heads=2, is_causal=1>(q, k, v, , pk, pv)""",
        {},
        floats(q=(2, 3, 16), k=(2, 3, 8), v=(2, 3, 8), pk=(2, 2, 5, 4), pv=(2, 2, 5, 4)),
        opset=23,
    ),
    "attention_nonpad": Kind(
        "float[b, 2, 3, 4] q, float[b, 2, 6, 4] k, float[b, 2, 6, 4] v, int64[b] n",
        "y",
        """y = Attention(q, k, v, , , , n)""",
        {},
        lambda r: {
            **floats(q=(2, 2, 3, 4), k=(2, 2, 6, 4), v=(2, 2, 6, 4))(r),
            "n": np.array([4, 6]),
        },
        opset=24,
    ),
    "double_precision": Kind(
        "double[n, 4] x",
        "y",
        """a = MatMul(x, wd) b = Tanh(a) c = ReduceLogSumExp<axes=[1]>(b)
        d = Sin(b) y = Add(d, c)""",
        {"wd": np.random.default_rng(1).standard_normal((4, 3))},
        lambda r: {"x": r.standard_normal((3, 4))},
    ),
    "int_arith": Kind(
        "int32[n] a, int32[n] b, uint8[n] c",
        "q, m, s, x, w",
        """q = Div(a, b) m = Mod(a, b) s0 = Abs(a) s = Max(s0, b) k = Constant<value=uint8 {2}>()
        x = BitShift<direction="LEFT">(c, k) w = Pow(b, b)""",
        {},
        lambda r: {
            "a": r.integers(-50, 50, 20).astype(np.int32),
            "b": r.integers(1, 6, 20).astype(np.int32),
            "c": r.integers(0, 256, 20).astype(np.uint8),
        },
    ),
    "random_free_dropout": Kind(
        "float[n, 4] x",
        "y, m",
        """r = Constant<value_float=0.4>() t = Constant<value=bool {0}>()
        y, m = Dropout(x, r, t)""",
        {},
        floats(x=(3, 4)),
    ),
    "grid_resize_dynamic": Kind(
        "float[1, 2, h, w] x, int64[2] size",
        "y",
        """s = Shape(x) nc = Slice(s, z, t) f = Concat<axis=0>(nc, size)
        y = Resize<mode="linear", coordinate_transformation_mode="pytorch_half_pixel">(x, , , f)""",
        {"z": i64(0), "t": i64(2)},
        lambda r: {
            "x": r.standard_normal((1, 2, 5, 6)).astype(np.float32),
            "size": np.array([9, 4]),
        },
    ),
}
