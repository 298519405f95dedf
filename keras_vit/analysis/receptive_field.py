"""The effective receptive field: which pixels a token depends on."""

import keras
import numpy as np

from keras_vit.analysis.gradients import gradients
from keras_vit.analysis.token_layout import as_images
from keras_vit.analysis.token_layout import check_vit
from keras_vit.analysis.token_layout import grid_of
from keras_vit.architecture import activation


def effective_receptive_field(model, images, block=-1, at=None):
    """Returns how much each pixel moves one patch token after a block.

    The magnitude of the gradient of the token's mean channel with respect to
    the pixels, mean over channels and images. Self-attention can reach the
    whole image from the first block on; this shows how far it does.

    Args:
        model: A `ViT`.
        images: What the model takes, `(batch, height, width, 3)`. A dozen
            or more give a smooth picture.
        block: Index of the block.
        at: `(row, column)` of the patch; the central one by default.

    Returns:
        Float32 array `(height, width)`, non-negative, its sum is 1; all zero
        where nothing depends on the pixels.

    Raises:
        TypeError: The model is not a `ViT`.
        ValueError: No such block or patch.

    References:
        - [Luo et al., 2016](https://arxiv.org/abs/1701.04128), section 2
        - [Raghu et al., 2021](https://arxiv.org/abs/2108.08810), section 4
    """
    check_vit(model)
    images = as_images(images, model).astype("float32")
    token = _token_at(model, grid_of(model, images), at)
    output = keras.Model(model.input, activation(model, block)[1])

    def value(x):
        return keras.ops.sum(keras.ops.mean(output(x)[:, token], axis=-1))

    parts = [
        np.abs(gradients(value, [images[i : i + 1]])[0][0])
        for i in range(len(images))
    ]
    axis = 0 if model.config.data_format == "channels_first" else -1
    field = np.mean(parts, axis=0, dtype="float64").mean(axis=axis)
    return (field / max(field.sum(), 1e-30)).astype("float32")


def _token_at(model, grid, at):
    rows, columns = grid
    row, column = (rows // 2, columns // 2) if at is None else at
    if not (0 <= row < rows and 0 <= column < columns):
        raise ValueError(
            f"No such patch. Expected: (row, column) inside the grid "
            f"{rows}x{columns}. Received: at={at}."
        )
    return model.config.num_prefix + row * columns + column
