"""Batch, group, instance and layer norm under Poplar's names, with their gradients.

Activations are [N, C, *spatial]; gamma and beta are [C]. Statistics of a batch norm are [C]; those
of the others [N groups], where the channels of a group lie `C / groups` apart (Poplar's strided
grouping) or side by side. An instance norm has C groups, a layer norm one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from poplar_py.diagnostics import ShapeError
from poplar_py.poplar.faults import fail
from poplar_py.poplin.norms import (
    create_norm_params,
    norm_gradients,
    norm_param_gradients,
    norm_statistics,
    norm_statistics_gradients,
    norm_whiten,
    normalise,
)

if TYPE_CHECKING:
    from poplar_py.poplar import Graph, Tensor
    from poplar_py.poplar.program import Sequence

__all__ = [
    "batch_norm_gradients",
    "batch_norm_param_gradients",
    "batch_norm_statistics",
    "batch_norm_whiten",
    "batch_normalise",
    "create_batch_norm_params",
    "create_group_norm_params",
    "create_instance_norm_params",
    "create_layer_norm_params",
    "group_norm_gradients",
    "group_norm_param_gradients",
    "group_norm_statistics",
    "group_norm_whiten",
    "group_normalise",
    "instance_norm_gradients",
    "instance_norm_param_gradients",
    "instance_norm_statistics",
    "instance_norm_whiten",
    "instance_normalise",
    "layer_norm_gradients",
    "layer_norm_param_gradients",
    "layer_norm_statistics",
    "layer_norm_whiten",
    "layer_normalise",
]

create_batch_norm_params = create_norm_params
create_group_norm_params = create_norm_params
create_instance_norm_params = create_norm_params
create_layer_norm_params = create_norm_params
batch_norm_statistics = norm_statistics
batch_norm_whiten = norm_whiten
batch_norm_param_gradients = norm_param_gradients
group_norm_param_gradients = norm_param_gradients
instance_norm_param_gradients = norm_param_gradients
layer_norm_param_gradients = norm_param_gradients


def batch_normalise(
    graph: Graph,
    acts: Tensor,
    gamma: Tensor,
    beta: Tensor,
    mean: Tensor,
    inv_std_dev: Tensor,
    prog: Sequence,
    name: str = "batch_norm",
) -> tuple[Tensor, Tensor]:
    """(whitened gamma + beta, whitened). Raises ShapeError unless all four are [C]."""
    whitened = norm_whiten(graph, acts, mean, inv_std_dev, prog, f"{name}/whiten")
    return normalise(graph, whitened, gamma, beta, prog, name), whitened


def batch_norm_gradients(
    graph: Graph,
    acts_whitened: Tensor,
    grads_in: Tensor,
    inv_std_dev: Tensor,
    gamma: Tensor,
    prog: Sequence,
    name: str = "batch_norm_gradients",
) -> Tensor:
    """The gradient of the activations, statistics included."""
    white = norm_gradients(graph, grads_in, gamma, prog, f"{name}/white")
    return norm_statistics_gradients(graph, acts_whitened, white, inv_std_dev, prog, name)


# ---------------------------------------------------------------------- groups
def _grouped(acts: Tensor, groups: int, strided: bool) -> Tensor:
    """Activations as [1, N groups, C / groups, *spatial], a view. Raises ShapeError."""
    if acts.rank < 2 or groups < 1 or acts.shape[1] % groups:
        fail(ShapeError, f"{groups} groups of the channels of {tuple(acts.shape)}")
    n, channels, *spatial = acts.shape
    each = channels // groups
    split = (each, groups) if strided else (groups, each)
    view = acts.reshape((n, *split, *spatial))
    if strided:
        view = view.dim_shuffle((0, 2, 1, *range(3, view.rank)))
    return view.reshape((1, n * groups, each, *spatial))


def _apart(view: Tensor, shape: tuple[int, ...], strided: bool) -> Tensor:
    """The inverse of `_grouped`."""
    n, channels, *spatial = shape
    groups = view.shape[1] // n
    split = view.reshape((n, groups, channels // groups, *spatial))
    if strided:
        split = split.dim_shuffle((0, 2, 1, *range(3, split.rank)))
    return split.reshape(shape)


def _groups_of(acts: Tensor, statistic: Tensor) -> int:
    if statistic.rank != 1 or not acts.shape[0] or statistic.numel % acts.shape[0]:
        fail(ShapeError, f"statistics {tuple(statistic.shape)} of {tuple(acts.shape)}")
    return statistic.numel // acts.shape[0]


def group_norm_statistics(
    graph: Graph,
    acts: Tensor,
    eps: float,
    prog: Sequence,
    num_groups: int,
    unbiased_var_estimate: bool = False,
    name: str = "group_statistics",
    *,
    strided: bool = True,
) -> tuple[Tensor, Tensor]:
    """(mean, 1 / sqrt(variance + eps)) of every sample's groups, each [N groups].

    Raises ShapeError unless the groups divide the channels.
    """
    view = _grouped(acts, num_groups, strided)
    return norm_statistics(graph, view, eps, prog, unbiased_var_estimate, name)


def instance_norm_statistics(
    graph: Graph,
    acts: Tensor,
    eps: float,
    prog: Sequence,
    unbiased_var_estimate: bool = False,
    name: str = "instance_statistics",
) -> tuple[Tensor, Tensor]:
    """As `group_norm_statistics` with a group for each channel."""
    groups = acts.shape[1] if acts.rank > 1 else 0
    return group_norm_statistics(graph, acts, eps, prog, groups, unbiased_var_estimate, name)


def layer_norm_statistics(
    graph: Graph,
    acts: Tensor,
    eps: float,
    prog: Sequence,
    unbiased_var_estimate: bool = False,
    name: str = "layer_statistics",
) -> tuple[Tensor, Tensor]:
    """As `group_norm_statistics` with one group."""
    return group_norm_statistics(graph, acts, eps, prog, 1, unbiased_var_estimate, name)


def group_norm_whiten(
    graph: Graph,
    acts: Tensor,
    mean: Tensor,
    inv_std_dev: Tensor,
    prog: Sequence,
    name: str = "group_whiten",
    *,
    strided: bool = True,
) -> Tensor:
    """(acts - mean) inv_std_dev, with statistics [N groups] of group, instance or layer norms."""
    view = _grouped(acts, _groups_of(acts, mean), strided)
    made = norm_whiten(graph, view, mean, inv_std_dev, prog, name)
    return _apart(made, tuple(acts.shape), strided)


def group_normalise(
    graph: Graph,
    acts: Tensor,
    gamma: Tensor,
    beta: Tensor,
    mean: Tensor,
    inv_std_dev: Tensor,
    prog: Sequence,
    name: str = "group_norm",
    *,
    strided: bool = True,
) -> tuple[Tensor, Tensor]:
    """(whitened gamma + beta, whitened), with statistics [N groups]; gamma and beta are [C]."""
    label = f"{name}/whiten"
    whitened = group_norm_whiten(graph, acts, mean, inv_std_dev, prog, label, strided=strided)
    return normalise(graph, whitened, gamma, beta, prog, name), whitened


def group_norm_gradients(
    graph: Graph,
    acts_whitened: Tensor,
    grads_in: Tensor,
    inv_std_dev: Tensor,
    gamma: Tensor,
    prog: Sequence,
    name: str = "group_norm_gradients",
    *,
    strided: bool = True,
) -> Tensor:
    """The gradient of the activations, statistics [N groups] included."""
    groups = _groups_of(grads_in, inv_std_dev)
    white = norm_gradients(graph, grads_in, gamma, prog, f"{name}/white")
    first, second = (_grouped(t, groups, strided) for t in (acts_whitened, white))
    made = norm_statistics_gradients(graph, first, second, inv_std_dev, prog, name)
    return _apart(made, tuple(grads_in.shape), strided)


# With as many groups as channels, or one, both ways to group channels are the same; the number of
# groups follows from the statistics.
instance_norm_whiten = layer_norm_whiten = group_norm_whiten
instance_normalise = layer_normalise = group_normalise
instance_norm_gradients = layer_norm_gradients = group_norm_gradients
