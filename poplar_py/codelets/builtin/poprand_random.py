"""Random numbers by counter: Philox 4x32 with 10 rounds.

Element e of a tensor comes from word e % 4 of block e // 4 under the key (seed words): neither tiles,
vertices nor host threads change a value. Vertices start at multiples of 4.
"""

NAMESPACE = "poprand"

T = TypeVar("T", f16, f32, f64, bf16)
I = TypeVar("I", i8, i16, i32, i64, u8, u16, u32, u64)


def high(a, b):
    """Upper word of a 32 x 32 bit product."""
    return u32((u64(a) * u64(b)) >> u64(32))


def philox(words, lo, hi, modifier, key0, key1):
    """Four random words of block (hi, lo)."""
    words[0] = lo
    words[1] = hi
    words[2] = modifier
    words[3] = u32(0)
    k0 = key0
    k1 = key1
    for i in range(10):
        h0 = high(words[0], u32(0xD2511F53))
        l0 = words[0] * u32(0xD2511F53)
        h1 = high(words[2], u32(0xCD9E8D57))
        l1 = words[2] * u32(0xCD9E8D57)
        words[0] = h1 ^ words[1] ^ k0
        words[1] = l1
        words[2] = h0 ^ words[3] ^ k1
        words[3] = l0
        k0 = k0 + u32(0x9E3779B9)
        k1 = k1 + u32(0xBB67AE85)


def unit(word):
    """A word as a number in [0, 1): its upper 24 bits."""
    return f32(word >> u32(8)) * f32(5.9604644775390625e-08)


@vertex
class Uniform(Vertex, Generic[T]):
    """out = low + (high - low) * u, u in [0, 1)."""

    out: Output[Vector[T]]
    seed: Input[Vector[u32, ONE_PTR]]
    base: u32
    base_high: u32
    modifier: u32
    low: f32
    span: f32

    def compute(self) -> None:
        words = array(u32, 4)
        n = len(self.out)
        for b in range((n + 3) // 4):
            at = self.base + u32(b)
            philox(words, at, self.base_high, self.modifier, self.seed[0], self.seed[1])
            for j in range(4):
                if b * 4 + j < n:
                    self.out[b * 4 + j] = cast(self.low + self.span * unit(words[j]), T)


@vertex
class Normal(Vertex, Generic[T]):
    """out = mean + scale * z by Box and Muller; |z| > limit is drawn again when limit > 0."""

    out: Output[Vector[T]]
    seed: Input[Vector[u32, ONE_PTR]]
    base: u32
    base_high: u32
    modifier: u32
    mean: f32
    scale: f32
    limit: f32

    def compute(self) -> None:
        words = array(u32, 4)
        z = array(f32, 4)
        n = len(self.out)
        for b in range((n + 3) // 4):
            at = self.base + u32(b)
            for j in range(4):
                z[j] = f32(0)
            done = i32(0)
            attempt = i32(0)
            while done < 4 and attempt < 64:
                philox(
                    words,
                    at,
                    self.base_high + (u32(attempt) << u32(16)),
                    self.modifier,
                    self.seed[0],
                    self.seed[1],
                )
                for j in range(2):
                    u = unit(words[2 * j]) + f32(5.9604644775390625e-08)
                    radius = sqrt(f32(-2) * log(u))
                    angle = unit(words[2 * j + 1]) * f32(6.283185307179586)
                    c = radius * cos(angle)
                    s = radius * sin(angle)
                    if done < 4 and (self.limit <= f32(0) or abs(c) <= self.limit):
                        z[done] = c
                        done = done + 1
                    if done < 4 and (self.limit <= f32(0) or abs(s) <= self.limit):
                        z[done] = s
                        done = done + 1
                attempt = attempt + 1
            for j in range(4):
                if b * 4 + j < n:
                    self.out[b * 4 + j] = cast(self.mean + self.scale * z[j], T)


@vertex
class Bernoulli(Vertex, Generic[T]):
    """out = 1 with probability `prob`, else 0."""

    out: Output[Vector[T]]
    seed: Input[Vector[u32, ONE_PTR]]
    base: u32
    base_high: u32
    modifier: u32
    prob: f32

    def compute(self) -> None:
        words = array(u32, 4)
        n = len(self.out)
        for b in range((n + 3) // 4):
            at = self.base + u32(b)
            philox(words, at, self.base_high, self.modifier, self.seed[0], self.seed[1])
            for j in range(4):
                if b * 4 + j < n:
                    hit = unit(words[j]) < self.prob
                    self.out[b * 4 + j] = cast(f32(1) if hit else f32(0), T)


@vertex
class Dropout(Vertex, Generic[T]):
    """out = x * scale with probability `keep`, else 0."""

    out: Output[Vector[T]]
    x: Input[Vector[T, ONE_PTR]]
    seed: Input[Vector[u32, ONE_PTR]]
    base: u32
    base_high: u32
    modifier: u32
    keep: f32
    scale: f32

    def compute(self) -> None:
        words = array(u32, 4)
        n = len(self.out)
        for b in range((n + 3) // 4):
            at = self.base + u32(b)
            philox(words, at, self.base_high, self.modifier, self.seed[0], self.seed[1])
            for j in range(4):
                if b * 4 + j < n:
                    v = f32(self.x[b * 4 + j]) * self.scale
                    hit = unit(words[j]) < self.keep
                    self.out[b * 4 + j] = cast(v if hit else f32(0), T)


@vertex
class UniformInt(Vertex, Generic[I]):
    """out = low + word % span (span 0: all 32 bits)."""

    out: Output[Vector[I]]
    seed: Input[Vector[u32, ONE_PTR]]
    base: u32
    base_high: u32
    modifier: u32
    low: I
    span: u32

    def compute(self) -> None:
        words = array(u32, 4)
        n = len(self.out)
        for b in range((n + 3) // 4):
            at = self.base + u32(b)
            philox(words, at, self.base_high, self.modifier, self.seed[0], self.seed[1])
            for j in range(4):
                if b * 4 + j < n:
                    w = words[j]
                    if self.span > u32(0):
                        w = w % self.span
                    self.out[b * 4 + j] = self.low + cast(w, I)
