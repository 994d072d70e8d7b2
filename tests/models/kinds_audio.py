"""Audio, control flow, indexing and searching."""

from __future__ import annotations

import numpy as np
from kind_cases import Kind, floats, i64

AUDIO = {
    "mel_features": Kind(
        "float[b, n] x",
        "y",
        """u = Unsqueeze(x, m1) win = HannWindow<output_datatype=1>(nfft)
        s = STFT<onesided=1>(u, hop, win, nfft) re = Gather<axis=3>(s, zi)
        im = Gather<axis=3>(s, onei) a = Mul(re, re) bq = Mul(im, im) p = Add(a, bq)
        mel = MelWeightMatrix(nmel, nfft, rate, lo, hi) m = MatMul(p, mel) c = Clip(m, eps, )
        l = Log(c) mx = ReduceMax<keepdims=1>(l, ax) fl = Sub(l, eight)
        lb = Constant<value_float=-20.0>() q = Max(fl, lb) y0 = Add(q, four) y = Div(y0, four)""",
        {
            "m1": i64(-1),
            "nfft": np.array(32),
            "hop": np.array(8),
            "zi": np.array(0),
            "onei": np.array(1),
            "nmel": np.array(8),
            "rate": np.array(16000),
            "lo": np.float32(20),
            "hi": np.float32(8000),
            "eps": np.float32(1e-5),
            "ax": i64(1, 2),
            "eight": np.float32(8),
            "four": np.float32(4),
        },
        floats(x=(2, 100)),
        opset=18,
    ),
    "dft_filter": Kind(
        "float[b, n, 1] x",
        "y, z, h",
        """f = DFT(x, , one) n = Constant<value_float=0.5>() g = Mul(f, n)
        inv = DFT<inverse=1>(g, , one) y = Slice(inv, z0, o1, ax) z = DFT<onesided=1>(x, , one)
        w = HammingWindow<periodic=0>(size) b = BlackmanWindow(size) h = Add(w, b)""",
        {"one": np.array(1), "z0": i64(0), "o1": i64(1), "ax": i64(2), "size": np.array(9)},
        floats(x=(2, 12, 1)),
        opset=20,
    ),
    "conv_tasnet": Kind(
        "float[b, 1, n] x",
        "y",
        """e = Conv<kernel_shape=[8], strides=[4]>(x, w1) r = Relu(e)
        g = GroupNormalization<num_groups=1>(r, s1, b1)
        c = Conv<kernel_shape=[3], dilations=[2], pads=[2, 2], group=8>(g, w2)
        p = PRelu(c, slope) m0 = Conv<kernel_shape=[1]>(p, w3) m = Sigmoid(m0) k = Mul(m, e)
        y = ConvTranspose<kernel_shape=[8], strides=[4]>(k, w4)""",
        {
            "w1": (8, 1, 8),
            "s1": (1,),
            "b1": np.zeros(1, np.float32),
            "w2": (8, 1, 3),
            "slope": np.full((8, 1), 0.25, np.float32),
            "w3": (8, 8, 1),
            "w4": (8, 1, 8),
        },
        floats(x=(2, 1, 64)),
        opset=18,
    ),
    "wav2vec": Kind(
        "float[b, n] x",
        "y",
        """m = ReduceMean(x, one) d = Sub(x, m) q = ReduceSumSquare(d, one) xs = Shape(x)
        nn = Gather(xs, onei) nf = Cast<to=1>(nn) v = Div(q, nf) e = Add(v, eps) s = Sqrt(e)
        nx = Div(d, s) u = Unsqueeze(nx, one) c = Conv<kernel_shape=[10], strides=[5]>(u, w1)
        i = InstanceNormalization(c, s1, b1) g = Gelu(i)
        c2 = Conv<kernel_shape=[3], strides=[2]>(g, w2) g2 = Gelu<approximate="tanh">(c2)
        t = Transpose<perm=[0, 2, 1]>(g2)
        p0 = Conv<kernel_shape=[4], pads=[2, 2], group=2>(g2, w3) p1 = Slice(p0, z, m1, two)
        p = Transpose<perm=[0, 2, 1]>(p1) a = Add(t, p) y = LayerNormalization(a, s2, b2)""",
        {
            "onei": np.array(1),
            "eps": np.float32(1e-7),
            "one": i64(1),
            "w1": (6, 1, 10),
            "s1": (6,),
            "b1": np.zeros(6, np.float32),
            "w2": (8, 6, 3),
            "w3": (8, 4, 4),
            "z": i64(0),
            "m1": i64(-1),
            "two": i64(2),
            "s2": (8,),
            "b2": np.zeros(8, np.float32),
        },
        floats(x=(2, 90)),
        opset=20,
    ),
    "whisper_decode_loop": Kind(
        "int64[1] start, float[1, 4] ctx",
        "tokens, n",
        """ones = Constant<value_int=5>() go = Constant<value=bool {1}>()
        last, state, tokens = Loop(ones, go, start, ctx)
        <body = b (int64 i, bool c, int64[1] t, float[1, 4] s) => (bool more, int64[1] t2,
        float[1, 4] s2, int64[1] seen) { e = Gather(w1, t) a = Add(e, s) s2 = Tanh(a) l =
        MatMul(s2, w2) t2 = ArgMax<axis=1, keepdims=0>(l) seen = Identity(t2) more = Identity(c)
        }> sh = Shape(tokens) n = Gather(sh, zi)""",
        {"w1": (12, 4), "w2": (4, 12), "zi": np.array(0)},
        lambda r: {"start": np.array([3]), "ctx": r.standard_normal((1, 4)).astype(np.float32)},
    ),
    "loop_until_eos": Kind(
        "float[1, 4] ctx",
        "tokens, state",
        """most = Constant<value_int=9>() go = Constant<value=bool {1}>()
        start = Constant<value_ints=[1]>() last, state, tokens = Loop(most, go, start, ctx)
        <body = b (int64 i, bool c, int64[1] t, float[1, 4] s) => (bool more, int64[1] t2,
        float[1, 4] s2, int64[1] seen) { e = Gather(w1, t) a = Add(e, s) s2 = Tanh(a) l =
        MatMul(s2, w2) t2 = ArgMax<axis=1, keepdims=0>(l) seen = Identity(t2) eos =
        Constant<value_ints=[2]>() same = Equal(t2, eos) no = Not(same) more = Squeeze(no) }>""",
        {"w1": (12, 4), "w2": (4, 12)},
        floats(ctx=(1, 4)),
    ),
    "scan_ssm": Kind(
        "float[t, 4] u, float[4] h0",
        "h, ys",
        """h, ys =
        Scan<num_scan_inputs=1, body = b (float[4] s, float[4] x) => (float[4] s2, float[4] y) {
        d = Mul(s, w1) e = Add(d, x) s2 = Tanh(e) y = Mul(s2, x) }>(h0, u)""",
        {"w1": np.float32([0.9, 0.5, -0.3, 0.1])},
        floats(u=(11, 4), h0=(4,)),
    ),
    "if_on_data": Kind(
        "float[n, 4] x",
        "y",
        """m = ReduceMean<keepdims=0>(x) z = Constant<value_float=0.0>() c = Greater(m, z)
        y = If(c) <then_branch = t () => (float[n, 4] a) { k = MatMul(x, w1) a = Relu(k) },
        else_branch = e () => (float[n, 4] b) { g = Sigmoid(x) b = Mul(g, x) }>""",
        {"w1": (4, 4)},
        floats(x=(3, 4)),
    ),
    "loop_limit_and_stop": Kind(
        "float[3] x, int64 k",
        "y",
        """go = Constant<value=bool {1}>() y = Loop(k, go, x)
        <body = b (int64 i, bool c, float[3] v) => (bool more, float[3] w) { three =
        Constant<value_int=3>() w = Add(v, w1) more = Less(i, three) }>""",
        {"w1": np.float32([1.5, 0.5, -1])},
        lambda r: {"x": r.standard_normal(3).astype(np.float32), "k": np.array(2)},
    ),
    "nested_if_loop": Kind(
        "float[3] x, int64 k",
        "y",
        """one = Constant<value_int=1>() go = Constant<value=bool {1}>() y = Loop(k, go, x)
        <body = b (int64 i, bool c, float[3] v) => (bool more, float[3] w) { two =
        Constant<value_int=2>() r = Mod(i, two) z = Constant<value_int=0>() even = Equal(r, z) w
        = If(even) <then_branch = t () => (float[3] a) { a = Mul(v, w1) }, else_branch = e () =>
        (float[3] b1) { b1 = Sub(v, w1) }> more = Identity(c) }>""",
        {"w1": np.float32([1.5, 0.5, -1])},
        lambda r: {"x": r.standard_normal(3).astype(np.float32), "k": np.array(5)},
    ),
    "topk_sampling": Kind(
        "float[b, 20] logits, float[b, 1] u",
        "tok, p",
        """k = Constant<value_ints=[6]>() v, i = TopK<largest=1, sorted=1>(logits, k)
        t = Constant<value_float=0.7>() s = Div(v, t) p = Softmax(s)
        ax = Constant<value_int=1>() c = CumSum(p, ax) ge = GreaterOrEqual(c, u)
        f = Cast<to=6>(ge) a = ArgMax<axis=1>(f) tok = GatherElements<axis=1>(i, a)""",
        {},
        lambda r: {
            "logits": r.standard_normal((3, 20)).astype(np.float32),
            "u": r.uniform(0, 1, (3, 1)).astype(np.float32),
        },
    ),
    "argsort_unpad": Kind(
        "int64[n] lens, float[n, 5] x",
        "y, r",
        """k = Shape(lens) v, i = TopK<largest=0>(lens, k) y = Gather(x, i)
        w, j = TopK<largest=0>(i, k) r = Gather(y, j)""",
        {},
        lambda r: {
            "lens": np.array([5, 2, 9, 2]),
            "x": r.standard_normal((4, 5)).astype(np.float32),
        },
    ),
    "box_scatter": Kind(
        "float[4, 6] x, int64[k, 2] at, float[k] v",
        "a, b, c, d",
        """a = ScatterND(x, at, v) b = ScatterND<reduction="add">(x, at, v) c = GatherND(x, at)
        m = ScatterND<reduction="max">(x, at, v) d = Trilu<upper=0>(m)""",
        {},
        lambda r: {
            "x": r.standard_normal((4, 6)).astype(np.float32),
            "at": np.array([[0, 1], [3, -1], [2, 2]]),
            "v": r.standard_normal(3).astype(np.float32),
        },
        opset=18,
    ),
    "one_hot_segments": Kind(
        "int64[n] seg, float[n, 3] x",
        "y, n2, u",
        """d = Constant<value_int=4>() vals = Constant<value_floats=[0.0, 1.0]>()
        o = OneHot<axis=0>(seg, d, vals) y = MatMul(o, x) r = Constant<value_ints=[1]>()
        n2 = ReduceSum<keepdims=0>(o, r) u0 = Clip(n2, onef, ) u1 = Unsqueeze(u0, r)
        u = Div(y, u1)""",
        {"onef": np.float32(1)},
        lambda r: {
            "seg": np.array([0, 1, 1, 3, 0, 3, 3]),
            "x": r.standard_normal((7, 3)).astype(np.float32),
        },
    ),
    "center_crop_pad": Kind(
        "float[1, 2, 7, 9] x",
        "y, p, e, u",
        """s = Constant<value_ints=[5, 12]>() y = CenterCropPad<axes=[2, 3]>(x, s)
        pads = Constant<value_ints=[1, 2, 0, 1]>() hw = Constant<value_ints=[2, 3]>()
        p = Pad<mode="reflect">(x, pads, , hw) e = Pad<mode="wrap">(x, pads, , hw)
        zero = Constant<value_float=-inf>() u = Pad(x, pads, zero, hw)""",
        {},
        floats(x=(1, 2, 7, 9)),
        opset=19,
    ),
    "unfold_fold": Kind(
        "float[1, 2, 8, 8] x",
        "y, img",
        """y0 = Conv<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(x, eye) y = Reshape(y0, s)
        img = Col2Im<pads=[1, 1, 1, 1]>(y, hw, k)""",
        {
            "eye": np.eye(18).reshape(18, 2, 3, 3).astype(np.float32),
            "s": i64(1, 18, 64),
            "hw": i64(8, 8),
            "k": i64(3, 3),
        },
        floats(x=(1, 2, 8, 8)),
        opset=18,
    ),
    "bucketize_hash": Kind(
        "float[n] x, int32[n] id",
        "y, h, b",
        """u = Unsqueeze(x, m1) g = Greater(u, edges) gi = Cast<to=6>(g)
        k = ReduceSum<keepdims=0>(gi, m1) e = Gather(w1, k) mul = Constant<value=int32 {7919}>()
        m = Mul(id, mul) md = Constant<value=int32 {17}>() h = Mod(m, md) e2 = Gather(w2, h)
        y = Add(e, e2) sh = Constant<value=int32 {3}>() b = BitwiseXor(h, sh)""",
        {"m1": i64(-1), "edges": np.float32([-1, -0.3, 0.3, 1]), "w1": (5, 4), "w2": (17, 4)},
        lambda r: {
            "x": r.standard_normal(9).astype(np.float32),
            "id": r.integers(-1000, 1000, 9).astype(np.int32),
        },
        opset=18,
    ),
    "losses": Kind(
        "float[n, 5] x, int64[n] t",
        "a, b, p",
        """a, p = SoftmaxCrossEntropyLoss<reduction="mean", ignore_index=2>(x, t, s1)
        l = LogSoftmax(x) b = NegativeLogLikelihoodLoss<reduction="sum">(l, t)""",
        {"s1": (5,)},
        lambda r: {
            "x": r.standard_normal((6, 5)).astype(np.float32),
            "t": np.array([0, 2, 4, 1, 2, 3]),
        },
    ),
}
