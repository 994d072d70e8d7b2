"""What the block kernels do with their sums: bias, then residual, then activation.

EP = ACT + 16 * POST; POST adds the residual after the activation. ACT: 0 none, 1 relu, 2 gelu (erf),
3 sigmoid, 4 silu, 5 hardswish, 6 clip to [lo, hi], 7 tanh, 8 leaky relu (slope lo), 9 hardsigmoid
(lo x + hi, in 0..1), 10 gelu (tanh).
"""

NAMESPACE = "poplin"


def activate(v, ACT, lo, hi):
    """The activation ACT of a vector."""
    if ACT == 1:
        return max(v, splat16(0.0))
    if ACT == 2:
        half = v * splat16(0.5)
        return fma(half, erf(v * splat16(0.7071067811865476)), half)
    if ACT == 3:
        return sigmoid(v)
    if ACT == 4:
        return v * sigmoid(v)
    if ACT == 5:
        gate = fma(v, splat16(0.16666666666666666), splat16(0.5))
        return v * min(max(gate, splat16(0.0)), splat16(1.0))
    if ACT == 6:
        return min(max(v, splat16(lo)), splat16(hi))
    if ACT == 7:
        return tanh(v)
    if ACT == 8:
        return select(v < splat16(0.0), v * splat16(lo), v)
    if ACT == 9:
        return min(max(fma(v, splat16(lo), splat16(hi)), splat16(0.0)), splat16(1.0))
    if ACT == 10:
        cube = v * v * v
        inner = fma(cube, splat16(0.044715), v) * splat16(0.7978845608028654)
        half = v * splat16(0.5)
        return fma(half, tanh(inner), half)
    return v


def activate_all(acc, COUNT, ACT, lo, hi):
    """The activation of every sum; long ones run in a loop, so that their code stands once."""
    if ACT == 0:
        return
    if ACT == 1 or ACT == 6 or ACT == 8:
        for k in unroll(COUNT):
            acc[k] = activate(acc[k], ACT, lo, hi)
        return
    stage = array(f32x16, COUNT)
    for k in unroll(COUNT):
        stage[k] = acc[k]
    for k in range(COUNT):
        stage[k] = activate(stage[k], ACT, lo, hi)
    for k in unroll(COUNT):
        acc[k] = stage[k]


def add_biases(acc, bias, NB, PX):
    """The bias of every output block, where there is one."""
    if len(bias) > 0:
        for nb in unroll(NB):
            for p in unroll(PX):
                acc[nb * PX + p] = acc[nb * PX + p] + load16(bias[0], nb * 16)


def add_residual(acc, res, first, NB, PX):
    """NB runs of PX pixels from run `first` on, where there are any."""
    if len(res) > 0:
        for nb in unroll(NB):
            for p in unroll(PX):
                acc[nb * PX + p] = acc[nb * PX + p] + load16(res[first + nb], p * 16)


def add_and_activate(acc, res, first, NB, PX, EP, lo, hi):
    """Residual and activation, in the order that EP says."""
    if EP // 16 == 0:
        add_residual(acc, res, first, NB, PX)
    activate_all(acc, NB * PX, EP % 16, lo, hi)
    if EP // 16 == 1:
        add_residual(acc, res, first, NB, PX)


def store_blocks(acc, out, first, NB, PX):
    """NB runs of PX pixels from run `first` of out on."""
    for nb in unroll(NB):
        for p in unroll(PX):
            store16(out[first + nb], p * 16, acc[nb * PX + p])
