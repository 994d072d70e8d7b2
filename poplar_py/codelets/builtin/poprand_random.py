"""Random numbers by counter: Philox 4x32 with 10 rounds.

Element e of a tensor comes from word e % 4 of block e // 4 under the key (seed words): neither tiles,
vertices nor host threads change a value. A vertex starts at element 4 * base + skip, skip < 4.
"""

NAMESPACE = "poprand"

T = TypeVar("T", f16, f32, f64, bf16)
I = TypeVar("I", i8, i16, i32, i64, u8, u16, u32, u64)
B = TypeVar("B", f16, f32, f64, bf16, i8, i16, i32, i64, u8, u16, u32, u64, bool)

UNIT = 5.9604644775390625e-08


def high(a, b):
    """Upper word of a 32 x 32 bit product."""
    return u32((u64(a) * u64(b)) >> u64(32))


def philox(words, at, attempt, modifier, last, seed):
    """Four random words of block `at`; `last` is the fourth word of the counter."""
    words[0] = u32(at)
    words[1] = u32(at >> u64(32)) + (u32(attempt) << u32(16))
    words[2] = modifier
    words[3] = u32(last)
    k0 = seed[0]
    k1 = seed[1]
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
    return f32(word >> u32(8)) * f32(UNIT)


def blocks(n, skip):
    """Blocks that n elements from `skip` on touch."""
    return (n + i32(skip) + 3) // 4


def below(first, second, span):
    """floor(span * (first, second) / 2^64) for a 64-bit span: even to 2^-64."""
    low_part = u64(first) * (span & u64(0xFFFFFFFF)) + high64(second, span & u64(0xFFFFFFFF))
    upper = u64(first) * (span >> u64(32))
    middle = u64(second) * (span >> u64(32))
    carry = (low_part & u64(0xFFFFFFFF)) + (middle & u64(0xFFFFFFFF))
    return upper + (low_part >> u64(32)) + (middle >> u64(32)) + (carry >> u64(32))


def high64(word, factor):
    """Upper half of a product of two numbers below 2^32."""
    return (u64(word) * factor) >> u64(32)


@vertex
class Uniform(Vertex, Generic[T]):
    """out = low + (high - low) * u, u in [0, 1)."""

    out: Output[Vector[T]]
    seed: Input[Vector[u32, ONE_PTR]]
    base: u64
    skip: u32
    modifier: u32
    low: f32
    span: f32

    def compute(self) -> None:
        words = array(u32, 4)
        n = len(self.out)
        for b in range(blocks(n, self.skip)):
            philox(words, self.base + u64(b), 0, self.modifier, 0, self.seed)
            for j in range(4):
                e = b * 4 + j - i32(self.skip)
                if e >= 0 and e < n:
                    self.out[e] = cast(self.low + self.span * unit(words[j]), T)


@vertex
class Normal(Vertex, Generic[T]):
    """out = mean + scale * z by Box and Muller; |z| > limit is drawn again when limit > 0."""

    out: Output[Vector[T]]
    seed: Input[Vector[u32, ONE_PTR]]
    base: u64
    skip: u32
    modifier: u32
    mean: f32
    scale: f32
    limit: f32

    def compute(self) -> None:
        z = array(f32, 4)
        n = len(self.out)
        for b in range(blocks(n, self.skip)):
            for j in range(4):
                z[j] = f32(0)
            self.draw(z, self.base + u64(b))
            for j in range(4):
                e = b * 4 + j - i32(self.skip)
                if e >= 0 and e < n:
                    self.out[e] = cast(self.mean + self.scale * z[j], T)

    def draw(self, z, at):
        """Four normal numbers of block `at` within the limit."""
        words = array(u32, 4)
        done = i32(0)
        attempt = i32(0)
        while done < 4 and attempt < 64:
            philox(words, at, attempt, self.modifier, 0, self.seed)
            for j in range(2):
                radius = sqrt(f32(-2) * log(unit(words[2 * j]) + f32(UNIT)))
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


@vertex
class Bernoulli(Vertex, Generic[B]):
    """out = 1 with probability `prob`, else 0."""

    out: Output[Vector[B]]
    seed: Input[Vector[u32, ONE_PTR]]
    base: u64
    skip: u32
    modifier: u32
    prob: f32

    def compute(self) -> None:
        words = array(u32, 4)
        n = len(self.out)
        for b in range(blocks(n, self.skip)):
            philox(words, self.base + u64(b), 0, self.modifier, 0, self.seed)
            for j in range(4):
                e = b * 4 + j - i32(self.skip)
                if e >= 0 and e < n:
                    self.out[e] = cast(unit(words[j]) < self.prob, B)


@vertex
class Dropout(Vertex, Generic[T]):
    """out = x * scale with probability `keep`, else 0."""

    out: Output[Vector[T]]
    x: Input[Vector[T, ONE_PTR]]
    seed: Input[Vector[u32, ONE_PTR]]
    base: u64
    skip: u32
    modifier: u32
    keep: f32
    scale: f32

    def compute(self) -> None:
        words = array(u32, 4)
        n = len(self.out)
        for b in range(blocks(n, self.skip)):
            philox(words, self.base + u64(b), 0, self.modifier, 0, self.seed)
            for j in range(4):
                e = b * 4 + j - i32(self.skip)
                if e >= 0 and e < n:
                    kept = f32(self.x[e]) * self.scale
                    self.out[e] = cast(kept if unit(words[j]) < self.keep else f32(0), T)


@vertex
class UniformInt(Vertex, Generic[I]):
    """out = low + floor(span * u), u of 64 bits in [0, 1); span 0 stands for 2^64."""

    out: Output[Vector[I]]
    seed: Input[Vector[u32, ONE_PTR]]
    base: u64
    skip: u32
    modifier: u32
    low: I
    span: u64

    def compute(self) -> None:
        words = array(u32, 4)
        more = array(u32, 4)
        n = len(self.out)
        for b in range(blocks(n, self.skip)):
            philox(words, self.base + u64(b), 0, self.modifier, 0, self.seed)
            philox(more, self.base + u64(b), 0, self.modifier, 1, self.seed)
            for j in range(4):
                e = b * 4 + j - i32(self.skip)
                if e >= 0 and e < n:
                    w = (u64(words[j]) << u64(32)) | u64(more[j])
                    if self.span > u64(0):
                        w = below(words[j], more[j], self.span)
                    self.out[e] = self.low + cast(w, I)
