"""The sizes of the field, and the config that a name such as `b/16` means."""

import typing

from keras_vit.checks import did_you_mean
from keras_vit.config import ViTConfig
from keras_vit.config_parts import StemConfig
from keras_vit.config_parts import TrunkConfig

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
HYBRIDS = {
    # trunk and stride: units of its stages, patch on the feature map
    "r/16":   ((),           8),  # Steiner et al., 2021: the stride is 32
    "r26/32": ((2, 2, 2, 2), 1),  # Steiner et al., 2021, table 2
    "r50/16": ((3, 4, 9),    1),  # Dosovitskiy et al., 2021, section 4.1
    "r50/32": ((3, 4, 6, 3), 1),  # Dosovitskiy et al., 2021, section 4.1
}
# fmt: on


def vit_config(variant: str, **overrides: typing.Any) -> ViTConfig:
    """Returns the config of a size and patch, such as `"b/16"` or `"R50+B/16"`.

    Args:
        variant: `"size/patch"`. Sizes are the keys of `SIZES`, upper or lower
            case except `g` (Zhai et al., 1.0 billion weights) and `G` (1.8
            billion); the patch is any number of pixels. `"trunk+size/patch"`
            is a hybrid, one of `HYBRIDS` before one of `SIZES`; another trunk
            is `vit_config("b/1", stages=(2, 2), image_size=224)`.
        overrides: Any field of `ViTConfig` or of its parts, by plain name:
            `image_size=384`, `num_classes=10`, `pooling="gap"`.

    Raises:
        ValueError: Unknown size or field; the nearest names are listed.

    Example:
    ```python
    config = keras_vit.vit_config("b/16", num_classes=10, image_size=384)
    ```
    """
    name, _, patch = variant.partition("/")
    trunk, plus, size = name.rpartition("+")
    key = size if size in SIZES else size.lower()
    hybrid = f"{trunk.lower()}/{patch}"
    known = hybrid in HYBRIDS if plus else patch.isdigit() and int(patch) > 0
    if key not in SIZES or not known:
        names = [*SIZES, *(f"{h.replace('/', '+b/')}" for h in HYBRIDS)]
        raise ValueError(
            f"No such variant. Expected: 'size/patch' with a size of "
            f"{', '.join(SIZES)} and a patch size in pixels, such as 'b/16', "
            f"or with a ResNet in front, such as {', '.join(names[-4:])}. "
            f"Received: variant={variant!r}."
            f"{did_you_mean(variant.lower() if plus else key, names)}"
        )
    stages, patch = HYBRIDS[hybrid] if plus else (None, int(patch))
    return _config(key, TrunkConfig(stages), patch).replace(**overrides)


def _config(size, trunk, patch):
    depth, width, mlp_dim, num_heads = SIZES[size]
    stride = trunk.stride * patch
    side = 224 // stride * stride or stride
    return ViTConfig(
        image_size=(side, side),
        depth=depth,
        width=width,
        mlp_dim=mlp_dim,
        num_heads=num_heads,
        trunk=trunk,
        stem=StemConfig(patch_size=(patch, patch)),
    )
