"""Published figures of the reduction vertices, worked out by hand, and where they do not apply."""

from __future__ import annotations

import numpy as np

from poplar_py import codelets, popops

assert popops.cycles


def cols(name: str, out: int, n: int, width: int) -> int:
    sizes = {"out": np.array([out]), "x": np.array([out * n])}
    state = {"n": np.array([n]), "cols": np.array([width])}
    return int(codelets.get(name).cycles(sizes, state)[0])


def rows(name: str, out: int, n: int) -> int:
    sizes = {"out": np.array([out]), "x": np.array([out * n])}
    return int(codelets.get(name).cycles(sizes, {"n": np.array([n])})[0])


def test_strided() -> None:
    """Two groups of four halves: 22 + 2 (11 + 3 + 127)."""
    assert cols("popops::ReduceCols<half,half,half,2>", 8, 128, 8) == 22 + 2 * (11 + 3 + 127)
    assert cols("popops::ReduceCols<half,float,half,0>", 8, 128, 8) == 22 + 2 * (11 + 3 + 254)
    assert cols("popops::ReduceCols<float,float,float,0>", 30, 5, 10) == 22 + 5 * (11 + 3 * (3 + 4))


def test_continuous() -> None:
    """12 a result, one for every two floats or four halves, 17 besides."""
    assert rows("popops::ReduceRows<float,float,float,0>", 3, 100) == 17 + 3 * (12 + 50)
    assert rows("popops::ReduceRows<half,half,half,3>", 3, 101) == 17 + 3 * (12 + 26)


def test_integers() -> None:
    """A load and an operation each; no two values at once."""
    assert rows("popops::ReduceRows<int,int,int,3>", 3, 100) == 17 + 3 * (12 + 200)
    assert cols("popops::ReduceCols<int,int,int,0>", 8, 128, 8) == 22 + 8 * (11 + 3 + 254)


def test_other_types_follow_their_code() -> None:
    for name in (
        "popops::ReduceRows<float,float,float,8>",
        "popops::ReduceRows<double,double,double,1>",
    ):
        model = codelets.get(name).model
        sizes = {"out": np.array([3]), "x": np.array([300])}
        want = int(model.cycles(sizes, {"n": np.array([100])})[0])
        assert rows(name, 3, 100) == want


DIVIDE = """
@vertex
class Divide(Vertex):
    x: InOut[Vector[{type}]]

    def compute(self) -> None:
        for i in range(len(self.x)):
            self.x[i] = {text}
"""


def divide(text: str, dtype: str = "i32") -> int:
    """Cycles of 1,000 elements that become the expression."""
    library = codelets.CodeletLibrary()
    library.add_source(DIVIDE.format(text=text, type=dtype), "divide.py")
    return int(library.get("Divide").cycles({"x": np.array([1000])}, {})[0])


def test_divisions_by_powers_of_two_are_shifts_and_masks() -> None:
    """Only a divisor that is no known power of two calls the division, 270 cycles."""
    shift = divide("self.x[i] >> 4")
    assert divide("self.x[i] // 16") == shift
    assert divide("self.x[i] % 16") == shift
    assert divide("self.x[i] // 12") == shift + 269 * 1000
    assert divide("quot(self.x[i], 16)") == shift + 2 * 1000
    assert divide("self.x[i] // 16", "i64") == divide("self.x[i] >> 4", "i64")
