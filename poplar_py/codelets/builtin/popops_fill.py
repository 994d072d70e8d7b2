"""Constant fills and counting."""

NAMESPACE = "popops"

T = TypeVar("T", f16, f32, f64, bf16, i8, i16, i32, i64, u8, u16, u32, u64, bool)
N = TypeVar("N", f16, f32, f64, bf16, i8, i16, i32, i64, u8, u16, u32, u64)


@vertex
class Fill(Vertex, Generic[T]):
    """out[i] = value."""

    out: Output[Vector[T]]
    value: T

    def compute(self) -> None:
        v = splat(self.value, 16)
        whole = len(self.out) // 16 * 16
        for i in range(0, whole, 16):
            store_raw(self.out, i, v, 16)
        for i in range(whole, len(self.out)):
            self.out[i] = self.value


@vertex
class ScaledAdd(Vertex, Generic[N]):
    """y += scale * x."""

    y: InOut[Vector[N]]
    x: Input[Vector[N, ONE_PTR]]
    scale: Input[N]

    def compute(self) -> None:
        for i in range(len(self.y)):
            self.y[i] = self.y[i] + self.scale[0] * self.x[i]
