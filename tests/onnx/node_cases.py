"""ONNX's own node cases, run with any executor.

    executor(module, feeds: dict[str, array]) -> list of output arrays (in the module's order)

`run_cases(executor)` gives one `Outcome` per case; `write_table` makes the page of it. As a script:
runs the reference interpreter, or with --compiled the engine.
"""

from __future__ import annotations

import argparse
import collections
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper

from poplar_py.diagnostics import PoplarPyError
from poplar_py.eval import evaluate
from poplar_py.frontends.onnx import open_onnx, pack_outputs
from poplar_py.ir.core import LAYOUT, Module, Value
from poplar_py.ops import core, tensor

Array = np.ndarray[Any, np.dtype[Any]]
Executor = Callable[[Module, dict[str, Array]], Sequence[Array]]

SHAPE_ONLY = ("ConstantOfShape",)
"""Op types whose inputs give a shape alone: a constant may stand for the result."""


RANDOM = ("test_bernoulli", "test_training_dropout")
"""Cases that compare random numbers with those of another generator."""


@dataclass(frozen=True)
class Case:
    name: str
    op: str
    model: Any
    data: tuple[tuple[list[Any], list[Any]], ...]
    rtol: float
    atol: float

    @property
    def expanded(self) -> bool:
        return "_expanded" in self.name


@dataclass(frozen=True)
class Outcome:
    case: str
    op: str
    passed: bool
    reason: str = ""
    vertices: int = -1


@cache
def all_cases() -> tuple[Case, ...]:
    """Every node case of the installed onnx package."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    return tuple(
        Case(t.name, _main_op(t), t.model, tuple(t.data_sets or ()), t.rtol, t.atol) for t in found
    )


def as_array(item: Any) -> Any:
    """Data of a case as arrays: some come as TensorProto."""
    if isinstance(item, onnx.TensorProto):
        return onnx.numpy_helper.to_array(item)
    return item


def _main_op(test: Any) -> str:
    ops = [n.op_type for n in test.model.graph.node]
    if len(set(ops)) == 1:
        return ops[0]
    words = test.name.removeprefix("test_").replace("_expanded", "").split("_")
    joined = "".join(words).lower()
    fits = [o for o in dict.fromkeys(ops) if joined.startswith(o.lower())]
    return fits[0] if fits else ops[-1] if "_expanded" not in test.name else words[0]


def needs_no_vertex(module: Module, consts: Sequence[str]) -> bool:
    """Whether every output is moved data: an input, or a view, gather or choice of such.

    A constant counts where no input was bound for it (`consts`): it depends on no input then.
    """

    def moved(value: Value) -> bool:
        op = value.owner
        if op is None or value.type.numel == 0:
            return True
        if isinstance(op, core.Constant):
            return not consts
        if isinstance(op, core.If):
            ends = [v for r in op.regions() for v in r.outputs]
            return moved(op.cond) and all(
                moved(v) or isinstance(v.owner, core.Constant) for v in ends
            )
        if isinstance(op, tensor.Gather):
            return isinstance(op.indices.owner, core.Constant) and moved(op.x)
        if not op.has(LAYOUT):
            return False
        return any(moved(v) for v in op.operands())

    return all(moved(v) for v in module.main.outputs)


def run_case(case: Case, executor: Executor) -> bool:
    """Run all data sets of a case; whether it may need no vertex.

    Raises AssertionError or PoplarPyError where it fails.
    """
    layout = case.op in SHAPE_ONLY
    model = open_onnx(case.model)
    names = [spec.name for spec in model.inputs]
    for inputs, expected in case.data:
        feeds = dict(zip(names, map(as_array, inputs), strict=False))
        made = model.specialise_for(feeds)
        wanted = {v.name for v in made.module.main.inputs}
        outputs = executor(made.module, {k: v for k, v in made.feeds.items() if k in wanted})
        got = pack_outputs(made.module, list(outputs))
        check(got, [as_array(x) for x in expected], case.rtol, case.atol)
        layout = layout or needs_no_vertex(made.module, made.consts)
    return layout


def check(got: Sequence[Any], expected: Sequence[Any], rtol: float, atol: float) -> None:
    """Compare as onnx's own runner does: element types and shapes equal, values close."""
    assert len(got) == len(expected), f"{len(got)} outputs, expected {len(expected)}"
    for a, b in zip(got, expected, strict=True):
        if isinstance(b, list | tuple):
            assert isinstance(a, list), "expected a sequence"
            check(a, b, rtol, atol)
            continue
        if b is None:
            assert a is None, "expected nothing"
            continue
        _check_array(np.asarray(a), np.asarray(b), rtol, atol)


def _check_array(a: Array, b: Array, rtol: float, atol: float) -> None:
    assert a.dtype == b.dtype, f"element type {a.dtype}, expected {b.dtype}"
    assert a.shape == b.shape, f"shape {a.shape}, expected {b.shape}"
    if b.dtype.kind in "iub" or b.dtype == object or b.dtype.name in ("int4", "uint4"):
        np.testing.assert_array_equal(a, b)
        return
    if b.dtype.itemsize == 2 and b.dtype.name == "bfloat16":
        rtol = max(rtol, 2e-2)
    wide = np.float64 if b.dtype.kind == "f" else np.float32
    np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=rtol, atol=atol)


def reference(module: Module, feeds: dict[str, Array]) -> Sequence[Array]:
    """The executor of the reference interpreter."""
    return evaluate(module.main, feeds)


def run_cases(
    executor: Executor,
    cases: Sequence[Case] | None = None,
    vertices: Callable[[], int] | None = None,
) -> Iterator[Outcome]:
    """Outcomes one by one. `vertices()` tells how many vertices the last run executed."""
    for case in all_cases() if cases is None else cases:
        count, layout = -1, False
        try:
            layout = run_case(case, executor)
            count = -1 if vertices is None else vertices()
            reason = ""
        except PoplarPyError as error:
            reason = f"{error.code}: {error.message}"
        except AssertionError as error:
            lines = [x.strip() for x in str(error).splitlines() if x.strip()]
            reason = "differs: " + " ".join(lines)[:160]
        except Exception as error:
            reason = f"crash: {type(error).__name__}: {error}"[:200]
        if not reason and count == 0 and not layout:
            reason = "ran no vertex"
        if reason.startswith("differs") and case.name.startswith(RANDOM):
            reason = "draws random numbers, the case expects those of NumPy"
        yield Outcome(case.name, case.op, not reason, reason, count)


def write_table(outcomes: Sequence[Outcome], path: Path) -> None:
    """The page of cases: counts, those that fail with their reasons, those that pass."""
    good = [o for o in outcomes if o.passed]
    plain = [o for o in good if "_expanded" not in o.case]
    lines = [
        "# ONNX node cases",
        "",
        f"{len(good)} of {len(outcomes)} cases pass, {len(plain)} of them not `_expanded`. "
        "Generated by `tests/onnx/node_cases.py`.",
        "",
        "| op | pass | fail |",
        "|---|---|---|",
    ]
    ops = collections.defaultdict(lambda: [0, 0])
    for o in outcomes:
        ops[o.op][not o.passed] += 1
    lines += [f"| {op} | {a} | {b} |" for op, (a, b) in sorted(ops.items())]
    lines += ["", "## Cases that fail", "", "| case | reason |", "|---|---|"]
    lines += [f"| {o.case} | {o.reason.replace('|', '/')} |" for o in outcomes if not o.passed]
    lines += ["", "## Cases that pass", "", "| case | vertices executed |", "|---|---|"]
    lines += [f"| {o.case} | {o.vertices if o.vertices >= 0 else ''} |" for o in good]
    path.write_text("\n".join(lines) + "\n")


def _compiled(cases: Sequence[Case]) -> list[Outcome]:
    from compiled import CompiledExecutor

    executor = CompiledExecutor()
    out: list[Outcome] = []
    for outcome in run_cases(executor, cases, executor.vertices):
        out.append(outcome)
        if len(out) % 100 == 0:
            print(f"{len(out)} of {len(cases)}", file=sys.stderr)
    return out


def main(args: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", default="", help="only cases whose name contains this")
    parser.add_argument("--table", type=Path, help="write the page here")
    parser.add_argument("--fails", action="store_true", help="list the cases that fail")
    parser.add_argument("--compiled", action="store_true", help="run compiled vertices")
    options = parser.parse_args(args)
    cases = [c for c in all_cases() if options.k in c.name]
    outcomes = _compiled(cases) if options.compiled else list(run_cases(reference, cases))
    for o in outcomes:
        if options.fails and not o.passed:
            print(f"{o.case:60} {o.reason}")
    print(f"{sum(o.passed for o in outcomes)} of {len(outcomes)} pass")
    if options.table:
        write_table(outcomes, options.table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
