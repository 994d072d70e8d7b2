"""ONNX Scan: unrolled where it is short, else a loop over buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from poplar_py.diagnostics import InputError, ShapeError
from poplar_py.frontends.onnx.builder import Builder
from poplar_py.frontends.onnx.node import Node, imports
from poplar_py.frontends.onnx.rules_control import UNROLL_NODES, device_loop, stack_values
from poplar_py.frontends.onnx.values import Val
from poplar_py.ops import tensor

__all__: list[str] = []


@imports("Scan")
def scan(b: Builder, n: Node) -> Sequence[Val]:
    if n.version < 9:
        return _scan_batches(b, n)
    return _scan(b, n, n.tensors(), n.ints("scan_input_directions"), n.ints("scan_input_axes"))


def _scan_batches(b: Builder, n: Node) -> list[Val]:
    """Opset 8: a leading batch axis, and perhaps lengths."""
    if n.has(0):
        raise b.refuse("Scan with sequence lengths (opset 8) is not supported")
    inputs = n.tensors(1)
    results: list[list[Val]] = []
    for k in range(inputs[0].shape[0]):
        picked = [b.pick(x, 0, k) for x in inputs]
        results.append(_scan(b, n, picked, n.ints("directions"), ()))
    return [stack_values(b, list(parts)) for parts in zip(*results, strict=True)]


def _scan(
    b: Builder, n: Node, inputs: list[Val], directions: Sequence[int], axes: Sequence[int]
) -> list[Val]:
    body = n.graph("body")
    count = n.int("num_scan_inputs")
    states, sources = inputs[: len(inputs) - count], inputs[len(inputs) - count :]
    if not 0 < count <= len(inputs):
        raise InputError(f"{count} scan inputs of {len(inputs)}", n.loc)
    lines: list[Val] = []
    for i, x in enumerate(sources):
        axis = (axes[i] if axes else 0) % max(x.rank, 1)
        x = b.transpose(x, [axis, *(j for j in range(x.rank) if j != axis)])
        lines.append(b.flip(x, 0) if directions and directions[i] else x)
    trip = lines[0].shape[0]
    if any(x.shape[0] != trip for x in lines):
        raise ShapeError("scan inputs differ in length", n.loc)
    scans = len(body.output) - len(states)

    def once(values: list[Val], parts: list[Val]) -> list[Val]:
        outs = n.scope.import_subgraph(body, [*values, *parts])
        return [v for v in outs if isinstance(v, Val)]

    if trip * max(1, len(body.node)) <= UNROLL_NODES:
        values = list(states)
        parts: list[list[Val]] = []
        for i in range(trip):
            outs = once(values, [b.pick(x, 0, i) for x in lines])
            values = outs[: len(states)]
            parts.append(outs[len(states) :])
        results = [*values, *(stack_values(b, [p[k] for p in parts]) for k in range(scans))]
    else:
        results = _scan_loop(b, states, lines, trip, once)
    return _scan_outputs(b, n, results, len(states))


def _scan_loop(
    b: Builder,
    states: list[Val],
    lines: list[Val],
    trip: int,
    once: Callable[[list[Val], list[Val]], list[Val]],
) -> list[Val]:
    with b.region():
        probe = once(list(states), [b.pick(x, 0, 0) for x in lines])
    kinds = [p.type for p in probe[len(states) :]]
    buffers = [
        b.const(np.broadcast_to(np.zeros((), k.dtype.numpy), (trip, *k.static_shape)))
        for k in kinds
    ]

    def step(i: Val, values: list[Val]) -> tuple[Val | None, list[Val]]:
        parts = [
            b.reshape(b.emit(tensor.DynamicSlice, x, i, axis=0, size=1), x.shape[1:]) for x in lines
        ]
        outs = once(values[: len(states)], parts)
        kept = outs[: len(states)]
        for buffer, part in zip(values[len(states) :], outs[len(states) :], strict=True):
            kept.append(b.emit(tensor.DynamicUpdate, buffer, b.unsqueeze(part, 0), i, axis=0))
        return None, kept

    return device_loop(b, step, [*states, *buffers], trip=trip)


def _scan_outputs(b: Builder, n: Node, results: list[Val], states: int) -> list[Val]:
    axes, backward = n.ints("scan_output_axes"), n.ints("scan_output_directions")
    out = results[:states]
    for i, x in enumerate(results[states:]):
        x = b.flip(x, 0) if backward and backward[i] else x
        axis = axes[i] % x.rank if axes else 0
        order = list(range(1, x.rank))
        order.insert(axis, 0)
        out.append(b.transpose(x, order))
    return out
