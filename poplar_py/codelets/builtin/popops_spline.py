"""B-spline bases of graph networks, and features weighted by them."""

NAMESPACE = "popops"

T = TypeVar("T", f16, f32)
DEGREE = IntParam("DEGREE")


def piece(v, k, DEGREE):
    """The k-th of the pieces of a B-spline that are not 0 at v, 0 <= v < 1."""
    if DEGREE == 1:
        return v if k == 1 else 1.0 - v
    if DEGREE == 2:
        if k == 0:
            return 0.5 * v * v - v + 0.5
        if k == 1:
            return v - v * v + 0.5
        return 0.5 * v * v
    if k == 0:
        return (1.0 - v) * (1.0 - v) * (1.0 - v) / 6.0
    if k == 1:
        return (3.0 * v * v * v - 6.0 * v * v + 4.0) / 6.0
    if k == 2:
        return (-3.0 * v * v * v + 3.0 * v * v + 3.0 * v + 1.0) / 6.0
    return v * v * v / 6.0


@vertex
class SplineBasis(Vertex, Generic[T, DEGREE]):
    """basis[e][s]: product over dims d of piece s_d at the coordinate x[e][d]; s in base DEGREE + 1,
    dim 0 fastest. index[e][s]: the weight that belongs to it, dim 0 fastest."""

    basis: Output[Vector[T]]
    index: Output[Vector[i32]]
    x: Input[Vector[T, ONE_PTR]]
    kernel: Input[Vector[i32]]
    open: Input[Vector[u8, ONE_PTR]]
    splines: i32

    def compute(self) -> None:
        dims = len(self.kernel)
        for at in range(len(self.basis)):
            e = at // self.splines
            rest = at % self.splines
            product = 1.0
            place = 0
            stride = 1
            for d in range(dims):
                k = rest % (DEGREE + 1)
                rest = rest // (DEGREE + 1)
                size = self.kernel[d]
                span = size - (DEGREE if self.open[d] != 0 else 0)
                v = f32(self.x[e * dims + d]) * f32(span)
                low = floor(v)
                place += (i32(low) + k) % size * stride
                stride *= size
                product *= piece(v - low, k, DEGREE)
            self.basis[at] = cast(product, T)
            self.index[at] = place


@vertex
class SplineWeighting(Vertex, Generic[T]):
    """out[e][o] = sum over s of basis[e][s] times the sum over i of x[e][i] w[index[e][s]][i][o].

    An index outside the weights ends the run.
    """

    out: Output[Vector[T]]
    x: Input[Vector[T, ONE_PTR]]
    w: Input[Vector[T]]
    basis: Input[Vector[T, ONE_PTR]]
    index: Input[Vector[i32, ONE_PTR]]
    channels: i32
    splines: i32
    cols: i32

    def compute(self) -> None:
        weights = len(self.w) // (self.channels * self.cols)
        for e in range(len(self.out) // self.cols):
            for o in range(self.cols):
                total = 0.0
                for s in range(self.splines):
                    k = self.index[e * self.splines + s]
                    abort_if(k < 0 or k >= weights)
                    part = 0.0
                    for i in range(self.channels):
                        value = f32(self.w[(k * self.channels + i) * self.cols + o])
                        part += f32(self.x[e * self.channels + i]) * value
                    total += part * f32(self.basis[e * self.splines + s])
                self.out[e * self.cols + o] = cast(total, T)
