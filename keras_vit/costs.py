"""What a config costs: parameters, tokens and multiply-adds, in closed form."""

import math

from keras_vit.config import ViTConfig
from keras_vit.config_parts import TrunkConfig
from keras_vit.resnet_config import ResNetConfig


def count_macs(config: ViTConfig | ResNetConfig) -> int:
    """Returns the multiply-adds of one image, forward.

    Matrix products only: convolutions, patch projection, attention (both
    products), MLP, pooling and head. A floating-point operation count is
    twice this; much of the literature prints this number as "FLOPs".
    """
    convolutions = _trunk_macs(config.trunk, config.image_size)
    if isinstance(config, ResNetConfig):
        return convolutions + config.trunk.channels * config.num_classes
    c, (p, q) = config, config.stem.patch_size
    patches, tokens = math.prod(c.grid), c.num_tokens
    products = 3 if c.block.activation == "swiglu" else 2
    mlp = products * c.width * c.mlp_dim
    block = tokens * (4 * c.width**2 + mlp) + 2 * tokens**2 * c.width
    total = patches * p * q * c.trunk.channels * c.width + c.depth * block
    if c.head.pooling == "map":
        total += 2 * (tokens + 1) * c.width**2 + 2 * tokens * c.width + mlp
    return convolutions + total + _head(c, bias=0)


def count_params(config: ViTConfig | ResNetConfig) -> int:
    """Returns the number of weights, from the config alone."""
    trunk, channels = _trunk_params(config.trunk), config.trunk.channels
    if isinstance(config, ResNetConfig):
        norm = 2 * channels * config.trunk.pre_activation
        return trunk + norm + (channels + 1) * config.num_classes
    c, w = config, config.width
    norm = 2 * w
    parts = 2 if c.block.activation == "swiglu" else 1
    mlp = (w + 1) * parts * c.mlp_dim + (c.mlp_dim + 1) * w
    block = 2 * norm + 4 * w * w + w + mlp
    block += 3 * w * c.block.qkv_bias + 2 * w * (
        c.block.layer_scale is not None
    )
    p, q = c.stem.patch_size
    total = trunk + (p * q * channels + c.stem.patch_bias) * w
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


def _units(t):
    """Stage, channels in and width of each residual unit; channels out are 4w.

    The first unit of a stage has a projection on its shortcut.
    """
    channels = t.trunk_width
    for stage, units in enumerate(t.stages or ()):
        width = t.trunk_width * 2**stage
        for i in range(units):
            yield stage, i == 0, channels, width
            channels = 4 * width


def _trunk_params(t: TrunkConfig) -> int:
    if t.stages is None:
        return 0
    total = 147 * t.trunk_width + 2 * t.trunk_width * (not t.pre_activation)
    for _, first, channels, w in _units(t):
        total += w * (channels + 9 * w + 4 * w) + first * channels * 4 * w
        norms = channels + 2 * w if t.pre_activation else 6 * w + 4 * w * first
        total += 2 * norms
    return total


def _trunk_macs(t: TrunkConfig, image_size: tuple[int, int]) -> int:
    if t.stages is None:
        return 0

    def positions(stride):
        return math.prod(-(-side // stride) for side in image_size)

    total = 147 * t.trunk_width * positions(2)
    for stage, first, channels, w in _units(t):
        # The first convolution is still at the resolution of its input.
        out = positions(4 * 2**stage)
        before = positions(2 * 2**stage) if first and stage else out
        total += before * channels * w + out * (9 * w * w + 4 * w * w)
        total += out * first * channels * 4 * w
    return total
