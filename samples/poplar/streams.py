"""Streams with callbacks: the host makes the next input ahead of time and takes every result."""

from __future__ import annotations

import numpy as np
from common import arguments, finish, new_graph

from poplar_py import poplar, popops
from poplar_py.poplar.program import Copy, Repeat, Sequence

COUNT, SIZE = 8, 64


class Numbers:
    """A stream callback: blocks of numbers, the next one made by `prefetch` while tiles compute."""

    def __init__(self) -> None:
        self.made = self.ahead = 0
        self.ready: np.ndarray | None = None

    def _make(self) -> np.ndarray:
        self.made += 1
        return np.full(SIZE, self.made, np.float32)

    def fetch(self, buffer: np.ndarray) -> None:
        block = self._make() if self.ready is None else self.ready
        buffer[:] = block
        self.ready = None

    def prefetch(self, buffer: np.ndarray) -> bool:
        self.ahead += 1
        buffer[:] = self._make()
        return True

    def complete(self) -> None:
        self.ready = None


def main() -> None:
    graph = new_graph(arguments(__doc__))
    x = graph.add_variable(poplar.FLOAT, [SIZE], "x", mapping="linear")
    into = graph.add_host_to_device_fifo("numbers", poplar.FLOAT, SIZE)
    out = graph.add_device_to_host_fifo("squares", poplar.FLOAT, SIZE)
    body = Sequence(Copy(into, x))
    square = popops.map(graph, "mul($0,$0)", [x], body, "square")
    body.add(Copy(square, out))

    squares: list[float] = []

    def take(buffer: np.ndarray) -> None:
        squares.append(float(buffer[0]))

    source = Numbers()
    engine = poplar.Engine(graph, Repeat(COUNT, body))
    engine.connect_stream_to_callback("numbers", source)
    engine.connect_stream_to_callback("squares", take)
    engine.run()
    expected = [float(i * i) for i in range(1, COUNT + 1)]
    finish(squares == expected, f"squares {squares}, {source.ahead} blocks made ahead")


if __name__ == "__main__":
    main()
