"""Random single nodes with valid attributes, for comparison with onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass
class RandomNode:
    op: str
    inputs: list[Any]
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    outputs: int = 1

    def model(self) -> tuple[onnx.ModelProto, dict[str, Array]]:
        """A model whose first operand is its input, all others weights; the input's value."""
        names = ["" if x is None else f"i{k}" for k, x in enumerate(self.inputs)]
        arrays = {
            k: np.asarray(x) for k, x in zip(names, self.inputs, strict=True) if x is not None
        }
        outs = [f"o{k}" for k in range(self.outputs)]
        first = arrays[names[0]]
        kind = helper.np_dtype_to_tensor_dtype(first.dtype)
        graph = helper.make_graph(
            [helper.make_node(self.op, names, outs, **self.attributes)],
            "g",
            [helper.make_tensor_value_info(names[0], kind, first.shape)],
            [helper.make_empty_tensor_value_info(o) for o in outs],
            [numpy_helper.from_array(v, k) for k, v in arrays.items() if k != names[0]],
        )
        opset = 22 if self.op in ("AveragePool", "LpPool") else 20
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        made.ir_version = 9
        return made, {names[0]: first}


class Dice:
    """Shorthands over a random generator."""

    def __init__(self, seed: int) -> None:
        self.r = np.random.default_rng(seed)

    def number(self, low: int, high: int) -> int:
        return int(self.r.integers(low, high + 1))

    def numbers(self, count: int, low: int, high: int) -> list[int]:
        return [self.number(low, high) for _ in range(count)]

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.r.integers(len(choices)))]

    def chance(self, share: float) -> bool:
        return bool(self.r.random() < share)

    def floats(self, *shape: int) -> Array:
        return self.r.normal(0, 1, shape).astype(np.float32)


def conv(d: Dice) -> RandomNode:
    n, groups, ins, outs = d.number(1, 3), d.pick(1, 1, 2, 3), d.number(1, 3), d.number(1, 3)
    a: dict[str, Any] = {"strides": d.numbers(n, 1, 3), "group": groups}
    if d.chance(0.3):
        a["auto_pad"] = d.pick("SAME_UPPER", "SAME_LOWER", "VALID")
    else:
        a |= {"pads": d.numbers(2 * n, 0, 2), "dilations": d.numbers(n, 1, 2)}
    x = d.floats(d.number(1, 2), ins * groups, *d.numbers(n, 5, 9))
    w = d.floats(outs * groups, ins, *d.numbers(n, 1, 3))
    bias = [d.floats(outs * groups)] if d.chance(0.5) else []
    return RandomNode("Conv", [x, w, *bias], a)


def conv_transpose(d: Dice) -> RandomNode:
    n, groups, ins, outs = d.number(1, 2), d.pick(1, 1, 2), d.number(1, 3), d.number(1, 3)
    strides = d.numbers(n, 1, 3)
    a: dict[str, Any] = {"strides": strides, "group": groups, "dilations": d.numbers(n, 1, 2)}
    if d.chance(0.3):
        a["auto_pad"] = d.pick("SAME_UPPER", "SAME_LOWER", "VALID")
    elif d.chance(0.5):
        a["pads"] = d.numbers(2 * n, 0, 1)
        a["output_padding"] = [d.number(0, s - 1) for s in strides]
    x = d.floats(1, ins * groups, *d.numbers(n, 3, 6))
    w = d.floats(ins * groups, outs, *d.numbers(n, 1, 4))
    bias = [d.floats(outs * groups)] if d.chance(0.5) else []
    return RandomNode("ConvTranspose", [x, w, *bias], a)


def pool(d: Dice) -> RandomNode:
    op, n = d.pick("MaxPool", "AveragePool"), d.number(1, 3)
    kernel = d.numbers(n, 1, 4)
    # onnxruntime refuses strides beyond the kernel where it pads by itself
    a: dict[str, Any] = {"kernel_shape": kernel, "strides": [d.number(1, k) for k in kernel]}
    if d.chance(0.3):
        a["auto_pad"] = d.pick("SAME_UPPER", "SAME_LOWER", "VALID")
    else:
        a |= {"pads": [(k - 1) // 2 for k in kernel] * 2, "ceil_mode": d.pick(0, 1)}
    if op == "AveragePool":
        a["count_include_pad"] = d.pick(0, 1)
    return RandomNode(op, [d.floats(2, 2, *d.numbers(n, 6, 10))], a)


def resize(d: Dice) -> RandomNode:
    transforms = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    mode = d.pick("nearest", "linear", "cubic")
    a = {"mode": mode, "coordinate_transformation_mode": d.pick(*transforms)}
    if mode == "nearest":
        rounds = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
        a["nearest_mode"] = d.pick(*rounds)
    if mode == "cubic":
        a["exclude_outside"] = d.pick(0, 1)
    sizes = np.asarray([1, 2, *d.numbers(2, 2, 12)])
    return RandomNode("Resize", [d.floats(1, 2, *d.numbers(2, 3, 7)), None, None, sizes], a)


def pad(d: Dice) -> RandomNode:
    n, mode = d.number(1, 4), d.pick("constant", "reflect", "edge", "wrap")
    low, high = {"constant": (-1, 2), "reflect": (0, 1)}.get(mode, (0, 2))
    value = [np.float32(1.5)] if mode == "constant" else []
    pads = np.asarray(d.numbers(2 * n, low, high))
    return RandomNode("Pad", [d.floats(*d.numbers(n, 2, 5)), pads, *value], {"mode": mode})


def slices(d: Dice) -> RandomNode:
    n = d.number(1, 3)
    axes = d.r.permutation(n)[: d.number(1, n)].astype(np.int64)
    count = len(axes)
    starts, ends = (np.asarray(d.numbers(count, -8, 8)) for _ in range(2))
    steps = np.asarray([d.pick(1, 2, -1, -2, 3) for _ in range(count)])
    return RandomNode("Slice", [d.floats(*d.numbers(n, 1, 6)), starts, ends, axes, steps])


def gather_elements(d: Dice) -> RandomNode:
    axis = d.pick(0, 1, 2, -1)
    size = (4, 5, 3)[axis]
    shape = (d.number(1, 4), d.number(1, 5), d.number(1, 3))
    places = d.r.integers(-size, size, shape)
    return RandomNode("GatherElements", [d.floats(4, 5, 3), places], {"axis": axis})


def scatter_elements(d: Dice) -> RandomNode:
    kind = d.pick("none", "add", "mul", "max", "min")
    rows = np.stack([d.r.permutation(5)[:3] for _ in range(4)])
    places = rows if kind == "none" else d.r.integers(-5, 5, (4, 3))
    a = {"axis": 1, "reduction": kind}
    return RandomNode("ScatterElements", [d.floats(4, 5), places, d.floats(4, 3)], a)


def top_k(d: Dice) -> RandomNode:
    axis = d.pick(0, 1, -1)
    k = np.asarray([d.number(1, (3, 6)[axis])])
    a = {"axis": axis, "largest": d.pick(0, 1)}
    return RandomNode("TopK", [np.round(d.floats(3, 6), 1), k], a, 2)


def reduction(d: Dice) -> RandomNode:
    names = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSumExp", "SumSquare")
    axes = d.r.permutation(3)[: d.number(1, 3)].astype(np.int64)
    a = {"keepdims": d.pick(0, 1)}
    return RandomNode("Reduce" + d.pick(*names), [d.floats(2, 3, 4), axes], a)


def norm(d: Dice) -> RandomNode:
    x = d.floats(2, 6, 4, 3)
    return d.pick(
        RandomNode("InstanceNormalization", [x, d.floats(6), d.floats(6)]),
        RandomNode("LayerNormalization", [x, d.floats(3), d.floats(3)], {"axis": -1}),
        RandomNode("LRN", [x], {"size": d.pick(1, 3, 5), "alpha": 0.1, "bias": 1.5}),
        RandomNode(
            "BatchNormalization", [x, *(d.floats(6) for _ in range(3)), np.abs(d.floats(6))]
        ),
    )


def grid_sample(d: Dice) -> RandomNode:
    a = {
        "mode": d.pick("linear", "nearest", "cubic"),
        "padding_mode": d.pick("zeros", "border", "reflection"),
        "align_corners": d.pick(0, 1),
    }
    grid = d.r.uniform(-1.4, 1.4, (1, 3, 3, 2)).astype(np.float32)
    return RandomNode("GridSample", [d.floats(1, 2, 4, 5), grid], a)


_EQUATIONS: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...] = (
    ("bij,bjk->bik", ((2, 3, 4), (2, 4, 5))),
    ("ij,jk,kl->il", ((2, 3), (3, 4), (4, 2))),
    ("ii->i", ((3, 3),)),
    ("bhwc,hkc->bhwk", ((1, 2, 3, 4), (2, 5, 4))),
    ("i,j->ij", ((3,), (4,))),
    ("...ij->...ji", ((2, 3, 4),)),
    ("bcd,bce->de", ((2, 3, 4), (2, 3, 5))),
    ("abc,cd,def->abef", ((2, 3, 4), (4, 5), (5, 2, 3))),
)


def einsum(d: Dice) -> RandomNode:
    equation, shapes = d.pick(*_EQUATIONS)
    return RandomNode("Einsum", [d.floats(*s) for s in shapes], {"equation": equation})


def quantize(d: Dice) -> RandomNode:
    axis, each = d.pick(0, 1, 2, -1), d.chance(0.6)
    shape = (3, 4, 5)
    count = (shape[axis],) if each else ()
    scale = np.asarray(np.abs(d.r.normal(0, 1, count)) * 0.1 + 0.01, np.float32)
    zero = np.asarray(d.r.integers(-5, 5, count)).astype(np.int8)
    return RandomNode("QuantizeLinear", [3 * d.floats(*shape), scale, zero], {"axis": axis})


def qlinear_conv(d: Dice) -> RandomNode:
    count = (4,) if d.chance(0.5) else ()
    scale = np.asarray(np.abs(d.r.normal(0, 1, count)) * 0.05 + 0.01, np.float32)
    x = d.r.integers(0, 255, (1, 3, 6, 6)).astype(np.uint8)
    w = d.r.integers(-100, 100, (4, 3, 3, 3)).astype(np.int8)
    first = [x, np.float32(0.05), np.uint8(120), w, scale, np.zeros(count, np.int8)]
    bias = [d.r.integers(-1000, 1000, 4).astype(np.int32)] if d.chance(0.5) else []
    a = {"pads": [1, 1, 1, 1], "strides": [d.pick(1, 2)] * 2}
    return RandomNode("QLinearConv", [*first, np.float32(0.4), np.uint8(128), *bias], a)


def other(d: Dice) -> RandomNode:
    x = d.floats(3, 4)
    return d.pick(
        RandomNode("Tile", [x, np.asarray(d.numbers(2, 1, 3))]),
        RandomNode("CumSum", [x, np.asarray(d.pick(0, 1, -1))], {"exclusive": d.pick(0, 1)}),
        RandomNode("Gemm", [x, d.floats(4, 5), d.floats(5)], {"alpha": 0.5, "beta": 2.0}),
        RandomNode("Split", [d.floats(2, 7)], {"axis": 1, "num_outputs": 3}, 3),
        RandomNode("ArgMax", [np.round(x)], {"select_last_index": d.pick(0, 1)}),
        RandomNode("DepthToSpace", [d.floats(1, 12, 2, 3)], {"blocksize": 2, "mode": "CRD"}),
        RandomNode("Trilu", [x, np.asarray(d.number(-2, 2))], {"upper": d.pick(0, 1)}),
    )


GENERATORS: tuple[Callable[[Dice], RandomNode], ...] = (
    conv,
    conv_transpose,
    pool,
    resize,
    pad,
    slices,
    gather_elements,
    scatter_elements,
    top_k,
    reduction,
    norm,
    grid_sample,
    einsum,
    quantize,
    qlinear_conv,
    other,
)
