"""What the process keeps of codelets: nothing of a source once its library is gone."""

from __future__ import annotations

import ast
import gc
import weakref

from poplar_py.codelets import CodeletLibrary

SOURCE = """
@vertex
class LetGo(Vertex):
    out: Output[Vector[f32]]

    def compute(self):
        for i in range(len(self.out) // 2 * 2):
            self.out[i] = f32(i * 2 + 1)
"""


def test_sources_are_let_go() -> None:
    library = CodeletLibrary()
    library.add_source(SOURCE, "test.py")
    library.get("LetGo")
    compute = library.templates["LetGo"].methods["compute"]
    nodes = [
        weakref.ref(node) for node in ast.walk(compute) if isinstance(node, (ast.For, ast.expr))
    ]
    del library, compute
    gc.collect()
    assert nodes
    assert not [ref for ref in nodes if isinstance(ref(), ast.For)]
    assert not [ref for ref in nodes if isinstance(ref(), ast.BinOp)]
