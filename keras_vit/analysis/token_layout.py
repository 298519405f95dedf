"""Which token stands where, and which of them a model pools."""

import math

import keras
import numpy as np

from keras_vit.image_checks import check_images


def check_vit(model):
    """Raises unless the model has blocks of attention to look into."""
    if not hasattr(model, "blocks"):
        raise TypeError(
            f"There is no attention to look at. Expected: a keras_vit.ViT. "
            f"Received: a {type(model).__name__}."
        )


def check_garden(model):
    """Raises unless the model is one of this package."""
    if not hasattr(model, "repeated"):
        raise TypeError(
            f"This is not a model of the garden. Expected: a keras_vit.ViT or "
            f"a keras_vit.ResNetV2. Received: a {type(model).__name__}."
        )


def as_array(values):
    """Returns a tensor of any backend as a NumPy array."""
    if hasattr(values, "shape") and not isinstance(values, np.ndarray):
        values = keras.ops.convert_to_numpy(values)
    return np.asarray(values)


def as_images(images, model):
    """Returns images of any backend, checked, as a NumPy array.

    Raises:
        ValueError: Not a batch of images for this model, such as the name of
            a file, an empty batch, or images of another size.
    """
    images = as_array(images)
    if images.ndim != 4 or not len(images):
        what = f"shape {images.shape}" if images.ndim else repr(images.item())
        raise ValueError(
            f"These are not images. Expected: an array of shape (batch, "
            f"height, width, 3), at least one image. Received: {what}. Files "
            f"are read by keras_vit.load_images(paths, model)."
        )
    check_images(images, model.config)
    return images


def grid_of(model, images):
    """Patches of these images as `(rows, columns)`."""
    config = model.config
    first = config.data_format == "channels_first"
    height, width = images.shape[2:4] if first else images.shape[1:3]
    down, across = config.stride
    return height // down, width // across


def to_grid(values, model, images):
    """Cuts the prefix off `(..., tokens)`: `(..., rows, columns)`."""
    patches = values[..., model.config.num_prefix :]
    return patches.reshape(*patches.shape[:-1], *grid_of(model, images))


def pooled_tokens(model, images):
    """Returns the weight of each token in the pooled vector.

    One for the class token, or half for each of the two that a distilled
    model averages; equal weights of the patches for `"gap"`; half of each
    for `"token_gap"`; what the probe reads, mean of its heads, for `"map"`.

    Args:
        model: A `ViT`.
        images: `(batch, height, width, 3)`.

    Returns:
        Float64 array `(batch, tokens)`, rows sum to 1.
    """
    if model.config.head.pooling == "map":
        return _read_by_probe(model, images)
    row = pooled_row(model.config, math.prod(grid_of(model, images)))
    return np.tile(row, (len(images), 1))


def pooled_row(config, patches):
    """The weights of `pooled_tokens` where they do not depend on the image.

    A `"map"` model counts as one that averages its patches.
    """
    row = np.zeros(config.num_prefix + patches)
    pooling = config.head.pooling
    if pooling in ("token", "token_gap"):
        row[: config.num_classifiers] = 1 / config.num_classifiers
    if pooling != "token":
        row[config.num_prefix :] += 1 / patches
    return row / row.sum()


class _Probe(keras.layers.Layer):
    """What attention pooling reads, as a layer of a graph."""

    def __init__(self, pooling):
        super().__init__(name="probe_maps", dtype="float32")
        # Held where Keras does not look: the weights stay the model's.
        self._call = pooling.probabilities

    def call(self, x):
        return self._call(x)


def _read_by_probe(model, images):
    pooling = model.get_layer("pooling")
    read = _Probe(pooling)(pooling.input)
    maps = keras.Model(model.input, read).predict_on_batch(images)
    return maps.astype("float64").mean(axis=1)[:, 0]
