"""Attention maps: what each token reads from each other one."""

import numpy as np

from keras_vit.analysis.attention_stream import attention_pieces
from keras_vit.analysis.token_layout import as_images
from keras_vit.analysis.token_layout import check_vit
from keras_vit.analysis.token_layout import grid_of
from keras_vit.analysis.token_layout import pooled_row
from keras_vit.analysis.token_layout import to_grid


def attention_maps(model, images, blocks=None):
    """Returns how much each token reads from each other one.

    Recomputed from the input of every block, so the model stays as it is and
    its fused attention stays on. The result takes `4 * depth * batch * heads *
    tokens ** 2` bytes, which is 22 MB for one image and B/16 at 224 pixels;
    ask for some of the blocks where that is too much. The other analyses
    never hold it whole.

    Args:
        model: A `ViT`.
        images: What the model takes, `(batch, height, width, 3)`.
        blocks: Optional indices of blocks, such as `[0, -1]`.

    Returns:
        Float32 array `(depth, batch, heads, tokens, tokens)`, queries before
        keys, prefix tokens first; every row of keys sums to 1. With `blocks`
        their number stands in the place of `depth`.

    Raises:
        TypeError: The model is not a `ViT`.
        ValueError: No such block.

    References:
        - [Dosovitskiy et al., 2021](https://arxiv.org/abs/2010.11929),
          equation 6
    """
    check_vit(model)
    images = as_images(images, model)
    blocks = _block_indices(model, blocks)
    tokens = model.config.num_prefix + np.prod(grid_of(model, images))
    shape = (len(blocks), len(images), model.config.num_heads, tokens, tokens)
    maps = np.empty(shape, "float32")
    for piece in attention_pieces(model, images, sorted(set(blocks))):
        for row in np.flatnonzero(np.equal(blocks, piece.block)):
            maps[row, piece.images, :, piece.queries] = piece.weights
    return maps


def class_attention(model, images):
    """Returns what the class token reads from each patch, head by head.

    In a model without a class token it is what the patches read in the mean;
    in a distilled model the mean of both tokens.

    Args:
        model: A `ViT`.
        images: What the model takes, `(batch, height, width, 3)`.

    Returns:
        Float32 array `(depth, batch, heads, rows, columns)`. A head sums to
        what it does not spend on prefix tokens, at most 1.

    Raises:
        TypeError: The model is not a `ViT`.

    References:
        - [Caron et al., 2021](https://arxiv.org/abs/2104.14294), figure 1
    """
    check_vit(model)
    images, config = as_images(images, model), model.config
    row = pooled_row(config, np.prod(grid_of(model, images)))
    if config.head.pooling == "token_gap":
        row = np.eye(1, len(row))[0]
    shape = (config.depth, len(images), config.num_heads, len(row))
    read = np.zeros(shape)
    for piece in attention_pieces(model, images):
        read[piece.block, piece.images] += np.einsum(
            "q,bhqk->bhk", row[piece.queries], piece.weights
        )
    return to_grid(read, model, images).astype("float32")


def _block_indices(model, blocks):
    depth = model.config.depth
    blocks = list(range(depth) if blocks is None else blocks)
    wrong = [i for i in blocks if not -depth <= i < depth]
    if wrong:
        raise ValueError(
            f"No such block. Expected: indices from {-depth} to {depth - 1}. "
            f"Received: {wrong[0]} in blocks={blocks}."
        )
    return [i % depth for i in blocks]
