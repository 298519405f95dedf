"""Attention maps in pieces, so that only their sums need to be in memory."""

import dataclasses

import keras
import numpy as np

from keras_vit.layers.attention_kernels import attention_probabilities

MAX_VALUES = 2**24  # attention weights in one piece: 64 MB of float32
IMAGES_AT_ONCE = 8


@dataclasses.dataclass(frozen=True)
class Piece:
    """Attention of some images and queries, in one block.

    `weights` is float32, `(images, heads, queries, tokens)`; `images` and
    `queries` are slices, `block` an index.
    """

    block: int
    images: slice
    queries: slice
    weights: np.ndarray


def attention_pieces(model, images, blocks=None):
    """Yields the attention maps of a model as `Piece`s.

    Queries and keys are recomputed from the input of every block, so the
    model stays as it is and its fused attention stays on.

    Args:
        model: A `ViT`.
        images: NumPy array, `(batch, height, width, 3)`.
        blocks: Indices of blocks in the order wanted; all of them by default.
    """
    if blocks is None:
        blocks = range(model.config.depth)
    probe = probe_model(model, blocks)
    for start in range(0, len(images), IMAGES_AT_ONCE):
        part = slice(start, min(start + IMAGES_AT_ONCE, len(images)))
        found = probe.predict_on_batch(images[part])
        for block in blocks:
            for queries, weights in _pieces_of(*found[str(block)]):
                yield Piece(block, part, queries, weights)


def _pieces_of(query, key, _, bias=None):
    count, heads, tokens, _ = query.shape
    step = max(1, MAX_VALUES // (count * heads * tokens))
    for start in range(0, tokens, step):
        rows = slice(start, min(start + step, tokens))
        weights = attention_probabilities(
            keras.ops.convert_to_tensor(query[:, :, rows]),
            keras.ops.convert_to_tensor(key),
            None if bias is None else bias[..., rows, :],
        )
        yield rows, keras.ops.convert_to_numpy(weights)


def probe_model(model, blocks):
    """A model of the same weights, from images to the heads of blocks.

    Under the index of each block: query, key and value, `(batch, heads,
    tokens, dim)`, and the bias of its scores if it has one.
    """
    outputs = {}
    for index in set(blocks):
        block = model.blocks()[index]
        x, *bias = block_inputs(block)
        outputs[str(index)] = [*_Heads(block)(x), *bias]
    return keras.Model(model.input, outputs)


def block_inputs(block):
    """Symbolic inputs of a block: the tokens, and maybe a position bias."""
    inputs = block.input
    return list(inputs) if isinstance(inputs, list | tuple) else [inputs]


class _Heads(keras.layers.Layer):
    """Query, key and value of a block in float32, as a layer of a graph."""

    def __init__(self, block):
        super().__init__(name=f"{block.name}_heads")
        # Held where Keras does not look: the weights stay the model's.
        self._call = lambda x: block.attention.heads(block.norm_1(x))

    def call(self, x):
        return [keras.ops.cast(part, "float32") for part in self._call(x)]
