"""What a Vision Transformer is, as plain values that print as JSON."""

import dataclasses
import math

from keras_vit.checks import as_pair
from keras_vit.checks import check_at_least
from keras_vit.checks import check_choice
from keras_vit.checks import check_image_size
from keras_vit.config_parts import BlockConfig
from keras_vit.config_parts import HeadConfig
from keras_vit.config_parts import PixelConfig
from keras_vit.config_parts import StemConfig
from keras_vit.config_parts import TokenConfig
from keras_vit.config_parts import TrunkConfig
from keras_vit.config_parts import set_field
from keras_vit.nested_config import NestedConfig

DATA_FORMATS = ("channels_last", "channels_first")


@dataclasses.dataclass(frozen=True)
class ViTConfig(NestedConfig):
    """A Vision Transformer as plain values: nothing about it is implied.

    `image_size` is `(height, width)` in pixels and fixes the grid of stored
    positions; with `any_image_size` the model also takes every other multiple
    of the patch size. `preprocessing=False` leaves pixel scaling to the
    caller. `data_format` is the layout of the *input* only. With `stages` in
    `trunk` it is a hybrid: patches are cut from the feature map of a ResNet.

    Raises:
        ValueError: A value is out of range, or two do not fit together.

    References:
        - [Dosovitskiy et al., 2021](https://arxiv.org/abs/2010.11929)
    """

    image_size: tuple[int, int] = (224, 224)
    depth: int = 12
    width: int = 768
    mlp_dim: int = 3072
    num_heads: int = 12
    trunk: TrunkConfig = TrunkConfig()
    stem: StemConfig = StemConfig()
    tokens: TokenConfig = TokenConfig()
    block: BlockConfig = BlockConfig()
    head: HeadConfig = HeadConfig()
    pixels: PixelConfig = PixelConfig()
    any_image_size: bool = False
    preprocessing: bool = True
    data_format: str = "channels_last"

    def __post_init__(self):
        set_field(self, "image_size", as_pair("image_size", self.image_size))
        for name in ("depth", "width", "mlp_dim", "num_heads"):
            check_at_least(name, getattr(self, name), 1)
        check_choice("data_format", self.data_format, DATA_FORMATS)
        check_image_size(self.image_size, self.stride)
        self._check_widths()
        self._check_tokens()
        if self.trunk.stages is not None and self.trunk.pre_activation:
            raise ValueError(
                "Patches are cut from an activation, which a stage of "
                "pre-activation units does not end in. Expected: "
                "unit='post_activation' in a hybrid. Received: "
                "unit='pre_activation', which is for ResNetV2."
            )

    def _check_tokens(self):
        if "token" in self.head.pooling and not self.tokens.class_token:
            raise ValueError(
                f"This pooling reads the class token. Expected: "
                f"class_token=True with pooling={self.head.pooling!r}. "
                f"Received: class_token=False. Use pooling='gap' or 'map'."
            )
        if self.tokens.distillation_token and not self.tokens.class_token:
            raise ValueError(
                "A distillation token stands beside a class token. Expected: "
                "class_token=True. Received: class_token=False, "
                "distillation_token=True."
            )

    def _check_widths(self):
        if self.width % self.num_heads:
            raise ValueError(
                f"Cannot split the width among the heads. Expected: `width` a "
                f"multiple of `num_heads`. Received: width={self.width}, "
                f"num_heads={self.num_heads}, which leaves "
                f"{self.width % self.num_heads} channels over."
            )
        parts = {"learned_2d": 2, "sincos_2d": 4}.get(self.tokens.position, 1)
        if self.width % parts:
            raise ValueError(
                f"Positions {self.tokens.position!r} cut the width into "
                f"{parts} equal parts. Expected: `width` a multiple of "
                f"{parts}. Received: width={self.width}."
            )

    @property
    def grid(self):
        """Patches as `(rows, columns)`."""
        (h, w), (p, q) = self.image_size, self.stride
        return h // p, w // q

    @property
    def stride(self):
        """Pixels from one patch to the next, `(down, across)`.

        The patch size times the stride of the trunk, if there is one.
        """
        p, q = self.stem.patch_size
        return self.trunk.stride * p, self.trunk.stride * q

    @property
    def num_classes(self):
        """Classes of the head; 0 without one."""
        return self.head.num_classes

    @property
    def num_prefix(self):
        """Tokens in front of the patches."""
        t = self.tokens
        return t.class_token + t.distillation_token + t.num_registers

    @property
    def num_prefix_positions(self):
        """Prefix tokens that have a position of their own."""
        t = self.tokens
        registers = t.register_positions * t.num_registers
        tokens = t.class_token + t.distillation_token + registers
        return t.prefix_positions * tokens

    @property
    def num_tokens(self):
        """Tokens in the encoder, prefix included."""
        return self.num_prefix + math.prod(self.grid)

    @property
    def num_classifiers(self):
        """Classifiers whose logits are averaged: 2 for a distilled model."""
        two = self.tokens.distillation_token and self.head.distillation_head
        return 2 if two and self.head.pooling == "token" else 1

    @property
    def pooled_width(self):
        """Channels of the pooled vector."""
        return self.width * (2 if self.head.pooling == "token_gap" else 1)
