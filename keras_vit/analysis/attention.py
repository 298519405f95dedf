"""Attention maps and what follows from them."""

import keras
import numpy as np


def attention_maps(model, images):
    """Returns how much each token reads from each other one.

    Recomputed from the input of every block, so the model stays as it is and
    its fused attention stays on.

    Args:
        model: A `ViT`.
        images: What the model takes, `(batch, height, width, 3)`.

    Returns:
        Float32 array `(depth, batch, heads, tokens, tokens)`, queries before
        keys, prefix tokens first; every row of keys sums to 1.
    """
    maps = _map_model(model)(keras.ops.convert_to_tensor(images))
    return np.stack([keras.ops.convert_to_numpy(m) for m in maps])


def attention_rollout(model, images):
    """Returns how much each patch reaches the pooled output.

    Per block the heads are averaged, half of the identity is added for the
    residual branch, and the matrices are multiplied from the first block to
    the last. The row read is that of the class token, or the mean of the
    patch rows for a model that pools without one.

    Args:
        model: A `ViT`.
        images: What the model takes, `(batch, height, width, 3)`.

    Returns:
        Float32 array `(batch, rows, columns)`, each at most 1; the part that
        stays in prefix tokens is left out.

    References:
        - [Abnar & Zuidema, 2020](https://arxiv.org/abs/2005.00928)
    """
    maps = attention_maps(model, images).mean(axis=2)
    identity = np.eye(maps.shape[-1], dtype="float32")
    flow = identity
    for attention in maps:  # (batch, tokens, tokens)
        flow = (0.5 * attention + 0.5 * identity) @ flow
    config = model.config
    prefix = config.num_prefix
    by_token = config.head.pooling == "token"
    rows = flow[:, :1] if by_token else flow[:, prefix:]
    reach = rows.mean(axis=1)[:, prefix:]  # (batch, patches)
    return reach.reshape(-1, *_grid(config, images))


def _map_model(model):
    """A model of the same weights, from images to the maps of each block."""
    maps = [MapsOf(block)(*_inputs(block)) for block in model.blocks()]
    return keras.Model(model.input, maps)


def _inputs(block):
    inputs = block.input
    return inputs if isinstance(inputs, list | tuple) else (inputs,)


class MapsOf(keras.layers.Layer):
    """The attention maps of a block, as a layer of a graph."""

    def __init__(self, block, **kwargs):
        super().__init__(name=f"{block.name}_maps", **kwargs)
        # Held where Keras does not look: the weights stay the model's.
        self._call = block.attention_maps

    def call(self, x, bias=None):
        return self._call(x, bias)


def _grid(config, images):
    shape = images.shape[1:3]
    if config.data_format == "channels_first":
        shape = images.shape[2:4]
    p, q = config.stem.patch_size
    return shape[0] // p, shape[1] // q
