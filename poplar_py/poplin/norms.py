"""Statistics and gradients of norms over activations [N, C, *spatial], channel by channel.

    whitened = (x - mean) inv_std_dev,  y = whitened gamma + beta

Sums of f16 are taken in f32.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from poplar_py.diagnostics import ShapeError
from poplar_py.poplar.faults import fail
from poplar_py.poplin.create import create_biases
from poplar_py.popops.elementwise import map as map_expr
from poplar_py.popops.reduction import reduce
from poplar_py.types import sum_type

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor
    from poplar_py.poplar.program import Sequence

__all__ = [
    "create_norm_beta",
    "create_norm_gamma",
    "create_norm_params",
    "norm_gradients",
    "norm_param_gradients",
    "norm_statistics",
    "norm_statistics_gradients",
    "norm_whiten",
    "normalise",
]


def _dims(acts: Tensor) -> list[int]:
    """All but the channels."""
    return [d for d in range(acts.rank) if d != 1]


def _column(acts: Tensor, t: Tensor) -> Tensor:
    """A tensor [C] for an expression with acts [N, C, *spatial]."""
    if acts.rank < 2 or tuple(t.shape) != (acts.shape[1],):
        fail(ShapeError, f"{tuple(t.shape)} for the channels of {tuple(acts.shape)}")
    return t.reshape((t.numel, *(1,) * (acts.rank - 2)))


def create_norm_gamma(graph: Graph, acts: Tensor, name: str = "gamma") -> Tensor:
    """A variable [C] near the channels of acts."""
    return create_biases(graph, acts, name)


def create_norm_beta(graph: Graph, acts: Tensor, name: str = "beta") -> Tensor:
    """A variable [C] near the channels of acts."""
    return create_biases(graph, acts, name)


def create_norm_params(graph: Graph, acts: Tensor, name: str = "norm") -> tuple[Tensor, Tensor]:
    """(gamma, beta)."""
    gamma = create_norm_gamma(graph, acts, f"{name}/gamma")
    return gamma, create_norm_beta(graph, acts, f"{name}/beta")


def norm_statistics(
    graph: Graph,
    acts: Tensor,
    eps: float,
    prog: Sequence,
    unbiased_var_estimate: bool = False,
    name: str = "statistics",
) -> tuple[Tensor, Tensor]:
    """(mean, 1 / sqrt(variance + eps)), each [C] in the type of acts.

    The variance is that of the centred elements; divided by their number, less one with
    `unbiased_var_estimate`. Raises ShapeError.
    """
    if acts.rank < 2:
        fail(ShapeError, f"activations [N, C, ..], not {list(acts.shape)}")
    acc = sum_type(acts.dtype)
    count = prod(acts.shape[d] for d in _dims(acts))
    mean = reduce(graph, acts, _dims(acts), "mean", prog, f"{name}/mean", acc)
    text = f"sub(cast($0,{acc.name}),$1)"
    parts = [acts, _column(acts, mean)]
    centred = map_expr(graph, text, parts, prog, f"{name}/centre", acc)
    square = reduce(graph, centred, _dims(acts), "square_sum", prog, f"{name}/square", acc)
    share = 1.0 / max(count - unbiased_var_estimate, 1)
    text = f"cast(rsqrt(add(mul($0,c({share!r})),c({eps!r}))),{acts.dtype.name})"
    inverse = map_expr(graph, text, [square], prog, f"{name}/inverse", acts.dtype)
    text = f"cast($0,{acts.dtype.name})"
    return map_expr(graph, text, [mean], prog, f"{name}/cast", acts.dtype), inverse


def norm_whiten(
    graph: Graph,
    acts: Tensor,
    mean: Tensor,
    inv_std_dev: Tensor,
    prog: Sequence,
    name: str = "whiten",
) -> Tensor:
    """(acts - mean) inv_std_dev. Raises ShapeError unless mean and inv_std_dev are [C]."""
    parts = [acts, _column(acts, mean), _column(acts, inv_std_dev)]
    return map_expr(graph, "mul(sub($0,$1),$2)", parts, prog, name, acts.dtype)


def normalise(
    graph: Graph,
    acts_whitened: Tensor,
    gamma: Tensor,
    beta: Tensor,
    prog: Sequence,
    name: str = "normalise",
) -> Tensor:
    """acts_whitened gamma + beta. Raises ShapeError unless gamma and beta are [C]."""
    parts = [acts_whitened, _column(acts_whitened, gamma), _column(acts_whitened, beta)]
    return map_expr(graph, "add(mul($0,$1),$2)", parts, prog, name, acts_whitened.dtype)


def norm_param_gradients(
    graph: Graph,
    acts_whitened: Tensor,
    grads_in: Tensor,
    prog: Sequence,
    name: str = "param_gradients",
) -> tuple[Tensor, Tensor]:
    """Gradients of (gamma, beta), each [C]: sums of grads_in acts_whitened and of grads_in."""
    acc = sum_type(grads_in.dtype)
    text = f"mul(cast($0,{acc.name}),cast($1,{acc.name}))"
    both = [grads_in, acts_whitened]
    scaled = map_expr(graph, text, both, prog, f"{name}/product", acc)
    dims, dtype = _dims(grads_in), grads_in.dtype
    gamma = reduce(graph, scaled, dims, "sum", prog, f"{name}/gamma", dtype)
    return gamma, reduce(graph, grads_in, dims, "sum", prog, f"{name}/beta", dtype)


def norm_gradients(
    graph: Graph, grads_in: Tensor, gamma: Tensor, prog: Sequence, name: str = "gradients"
) -> Tensor:
    """The gradient of the whitened activations: grads_in gamma."""
    parts = [grads_in, _column(grads_in, gamma)]
    return map_expr(graph, "mul($0,$1)", parts, prog, name, grads_in.dtype)


def norm_statistics_gradients(
    graph: Graph,
    acts_whitened: Tensor,
    grads_in: Tensor,
    inv_std_dev: Tensor,
    prog: Sequence,
    name: str = "statistics_gradients",
) -> Tensor:
    """The gradient of the activations, from that of the whitened ones, where mean and variance
    depend on them: inv_std_dev (g - mean(g) - whitened mean(g whitened))."""
    acc, dims = sum_type(grads_in.dtype), _dims(grads_in)
    wide = [f"cast(${i},{acc.name})" for i in range(5)]
    text = f"mul({wide[0]},{wide[1]})"
    product = map_expr(graph, text, [grads_in, acts_whitened], prog, f"{name}/product", acc)
    mean = reduce(graph, grads_in, dims, "mean", prog, f"{name}/mean", acc)
    shared = reduce(graph, product, dims, "mean", prog, f"{name}/shared", acc)
    inner = f"sub(sub({wide[0]},$2),mul({wide[1]},$3))"
    text = f"cast(mul({inner},{wide[4]}),{grads_in.dtype.name})"
    columns = [_column(grads_in, t) for t in (mean, shared, inv_std_dev)]
    parts = [grads_in, acts_whitened, *columns]
    return map_expr(graph, text, parts, prog, name, grads_in.dtype)
