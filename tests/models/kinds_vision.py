"""Vision: detectors, transformers on patches, warps, 1-D and 3-D convolutions."""

from __future__ import annotations

import numpy as np
from kind_cases import Inputs, Kind, floats, i64


def boxes(r: np.random.Generator) -> Inputs:
    at = r.uniform(0, 12, (5, 2))
    return {
        "x": r.standard_normal((1, 6, 16, 16)).astype(np.float32),
        "rois": np.concatenate([at, at + r.uniform(1, 6, (5, 2))], 1).astype(np.float32),
    }


VISION = {
    # YOLO head: sigmoid of cell offsets on a grid, corners, per-class suppression, top detections
    "yolo_head": Kind(
        "float[1, 3, 32, 32] x",
        "dets, n",
        """a = Conv<kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]>(x, w1) b = Sigmoid(a)
        c = Mul(a, b) d = Conv<kernel_shape=[3, 3], strides=[4, 4], pads=[1, 1, 1, 1]>(c, w2)
        e = Reshape(d, sh) f = Transpose<perm=[0, 2, 1]>(e) g = Sigmoid(f)
        xy, wh, obj, cls = Split<axis=2>(g, parts) xy2 = Mul(xy, two) xy3 = Add(xy2, grid)
        xy4 = Mul(xy3, stride) wh2 = Mul(wh, two) wh3 = Pow(wh2, two) wh4 = Mul(wh3, anchors)
        half = Div(wh4, two) lo = Sub(xy4, half) hi = Add(xy4, half)
        box = Concat<axis=2>(lo, hi) conf = Mul(obj, cls)
        scores = Transpose<perm=[0, 2, 1]>(conf)
        keep = NonMaxSuppression(box, scores, most, iou, low) ci = Gather<axis=1>(keep, one)
        bi = Gather<axis=1>(keep, twoi) flat = Squeeze(box, zero1) sq = Squeeze(conf, zero1)
        chosen = Gather(flat, bi) last = Unsqueeze(bi, m1) lastc = Unsqueeze(ci, m1)
        at = Concat<axis=1>(last, lastc) s = GatherND(sq, at) su = Unsqueeze(s, m1)
        cf = Cast<to=1>(lastc) dets = Concat<axis=1>(chosen, su, cf) sh2 = Shape(dets)
        n = Gather(sh2, zeroi)""",
        {
            "w1": (8, 3, 3, 3),
            "w2": (8, 8, 3, 3),
            "sh": i64(1, 8, -1),
            "parts": i64(2, 2, 1, 3),
            "two": np.float32([2.0])[0:1],
            "grid": np.stack(np.meshgrid(range(4), range(4)), -1)
            .reshape(1, 16, 2)
            .astype(np.float32)
            - 0.5,
            "stride": np.float32([8.0]),
            "anchors": np.float32([10.0, 13.0]),
            "most": i64(4),
            "iou": np.float32([0.45]),
            "low": np.float32([0.2]),
            "one": np.array(1),
            "twoi": np.array(2),
            "zero1": i64(0),
            "m1": i64(-1),
            "zeroi": np.array(0),
        },
        floats(x=(1, 3, 32, 32)),
    ),
    "ssd_prior_decode": Kind(
        "float[n, 8, 6, 6] x",
        "boxes, scores, best",
        """l = Conv<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(x, w1)
        c = Conv<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(x, w2)
        lt = Transpose<perm=[0, 2, 3, 1]>(l) ct = Transpose<perm=[0, 2, 3, 1]>(c)
        lr = Reshape(lt, l4) cr = Reshape(ct, c5) scores = Softmax<axis=-1>(cr)
        a = Slice(lr, z, t, ax) b = Slice(lr, t, f, ax) pa = Slice(prior, z, t, ax)
        pb = Slice(prior, t, f, ax) am = Mul(a, v) an = Mul(am, pb) center = Add(an, pa)
        bm = Mul(b, u) be = Exp(bm) size = Mul(be, pb) h = Mul(size, u5) p = Sub(center, h)
        q = Add(p, size) boxes0 = Concat<axis=-1>(p, q) boxes = Clip(boxes0, lo, hi)
        best = ArgMax<axis=-1, keepdims=0>(scores)""",
        {
            "w1": (8, 8, 3, 3),
            "w2": (10, 8, 3, 3),
            "l4": i64(0, -1, 4),
            "c5": i64(0, -1, 5),
            "z": i64(0),
            "t": i64(2),
            "f": i64(4),
            "ax": i64(-1),
            "v": np.float32(0.1),
            "u": np.float32(0.2),
            "u5": np.float32(0.5),
            "lo": np.float32(0),
            "hi": np.float32(1),
            "prior": np.random.default_rng(0).uniform(0.1, 0.9, (1, 72, 4)).astype(np.float32),
        },
        floats(x=(2, 8, 6, 6)),
    ),
    "roi_head": Kind(
        "float[1, c, h, w] x, float[k, 4] rois",
        "y",
        """ks = Shape(rois) kk = Gather(ks, z1) bi = ConstantOfShape<value=int64[1] {0}>(kk)
        r = RoiAlign<output_height=3, output_width=3, sampling_ratio=2, spatial_scale=0.8,
        coordinate_transformation_mode="half_pixel">(x, rois, bi) f = Flatten(r)
        g = Gemm<transB=1>(f, w1, s1) h = Relu(g) y = Gemm(h, w2)""",
        {"z1": i64(0), "w1": (10, 54), "s1": (10,), "w2": (10, 4)},
        boxes,
    ),
    "spatial_transformer": Kind(
        "float[n, 2, h, w] x",
        "y",
        """p = GlobalAveragePool(x) f = Flatten(p) t0 = Gemm(f, w1) t1 = Add(t0, eye)
        th = Reshape(t1, s23) xs = Shape(x) g = AffineGrid<align_corners=0>(th, xs)
        y = GridSample<mode="linear", padding_mode="border", align_corners=0>(x, g)""",
        {
            "w1": np.float32([[0.1, 0.2, 0, 0.1, -0.1, 0.3], [0.2, -0.2, 0.1, 0, 0.1, 0.1]]),
            "eye": np.float32([1, 0, 0, 0, 1, 0]),
            "s23": i64(-1, 2, 3),
        },
        floats(x=(2, 2, 9, 7)),
        opset=20,
    ),
    "flow_warp": Kind(
        "float[n, 3, 8, 8] x, float[n, 8, 8, 2] flow",
        "a, b, c",
        """k = Constant<value_float=0.3>() f0 = Mul(flow, k) g = Add(f0, base)
        a = GridSample<mode="bilinear", padding_mode="zeros", align_corners=1>(x, g)
        b = GridSample<mode="bicubic", padding_mode="reflection", align_corners=0>(x, g)
        c = GridSample<mode="nearest", padding_mode="border">(x, g)""",
        {
            "base": np.stack(np.meshgrid(np.linspace(-1, 1, 8), np.linspace(-1, 1, 8)), -1)[
                None
            ].astype(np.float32)
        },
        floats(x=(2, 3, 8, 8), flow=(2, 8, 8, 2)),
        opset=16,
    ),
    "vit": Kind(
        "float[n, 3, 16, 16] x",
        "y",
        """p = Conv<kernel_shape=[4, 4], strides=[4, 4]>(x, w1, s1) ps = Shape(p)
        b = Slice(ps, z, o, z) pr = Concat<axis=0>(b, c16) f = Reshape(p, pr)
        t = Transpose<perm=[0, 2, 1]>(f) cs = Concat<axis=0>(b, m11) ct = Expand(cls, cs)
        tt = Concat<axis=1>(ct, t) e = Add(tt, pos)
        n1 = LayerNormalization<axis=-1, epsilon=0.000001>(e, s2, b2) qkv = MatMul(n1, w2)
        q5 = Reshape(qkv, s5) q6 = Transpose<perm=[2, 0, 3, 1, 4]>(q5)
        q7, k7, v7 = Split<axis=0, num_outputs=3>(q6) q = Squeeze(q7, z) k = Squeeze(k7, z)
        v = Squeeze(v7, z) qs = Mul(q, sc) kt = Transpose<perm=[0, 1, 3, 2]>(k)
        at = MatMul(qs, kt) sm = Softmax(at) o0 = MatMul(sm, v)
        o1 = Transpose<perm=[0, 2, 1, 3]>(o0) o2 = Reshape(o1, s3) o3 = MatMul(o2, w3)
        r = Add(e, o3) n2 = LayerNormalization<axis=-1, epsilon=0.000001>(r, s4, b2)
        h = MatMul(n2, w4) d = Div(h, rt2) er = Erf(d) one = Constant<value_float=1.0>()
        e1 = Add(er, one) hm = Mul(h, e1) hh = Constant<value_float=0.5>() ge = Mul(hm, hh)
        h2 = MatMul(ge, w5) r2 = Add(r, h2) c0 = Gather<axis=1>(r2, zi) y = MatMul(c0, w6)""",
        {
            "w1": (16, 3, 4, 4),
            "s1": (16,),
            "z": i64(0),
            "o": i64(1),
            "c16": i64(16, -1),
            "m11": i64(1, 16),
            "cls": np.random.default_rng(1).standard_normal((1, 1, 16)).astype(np.float32),
            "pos": np.random.default_rng(2).standard_normal((1, 17, 16)).astype(np.float32),
            "s2": (16,),
            "b2": np.zeros(16, np.float32),
            "w2": (16, 48),
            "s5": i64(0, 0, 3, 2, 8),
            "s3": i64(0, 0, 16),
            "sc": np.float32(8**-0.5),
            "w3": (16, 16),
            "s4": (16,),
            "w4": (16, 32),
            "rt2": np.float32(2**0.5),
            "w5": (32, 16),
            "zi": np.array(0),
            "w6": (16, 5),
        },
        floats(x=(2, 3, 16, 16)),
        opset=18,
    ),
    "swin_window": Kind(
        "float[1, 8, 8, 6] x",
        "y",
        """a0 = Slice(x, s2i, big, ax1) a1 = Slice(x, z, s2i, ax1) a = Concat<axis=1>(a0, a1)
        b0 = Slice(a, s2i, big, ax2) b1 = Slice(a, z, s2i, ax2) b = Concat<axis=2>(b0, b1)
        w = Reshape(b, win) t = Transpose<perm=[0, 1, 3, 2, 4, 5]>(w) f = Reshape(t, tok)
        q = MatMul(f, w1) k = MatMul(f, w2) kt = Transpose<perm=[0, 2, 1]>(k) s = MatMul(q, kt)
        sb = Add(s, bias) p = Softmax(sb) o = MatMul(p, f) r = Reshape(o, back)
        u = Transpose<perm=[0, 1, 3, 2, 4, 5]>(r) y = Reshape(u, full)""",
        {
            "s2i": i64(2),
            "big": i64(1 << 40),
            "z": i64(0),
            "ax1": i64(1),
            "ax2": i64(2),
            "win": i64(1, 2, 4, 2, 4, 6),
            "tok": i64(-1, 16, 6),
            "w1": (6, 6),
            "w2": (6, 6),
            "bias": np.random.default_rng(3).standard_normal((1, 16, 16)).astype(np.float32),
            "back": i64(1, 2, 2, 4, 4, 6),
            "full": i64(1, 8, 8, 6),
        },
        floats(x=(1, 8, 8, 6)),
    ),
    "video_3d": Kind(
        "float[n, 2, t, 8, 8] x",
        "y",
        """a = Conv<kernel_shape=[3, 3, 3], pads=[1, 1, 1, 1, 1, 1]>(x, w1)
        b = BatchNormalization(a, s1, b1, b1, s2) c = Relu(b)
        d = MaxPool<kernel_shape=[1, 2, 2], strides=[1, 2, 2]>(c)
        e = Conv<kernel_shape=[2, 1, 1], dilations=[2, 1, 1], group=4>(d, w2)
        f = AveragePool<kernel_shape=[2, 2, 2], pads=[1, 1, 0, 0, 1, 1], ceil_mode=1>(e)
        g = ConvTranspose<kernel_shape=[2, 2, 2], strides=[2, 2, 2], output_padding=[0, 1,
        0]>(f, w3) y = GlobalMaxPool(g)""",
        {
            "w1": (4, 2, 3, 3, 3),
            "s1": (4,),
            "b1": np.zeros(4, np.float32),
            "s2": (4,),
            "w2": (8, 1, 2, 1, 1),
            "w3": (8, 3, 2, 2, 2),
        },
        floats(x=(1, 2, 6, 8, 8)),
    ),
    "resize_modes": Kind(
        "float[1, 2, h, w] x",
        "a, b, c, d, e",
        """a = Resize<mode="cubic", cubic_coeff_a=-0.5,
        coordinate_transformation_mode="align_corners">(x, , sc)
        b = Resize<mode="nearest", nearest_mode="floor",
        coordinate_transformation_mode="asymmetric">(x, , sc)
        c = Resize<mode="linear", antialias=1>(x, , dn)
        d = Resize<mode="nearest", nearest_mode="round_prefer_ceil",
        coordinate_transformation_mode="pytorch_half_pixel">(x, , , sz)
        e = Resize<mode="linear", keep_aspect_ratio_policy="not_larger", axes=[2, 3]>(x, , ,
        sz2)""",
        {
            "sc": np.float32([1, 1, 2, 1.5]),
            "dn": np.float32([1, 1, 0.5, 0.6]),
            "sz": i64(1, 2, 7, 13),
            "sz2": i64(9, 9),
        },
        floats(x=(1, 2, 6, 10)),
        opset=18,
    ),
    "shuffle_net": Kind(
        "float[n, 8, h, w] x",
        "y",
        """l, r = Split<axis=1, num_outputs=2>(x) a = Conv<kernel_shape=[1, 1]>(r, w1) b = Relu(a)
        c = Conv<kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=4>(b, w2)
        d = Concat<axis=1>(l, c) ds = Shape(d) n0 = Slice(ds, z, o, z) hw = Slice(ds, t, f, z)
        sh = Concat<axis=0>(n0, g24, hw) e = Reshape(d, sh)
        g = Transpose<perm=[0, 2, 1, 3, 4]>(e) back = Concat<axis=0>(n0, m1, hw)
        y = Reshape(g, back)""",
        {
            "w1": (4, 4, 1, 1),
            "w2": (4, 1, 3, 3),
            "z": i64(0),
            "o": i64(1),
            "t": i64(2),
            "f": i64(4),
            "g24": i64(2, 4),
            "m1": i64(-1),
        },
        floats(x=(2, 8, 7, 5)),
        opset=18,
    ),
    "super_resolution": Kind(
        "float[n, 1, h, w] x",
        "y",
        """a = Conv<kernel_shape=[5, 5], auto_pad="SAME_UPPER">(x, w1) b = PRelu(a, slope)
        c = Conv<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(b, w2) d = DepthToSpace<blocksize=3>(c)
        e = Upsample<mode="nearest">(d, sc) y = Clip<max=1.0>(e)""",
        {
            "w1": (6, 1, 5, 5),
            "slope": np.float32([[[0.1]], [[0.2]], [[0.3]], [[0.0]], [[-0.1]], [[0.5]]]),
            "w2": (9, 6, 3, 3),
            "sc": np.float32([1, 1, 1, 2]),
        },
        floats(x=(1, 1, 6, 5)),
        opset=9,
    ),
    "deformable": Kind(
        "float[1, 4, 7, 7] x",
        "y",
        """off0 = Conv<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(x, w1)
        h = Constant<value_float=0.4>() off = Mul(off0, h)
        m0 = Conv<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(x, w2) m = Sigmoid(m0)
        y = DeformConv<kernel_shape=[3, 3], pads=[1, 1, 1, 1], offset_group=1>(x, w3, off, s4,
        m)""",
        {"w1": (18, 4, 3, 3), "w2": (9, 4, 3, 3), "w3": (5, 4, 3, 3), "s4": (5,)},
        floats(x=(1, 4, 7, 7)),
        opset=19,
    ),
    "group_norm_unet_block": Kind(
        "float[n, 8, h, w] x, float[n] time",
        "y",
        """g = GroupNormalization<num_groups=4, epsilon=0.00001>(x, s1, b1) s = Sigmoid(g)
        h = Mul(g, s) c = Conv<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(h, w1)
        tu = Unsqueeze(time, m1) fr = Mul(tu, freq) si = Sin(fr) co = Cos(fr)
        emb = Concat<axis=1>(co, si) te = MatMul(emb, w2) t4 = Unsqueeze(te, m23)
        ca = Add(c, t4) r = InstanceNormalization(ca, s1, b1) y0 = Add(r, x) y = Mish(y0)""",
        {
            "s1": (8,),
            "b1": np.full(8, 0.1, np.float32),
            "w1": (8, 8, 3, 3),
            "m1": i64(-1),
            "freq": np.float32([[1, 0.1, 0.01, 0.001]]),
            "w2": (8, 8),
            "m23": i64(2, 3),
        },
        floats(x=(2, 8, 6, 6), time=(2,)),
        opset=21,
    ),
}
