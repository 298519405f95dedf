"""Features of a data set, as evaluations without training need them."""

import numpy as np

from keras_vit.evaluation.answers import answers


def features_of(model, images, name="pre_logits", batch_size=32):
    """Returns the features of images, one vector each.

    Args:
        model: A `ViT` or `ResNetV2`, or an array function of images.
        images: `(images, height, width, 3)`; an array that is `(images,
            channels)` already is returned as it is.
        name: What `feature_model` takes: `"pre_logits"` for what enters the
            head, `"norm"` for all tokens, of which the patches are averaged.
        batch_size: Int.

    Returns:
        Float32 array `(images, channels)`.
    """
    images = np.asarray(images)
    if images.ndim == 2:
        return images.astype("float32")
    inner = model.feature_model(name)
    found = answers(inner, images, batch_size)[name]
    if found.ndim == 3:
        found = found[:, model.config.num_prefix :].mean(axis=1)
    elif found.ndim == 4:
        found = found.mean(axis=(1, 2))
    return np.asarray(found, "float32")
