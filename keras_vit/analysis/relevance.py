"""Relevance: which patches speak for a class, by gradients of attention."""

import keras
import numpy as np

from keras_vit.analysis.attention_stream import IMAGES_AT_ONCE
from keras_vit.analysis.attention_stream import block_inputs
from keras_vit.analysis.attention_stream import probe_model
from keras_vit.analysis.gradients import gradients
from keras_vit.analysis.token_layout import as_images
from keras_vit.analysis.token_layout import check_vit
from keras_vit.analysis.token_layout import pooled_tokens
from keras_vit.analysis.token_layout import to_grid
from keras_vit.layers.attention_kernels import attention_probabilities


def class_relevance(model, images, classes=None):
    """Returns how much each patch speaks for a class.

    Attention of every block, weighted by the gradient of the class's logit
    with respect to it, positive parts only, mean of the heads, is followed
    from the pooled vector back to the patches: `R = R + mean(max(grad * A,
    0)) R`. Unlike rollout it depends on the class that is asked for.

    Args:
        model: A `ViT` with a head.
        images: What the model takes, `(batch, height, width, 3)`.
        classes: Optional class index, or one per image; the class with the
            highest logit by default.

    Returns:
        Float32 array `(batch, rows, columns)`, non-negative, in no unit:
        compare patches of one map.

    Raises:
        TypeError: The model is not a `ViT`.
        ValueError: The model has no head, or no such class.

    References:
        - [Chefer et al., 2021](https://arxiv.org/abs/2103.15679), equations
          5 and 6, for one modality
    """
    check_vit(model)
    images, depth = as_images(images, model), model.config.depth
    classes = _classes(model, images, classes)
    flows = pooled_tokens(model, images)
    parts = probe_model(model, range(depth))
    slope_of = _Slopes(model)
    for start in range(0, len(images), IMAGES_AT_ONCE):
        part = slice(start, start + IMAGES_AT_ONCE)
        slopes = slope_of(images[part], classes[part])
        heads = parts.predict_on_batch(images[part])
        for block in range(depth - 1, -1, -1):
            step = _positive(slopes[block], *heads[str(block)])
            flows[part] += np.einsum("bq,bqk->bk", flows[part], step)
    return to_grid(flows, model, images).astype("float32")


class _Slopes:
    """Gradients of a logit with respect to what the heads of a block read."""

    def __init__(self, model):
        blocks = model.blocks()
        self._blocks = blocks
        inputs = [block_inputs(block) for block in blocks]
        biases = [part for _, *bias in inputs for part in bias]
        # A dict: of a list of one Keras gives its only array.
        before = dict(enumerate([inputs[0][0], *biases]))
        self._before = keras.Model(model.input, before)
        self._after = keras.Model(blocks[-1].output, model.output)

    def __call__(self, images, classes):
        first, *biases = self._before.predict_on_batch(images).values()
        biases = biases or [None] * len(self._blocks)
        scores = self._after.output.shape[-1]
        chosen = keras.ops.one_hot(classes, scores, dtype="float32")

        def logit(*deltas):
            x = keras.ops.convert_to_tensor(first)
            for block, bias, delta in zip(
                self._blocks, biases, deltas, strict=True
            ):
                x = _shifted(block, x, bias, delta)
            # Of all images together: none depends on another.
            return keras.ops.sum(self._after(x) * chosen)

        zeros = np.zeros(first.shape, "float32")
        return gradients(logit, [zeros] * len(self._blocks))


def _shifted(block, x, bias, delta):
    """The output of a block where `delta` is added to what its heads read."""
    read = block.attention.mix(block.norm_1(x), bias)
    read = read + keras.ops.cast(delta, read.dtype)
    return block.after_attention(x, block.attention.out(read))


def _positive(slope, query, key, value, bias=None):
    """`mean(max(grad * A, 0))` of the heads, `(batch, tokens, tokens)`."""
    tensors = map(keras.ops.convert_to_tensor, (query, key))
    maps = keras.ops.convert_to_numpy(attention_probabilities(*tensors, bias))
    batch, heads, tokens, dim = value.shape
    slope = np.swapaxes(slope.reshape(batch, tokens, heads, dim), 1, 2)
    # What a head reads is A v, so its gradient with respect to A:
    slope = slope @ np.swapaxes(value, -1, -2)
    return np.maximum(slope * maps, 0).mean(axis=1).astype("float64")


def _classes(model, images, classes):
    count = model.config.num_classes
    if not count:
        raise ValueError(
            "There is no class to ask for. Expected: a model with a head. "
            "Received: num_classes=0."
        )
    if classes is None:
        return model.predict_on_batch(images).argmax(-1)
    classes = np.broadcast_to(np.asarray(classes), (len(images),))
    wrong = classes[(classes < 0) | (classes >= count)]
    if wrong.size:
        raise ValueError(
            f"No such class. Expected: an index from 0 to {count - 1}. "
            f"Received: {wrong[0]}."
        )
    return classes
