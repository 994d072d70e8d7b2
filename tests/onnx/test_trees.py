"""Tree ensembles and linear classifiers against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from test_control import expected, run

F, INT = TensorProto.FLOAT, TensorProto.INT64
FEATURES = 5
Lists = dict[str, list[Any]]


def grow(r: np.random.Generator, lists: Lists, tree: int, depth: int, modes: list[str]) -> int:
    """Append a random subtree; the id of its root."""
    node = sum(t == tree for t in lists["treeids"])
    leaf = depth == 0 or (node > 0 and r.random() < 0.2)
    lists["treeids"].append(tree)
    lists["nodeids"].append(node)
    lists["featureids"].append(0 if leaf else int(r.integers(FEATURES)))
    lists["values"].append(0.0 if leaf else float(np.float32(r.normal())))
    lists["modes"].append("LEAF" if leaf else modes[int(r.integers(len(modes)))])
    place = len(lists["truenodeids"])
    lists["truenodeids"].append(0)
    lists["falsenodeids"].append(0)
    if not leaf:
        lists["truenodeids"][place] = grow(r, lists, tree, depth - 1, modes)
        lists["falsenodeids"][place] = grow(r, lists, tree, depth - 1, modes)
    return node


def forest(seed: int, trees: int, modes: list[str]) -> Lists:
    r = np.random.default_rng(seed)
    names = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    lists: Lists = {name: [] for name in names}
    for tree in range(trees):
        grow(r, lists, tree, 4, modes)
    return lists


def check(op: str, outputs: list[str], **attributes: Any) -> None:
    node = helper.make_node(op, ["x"], outputs, domain="ai.onnx.ml", **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", F, [7, FEATURES])],
        [helper.make_empty_tensor_value_info(o) for o in outputs],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 8
    feeds = {"x": np.random.default_rng(9).normal(0, 1, (7, FEATURES)).astype(np.float32)}
    got, _ = run(model, feeds)
    for a, b in zip(got, expected(model, feeds), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def leaves(
    lists: Lists, kind: str, classes: list[int], positive: bool = True
) -> dict[str, list[Any]]:
    r = np.random.default_rng(4)
    rows = [
        (t, i, c)
        for t, i, m in zip(lists["treeids"], lists["nodeids"], lists["modes"], strict=True)
        if m == "LEAF"
        for c in classes
    ]
    low = 0.0 if positive else -1.0
    return {
        f"{kind}_treeids": [t for t, _, _ in rows],
        f"{kind}_nodeids": [i for _, i, _ in rows],
        f"{kind}_ids": [c for _, _, c in rows],
        f"{kind}_weights": [float(np.float32(r.uniform(low, 1.0) / 3)) for _ in rows],
    }


@pytest.mark.parametrize("modes", [["BRANCH_LEQ"], ["BRANCH_LT", "BRANCH_GT", "BRANCH_GTE"]])
@pytest.mark.parametrize("how", ["SUM", "AVERAGE"])
def test_regressor(modes: list[str], how: str) -> None:
    lists = forest(1, 3, modes)
    nodes = {f"nodes_{k}": v for k, v in lists.items()}
    check(
        "TreeEnsembleRegressor",
        ["y"],
        **nodes,
        **leaves(lists, "target", [0, 1]),
        n_targets=2,
        base_values=[0.5, -0.25],
        aggregate_function=how,
    )


@pytest.mark.parametrize("post", ["NONE", "SOFTMAX"])
def test_classifier(post: str) -> None:
    lists = forest(2, 3, ["BRANCH_LEQ"])
    nodes = {f"nodes_{k}": v for k, v in lists.items()}
    check(
        "TreeEnsembleClassifier",
        ["label", "scores"],
        **nodes,
        **leaves(lists, "class", [0, 1, 2]),
        classlabels_int64s=[3, 5, 8],
        post_transform=post,
    )


@pytest.mark.parametrize(
    ("positive", "post"), [(True, "NONE"), (False, "NONE"), (False, "LOGISTIC")]
)
def test_two_classes_with_one_weight(positive: bool, post: str) -> None:
    lists = forest(3, 3, ["BRANCH_LEQ"])
    nodes = {f"nodes_{k}": v for k, v in lists.items()}
    check(
        "TreeEnsembleClassifier",
        ["label", "scores"],
        **nodes,
        **leaves(lists, "class", [0], positive),
        classlabels_int64s=[0, 1],
        post_transform=post,
    )


def test_linear_classifier() -> None:
    r = np.random.default_rng(5)
    for classes in (2, 3):
        check(
            "LinearClassifier",
            ["label", "scores"],
            coefficients=[float(v) for v in r.normal(size=classes * FEATURES)],
            intercepts=[float(v) for v in r.normal(size=classes)],
            classlabels_ints=list(range(classes)),
            post_transform="SOFTMAX",
            multi_class=1,
        )


def test_preprocessing() -> None:
    r = np.random.default_rng(6)
    numbers = [float(v) for v in r.normal(size=FEATURES)]
    check("Scaler", ["y"], offset=numbers, scale=[abs(v) for v in numbers])
    for norm in ("MAX", "L1", "L2"):
        check("Normalizer", ["y"], norm=norm)
    check("Imputer", ["y"], imputed_value_floats=numbers, replaced_value_float=float("nan"))
    check("Binarizer", ["y"], threshold=0.25)
    check(
        "LinearRegressor",
        ["y"],
        coefficients=[float(v) for v in r.normal(size=2 * FEATURES)],
        intercepts=[0.5, -0.5],
        targets=2,
    )


@pytest.mark.parametrize("kind", ["LINEAR", "POLY", "RBF", "SIGMOID"])
@pytest.mark.parametrize("one_class", [0, 1])
def test_support_vectors(kind: str, one_class: int) -> None:
    r = np.random.default_rng(7)
    check(
        "SVMRegressor",
        ["y"],
        kernel_type=kind,
        kernel_params=[0.25, 0.5, 3.0],
        support_vectors=[float(v) for v in r.normal(size=6 * FEATURES)],
        coefficients=[float(v) for v in r.normal(size=6)],
        n_supports=6,
        rho=[0.2],
        one_class=one_class,
    )


def test_encoders() -> None:
    check("FeatureVectorizer", ["y"], inputdimensions=[FEATURES])
    for version in (2, 4):
        _check_labels({"values_floats": [0.5, 1.5, 2.5]}, version)
        _check_labels({"values_int64s": [4, 5, 6]}, version)


def _check_labels(values: dict[str, Any], version: int) -> None:
    """Keys that repeat, are missing, or are not a number."""
    keys = [0.0, float("nan"), 2.0]
    floats = "values_floats" in values
    default: dict[str, Any] = {"default_float": -1.5} if floats else {"default_int64": -7}
    node = helper.make_node(
        "LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", keys_floats=keys, **values, **default
    )
    kind = F if floats else TensorProto.INT64
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", F, [2, 3])],
        [helper.make_tensor_value_info("y", kind, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", version)])
    model.ir_version = 8
    feeds = {"x": np.asarray([[0, np.nan, 2], [9, 0, 2]], np.float32)}
    (got,), _ = run(model, feeds)
    np.testing.assert_array_equal(got, expected(model, feeds)[0])
