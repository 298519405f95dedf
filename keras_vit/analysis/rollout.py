"""Attention rollout: from the pooled vector back to the patches."""

import math

import numpy as np

from keras_vit.analysis.attention_stream import attention_pieces
from keras_vit.analysis.token_layout import as_images
from keras_vit.analysis.token_layout import check_vit
from keras_vit.analysis.token_layout import grid_of
from keras_vit.analysis.token_layout import pooled_row
from keras_vit.analysis.token_layout import pooled_tokens
from keras_vit.analysis.token_layout import to_grid
from keras_vit.checks import check_choice
from keras_vit.checks import check_rate

FUSIONS = {"mean": np.mean, "max": np.max, "min": np.min}


def attention_rollout(
    model, images, head_fusion="mean", discard_ratio=0.0, per_block=False
):
    """Returns how much each patch reaches the pooled output.

    Per block the heads are fused, half of the identity is added for the
    residual branch, and the matrices are multiplied from the first block to
    the last. The row read is that of the class token, the mean of the patch
    rows for a model that averages them, what the probe reads for `"map"`.
    Only that row is ever computed: `tokens ** 2` steps per block, where the
    product of the matrices takes `tokens ** 3`.

    Args:
        model: A `ViT`.
        images: What the model takes, `(batch, height, width, 3)`.
        head_fusion: `"mean"` as in the paper, `"max"` or `"min"`; rows are
            scaled to sum to 1 again.
        discard_ratio: Float in `[0, 1)`, the part of each fused row, lowest
            first, that is set to zero before the row is scaled again.
        per_block: Whether to return a map for each block, rolled out from
            there to the first.

    Returns:
        Float32 array `(batch, rows, columns)`, or `(depth, batch, rows,
        columns)`, the last block last. Each map sums to at most 1: the part
        that stays in prefix tokens is left out.

    Raises:
        TypeError: The model is not a `ViT`.
        ValueError: Unknown fusion, or a ratio outside `[0, 1)`.

    References:
        - [Abnar & Zuidema, 2020](https://arxiv.org/abs/2005.00928), section 3
        - [Dosovitskiy et al., 2021](https://arxiv.org/abs/2010.11929),
          appendix D.8
    """
    check_vit(model)
    check_choice("head_fusion", head_fusion, FUSIONS)
    check_rate("discard_ratio", discard_ratio)
    images = as_images(images, model)
    depth = model.config.depth
    flow = _starts(model, images, per_block)  # (starts, batch, tokens)
    read = np.zeros_like(flow)
    for piece in attention_pieces(model, images, range(depth - 1, -1, -1)):
        fused = _fuse(piece.weights, head_fusion, discard_ratio)
        # Only what starts at this block or after it has come to it.
        some = slice(piece.block, None) if per_block else slice(None)
        at = (some, piece.images)
        read[at] += np.einsum("sbq,bqk->sbk", flow[(*at, piece.queries)], fused)
        if piece.queries.stop == flow.shape[-1]:
            flow[at] = 0.5 * flow[at] + 0.5 * read[at]
            read[at] = 0
    maps = flow if per_block else flow[0]
    return to_grid(maps, model, images).astype("float32")


def _starts(model, images, per_block):
    """The rows to begin with, one per map and image."""
    last = pooled_tokens(model, images)
    if not per_block:
        return last[None]
    flow = np.empty((model.config.depth, *last.shape))
    # Before the last block there is no probe yet: all patches count alike.
    flow[:] = pooled_row(model.config, math.prod(grid_of(model, images)))
    flow[-1] = last
    return flow


def _fuse(weights, head_fusion, discard_ratio):
    """From `(batch, heads, queries, tokens)` to rows that sum to 1."""
    fused = FUSIONS[head_fusion](weights.astype("float64"), axis=1)
    dropped = int(discard_ratio * fused.shape[-1])
    if dropped:
        lowest = np.argpartition(fused, dropped - 1, axis=-1)[..., :dropped]
        np.put_along_axis(fused, lowest, 0.0, axis=-1)
    return fused / fused.sum(-1, keepdims=True)
