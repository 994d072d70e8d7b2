"""Pipelines, options, dumps, reproducers, order."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

import poplar_py.ops
from poplar_py import ir
from poplar_py.diagnostics import OptionError, PassFailed, PoplarPyError
from poplar_py.passes import (
    ORDER,
    PIPELINES,
    Pass,
    PassContext,
    PassManager,
    get_pass,
    make_pass,
    parse_pipeline,
    pass_names,
    pipeline_text,
    register,
    registry,
)
from poplar_py.passes.pipeline import check_order
from poplar_py.types import TensorType, f32

assert poplar_py.ops

TEXT = """module @m

graph @main(%x: f32[2]) -> (y: f32[2]) {
  %0: f32[2] = math.neg(%x)
  %1: f32[2] = math.neg(%0)
  %y: f32[2] = math.exp(%1)
  return %y
}
"""


@pytest.fixture(autouse=True)
def probe() -> Iterator[None]:
    @register
    @dataclass(frozen=True)
    class Probe(Pass):
        """Breaks things on demand."""

        name: ClassVar[str] = "probe"
        mode: str = ""
        count: int = 1
        rate: float = 0.5
        deep: bool = False

        def run(self, module: ir.Module, ctx: PassContext) -> bool:
            if self.mode == "crash":
                raise IndexError("oops")
            if self.mode == "break":
                module.main.outputs[0] = ir.Value(TensorType(f32, (2,)), "lost")
            return bool(self.mode)

    yield
    registry._classes.pop("probe", None)


def module() -> ir.Module:
    return ir.parse_module(TEXT, "m.pir")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "simplify",
        "infer-shapes,simplify{rounds=3},fuse{max-ops=8}",
        "probe{mode=best-fit,count=-3,rate=0.25,deep=true}",
    ],
)
def test_pipeline_text_round_trip(text: str) -> None:
    assert pipeline_text(parse_pipeline(text)) == text


def test_aliases_and_spaces() -> None:
    names = [p.name for p in parse_pipeline(" infer-shapes , simplify { rounds = 3 } ")]
    assert names == ["infer-shapes", "simplify"]
    assert parse_pipeline('probe{mode="a b"}')[0] == make_pass("probe", {"mode": "a b"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "no pass 'nothing'"),
        ("simplify{depth=1}", "no option 'depth'"),
        ("simplify{rounds=x}", "not an integer"),
        ("simplify{rounds=1,rounds=2}", "given twice"),
        ("simplify,", "ends too soon"),
        ("@fast", "no pipeline @fast"),
        ("@train", "reserved"),
        ("probe{deep=maybe}", "true or false"),
        ("fuse,simplify", "simplify must run before fuse"),
    ],
)
def test_bad_pipelines(text: str, message: str) -> None:
    with pytest.raises(PoplarPyError, match=message):
        parse_pipeline(text)


def test_order_table_covers_the_pipelines() -> None:
    known = set(pass_names())
    assert {name for a, b, _ in ORDER for name in (a, b)} <= known
    for name, passes in PIPELINES.items():
        check_order(passes, name)
        assert set(passes) <= known
    with pytest.raises(OptionError, match="static shapes"):
        check_order(("lower", "infer-shapes"), "x")


def test_every_pass_is_documented() -> None:
    for name in PIPELINES["@default"]:
        cls = get_pass(name)
        assert cls.__doc__
        assert cls.level in ("model", "tile")
        assert parse_pipeline(name)


def test_printing(tmp_path: Path) -> None:
    out = io.StringIO()
    ctx = PassContext(
        before=("simplify",),
        after=("simplify",),
        diff=True,
        time_passes=True,
        dump_dir=tmp_path / "dumps",
        out=out,
    )
    steps: list[str] = []
    ctx.progress = steps.append
    PassManager(ctx).run(module(), "infer-shapes,simplify,fuse")
    text = out.getvalue()
    assert "// ----- IR before simplify -----\nmodule @m" in text
    assert "// ----- IR after simplify -----" in text
    assert "-  %0: f32[2] = math.neg(%x)\n" in text
    assert "ms" in text
    assert "infer-shapes" in text
    assert steps == ["infer-shapes", "simplify", "fuse"]
    names = sorted(p.name for p in (tmp_path / "dumps").iterdir())
    assert names == ["00-input.pir", "01-infer-shapes.pir", "02-simplify.pir", "03-fuse.pir"]
    for name in names:
        path = tmp_path / "dumps" / name
        assert ir.print_module(ir.load_pir(path)) == path.read_text()


def test_stop_after() -> None:
    ctx = PassContext(stop_after="infer-shapes")
    done = PassManager(ctx).run(module(), "infer-shapes,simplify")
    assert len(done.main.ops) == 3
    with pytest.raises(OptionError, match="no such pass"):
        PassManager(PassContext(stop_after="fuse")).run(module(), "simplify")
    with pytest.raises(OptionError, match="print the IR around"):
        PassManager(PassContext(before=("simplfy",))).run(module(), "simplify")


@pytest.mark.parametrize("mode", ["crash", "break"])
def test_reproducer(tmp_path: Path, mode: str) -> None:
    ctx = PassContext(reproducer_dir=tmp_path)
    with pytest.raises(PassFailed) as caught:
        PassManager(ctx).run(module(), f"simplify,probe{{mode={mode}}}")
    (path,) = tmp_path.iterdir()
    assert str(path) in caught.value.remedy
    assert f"-p 'probe{{mode={mode}}}'" in path.read_text()
    again = ir.load_pir(path)
    assert len(again.main.ops) == 1
    with pytest.raises(PassFailed):
        PassManager(ctx).run(again, f"probe{{mode={mode}}}")


def test_tables() -> None:
    ctx = PassContext()
    ctx.put(TensorType(f32, (2,)))
    assert ctx.get(TensorType).rank == 1
    assert ctx.find(str) is None
    with pytest.raises(PoplarPyError, match="needs the table"):
        ctx.get(str)
