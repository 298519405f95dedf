"""What a config costs: parameters, tokens and multiply-adds, in closed form."""

import math

from keras_vit.config import ViTConfig


def count_macs(config: ViTConfig) -> int:
    """Returns the multiply-adds of one image, forward.

    Matrix products only: patch projection, attention (both products), MLP,
    pooling and head. A floating-point operation count is twice this; much of
    the literature prints this number as "FLOPs".
    """
    c, (p, q) = config, config.stem.patch_size
    patches, tokens = math.prod(c.grid), c.num_tokens
    products = 3 if c.block.activation == "swiglu" else 2
    mlp = products * c.width * c.mlp_dim
    block = tokens * (4 * c.width**2 + mlp) + 2 * tokens**2 * c.width
    total = patches * p * q * 3 * c.width + c.depth * block
    if c.head.pooling == "map":
        total += 2 * (tokens + 1) * c.width**2 + 2 * tokens * c.width + mlp
    return total + _head(c, bias=0)


def count_params(config: ViTConfig) -> int:
    """Returns the number of weights, from the config alone."""
    c, w = config, config.width
    norm = 2 * w
    parts = 2 if c.block.activation == "swiglu" else 1
    mlp = (w + 1) * parts * c.mlp_dim + (c.mlp_dim + 1) * w
    block = 2 * norm + 4 * w * w + w + mlp
    block += 3 * w * c.block.qkv_bias + 2 * w * (
        c.block.layer_scale is not None
    )
    p, q = c.stem.patch_size
    total = (p * q * 3 + c.stem.patch_bias) * w
    total += (c.num_prefix + _position_vectors(c)) * w
    total += c.depth * (block + _relative(c))
    final = {"before_pooling": w, "after_pooling": c.pooled_width, "none": 0}
    total += 2 * final[c.head.norm] + norm * c.tokens.norm_pre
    if c.head.pooling == "map":
        total += w + 4 * (w + 1) * w + norm + mlp
    return total + _head(c, bias=1)


def _position_vectors(c):
    """Position vectors of the full width; two halves count as one."""
    rows, columns = c.grid
    grid = {"learned": rows * columns, "learned_2d": (rows + columns) / 2}
    if c.tokens.position in ("none", "relative"):
        return 0
    return grid.get(c.tokens.position, 0) + c.num_prefix_positions


def _relative(c):
    if c.tokens.position != "relative":
        return 0
    rows, columns = c.grid
    offsets = (2 * rows - 1) * (2 * columns - 1)
    return c.num_heads * (offsets + 3 * (c.num_prefix > 0))


def _head(c, bias):
    width, total = c.pooled_width, 0
    if c.head.pre_logits:
        total += (width + bias) * c.head.pre_logits
        width = c.head.pre_logits
    row = width + bias * c.head.head_bias
    return total + c.num_classifiers * row * c.head.num_classes
