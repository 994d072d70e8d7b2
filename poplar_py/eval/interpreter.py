"""The reference interpreter: runs a model-level graph in NumPy, op by op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from poplar_py.diagnostics import InputError, PoplarPyError, UnsupportedOp
from poplar_py.eval.registry import EVAL, Array
from poplar_py.ir.core import Graph, Kind, Op, Value
from poplar_py.ops import core

__all__ = ["evaluate", "evaluate_op"]


def evaluate_op(op: Op, *operands: Array | None) -> tuple[Array, ...]:
    """Results of one op without regions; operands in field order, absent ones None.

    Raises UnsupportedOp where EVAL has no entry, and whatever the op's meaning raises, located.
    """
    rule = EVAL.get(type(op))
    if rule is None:
        raise UnsupportedOp(f"{op.opname} has no NumPy meaning", op.loc)
    try:
        with np.errstate(all="ignore"):
            out = rule(op, *operands)
    except PoplarPyError as error:
        raise error.at(op.loc) from None
    return tuple(out) if isinstance(out, tuple) else (out,)


def evaluate(graph: Graph, inputs: Mapping[str, Array] | Sequence[Array]) -> tuple[Array, ...]:
    """Outputs of a graph for inputs by name or in order.

    Raises InputError for a missing input or one of another type than declared.
    """
    env: dict[Value, Array] = {}
    for i, value in enumerate(graph.inputs):
        if isinstance(inputs, Mapping) and value.name not in inputs:
            raise InputError(f"input {value.name!r} is missing")
        array = np.asarray(inputs[value.name] if isinstance(inputs, Mapping) else inputs[i])
        _check_input(value, array)
        env[value] = array
    return _run(graph, env)


def _check_input(value: Value, array: Array) -> None:
    fits = len(array.shape) == value.rank and all(
        isinstance(d, str) or d == n for d, n in zip(value.shape, array.shape, strict=True)
    )
    if not fits or array.dtype != value.dtype.numpy:
        got = f"{array.dtype}{list(array.shape)}"
        raise InputError(f"input {value.name!r} is {value.type}, got {got}")


def _run(graph: Graph, env: dict[Value, Array]) -> tuple[Array, ...]:
    for op in graph.ops:
        if isinstance(op, core.If):
            branch = op.then_branch if bool(env[op.cond].reshape(())) else op.else_branch
            results = _run(branch, env)
        elif isinstance(op, core.Loop):
            results = _loop(op, env)
        else:
            results = evaluate_op(op, *_operands(op, env))
        for value, array in zip(op.results, results, strict=True):
            env[value] = array
    return tuple(env[v] for v in graph.outputs)


def _operands(op: Op, env: dict[Value, Array]) -> list[Array | None]:
    out: list[Array | None] = []
    for field in op.spec.operands:
        held = getattr(op, field.name)
        if held is None:
            out.append(None)
        elif field.kind is Kind.LIST:
            out.extend(env[v] for v in held)
        else:
            out.append(env[held])
    return out


def _loop(op: core.Loop, env: dict[Value, Array]) -> tuple[Array, ...]:
    limit = op.trip if op.trip >= 0 else None
    if op.limit is not None:
        bound = max(int(env[op.limit].reshape(())), 0)
        limit = bound if limit is None else min(limit, bound)
    going = op.cond is None or bool(env[op.cond].reshape(()))
    carried = tuple(env[v] for v in op.carried)
    step = 0
    while going and (limit is None or step < limit):
        first, *rest = op.body.inputs
        env[first] = np.asarray(step, dtype=np.int32)
        env.update(zip(rest, carried, strict=True))
        outputs = _run(op.body, env)
        if op.cond is not None:
            going, outputs = bool(outputs[0].reshape(())), outputs[1:]
        carried = outputs
        step += 1
    return carried


def _constant(op: core.Constant) -> Array:
    return op.value


EVAL[core.Constant] = _constant
