"""Codelets of the algorithm samples."""

from poplar_py.codelets.language import (
    InOut,
    Input,
    MultiVertex,
    Output,
    Vector,
    Vertex,
    f32,
    i32,
    u32,
    vertex,
)


@vertex
class CountHits(MultiVertex):
    """hits[w] = points of worker w inside the quarter circle; a generator of its own per worker."""

    hits: Output[Vector[u32]]
    seed: u32
    points: u32

    def compute(self, worker_id: u32) -> None:
        state = self.seed * u32(747796405) + worker_id * u32(277803737) + u32(2891336453)
        inside = u32(0)
        for _ in range(self.points):
            state = state * u32(1664525) + u32(1013904223)
            x = f32(state >> 8) * f32(5.9604644775390625e-08)
            state = state * u32(1664525) + u32(1013904223)
            y = f32(state >> 8) * f32(5.9604644775390625e-08)
            if x * x + y * y < f32(1):
                inside += u32(1)
        self.hits[worker_id] = inside


@vertex
class SortShare(MultiVertex):
    """Sorts the tile's keys by ranks: every worker places its share of them."""

    x: Input[Vector[f32]]
    out: Output[Vector[f32]]

    def compute(self, worker_id: u32) -> None:
        n = len(self.x)
        for i in range(i32(worker_id), n, 6):
            key = self.x[i]
            rank = 0
            for j in range(n):
                if self.x[j] < key or (self.x[j] == key and j < i):
                    rank += 1
            self.out[rank] = key


@vertex
class Split(Vertex):
    """Deals sorted keys into buckets: bucket b takes those in [splitters[b - 1], splitters[b])."""

    x: Input[Vector[f32]]
    splitters: Input[Vector[f32]]
    buckets: Vector[Output[Vector[f32]]]
    counts: Output[Vector[i32]]

    def compute(self) -> None:
        at = 0
        n = len(self.x)
        last = len(self.buckets) - 1
        for b in range(len(self.buckets)):
            count = 0
            while at < n and (b == last or self.x[at] < self.splitters[b]):
                self.buckets[b][count] = self.x[at]
                count += 1
                at += 1
            self.counts[b] = count


@vertex
class Collect(Vertex):
    """Merges what the tiles sent: sorted runs of `counts[i]` keys; the rest of out is infinity."""

    runs: Vector[Input[Vector[f32]]]
    counts: Vector[Input[Vector[i32]]]
    out: Output[Vector[f32]]
    total: Output[i32]

    def compute(self) -> None:
        size = 0
        for r in range(len(self.runs)):
            for k in range(self.counts[r][0]):
                key = self.runs[r][k]
                at = size
                while at > 0 and self.out[at - 1] > key:
                    self.out[at] = self.out[at - 1]
                    at -= 1
                self.out[at] = key
                size += 1
        self.total = size


@vertex
class Visit(Vertex):
    """Gives a depth to unvisited nodes with a neighbour in the frontier (bottom-up search)."""

    edges: Input[Vector[i32]]
    first: Input[Vector[i32]]
    frontier: Input[Vector[i32]]
    depth: InOut[Vector[i32]]
    reached: Output[Vector[i32]]
    level: Input[i32]

    def compute(self) -> None:
        for v in range(len(self.depth)):
            self.reached[v] = 0
            if self.depth[v] < 0:
                for e in range(self.first[v], self.first[v + 1]):
                    if self.frontier[self.edges[e]] != 0:
                        self.reached[v] = 1
                if self.reached[v] != 0:
                    self.depth[v] = self.level
