"""A small model whose weights are the same on every backend."""

import math

import numpy as np
from keras import ops

import keras_vit


def tiny(**overrides):
    """Config of two blocks: 28 px, patch 4, five classes."""
    fields = {"image_size": 28, "depth": 2, "num_classes": 5, **overrides}
    return keras_vit.vit_config("nano/4", **fields)


def fill(model, seed=0):
    """Draws all weights by their path, so that every mistake shows.

    Gains are 1 +- 0.2, kernels N(0, 1.5^2 / fan_in), the rest +- 0.5: with
    small or default values a wrong activation hides in rounding errors.
    """
    for variable in model.weights:
        name = variable.path.split("/")[-1]
        key = [seed, *variable.path.encode()]
        rng = np.random.default_rng(key)
        shape = tuple(variable.shape)
        if name == "gamma":
            value = 1 + rng.uniform(-0.2, 0.2, shape)
        elif name == "kernel":
            scale = 1.5 / math.sqrt(math.prod(shape[:-1]))
            value = rng.normal(0, scale, shape)
        else:
            value = rng.uniform(-0.5, 0.5, shape)
        variable.assign(value.astype("float32"))
    return model


def filled(seed=0, dtype=None, labels=None, **overrides):
    """A tiny model with drawn weights."""
    config = tiny(**overrides)
    return fill(keras_vit.ViT(config, dtype=dtype, labels=labels), seed)


def pictures(count=3, height=28, width=28, seed=0):
    """Noise, uint8, `(count, height, width, 3)`."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, height, width, 3), dtype="uint8")


def predict(model, images):
    return model.predict(images, verbose=0)


def values(model):
    """Path to array, a copy."""
    return {v.path: np.array(ops.convert_to_numpy(v)) for v in model.weights}


def changed(before, after):
    """Paths of the weights that are not bit-identical."""
    return {
        path
        for path, value in after.items()
        if path not in before or not np.array_equal(before[path], value)
    }
