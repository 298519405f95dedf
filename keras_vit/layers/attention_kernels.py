"""Scaled dot-product attention: one function, one branch per backend.

Here the fused kernel of the backend is chosen. `KERAS_VIT_ATTENTION=explicit`
in the environment takes the written-out path everywhere, which is the tested
reference of the others.
"""

import os

import keras
from keras import ops

from keras_vit.layers.rematerialization import recompute

# Where no kernel is fused: bytes of float32 scores that may lie in memory at
# once, those of 144 images of B/16 at 224 pixels or a third of one at 1024.
SCORES_BOUND = 256 * 2**20
# What passes it is cut into pieces of so many bytes. A gradient holds about
# five of them; smaller ones cost time on TensorFlow.
PIECE = 32 * 2**20


def attention_probabilities(query, key, bias=None):
    """Returns `softmax(query @ key^T / sqrt(dim) + bias)` in float32.

    Args:
        query: `(batch, heads, queries, dim)`.
        key: `(batch, heads, keys, dim)`.
        bias: `None`, or what broadcasts to `(batch, heads, queries, keys)`.

    Returns:
        `(batch, heads, queries, keys)`, rows sum to 1.
    """
    # The query is scaled before the product: raw scores overflow float16.
    query = query * (query.shape[-1] ** -0.5)
    scores = ops.matmul(query, ops.swapaxes(key, -1, -2))
    scores = ops.cast(scores, "float32")
    if bias is not None:
        scores = scores + ops.cast(bias, "float32")
    return ops.softmax(scores, axis=-1)


def split_heads(qkv, num_heads):
    """Returns query, key and value of a product for all three.

    Args:
        qkv: `(batch, tokens, 3 * width)`.
        num_heads: Int.

    Returns:
        Three of `(batch, heads, tokens, dim)`.
    """
    tokens, dim = ops.shape(qkv)[1], qkv.shape[-1] // (3 * num_heads)
    y = ops.reshape(qkv, (-1, tokens, 3, num_heads, dim))
    y = ops.transpose(y, (2, 0, 3, 1, 4))  # (3, batch, heads, tokens, dim)
    return y[0], y[1], y[2]


def merge_heads(y):
    """Returns `(batch, heads, tokens, dim)` as `(batch, tokens, width)`."""
    _, heads, _, dim = y.shape
    y = ops.swapaxes(y, 1, 2)  # (batch, tokens, heads, dim)
    return ops.reshape(y, (-1, ops.shape(y)[1], heads * dim))


def attend_from(qkv, num_heads, bias=None):
    """Returns what the heads read, `(batch, tokens, width)`.

    The arguments are those of `split_heads`, and `bias` as in `attend`.
    """
    if _is_torch() and qkv.device.type != "meta":
        # As below, by torch's own calls: Keras' ones take 0.2 ms a block.
        batch, tokens, width = qkv.shape
        y = qkv.view(batch, tokens, 3, num_heads, -1).permute(2, 0, 3, 1, 4)
        y = _attend_torch(*y.unbind(0), bias)
        return y.transpose(1, 2).reshape(batch, tokens, width // 3)
    return merge_heads(attend(*split_heads(qkv, num_heads), bias))


def attend(query, key, value, bias=None):
    """Returns `attention_probabilities(query, key, bias) @ value`.

    All `(batch, heads, tokens, dim)`; mixed dtypes are cast to the query's.
    """
    key, value = ops.cast(key, query.dtype), ops.cast(value, query.dtype)
    if _is_torch():
        return _attend_torch(query, key, value, bias)
    if _fused():
        if keras.config.backend() == "jax" and _jax_has_gpu():
            return _attend_fused(query, key, value, bias)
        rows = _rows_at_once(query.shape, key.shape[2])
        if rows:
            return _attend_in_pieces(query, key, value, bias, rows)
    return _attend_explicit(query, key, value, bias)


def _attend_explicit(query, key, value, bias=None):
    weights = attention_probabilities(query, key, bias)
    return ops.matmul(ops.cast(weights, value.dtype), value)


def _fused():
    return os.environ.get("KERAS_VIT_ATTENTION", "auto") != "explicit"


def _is_torch():
    return keras.config.backend() == "torch" and _fused()


def _rows_at_once(shape, keys):
    """How many queries of one image to do at once; 0 is all of all images.

    TensorFlow does not always know the batch when it traces. Then images go
    one by one if a few dozen could pass the bound; the scores of smaller ones
    take no more than the inner layer of the MLP does. Where it does not know
    the number of tokens, all is done at once.
    """
    batch, heads, queries, _ = shape
    if not all(isinstance(n, int) for n in (heads, queries, keys)):
        return 0
    image = 4 * heads * queries * keys
    if (batch if isinstance(batch, int) else 32) * image <= SCORES_BOUND:
        return 0
    pieces = -(-image // PIECE)
    return -(-queries // pieces)


def _attend_in_pieces(query, key, value, bias, rows):
    """One image after the other, each in pieces of so many queries.

    In loops, as the memory of what is unrolled is anyone's guess; scores are
    computed again for the gradient.
    """
    images, common = [query, key, value], None
    if bias is not None:
        bias = _with_four_axes(bias)
        if bias.shape[0] == 1:
            common = bias[0]
        else:
            images.append(bias)

    def attend_image(image):
        return _attend_image(*image[:3], (*image[3:], common)[0], rows)

    return ops.map(attend_image, images)


def _attend_image(query, key, value, bias, rows):
    """All `(heads, tokens, dim)`; the bias `(heads, tokens, keys)` or ones."""
    queries = query.shape[1]
    if rows == queries:
        return recompute(_attend_explicit, *_given(query, key, value, bias))
    pieces = [_cut(query, rows)]
    if bias is not None and bias.shape[1] != 1:
        pieces.append(_cut(bias, rows))

    def attend_piece(piece):
        given = piece[1] if len(piece) > 1 else bias
        return recompute(_attend_explicit, *_given(piece[0], key, value, given))

    y = ops.map(attend_piece, pieces)  # (pieces, heads, rows, dim)
    y = ops.reshape(ops.swapaxes(y, 0, 1), (query.shape[0], -1, value.shape[2]))
    return y[:, :queries]


def _given(*args):
    return [x for x in args if x is not None]


def _cut(x, rows):
    """`(heads, tokens, n)` to `(pieces, heads, rows, n)`, zeros at the end."""
    tokens, last = x.shape[1:]
    pieces = -(-tokens // rows)
    x = ops.pad(x, ((0, 0), (0, pieces * rows - tokens), (0, 0)))
    return ops.swapaxes(ops.reshape(x, (-1, pieces, rows, last)), 0, 1)


def _attend_torch(query, key, value, bias):
    # Called directly: `ops.dot_product_attention` copies the three views
    # that the fused qkv product gives, 5 % of a B/16 step.
    import torch

    if query.device.type == "meta":  # Keras infers shapes on this device.
        return torch.empty_like(query)
    if bias is not None:
        bias = _with_four_axes(bias).to(query.dtype)
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=bias
    )


def _attend_fused(query, key, value, bias):
    # Keras takes the flash kernel where dtype, card and lengths allow it.
    if bias is not None:
        bias = _with_four_axes(bias)
    query, key, value = (ops.swapaxes(x, 1, 2) for x in (query, key, value))
    y = ops.dot_product_attention(query, key, value, bias=bias)
    return ops.swapaxes(y, 1, 2)


def _with_four_axes(bias):
    # With fewer, Keras gives up the flash kernel and torch may refuse.
    for _ in range(4 - len(bias.shape)):
        bias = ops.expand_dims(bias, 0)
    return bias


def _jax_has_gpu():
    # Not on a TPU: the kernel that Keras 3.15 takes there masks later keys,
    # as for text, and leaves out the bias and the scale.
    import jax

    return jax.default_backend() == "gpu"
