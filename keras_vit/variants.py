"""The sizes of the field, and the config that a name such as `b/16` means."""

import typing

from keras_vit.checks import did_you_mean
from keras_vit.config import ViTConfig
from keras_vit.config_parts import StemConfig

# fmt: off
SIZES = {
    #         depth width   mlp heads
    "nano":   (6,     64,   192,   2),  # this package's embedded model
    "ti":     (12,   192,   768,   3),  # Touvron et al., 2021, table 1
    "s":      (12,   384,  1536,   6),  # Touvron et al., 2021, table 1
    "m":      (12,   512,  2048,   8),  # big_vision, models/vit.py
    "b":      (12,   768,  3072,  12),  # Dosovitskiy et al., 2021, table 1
    "l":      (24,  1024,  4096,  16),  # Dosovitskiy et al., 2021, table 1
    "so400m": (27,  1152,  4304,  16),  # Alabdulmohsin et al., 2023
    "h":      (32,  1280,  5120,  16),  # Dosovitskiy et al., 2021, table 1
    "g":      (40,  1408,  6144,  16),  # Zhai et al., 2022, table 2
    "G":      (48,  1664,  8192,  16),  # Zhai et al., 2022, table 2
}
# fmt: on


def vit_config(variant: str, **overrides: typing.Any) -> ViTConfig:
    """Returns the config of a size and patch, such as `"b/16"` or `"Ti/16"`.

    Args:
        variant: `"size/patch"`. Sizes are the keys of `SIZES`, upper or lower
            case except `g` (Zhai et al., 1.0 billion weights) and `G` (1.8
            billion); the patch is any number of pixels.
        overrides: Any field of `ViTConfig` or of its parts, by plain name:
            `image_size=384`, `num_classes=10`, `pooling="gap"`.

    Raises:
        ValueError: Unknown size or field; the nearest names are listed.

    Example:
    ```python
    config = keras_vit.vit_config("b/16", num_classes=10, image_size=384)
    ```
    """
    size, _, patch = variant.partition("/")
    key = size if size in SIZES else size.lower()
    if key not in SIZES or not patch.isdigit() or int(patch) == 0:
        raise ValueError(
            f"No such variant. Expected: 'size/patch' with a size of "
            f"{', '.join(SIZES)} and a patch size in pixels, such as 'b/16'. "
            f"Received: variant={variant!r}.{did_you_mean(key, SIZES)}"
        )
    depth, width, mlp_dim, num_heads = SIZES[key]
    side = 224 // int(patch) * int(patch) or int(patch)
    return ViTConfig(
        image_size=(side, side),
        depth=depth,
        width=width,
        mlp_dim=mlp_dim,
        num_heads=num_heads,
        stem=StemConfig(patch_size=(int(patch), int(patch))),
    ).replace(**overrides)
