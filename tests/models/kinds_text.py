"""Language: decoders with caches, encoder-decoder, recurrent taggers, attention in all forms."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from kind_cases import Inputs, Kind, Weight, floats, i64


def ids(*, past: int, new: int = 1) -> Callable[[np.random.Generator], Inputs]:
    rows, heads, size = 2, 2, 8

    def make(r: np.random.Generator) -> Inputs:
        mask = np.ones((rows, past + new), np.int64)
        mask[0, :2] = 0
        return {
            "ids": r.integers(0, 40, (rows, new)),
            "mask": mask,
            "pk": r.standard_normal((rows, heads, past, size)).astype(np.float32),
            "pv": r.standard_normal((rows, heads, past, size)).astype(np.float32),
        }

    return make


def seq2seq(r: np.random.Generator) -> Inputs:
    mask = np.ones((2, 7), bool)
    mask[1, 4:] = False
    return {"src": r.integers(0, 20, (2, 7)), "tgt": r.integers(0, 20, (2, 5)), "keep": mask}


def attention_feeds(r: np.random.Generator) -> Inputs:
    shapes = {"q": (2, 4, 3, 8), "k": (2, 2, 5, 8), "v": (2, 2, 5, 6), "m": (3, 5)}
    return floats(**shapes)(r)


def lstm_feeds(r: np.random.Generator) -> Inputs:
    return {
        "x": r.standard_normal((7, 3, 5)).astype(np.float32),
        "lens": np.array([7, 4, 1], np.int32),
    }


LLAMA = """e = Gather(w1, ids) posm = Cast<to=7>(mask) cs = CumSum(posm, one) p0 = Sub(cs, onev)
    p1 = Clip(p0, z0, ) ms = Shape(ids) sl = Gather(ms, one) nsl = Neg(sl)
    nsv = Unsqueeze(nsl, z) pos = Slice(p1, nsv, big, onev) ss = Mul(e, e)
    mean = ReduceMean(ss, m1) me = Add(mean, eps) rs = Sqrt(me) nr = Div(e, rs)
    n = Mul(nr, s1) q0 = MatMul(n, w2) k0 = MatMul(n, w3) v0 = MatMul(n, w4)
    q1 = Reshape(q0, hs) k1 = Reshape(k0, hs) v1 = Reshape(v0, hs)
    q = Transpose<perm=[0, 2, 1, 3]>(q1) k = Transpose<perm=[0, 2, 1, 3]>(k1)
    v = Transpose<perm=[0, 2, 1, 3]>(v1) cg = Gather(cosv, pos) sg = Gather(sinv, pos)
    c = Unsqueeze(cg, onev) s = Unsqueeze(sg, onev) qa, qb = Split<axis=3, num_outputs=2>(q)
    qn = Neg(qb) qr = Concat<axis=3>(qn, qa) qc = Mul(q, c) qs = Mul(qr, s) qq = Add(qc, qs)
    ka, kb = Split<axis=3, num_outputs=2>(k) kn = Neg(kb) kr = Concat<axis=3>(kn, ka)
    kc = Mul(k, c) ks = Mul(kr, s) kk = Add(kc, ks) nk = Concat<axis=2>(pk, kk)
    nv = Concat<axis=2>(pv, v) nks = Shape(nk) total = Gather(nks, two)
    r0 = Range(zi, total, onei) tv = Unsqueeze(total, z) sv = Unsqueeze(sl, z)
    bs = Concat<axis=0>(sv, tv) ones = ConstantOfShape<value=float[1] {1.0}>(bs)
    past = Sub(total, sl) pd = Add(past, onei) tri = Trilu<upper=1>(ones, pd)
    caus = Mul(tri, low) mf = Cast<to=1>(mask) inv = Sub(onef, mf) mb = Mul(inv, low)
    mu = Unsqueeze(mb, ax12) bias = Add(mu, caus) kt = Transpose<perm=[0, 1, 3, 2]>(nk)
    a = MatMul(qq, kt) ad = Div(a, dk) ab = Add(ad, bias) sm = Softmax(ab)
    o = MatMul(sm, nv) ot = Transpose<perm=[0, 2, 1, 3]>(o) orr = Reshape(ot, flat)
    h = Add(e, orr) g0 = MatMul(h, w5) g1 = Sigmoid(g0) g2 = Mul(g0, g1) up = MatMul(h, w6)
    gu = Mul(g2, up) dn = MatMul(gu, w7) y0 = Add(h, dn) lastp = Slice(y0, m1, big, onev)
    logits = MatMul(lastp, w8)"""


def rope(n: int, size: int) -> dict[str, np.ndarray]:
    angle = np.arange(n)[:, None] / 10000 ** (np.arange(0, size, 2) / size)
    both = np.concatenate([angle, angle], 1).astype(np.float32)
    return {"cosv": np.cos(both), "sinv": np.sin(both)}


LLAMA_WEIGHTS: dict[str, Weight] = {
    "w1": (40, 16),
    "one": np.array(1),
    "onev": i64(1),
    "z0": np.array(0),
    "z": i64(0),
    "big": i64(1 << 62),
    "m1": i64(-1),
    "eps": np.float32(1e-6),
    "s1": (16,),
    "w2": (16, 16),
    "w3": (16, 16),
    "w4": (16, 16),
    "hs": i64(0, 0, 2, 8),
    **rope(32, 8),
    "two": np.array(2),
    "zi": np.array(0),
    "onei": np.array(1),
    "low": np.float32(-1e4),
    "onef": np.float32(1),
    "ax12": i64(1, 2),
    "dk": np.float32(8**0.5),
    "flat": i64(0, 0, 16),
    "w5": (16, 24),
    "w6": (16, 24),
    "w7": (24, 16),
    "w8": (16, 40),
}

TEXT = {
    "llama_decoder": Kind(
        "int64[b, s] ids, int64[b, total] mask, float[b, 2, past, 8] pk, float[b, 2, past, 8] pv",
        "logits, nk, nv",
        LLAMA,
        LLAMA_WEIGHTS,
        ids(past=5),
        opset=18,
    ),
    "prefill": Kind(
        "int64[b, s] ids, int64[b, total] mask, float[b, 2, past, 8] pk, float[b, 2, past, 8] pv",
        "logits, nk, nv",
        LLAMA,
        LLAMA_WEIGHTS,
        ids(past=0, new=6),
        opset=18,
    ),
    "encoder_decoder": Kind(
        "int64[b, n] src, int64[b, t] tgt, bool[b, n] keep",
        "y",
        """e = Gather(w1, src) d = Gather(w1, tgt) q = MatMul(d, w2) k = MatMul(e, w3)
        v = MatMul(e, w4) kt = Transpose<perm=[0, 2, 1]>(k) s = MatMul(q, kt)
        ku = Unsqueeze(keep, one) no = Not(ku) inf = Constant<value_float=-inf>()
        m = Where(no, inf, s) p = Softmax(m) o = MatMul(p, v) ts = Shape(tgt)
        t = Gather(ts, onei) r = Range(zi, t, onei) ri = Unsqueeze(r, one) rj = Unsqueeze(r, z)
        up = Less(ri, rj) dt = Transpose<perm=[0, 2, 1]>(d) sl = MatMul(d, dt)
        sm = Where(up, inf, sl) sp = Softmax(sm) so = MatMul(sp, d) h = Add(o, so) dst = Tanh(h)
        y0 = MatMul(dst, w5) y = LogSoftmax<axis=-1>(y0)""",
        {
            "w1": (20, 12),
            "w2": (12, 12),
            "w3": (12, 12),
            "w4": (12, 12),
            "w5": (12, 20),
            "one": i64(1),
            "z": i64(0),
            "onei": np.array(1),
            "zi": np.array(0),
        },
        seq2seq,
    ),
    "attention_op": Kind(
        "float[b, 4, s, 8] q, float[b, 2, t, 8] k, float[b, 2, t, 6] v, float[s, t] m",
        "y, z",
        """y = Attention(q, k, v, m)
        z = Attention<is_causal=1, softcap=5.0, scale=0.25>(q, k, v)""",
        {},
        attention_feeds,
        opset=23,
    ),
    "rms_rotary": Kind(
        "float[2, 3, s, 8] x, int64[2, s] pos",
        "y, z",
        """n = RMSNormalization<axis=-1, epsilon=0.00001>(x, s1)
        y = RotaryEmbedding(n, cosc, sinc, pos)
        z = RotaryEmbedding<interleaved=1, rotary_embedding_dim=4>(n, cosd, sind, pos)""",
        {
            "s1": (8,),
            **{
                n + "c": f(np.arange(10)[:, None] * [1, 0.1, 0.01, 0.001]).astype(np.float32)
                for n, f in (("cos", np.cos), ("sin", np.sin))
            },
            **{
                n + "d": f(np.arange(10)[:, None] * [1, 0.1]).astype(np.float32)
                for n, f in (("cos", np.cos), ("sin", np.sin))
            },
        },
        lambda r: {
            "x": r.standard_normal((2, 3, 4, 8)).astype(np.float32),
            "pos": r.integers(0, 10, (2, 4)),
        },
        opset=23,
    ),
    "stacked_lstm_tagger": Kind(
        "float[t, b, 5] x, int32[b] lens",
        "y, h2, c2",
        """a, h1, c1 = LSTM<hidden_size=4, direction="bidirectional">(x, w1, w2, b1, lens)
        t1 = Transpose<perm=[0, 2, 1, 3]>(a) r1 = Reshape(t1, s8)
        bb, h2, c2 = LSTM<hidden_size=3, direction="reverse", clip=2.0, activations=["Sigmoid",
        "Tanh", "Relu"]>(r1, w3, w4, , lens)
        g, hg = GRU<hidden_size=3, direction="bidirectional", linear_before_reset=1>(r1, w5, w6,
        , lens) t2 = Transpose<perm=[0, 2, 1, 3]>(g) r2 = Reshape(t2, s6) bq = Squeeze(bb, one)
        y = Concat<axis=-1>(r2, bq)""",
        {
            "w1": (2, 16, 5),
            "w2": (2, 16, 4),
            "b1": np.random.default_rng(4).standard_normal((2, 32)).astype(np.float32),
            "s8": i64(0, 0, -1),
            "w3": (1, 12, 8),
            "w4": (1, 12, 3),
            "w5": (2, 9, 8),
            "w6": (2, 9, 3),
            "s6": i64(0, 0, -1),
            "one": i64(1),
        },
        lstm_feeds,
    ),
    "rnn_batch_first": Kind(
        "float[7, 3, 5] x, int32[b] lens",
        "y, h",
        """r = ReverseSequence<batch_axis=1, time_axis=0>(x, l64)
        y, h = RNN<hidden_size=4, direction="bidirectional", activations=["Tanh", "Affine"],
        activation_alpha=[0.5], activation_beta=[0.1]>(r, w1, w2, , lens)""",
        {"w1": (2, 4, 5), "w2": (2, 4, 4), "l64": i64(7, 4, 1)},
        lstm_feeds,
    ),
    "gpt2_conv1d": Kind(
        "int64[b, s] ids",
        "y",
        """f = Reshape(ids, flat) e = Gather(w1, f) ss = Shape(ids) sl = Gather(ss, onei)
        r = Range(zi, sl, onei) p = Gather(w2, r) es = Concat<axis=0>(ss, width)
        e3 = Reshape(e, es) x = Add(e3, p) mu = ReduceMean<axes=[-1]>(x) d = Sub(x, mu)
        sq = Pow(d, two) var = ReduceMean<axes=[-1]>(sq) ve = Add(var, eps) sd = Sqrt(ve)
        n = Div(d, sd) ns = Mul(n, s1) x2 = Reshape(ns, rows) g = Gemm(x2, w3, s2)
        gs = Concat<axis=0>(ss, w3s) qkv = Reshape(g, gs) q, k, v = Split<axis=2>(qkv, parts)
        kt = Transpose<perm=[0, 2, 1]>(k) a = MatMul(q, kt) slv = Unsqueeze(sl, z)
        fm = Slice(causal, z, slv, ax) fm2 = Slice(fm, z, slv, ax1) w = Where(fm2, a, low)
        sm = Softmax(w) o = MatMul(sm, v) c3 = Constant<value_float=0.044715>() h3 = Mul(o, o)
        h4 = Mul(h3, o) h5 = Mul(h4, c3) h6 = Add(o, h5)
        sc = Constant<value_float=0.7978845608>() h7 = Mul(h6, sc) h8 = Tanh(h7)
        onef = Constant<value_float=1.0>() h9 = Add(h8, onef) ha = Mul(o, h9)
        hf = Constant<value_float=0.5>() hb = Mul(ha, hf) wt = Transpose<perm=[1, 0]>(w1)
        y = MatMul(hb, wt)""",
        {
            "flat": i64(-1),
            "w1": (30, 12),
            "w2": (16, 12),
            "onei": np.array(1),
            "zi": np.array(0),
            "width": i64(12),
            "two": np.float32(2),
            "eps": np.float32(1e-5),
            "s1": (12,),
            "rows": i64(-1, 12),
            "w3": (12, 36),
            "s2": (36,),
            "w3s": i64(36),
            "parts": i64(12, 12, 12),
            "causal": np.tril(np.ones((16, 16), bool)),
            "z": i64(0),
            "ax": i64(0),
            "ax1": i64(1),
            "low": np.float32(-1e9),
        },
        lambda r: {"ids": r.integers(0, 30, (2, 7))},
    ),
    "einsum_forms": Kind(
        "float[b, i, 4] x, float[b, j, 4] z",
        "a, b2, c, d, f, g",
        """a = Einsum<equation="bid,bjd->bij">(x, z) b2 = Einsum<equation="...d,de->...e">(x, w1)
        c = Einsum<equation="bii->bi">(sq) d = Einsum<equation="bid->">(x)
        f = Einsum<equation="bid,bjd,de->bije">(x, z, w1)
        g = Einsum<equation="bid,bid->bi">(x, x)""",
        {
            "w1": (4, 5),
            "sq": np.random.default_rng(5).standard_normal((2, 3, 3)).astype(np.float32),
        },
        floats(x=(2, 3, 4), z=(2, 6, 4)),
    ),
    "t5_relative_bias": Kind(
        "float[b, s, 8] x",
        "y",
        """xs = Shape(x) sl = Gather(xs, onei) r = Range(zi, sl, onei) ri = Unsqueeze(r, one)
        rj = Unsqueeze(r, z) d = Sub(rj, ri) neg = Less(d, zi) side = Cast<to=7>(neg)
        s8 = Mul(side, four) ab = Abs(d) af = Cast<to=1>(ab) fourf = Constant<value_float=2.0>()
        fr = Div(af, fourf) mx = Max(fr, onef) lg = Log(mx) k = Constant<value_float=1.5>()
        lm = Mul(lg, k) li = Cast<to=7>(lm) lb = Add(li, two) lc = Min(lb, three)
        small = Less(ab, two) bk = Where(small, ab, lc) bucket = Add(bk, s8)
        e = Gather(w1, bucket) t = Transpose<perm=[2, 0, 1]>(e) bias = Unsqueeze(t, z)
        xr = Reshape(x, hs) xt = Transpose<perm=[0, 2, 1, 3]>(xr)
        xk = Transpose<perm=[0, 1, 3, 2]>(xt) a = MatMul(xt, xk) b2 = Add(a, bias)
        p = Softmax(b2) o = MatMul(p, xt) ot = Transpose<perm=[0, 2, 1, 3]>(o)
        y = Reshape(ot, flat)""",
        {
            "onei": np.array(1),
            "zi": np.array(0),
            "one": i64(1),
            "z": i64(0),
            "four": np.array(4),
            "onef": np.float32(1),
            "two": np.array(2),
            "three": np.array(3),
            "w1": (8, 2),
            "hs": i64(0, 0, 2, 4),
            "flat": i64(0, 0, 8),
        },
        floats(x=(2, 9, 8)),
    ),
}
