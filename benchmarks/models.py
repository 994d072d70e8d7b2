"""The four benchmark models, built with onnx.helper from seeded random weights.

Sizes are those of the usual definitions: an MLP 784-512-512-10, a LeNet-5 sized CNN, ResNet-18
with its batch norms, and a BERT encoder of 4 layers of width 256. Weights are scaled so that
activations stay of order one, which keeps float32 comparisons meaningful.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[Any]
OPSET = 17
IR_VERSION = 8


@dataclass
class Net:
    """Collects the nodes and initialisers of one ONNX graph; methods return value names."""

    seed: int
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    initializers: list[onnx.TensorProto] = field(default_factory=list[onnx.TensorProto])

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Appends one node with one output and returns the output's name."""
        name = f"{kind.lower()}_{len(self.nodes)}"
        node = helper.make_node(kind, list(inputs), [f"{name}_y"], name, **attributes)
        self.nodes.append(node)
        return f"{name}_y"

    def const(self, array: Array, name: str = "c") -> str:
        """Adds an initialiser and returns its name."""
        unique = f"{name}_{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(array, unique))
        return unique

    def scalar(self, value: float) -> str:
        """Adds a float32 scalar."""
        return self.const(np.array(value, np.float32), "scalar")

    def normal(self, shape: tuple[int, ...], scale: float, name: str = "w") -> str:
        """Adds a normally distributed float32 initialiser with the given standard deviation."""
        return self.const((self.rng.standard_normal(shape) * scale).astype(np.float32), name)

    def uniform(self, shape: tuple[int, ...], low: float, high: float, name: str = "u") -> str:
        """Adds a uniformly distributed float32 initialiser."""
        return self.const(self.rng.uniform(low, high, shape).astype(np.float32), name)

    def dense(self, x: str, inner: int, outer: int) -> str:
        """y = x w + b on the last axis, He-scaled weights."""
        w = self.normal((inner, outer), (2.0 / inner) ** 0.5)
        return self.op("Add", self.op("MatMul", x, w), self.normal((outer,), 0.1, "b"))

    def gemm(self, x: str, inner: int, outer: int) -> str:
        """The same through Gemm with the weights stored [outer, inner]."""
        w = self.normal((outer, inner), (2.0 / inner) ** 0.5)
        return self.op("Gemm", x, w, self.normal((outer,), 0.1, "b"), transB=1)

    def conv(
        self,
        x: str,
        channels: tuple[int, int],
        kernel: int,
        *,
        stride: int = 1,
        pad: int = 0,
        bias: bool = True,
    ) -> str:
        """Square 2-D convolution; `channels` is (in, out)."""
        fan_in = channels[0] * kernel * kernel
        shape = (channels[1], channels[0], kernel, kernel)
        inputs = [x, self.normal(shape, (2.0 / fan_in) ** 0.5)]
        if bias:
            inputs.append(self.normal((channels[1],), 0.1, "b"))
        return self.op(
            "Conv",
            *inputs,
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[pad] * 4,
        )

    def norm(self, x: str, width: int) -> str:
        """LayerNormalization on the last axis."""
        scale = self.uniform((width,), 0.8, 1.2, "scale")
        return self.op("LayerNormalization", x, scale, self.normal((width,), 0.1, "bias"), axis=-1)

    def batch_norm(self, x: str, channels: int) -> str:
        """BatchNormalization with statistics that are far from the identity."""
        parameters = [
            self.uniform((channels,), 0.5, 1.0, "scale"),
            self.normal((channels,), 0.1, "shift"),
            self.normal((channels,), 0.1, "mean"),
            self.uniform((channels,), 0.5, 1.5, "var"),
        ]
        return self.op("BatchNormalization", x, *parameters)

    def model(self, name: str, x: onnx.ValueInfoProto, y: str, shape: list[int]) -> onnx.ModelProto:
        """Closes the graph with one input and one float32 output and checks it."""
        out = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
        self.nodes.append(helper.make_node("Identity", [y], ["y"], "output"))
        graph = helper.make_graph(self.nodes, name, [x], [out], self.initializers)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        onnx.checker.check_model(model)  # pyright: ignore[reportUnknownMemberType]
        return model


def mlp(batch: int = 64) -> onnx.ModelProto:
    """784-512-512-10 with relu between."""
    net = Net(1)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 784])
    h = net.op("Relu", net.gemm("x", 784, 512))
    h = net.op("Relu", net.gemm(h, 512, 512))
    return net.model("mlp", x, net.gemm(h, 512, 10), [batch, 10])


def lenet(batch: int = 64) -> onnx.ModelProto:
    """Two 5x5 convolutions with max pooling, three dense layers, on 28x28 images."""
    net = Net(2)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 1, 28, 28])
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    h = net.op("MaxPool", net.op("Relu", net.conv("x", (1, 6), 5, pad=2)), **pool)
    h = net.op("MaxPool", net.op("Relu", net.conv(h, (6, 16), 5)), **pool)
    h = net.op("Flatten", h, axis=1)
    h = net.op("Relu", net.gemm(h, 400, 120))
    h = net.op("Relu", net.gemm(h, 120, 84))
    return net.model("lenet", x, net.gemm(h, 84, 10), [batch, 10])


def _residual_block(net: Net, x: str, channels: tuple[int, int], stride: int) -> str:
    """Two 3x3 convolutions with batch norm and a shortcut; `channels` is (in, out)."""
    inner, outer = channels
    h = net.batch_norm(net.conv(x, channels, 3, stride=stride, pad=1, bias=False), outer)
    h = net.conv(net.op("Relu", h), (outer, outer), 3, pad=1, bias=False)
    h = net.batch_norm(h, outer)
    if stride != 1 or inner != outer:
        x = net.batch_norm(net.conv(x, channels, 1, stride=stride, bias=False), outer)
    return net.op("Relu", net.op("Add", h, x))


def resnet18(batch: int = 1, pixels: int = 224) -> onnx.ModelProto:
    """ResNet-18 with unfolded batch norms and 1,000 classes."""
    net = Net(3)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, pixels, pixels])
    h = net.batch_norm(net.conv("x", (3, 64), 7, stride=2, pad=3, bias=False), 64)
    h = net.op("Relu", h)
    h = net.op("MaxPool", h, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    inner = 64
    for stage, outer in enumerate((64, 128, 256, 512)):
        for block in range(2):
            stride = 2 if stage > 0 and block == 0 else 1
            h = _residual_block(net, h, (inner, outer), stride)
            inner = outer
    h = net.op("Flatten", net.op("GlobalAveragePool", h), axis=1)
    return net.model("resnet18", x, net.gemm(h, 512, 1000), [batch, 1000])


def _gelu(net: Net, x: str) -> str:
    """Exact gelu in the five nodes that exporters write."""
    scaled = net.op("Div", x, net.scalar(2.0**0.5))
    erf = net.op("Add", net.op("Erf", scaled), net.scalar(1.0))
    return net.op("Mul", net.op("Mul", x, erf), net.scalar(0.5))


def _encoder_layer(net: Net, x: str, width: int, heads: int, tokens: int) -> str:
    """One post-norm transformer encoder layer."""
    split = net.const(np.array([1, tokens, heads, width // heads], np.int64), "shape")
    merge = net.const(np.array([1, tokens, width], np.int64), "shape")

    def heads_of(kind: list[int]) -> str:
        projected = net.op("Reshape", net.dense(x, width, width), split)
        return net.op("Transpose", projected, perm=kind)

    q, k, v = heads_of([0, 2, 1, 3]), heads_of([0, 2, 3, 1]), heads_of([0, 2, 1, 3])
    scale = net.scalar((width // heads) ** -0.5)
    scores = net.op("Softmax", net.op("Mul", net.op("MatMul", q, k), scale), axis=-1)
    mixed = net.op("Transpose", net.op("MatMul", scores, v), perm=[0, 2, 1, 3])
    attended = net.dense(net.op("Reshape", mixed, merge), width, width)
    x = net.norm(net.op("Add", x, attended), width)
    hidden = _gelu(net, net.dense(x, width, 4 * width))
    return net.norm(net.op("Add", x, net.dense(hidden, 4 * width, width)), width)


def bert(tokens: int = 128, layers: int = 4, width: int = 256, heads: int = 4) -> onnx.ModelProto:
    """A BERT encoder from token ids: embedding, position, 4 layers; vocabulary 30,522."""
    net = Net(4)
    x = helper.make_tensor_value_info("x", TensorProto.INT64, [1, tokens])
    words = net.normal((30522, width), 1.0, "words")
    positions = net.normal((1, tokens, width), 0.5, "positions")
    h = net.norm(net.op("Add", net.op("Gather", words, "x", axis=0), positions), width)
    for _ in range(layers):
        h = _encoder_layer(net, h, width, heads, tokens)
    return net.model("bert", x, h, [1, tokens, width])


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "mlp": mlp,
    "lenet": lenet,
    "resnet18": resnet18,
    "bert": bert,
}


def inputs_of(name: str, seed: int = 0) -> dict[str, Array]:
    """Returns seeded inputs of the named model at its default size."""
    rng = np.random.default_rng(seed)
    if name == "bert":
        return {"x": rng.integers(0, 30522, (1, 128), dtype=np.int64)}
    shapes = {"mlp": (64, 784), "lenet": (64, 1, 28, 28), "resnet18": (1, 3, 224, 224)}
    return {"x": rng.standard_normal(shapes[name]).astype(np.float32)}


def write(name: str, folder: Path) -> Path:
    """Writes the named model into `folder` (created if missing) and returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.onnx"
    if not path.exists():
        part = path.with_suffix(".part")
        part.write_bytes(MODELS[name]().SerializeToString())
        part.replace(path)
    return path
