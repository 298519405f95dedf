"""What the weights of the stem and of the positions look like."""

import keras
import numpy as np

from keras_vit.analysis.token_layout import check_garden
from keras_vit.analysis.token_layout import check_vit


def position_similarity(model):
    """Returns how alike the position embeddings of two patches are.

    Cosine similarity; entries of prefix tokens are left out. Figure 7,
    centre: `similarity[r, c]` is the tile in row `r` and column `c`.

    Args:
        model: A `ViT` with positions of its patches.

    Returns:
        Float32 array `(rows, columns, rows, columns)`, -1..1; each patch with
        itself is 1.

    Raises:
        TypeError: The model is not a `ViT`.
        ValueError: The model has no vector per patch: no positions, relative
            ones, or positions of zero.

    References:
        - [Dosovitskiy et al., 2021](https://arxiv.org/abs/2010.11929),
          section 4.5
    """
    check_vit(model)
    position = model.config.tokens.position
    if position in ("none", "relative"):
        raise ValueError(
            f"No patch has a vector of its place. Expected: a model with "
            f"position='learned', 'learned_2d' or 'sincos_2d'. Received: "
            f"position={position!r}."
        )
    layer = model.get_layer("position_embedding")
    table = layer.patch_positions(*layer.grid)
    vectors = keras.ops.convert_to_numpy(table).astype("float64")
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    if not length.all():
        raise ValueError(
            f"A vector of zero has no direction. Expected: positions that "
            f"differ from zero. Received: {int((length == 0).sum())} of "
            f"{length.size} that do not, as in a model that was not trained."
        )
    vectors = vectors / length
    return np.einsum("rcd,ijd->rcij", vectors, vectors).astype("float32")


def patch_filters(model, k=28, with_variance=False):
    """Returns the principal components of the patch filters.

    Each output channel of the patch embedding is a filter; of a hybrid, and
    of a `ResNetV2`, the filters are those of the root. They are centred, and
    their principal components returned, the largest first. The sign is
    fixed: the entry of the largest magnitude is positive. Figure 7, left.

    Args:
        model: A `ViT` or a `ResNetV2`.
        k: Int, how many components, 1 to `height * width * 3` of the kernel
            or its number of filters less one, whichever is lower.
        with_variance: Whether to return the explained variance as well.

    Returns:
        Float32 array `(k, height, width, 3)`, each of length 1, in units of
        normalised pixels. With `with_variance` also `(k,)`: the part of the
        variance of all filters that each explains, descending, sum at most 1.

    Raises:
        TypeError: The model is neither a `ViT` nor a `ResNetV2`.
        ValueError: `k` is out of range.

    References:
        - [Dosovitskiy et al., 2021](https://arxiv.org/abs/2010.11929),
          section 4.5
    """
    check_garden(model)
    kernel = _root_kernel(model).astype("float64")
    filters = kernel.reshape(-1, kernel.shape[-1]).T  # (filters, values)
    most = min(filters.shape[1], filters.shape[0] - 1)
    if not 1 <= k <= most:
        raise ValueError(
            f"There are not so many components. Expected: k from 1 to {most} "
            f"for {filters.shape[0]} filters of shape {kernel.shape[:3]}. "
            f"Received: k={k}."
        )
    centred = filters - filters.mean(axis=0)
    _, scale, components = np.linalg.svd(centred, full_matrices=False)
    components = components[:k]
    peak = np.abs(components).argmax(axis=1)
    components = components * np.sign(components[np.arange(k), peak])[:, None]
    images = components.reshape(k, *kernel.shape[:3]).astype("float32")
    if not with_variance:
        return images
    return images, (scale**2 / (scale**2).sum())[:k].astype("float32")


def _root_kernel(model):
    """The first kernel that pixels meet, `(height, width, 3, filters)`."""
    if "root" in {layer.name for layer in model.layers}:
        kernel = model.get_layer("root").conv.standardized()
    else:
        kernel = model.get_layer("patch_embedding").kernel
    return keras.ops.convert_to_numpy(kernel)
