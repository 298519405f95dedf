"""What a model answers, for any number of images on any devices."""

import keras
import numpy as np


def answers(model, images, batch_size=32):
    """Returns `model.predict(images)`, on several devices too.

    JAX shares no batch that is not a multiple of its devices, and
    `predict_on_batch` of TensorFlow's strategies answers once per device.

    Args:
        model: A `keras.Model`.
        images: Array, `(images, ...)`.
        batch_size: Int, at most; a multiple of the devices is taken.

    Returns:
        What `predict` returns, a row per image.
    """
    count, parts = len(images), _parts()
    extra = -count % parts
    if extra:
        images = np.concatenate([images, np.repeat(images[-1:], extra, 0)])
    size = max(batch_size - batch_size % parts, parts)
    found = model.predict(images, batch_size=size, verbose=0)
    return keras.tree.map_structure(lambda array: array[:count], found)


def _parts():
    distribution = keras.distribution.distribution()
    if distribution is None:
        return 1
    mesh = distribution.device_mesh
    sides = dict(zip(mesh.axis_names, mesh.shape, strict=True))
    return sides.get(distribution.batch_dim_name, 1)
