"""Random codelets of the whole language equal their account in NumPy, or end in a TileException."""

from __future__ import annotations

import ast
import contextlib
import copy
from types import SimpleNamespace
from typing import Any

import language_model as model
import numpy as np
import pytest
from graph_cases import TILES, random_mapping
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from language_model import Rows, Run
from language_num import Num, Trap, cast
from program_maker import ENUM, Case, Maker

from poplar_py.codegen.emit import ERROR_CODES
from poplar_py.codegen.run_codelet import run_codelet
from poplar_py.codelets import Codelet, CodeletLibrary
from poplar_py.codelets.codelet_text import parse_codelet, print_codelet
from poplar_py.diagnostics import PoplarPyError, TileException
from poplar_py.poplar import Engine, Graph, Target, Tensor, program
from poplar_py.poplar.tile_parse import parse_tile_module
from poplar_py.poplar.tile_print import print_tile_module
from poplar_py.types import DTYPES, DType


def tries(count: int) -> settings:
    """So many examples, in any time."""
    checks = list(HealthCheck)
    return settings(max_examples=count, deadline=None, suppress_health_check=checks, database=None)


class Vertex:
    """`self` of the account: scalars are converted when they are assigned."""

    def __init__(self, case: Case) -> None:
        scalars: dict[str, Any] = {}
        for name, (kind, t) in case.fields.items():
            value, dtype = copy.deepcopy(case.values[name]), DTYPES[t]
            if kind in ("edge", "table"):
                self.__dict__[name] = Run(dtype, value)
            elif kind == "rows":
                self.__dict__[name] = Rows([Run(dtype, row) for row in value])
            else:
                scalars[name] = dtype
                self.__dict__[name] = Num(dtype, np.ravel(value)[0])
        self.__dict__["_scalars"] = scalars

    def __setattr__(self, name: str, value: Any) -> None:
        with np.errstate(all="ignore"):
            self.__dict__[name] = cast(value, self.__dict__["_scalars"][name])

    def results(self) -> dict[str, Any]:
        return {
            "y": self.y.values, "o": np.array([self.o.a]), "s": np.array([self.s.a]),
            "rows": [r.values for r in self.rows.rows],
        }  # fmt: skip


def account(case: Case) -> tuple[dict[str, Any], bool]:
    """Fields afterwards and the returned truth. Raises Trap."""
    names = model.scope()
    names |= {"N": case.constants["N"], "B": case.constants["B"]}
    colors = {n: SimpleNamespace(value=v, name=n) for n, v in ENUM.items()}
    names["Color"] = SimpleNamespace(**colors)
    names["K"] = colors[case.constants["K"]]
    names |= {"i32": Unwrap(DTYPES["i32"]), "kept": kept}
    names["T"] = names[case.fields["x"][1]]
    worker = ", worker_id" if case.kind == "MultiVertex" else ""
    functions, methods = ("\n".join(lines) for lines in _split(case.helpers))
    text = f"from __future__ import annotations\n{functions}\nclass V:\n{methods}\n"
    text += f"    def compute(self{worker}):\n{case.body}\n"
    exec(compile(_with_casts(text), "<case>", "exec"), names)
    vertex = Vertex(case)
    for name, function in vars(names["V"]).items():
        if callable(function) and not name.startswith("__"):
            vertex.__dict__[name] = function.__get__(vertex)
    result = True
    for worker_id in range(6) if worker else (None,):
        args = () if worker_id is None else (Num(DTYPES["u32"], worker_id),)
        result = bool(vertex.compute(*args)) and result
    return vertex.results(), result


class Unwrap(model.Type):
    """i32(K) of an enum member is its number."""

    def __call__(self, x: Any) -> Num:
        return super().__call__(x.value if isinstance(x, SimpleNamespace) else x)


def kept(old: Any, new: Any) -> Any:
    """What `x op= ...` leaves in x: its type stays."""
    return cast(new, old.t) if isinstance(old, Num) and isinstance(new, Num) else new


class _Kept(ast.NodeTransformer):
    """x op= v as x = kept(x, x op v), for names."""

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        if not isinstance(node.target, ast.Name):
            return node
        old = ast.Name(node.target.id, ast.Load())
        call = ast.Call(
            ast.Name("kept", ast.Load()), [old, ast.BinOp(old, node.op, node.value)], []
        )
        return ast.Assign([node.target], call)


def _with_casts(text: str) -> ast.Module:
    """Arguments of helpers take the types of their parameters, small ints keep theirs."""
    tree = _Kept().visit(ast.parse(text))
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef) or function.name == "compute":
            continue
        for arg in function.args.args:
            if isinstance(arg.annotation, ast.Name) and arg.annotation.id in DTYPES:
                cast_line = ast.parse(f"{arg.arg} = {arg.annotation.id}({arg.arg})").body
                function.body[:0] = cast_line
    return ast.fix_missing_locations(tree)


def _split(text: str) -> tuple[list[str], list[str]]:
    """Lines of the module-level helpers, and of the methods."""
    lines = text.splitlines()
    at = next((n for n, line in enumerate(lines) if line.startswith("    def m")), len(lines))
    return lines[:at], lines[at:]


def built(case: Case) -> tuple[Codelet | None, PoplarPyError | None]:
    """The codelet, or why there is none."""
    library = CodeletLibrary()
    try:
        library.add_source(case.source, "case.py")
        return library.get(case.name), None
    except PoplarPyError as error:
        return None, error


KNOWN_BAD = ("compile-time", "outside the array", "is negative")
"""What a compiler can know to be wrong."""


def equals_account(number: int) -> str:
    """What happened: ran, trapped, or refused at compile time for arithmetic known there."""
    case = Maker(number).make()
    codelet, error = built(case)
    if codelet is None:
        assert error is not None
        assert any(text in error.message for text in KNOWN_BAD), f"{error}\n{case.source}"
        assert error.loc.line
        return "refused"
    try:
        with np.errstate(all="ignore"):
            want, truth = account(case)
    except Trap:
        result = run_codelet(codelet, case.values, checked=True)
        assert result.ctx[1] in (1, 2, 3, 6), f"{number}: no trap\n{case.source}"
        assert int(result.ctx[1]) in ERROR_CODES
        return "trapped"
    again = Codelet(parse_codelet(print_codelet(codelet.ir)))
    for made, checked in ((codelet, True), (codelet, False), (again, False)):
        result = run_codelet(made, case.values, checked=checked)
        assert result.ctx[1] == 0, f"{number}: {result.ctx}\n{case.source}"
        assert (result.code == 1) == truth, f"{number}\n{case.source}"
        for name, value in want.items():
            arrays = (value, result[name]) if name == "rows" else ([value], [result[name]])
            for a, b in zip(*arrays, strict=True):
                np.testing.assert_array_equal(b, a, err_msg=f"{number} {name}\n{case.source}")
    return "ran"


# ---------------------------------------------------------------- the same in a graph

WAYS: tuple[dict[str, Any], ...] = (
    {"threads": 1},
    {"threads": 1, "checked": False},
    {"threads": 2, "faithful_exchange": True},
)


def vertex_graph(case: Case, rng: np.random.Generator) -> tuple[Graph, program.Sequence]:
    """The case as a vertex on a random tile, its edges on random tiles in pieces."""
    graph = Graph(Target.ipu("gc200", 1, TILES))
    graph.add_codelets(case.source)
    vertex = graph.add_vertex(cs := graph.add_compute_set("case"), case.name)
    graph.set_tile_mapping(vertex, int(rng.integers(TILES)))

    def variable(name: str, dtype: DType, shape: tuple[int, ...]) -> Tensor:
        mapping: Any = random_mapping(rng, shape[0]) if shape else int(rng.integers(TILES))
        t = graph.add_variable(dtype, shape, name, mapping=mapping)
        graph.create_host_write(name, t)
        graph.create_host_read(name, t)
        return t

    for name, (kind, type_name) in case.fields.items():
        value, dtype = case.values[name], DTYPES[type_name]
        if kind == "edge":
            graph.connect(vertex[name], variable(name, dtype, value.shape))
        elif kind == "scalar":
            graph.connect(vertex[name], variable(name, dtype, ()))
        elif kind == "rows":
            rows = [variable(f"{name}{k}", dtype, row.shape) for k, row in enumerate(value)]
            graph.connect(vertex[name], rows)
        else:
            graph.set_initial_value(vertex[name], value)
    prog = program.Sequence()
    prog.add(program.Execute(cs))
    return graph, prog


def through_text(graph: Graph, prog: program.Program) -> tuple[Graph, program.Program]:
    """The graph as its text reads; the text of that is the same."""
    tables: dict[str, Any] = {}
    text = print_tile_module(graph, [prog], resources=tables)
    found = parse_tile_module(text, "case.pir", tables)
    assert print_tile_module(found.graph, found.programs, resources={}) == text
    return found.graph, found.programs[0]


def inputs(case: Case) -> dict[str, Any]:
    """Host arrays by name of their variable."""
    given = {
        n: case.values[n] for n, (kind, _) in case.fields.items() if kind in ("edge", "scalar")
    }
    return given | {f"rows{k}": row for k, row in enumerate(case.values["rows"])}


def run_in_graph(number: int) -> None:
    """Every way of running equals the account, or raises a TileException where it has no value."""
    case = Maker(number).make()
    if not all(len(row) for row in case.values["rows"]):
        case.values["rows"] = [row for row in case.values["rows"] if len(row)]
    if built(case)[0] is None:
        return
    want: dict[str, Any] | None = None
    with contextlib.suppress(Trap), np.errstate(all="ignore"):
        want = account(case)[0]
    for way in WAYS[:1] if want is None else WAYS:
        graph, prog = vertex_graph(case, np.random.default_rng(number))
        if "faithful_exchange" not in way:
            graph, prog = through_text(graph, prog)
        engine = Engine(graph, prog, **way)
        try:
            for name, value in inputs(case).items():
                engine.write_tensor(name, value)
            if want is None:
                with pytest.raises(TileException) as caught:
                    engine.run(timeout=60)
                assert caught.value.message
                continue
            engine.run(timeout=60)
            found = {n: engine.read_tensor(n) for n in inputs(case)}
        finally:
            engine.close()
        message = f"{number} {way}\n{case.source}"
        for name in ("y", "o"):
            np.testing.assert_array_equal(found[name], want[name], err_msg=message)
        for k, row in enumerate(want["rows"]):
            np.testing.assert_array_equal(found[f"rows{k}"], row, err_msg=message)


@seed(3)
@tries(4)
@given(st.integers(0, 1 << 30))
def test_programs_in_graphs(number: int) -> None:
    run_in_graph(number)


@pytest.mark.slow
@seed(4)
@tries(300)
@given(st.integers(0, 1 << 30))
def test_programs_in_graphs_long(number: int) -> None:
    run_in_graph(number)


@seed(1)
@tries(25)
@given(st.integers(0, 1 << 30))
def test_programs(number: int) -> None:
    equals_account(number)


@pytest.mark.slow
@pytest.mark.timeout(900)
@seed(2)
@tries(1500)
@given(st.integers(0, 1 << 30))
def test_programs_long(number: int) -> None:
    equals_account(number)
