"""How a row is cut into pieces: the unit of placement that neighbouring layers share."""

from __future__ import annotations

from functools import lru_cache

__all__ = ["piece_widths"]


def _odd(n: int) -> int:
    while n % 2 == 0:
        n //= 2
    return n


@lru_cache(maxsize=4096)
def piece_widths(width: int, unit: int = 0) -> tuple[int, ...]:
    """The pieces a row of `width` is cut into: a function of the width alone, so that layers agree.

    Equal pieces of about 16 (up to 30) that survive a stride of 2, else
    nearly equal ones. `unit`: pieces must divide it (rows of a batch of matrices).
    """
    unit = unit if unit >= 8 else width
    one = _piece(unit)
    count, rest = divmod(unit, one)
    pieces = (one,) * count + ((rest,) if rest else ())
    return pieces * (width // unit)


def _piece(width: int) -> int:
    if width <= 16:
        return width
    odd = _odd(width)
    best = max((d for d in range(1, 27) if odd % d == 0 and (d <= 16 or odd == d)), default=1)
    if best > 16:
        return best
    if best < 3 and odd > 1:
        return -(-width // -(-width // 16))
    while best * 2 <= 16 and width % (best * 2) == 0:
        best *= 2
    if best % 2 and 7 <= best <= 15 and width % (best * 2) == 0:
        best *= 2  # halves of an even piece serve a stride of 2
    return best if best >= 7 else -(-width // -(-width // 16))
