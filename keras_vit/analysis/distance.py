"""How far attention reaches, and how widely it is spread."""

import numpy as np

from keras_vit.analysis.attention_stream import attention_pieces
from keras_vit.analysis.token_layout import as_images
from keras_vit.analysis.token_layout import check_vit
from keras_vit.analysis.token_layout import grid_of


def attention_distance(model, images):
    """Returns how many pixels lie between a patch and what it reads, by head.

    The distance between the centres of two patches, weighted by attention,
    mean over the patches and the images. Prefix tokens are left out on both
    sides; what a patch reads from patches is scaled to sum to 1. The analogue
    of the size of a receptive field: figure 7, right.

    Args:
        model: A `ViT`.
        images: What the model takes, `(batch, height, width, 3)`.

    Returns:
        Float32 array `(depth, heads)`, in pixels. Attention that is spread
        evenly over 14x14 patches of 16 pixels gives 116.4922; attention of
        each patch to itself gives 0.

    Raises:
        TypeError: The model is not a `ViT`.

    References:
        - [Dosovitskiy et al., 2021](https://arxiv.org/abs/2010.11929),
          section 4.5 and appendix D.7
    """
    check_vit(model)
    images, prefix = as_images(images, model), model.config.num_prefix
    between = _distances(grid_of(model, images), model.config.stride)
    total = np.zeros((model.config.depth, model.config.num_heads))
    for piece in attention_pieces(model, images):
        # Queries of the prefix stand in front of those of the patches.
        skip = max(prefix - piece.queries.start, 0)
        first = max(piece.queries.start - prefix, 0)
        weights = piece.weights[:, :, skip:, prefix:].astype("float64")
        rows = between[first : first + weights.shape[2]]
        reach = (weights * rows).sum(-1) / weights.sum(-1)
        total[piece.block] += reach.sum(axis=(0, 2))
    mean = total / (len(images) * len(between))
    return mean.astype("float32")


def attention_entropy(model, images):
    """Returns how widely attention is spread, by head.

    `-sum(p log p)` over all tokens that a query reads, mean over the queries
    and the images.

    Args:
        model: A `ViT`.
        images: What the model takes, `(batch, height, width, 3)`.

    Returns:
        Float32 array `(depth, heads)`, in nats: from 0, each token reads one
        other, to `log(tokens)`, each reads all evenly.

    Raises:
        TypeError: The model is not a `ViT`.
    """
    check_vit(model)
    images, queries = as_images(images, model), 0
    total = np.zeros((model.config.depth, model.config.num_heads))
    for piece in attention_pieces(model, images):
        p = piece.weights.astype("float64")
        # 0 log 0 is 0.
        logs = np.log(p, out=np.zeros_like(p), where=p > 0)
        total[piece.block] -= (p * logs).sum(axis=(0, 2, 3))
        queries += p.shape[0] * p.shape[2]
    return (total / (queries / model.config.depth)).astype("float32")


def even_distance(grid, stride):
    """The distance of attention that is spread evenly, in pixels.

    Args:
        grid: `(rows, columns)` of patches.
        stride: `(down, across)`, pixels from one patch to the next.
    """
    return float(_distances(grid, stride).mean())


def _distances(grid, stride):
    """Between the centres of all patches, `(patches, patches)`, in pixels."""
    rows, columns = (
        np.arange(count) * step
        for count, step in zip(grid, stride, strict=True)
    )
    y, x = (axis.ravel() for axis in np.meshgrid(rows, columns, indexing="ij"))
    return np.hypot(y[:, None] - y, x[:, None] - x)
