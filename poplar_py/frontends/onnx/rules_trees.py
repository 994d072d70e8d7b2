"""ONNX-ML tree ensembles and linear classifiers: gathers down the trees, level by level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from poplar_py.diagnostics import InputError, ShapeError
from poplar_py.frontends.onnx.builder import MAX_TABLE, Builder
from poplar_py.frontends.onnx.node import Node, imports
from poplar_py.frontends.onnx.rules_ml import (
    chosen,
    class_labels,
    feature_table,
    named,
    transformed,
)
from poplar_py.frontends.onnx.values import Array, Val
from poplar_py.ir.core import Op
from poplar_py.ops import elementwise as ew
from poplar_py.ops import nn
from poplar_py.types import f32, i32

__all__: list[str] = []

_DOMAIN = "ai.onnx.ml"
_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
_MEMBER = 6
_MAX_DEPTH = 200


@dataclass
class _Forest:
    """Nodes of all trees; a leaf points at itself. `weights`[nodes, targets] are 0 inside."""

    feature: Array
    value: Array
    mode: Array
    yes: Array
    no: Array
    missing: Array
    roots: Array
    weights: Array

    @property
    def depth(self) -> int:
        level, steps = self.roots, 0
        while steps <= _MAX_DEPTH:
            following = np.unique(np.concatenate([self.yes[level], self.no[level]]))
            if np.array_equal(following, np.unique(level)):
                return steps
            level, steps = following, steps + 1
        raise ShapeError(f"the trees are deeper than {_MAX_DEPTH}, or have a cycle")


def _walk(b: Builder, forest: _Forest, x: Val) -> Val:
    """Leaf of every row of x[B, F] in every tree: i32[B, T]."""
    batch, features = x.shape
    if forest.feature.size and not 0 <= forest.feature.min() <= forest.feature.max() < features:
        raise ShapeError(f"a tree asks for a feature outside {x.type}", b.loc)
    flat = b.reshape(x, (batch * features,))
    rows = b.const(np.arange(batch)[:, None] * features, i32)
    at = b.expand(b.const(forest.roots[None, :], i32), (batch, len(forest.roots)))
    tables = {
        name: b.const(getattr(forest, name), i32) for name in ("feature", "yes", "no", "mode")
    }
    values = b.const(forest.value, x.dtype)
    for _ in range(forest.depth):
        picked = b.gather(flat, rows + b.gather(tables["feature"], at, 0), 0)
        goes = _decide(b, forest, tables["mode"], at, picked, b.gather(values, at, 0))
        at = b.select(goes, b.gather(tables["yes"], at, 0), b.gather(tables["no"], at, 0))
    return at


def _decide(b: Builder, forest: _Forest, modes: Val, at: Val, x: Val, edge: Val) -> Val:
    inner = forest.yes != np.arange(len(forest.yes))
    used = sorted({int(m) for m in forest.mode[inner]})
    goes: Val | None = None
    for mode in used:
        here = _compare(b, mode, x, edge)
        mine = b.equal(b.gather(modes, at, 0), mode)
        goes = here if goes is None else b.select(mine, here, goes)
    assert goes is not None
    if not forest.missing[inner].any():
        return goes
    tracks = b.flag(b.gather(b.const(forest.missing, i32), at, 0))
    return b.emit(ew.Or, goes, b.both(b.emit(ew.IsNan, x), tracks))


def _compare(b: Builder, mode: int, x: Val, edge: Val) -> Val:
    plain: tuple[type[Op], ...] = (
        ew.LessEqual,
        ew.Less,
        ew.GreaterEqual,
        ew.Greater,
        ew.Equal,
    )
    return b.emit(plain[mode], x, edge) if mode < 5 else b.negate(b.equal(x, edge))


def _known(n: Node, name: str) -> Array:
    """A list of numbers, or the tensor attribute `<name>_as_tensor`."""
    held = n.tensor(f"{name}_as_tensor")
    if isinstance(held, Val) and held.const is not None:
        return held.const.reshape(-1)
    return np.asarray(n.floats(name), np.float32)


def _numbers(n: Node, name: str) -> Array:
    return np.asarray(n.ints(name), np.int64)


def _forest(n: Node, kind: str, targets: int) -> _Forest:
    """The forest of a TreeEnsembleClassifier ("class") or TreeEnsembleRegressor ("target")."""
    trees, ids = _numbers(n, "nodes_treeids"), _numbers(n, "nodes_nodeids")
    place = {pair: i for i, pair in enumerate(zip(trees.tolist(), ids.tolist(), strict=True))}
    count = len(trees)
    names = n.strs("nodes_modes")
    lists = [names, n.ints("nodes_featureids"), n.ints("nodes_truenodeids")]
    if len(place) != count or any(len(x) != count for x in lists) or not count:
        raise InputError("the lists of nodes do not fit each other", n.loc)
    own = np.arange(count)
    leaf = np.asarray([m == "LEAF" for m in names])
    unknown = {m for m in names if m not in _MODES} - {"LEAF"}
    if unknown:
        raise InputError(f"no mode of a node is called {sorted(unknown)[0]!r}", n.loc)

    def child(name: str) -> Array:
        found = [
            place[t, c] if not end else i
            for i, (t, c, end) in enumerate(
                zip(trees.tolist(), n.ints(name), leaf.tolist(), strict=True)
            )
        ]
        return np.asarray(found)

    yes, no = child("nodes_truenodeids"), child("nodes_falsenodeids")
    inner = own[~leaf]
    reached = np.zeros(count, bool)
    reached[yes[inner]] = reached[no[inner]] = True
    weights = _leaf_weights(n, kind, place, count, targets)
    missing = _numbers(n, "nodes_missing_value_tracks_true")
    return _Forest(
        feature=np.where(leaf, 0, _numbers(n, "nodes_featureids")),
        value=_known(n, "nodes_values"),
        mode=np.asarray([_MODES.index(m) if m in _MODES else 0 for m in names]),
        yes=yes,
        no=no,
        missing=missing if len(missing) == count else np.zeros(count, np.int64),
        roots=own[~reached],
        weights=weights,
    )


def _leaf_weights(
    n: Node, kind: str, place: dict[tuple[int, int], int], count: int, targets: int
) -> Array:
    if targets < 1 or count * targets > MAX_TABLE:
        raise ShapeError(f"{count} nodes with {targets} targets are too many", n.loc)
    weights = np.zeros((count, targets))
    pairs = zip(n.ints(f"{kind}_treeids"), n.ints(f"{kind}_nodeids"), strict=True)
    rows = np.asarray([place[pair] for pair in pairs], np.int64)
    columns = _numbers(n, f"{kind}_ids")
    np.add.at(weights, (rows, columns), _known(n, f"{kind}_weights"))
    return weights.astype(np.float32)


def _scores(b: Builder, forest: _Forest, x: Val, how: str, base: Sequence[float]) -> Val:
    leaves = b.gather(b.const(forest.weights, x.dtype), _walk(b, forest, x), 0)  # [B, T, targets]
    if how in ("MIN", "MAX"):
        total = b.reduce(leaves, how.lower(), (1,))
    elif how == "AVERAGE":
        total = b.mean(leaves, (1,))
    else:
        total = b.sum(leaves, (1,))
    return total + b.const(np.asarray(base), x.dtype) if len(base) else total


@imports("TreeEnsembleRegressor", domain=_DOMAIN)
def tree_regressor(b: Builder, n: Node) -> Val:
    x = feature_table(b, n)
    forest = _forest(n, "target", n.int("n_targets", 1))
    base = _known(n, "base_values").tolist()
    y = _scores(b, forest, x, n.str("aggregate_function", "SUM"), base)
    return b.cast(transformed(b, n, y), f32)


@imports("TreeEnsembleClassifier", domain=_DOMAIN)
def tree_classifier(b: Builder, n: Node) -> tuple[Val, Val]:
    x = feature_table(b, n)
    labels = class_labels(b, n, "classlabels_int64s")
    forest = _forest(n, "class", len(labels))
    used = sorted(set(n.ints("class_ids")))
    scores = b.cast(_scores(b, forest, x, "SUM", _known(n, "base_values").tolist()), f32)
    if len(labels) != 2 or len(used) != 1:
        return chosen(b, labels, scores), transformed(b, n, scores)
    # Two classes with weights for one of them.
    single = b.slice(scores, 1, used[0], 1)
    positive = bool((_known(n, "class_weights") >= 0).all())
    sure = b.emit(ew.Greater, single, b.const(0.5 if positive else 0.0, f32))
    if positive:
        both = b.concat([1.0 - single, single], 1)
    else:
        both = transformed(b, n, b.concat([-single, single], 1))
    return named(b, labels, b.cast(b.reshape(sure, (x.shape[0],)), i32)), both


@imports("TreeEnsemble", domain=_DOMAIN)
def tree_ensemble(b: Builder, n: Node) -> Val:
    """Opset 5: inner nodes and leaves in lists of their own."""
    x = feature_table(b, n)
    modes = _tensor(n, "nodes_modes")
    if not modes.size or modes.max() > _MEMBER:
        raise InputError("the modes of the nodes are missing or unknown", n.loc)
    inner, targets = len(modes), n.int("n_targets", 1)
    leaf_targets = _numbers(n, "leaf_targetids")
    count = inner + len(leaf_targets)

    def child(side: str) -> Array:
        to, ends = _numbers(n, f"nodes_{side}nodeids"), _numbers(n, f"nodes_{side}leafs")
        return np.concatenate([np.where(ends > 0, to + inner, to), np.arange(inner, count)])

    weights = np.zeros((count, targets))
    weights[np.arange(inner, count), leaf_targets] = _tensor(n, "leaf_weights")
    rest = np.zeros(len(leaf_targets), np.int64)
    missing = _numbers(n, "nodes_missing_value_tracks_true")
    missing = missing if len(missing) == inner else np.zeros(inner, np.int64)
    splits = _tensor(n, "nodes_splits")
    forest = _Forest(
        feature=np.concatenate([_numbers(n, "nodes_featureids"), rest]),
        value=np.concatenate([splits, rest.astype(splits.dtype)]),
        mode=np.concatenate([modes.astype(np.int64), rest]),
        yes=child("true"),
        no=child("false"),
        missing=np.concatenate([missing, rest]),
        roots=_numbers(n, "tree_roots"),
        weights=weights,
    )
    for part in (forest.yes, forest.no, forest.roots):
        if part.size and not 0 <= part.min() <= part.max() < count:
            raise InputError("a node of a tree points outside its lists", n.loc)
    _members(n, forest)
    how = ("AVERAGE", "SUM", "MIN", "MAX")[n.int("aggregate_function", 1) % 4]
    y = _scores(b, forest, x, how, ())
    kind = n.int("post_transform")
    if kind not in (0, 1, 2):
        raise b.refuse(f"the post transform {kind} is not supported")
    return (
        y if kind == 0 else b.emit(nn.Softmax, y, axis=-1) if kind == 1 else b.emit(ew.Sigmoid, y)
    )


def _members(n: Node, forest: _Forest) -> None:
    """Nodes that test membership of a set become chains of tests for equality."""
    nodes = np.flatnonzero(forest.mode == _MEMBER)
    if not nodes.size:
        return
    sets: list[list[float]] = [[]]
    for number in _tensor(n, "membership_values").tolist():
        if np.isnan(number):
            sets.append([])
        else:
            sets[-1].append(number)
    for node, members in zip(nodes.tolist(), sets, strict=False):
        forest.mode[node] = _MODES.index("BRANCH_EQ")
        at = node
        for k, member in enumerate(members):
            forest.value[at] = member
            if k + 1 < len(members):
                at = _append(forest, at)


def _append(forest: _Forest, node: int) -> int:
    """A copy of a node, reached where the node says no."""
    new = len(forest.mode)
    for name in ("feature", "value", "mode", "yes", "no", "missing"):
        column = getattr(forest, name)
        setattr(forest, name, np.append(column, column[node]))
    forest.weights = np.concatenate([forest.weights, forest.weights[node : node + 1]])
    forest.no[node] = new
    return new


def _tensor(n: Node, name: str) -> Array:
    held: Any = n.tensor(name)
    if not isinstance(held, Val) or held.const is None:
        raise InputError(f"attribute {name} is missing", n.loc)
    return held.const.reshape(-1)
