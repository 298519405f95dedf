"""Linear CKA: how alike two layers see the same images."""

import math

import keras
import numpy as np

from keras_vit.analysis.token_layout import as_array
from keras_vit.analysis.token_layout import as_images
from keras_vit.analysis.token_layout import check_garden
from keras_vit.checks import check_at_least


def linear_cka(x, y):
    """Returns the linear CKA of two representations of the same images.

    Centred kernel alignment with the unbiased estimator of HSIC, so that it
    does not grow with the number of channels.

    Args:
        x: `(images, ...)`, at least 4 images; the rest is flattened.
        y: `(images, ...)`, of any other rest.

    Returns:
        Float: 1 for equal representations and for rotated, scaled or shifted
        ones, about 0 for independent ones.

    Raises:
        ValueError: Fewer than 4 images, different numbers of them, or a
            representation that is the same for all.

    References:
        - [Kornblith et al., 2019](https://arxiv.org/abs/1905.00414)
        - [Nguyen et al., 2021](https://arxiv.org/abs/2010.15327), equation 3
    """
    grams = [_gram(values) for values in (x, y)]
    if len(grams[0]) != len(grams[1]):
        raise ValueError(
            f"Both have to be of the same images. Expected: equal numbers. "
            f"Received: {len(grams[0])} and {len(grams[1])}."
        )
    return float(_ratio(*_hsic(grams[:1], grams[1:]))[0, 0])


def layer_cka(model, images, other=None, batch_size=32):
    """Returns the linear CKA between all layers of one model, or of two.

    Layers are the outputs of the blocks (the stages of a `ResNetV2`), all
    tokens of an image flattened into one vector. HSIC is estimated without
    bias in each batch and averaged over the batches, so memory does not grow
    with the number of images.

    Args:
        model: A `ViT` or `ResNetV2`: the rows.
        images: What both models take, `(images, height, width, 3)`.
        other: Optional second model: the columns; `model` by default.
        batch_size: Int, at least 4. A last batch that is smaller is left out
            unless it is the only one.

    Returns:
        Float32 array `(layers of model, layers of other)`, 1 where they see
        alike up to rotation and scale.

    Raises:
        TypeError: A model is neither a `ViT` nor a `ResNetV2`.
        ValueError: Fewer than 4 images in a batch, images that are not for
            both models, or a layer that gives the same for all of them.

    References:
        - [Raghu et al., 2021](https://arxiv.org/abs/2108.08810), section 3
        - [Nguyen et al., 2021](https://arxiv.org/abs/2010.15327)
    """
    check_at_least("batch_size", batch_size, 4)
    models = [_layer_model(m) for m in (model, other) if m is not None]
    images = as_images(images, model)
    if other is not None:
        as_images(images, other)
    batch_size = min(batch_size, len(images))
    found = []
    for start in range(0, len(images) - batch_size + 1, batch_size):
        batch = images[start : start + batch_size]
        grams = [list(map(_gram, m.predict_on_batch(batch))) for m in models]
        found.append(_hsic(grams[0], grams[-1]))
    sums = [sum(parts) for parts in zip(*found, strict=True)]
    return _ratio(*sums).astype("float32")


def _layer_model(model):
    check_garden(model)
    names = [layer.name for layer in model.layers]
    kept = [n for n in names if n.startswith(f"{model.repeated}_")]
    outputs = [model.get_layer(name).output for name in kept]
    return keras.Model(model.input, outputs)


def _gram(values):
    """`x @ x.T` without its diagonal, of centred `x`, `(images, images)`."""
    x = as_array(values).astype("float64")
    x = x.reshape(len(x), math.prod(x.shape[1:]))
    if len(x) < 4:
        raise ValueError(
            f"The estimate needs more images. Expected: at least 4 in a "
            f"batch. Received: {len(x)}."
        )
    # HSIC does not see a shift, but rounding would; and what is left of a
    # constant is rounding alone.
    rounding = 8 * np.finfo("float64").eps * np.abs(x).max(initial=0)
    x = x - x.mean(axis=0)
    if np.abs(x).max(initial=0) <= rounding:
        x[:] = 0
    gram = x @ x.T
    np.fill_diagonal(gram, 0)
    return gram


def _hsic(rows, columns):
    """HSIC of each row and column, and of each with itself."""
    cross = np.array([[_hsic_1(k, m) for m in columns] for k in rows])
    return [
        cross,
        np.array([_hsic_1(k, k) for k in rows]),
        np.array([_hsic_1(m, m) for m in columns]),
    ]


def _hsic_1(k, m):
    """The unbiased HSIC of two Gram matrices without their diagonals."""
    n = len(k)
    by_row, by_column = k.sum(axis=0), m.sum(axis=0)
    return (
        np.vdot(k, m)
        + by_row.sum() * by_column.sum() / ((n - 1) * (n - 2))
        - 2 * by_row @ by_column / (n - 2)
    ) / (n * (n - 3))


def _ratio(cross, rows, columns):
    least = min(rows.min(), columns.min())
    if not least > 0:  # NaN is not, either
        raise ValueError(
            f"A layer says nothing of the images. Expected: finite "
            f"representations that differ from image to image. Received: HSIC "
            f"with itself of {least:.3g}. Use more, and different, images."
        )
    return cross / np.sqrt(np.outer(rows, columns))
