"""Numbers of twice the precision: the unevaluated sum of two f64 values, high and low.

The operations are the classic error-free ones (Dekker, Knuth); products use a fused multiply-add,
which is exact wherever it runs. Relative errors are near 2^-100 unless said otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

from poplar_py.codegen.lanes import Lanes, select

__all__ = ["Pair", "choose", "constant", "fast_sum", "product", "two_sum"]


@dataclass(frozen=True, slots=True)
class Pair:
    """hi + lo with |lo| at most half an ulp of hi."""

    hi: Lanes
    lo: Lanes

    @classmethod
    def of(cls, value: Lanes) -> Pair:
        return cls(value, value.const(0.0))

    def __add__(self, other: Pair | Lanes | float) -> Pair:
        b = self._pair(other)
        s, t = two_sum(self.hi, b.hi), two_sum(self.lo, b.lo)
        joined = fast_sum(s.hi, s.lo + t.hi)
        return fast_sum(joined.hi, joined.lo + t.lo)

    def __neg__(self) -> Pair:
        return Pair(-self.hi, -self.lo)

    def __sub__(self, other: Pair) -> Pair:
        return self + -other

    def __mul__(self, other: Pair | Lanes) -> Pair:
        b = self._pair(other)
        p = product(self.hi, b.hi)
        return fast_sum(p.hi, p.lo + (self.hi * b.lo + self.lo * b.hi))

    def __truediv__(self, other: Pair) -> Pair:
        q = self.hi / other.hi
        rest = q.fma(-other.hi, self.hi) + (self.lo - q * other.lo)
        return fast_sum(q, rest / other.hi)

    def scaled(self, power: float) -> Pair:
        """Times a power of two."""
        return Pair(self.hi * power, self.lo * power)

    def sqrt(self) -> Pair:
        """Of a positive pair; 0 gives 0."""
        root = self.hi.sqrt()
        rest = root.fma(-root, self.hi) + self.lo
        correction = select(root > 0.0, rest / (root + root), root)
        return fast_sum(root, correction)

    @property
    def value(self) -> Lanes:
        """Rounded to one f64."""
        return self.hi + self.lo

    def _pair(self, other: Pair | Lanes | float) -> Pair:
        if isinstance(other, Pair):
            return other
        return Pair.of(other if isinstance(other, Lanes) else self.hi.const(other))


def two_sum(a: Lanes, b: Lanes) -> Pair:
    """a + b exactly."""
    s = a + b
    back = s - a
    return Pair(s, (a - (s - back)) + (b - back))


def fast_sum(a: Lanes, b: Lanes) -> Pair:
    """a + b exactly where |a| >= |b|."""
    s = a + b
    return Pair(s, b - (s - a))


def product(a: Lanes, b: Lanes) -> Pair:
    """a * b exactly."""
    p = a * b
    return Pair(p, a.fma(b, -p))


def constant(x: Lanes, words: tuple[str, str]) -> Pair:
    """A constant given as two hexadecimal floats."""
    return Pair(x.const(float.fromhex(words[0])), x.const(float.fromhex(words[1])))


def choose(cond: Lanes, a: Pair, b: Pair) -> Pair:
    """a where `cond` holds, else b."""
    return Pair(select(cond, a.hi, b.hi), select(cond, a.lo, b.lo))
