"""The parts of a config: stem, tokens, block, head, pixels."""

import dataclasses

from keras_vit.checks import as_pair
from keras_vit.checks import check_at_least
from keras_vit.checks import check_choice
from keras_vit.checks import check_rate

ACTIVATIONS = ("gelu", "gelu_tanh", "quick_gelu", "swiglu")
POSITIONS = ("none", "learned", "learned_2d", "relative", "sincos_2d")
POOLINGS = ("token", "gap", "map", "token_gap")
NORMS = ("before_pooling", "after_pooling", "none")
RESIZES = ("squash", "crop")
UNITS = ("post_activation", "pre_activation")
STANDARDIZATIONS = ("std_plus_eps", "sqrt_var_plus_eps", "stored")
CONV_PADDINGS = ("same", "fixed")
ROOT_POOLS = ("same", "zero", "minus_infinity")
NUM_GROUPS = 32  # of every group normalisation of BiT and the hybrids
INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos")


def set_field(config, name, value):
    """The documented way to normalise a field of a frozen dataclass."""
    object.__setattr__(config, name, value)


@dataclasses.dataclass(frozen=True)
class StemConfig:
    """How an image becomes patches.

    `patch_size` is `(height, width)` in pixels (an int means a square), or
    in positions of the feature map where a ResNet trunk makes one;
    `patch_bias` gives the projection a bias (CLIP towers have none).
    """

    patch_size: tuple[int, int] = (16, 16)
    patch_bias: bool = True

    def __post_init__(self):
        set_field(self, "patch_size", as_pair("patch_size", self.patch_size))


@dataclasses.dataclass(frozen=True)
class TrunkConfig:
    """A ResNet: a BiT, or what stands before the patches of a hybrid.

    `stages` counts the units of each stage, `(3, 4, 6, 3)` for R50; `()` is
    the root alone and `None` no trunk at all. `trunk_width` is the width of
    the root and of the first stage: 64 times the width factor. `unit` is
    `post_activation` (version 1.5, the hybrids) or `pre_activation` (version
    2, BiT). A kernel `w` becomes `(w - mean) / (std + conv_epsilon)` under
    `std_plus_eps`, `(w - mean) / sqrt(variance + conv_epsilon)` under
    `sqrt_var_plus_eps`; `stored` kernels are standard already. `conv_padding`
    of a stride of two is `same` (as in TensorFlow and XLA: the odd pixel at
    the end) or `fixed` (half the kernel on every side, as in torch);
    `root_pool` pads as `same` does, or by one on every side, with `zero` or
    `minus_infinity`.

    References:
        - [Kolesnikov et al., 2020](https://arxiv.org/abs/1912.11370)
        - [Qiao et al., 2019](https://arxiv.org/abs/1903.10520)
    """

    stages: tuple[int, ...] | None = None
    trunk_width: int = 64
    unit: str = "post_activation"
    standardization: str = "std_plus_eps"
    conv_epsilon: float = 1e-5
    group_norm_epsilon: float = 1e-6
    conv_padding: str = "same"
    root_pool: str = "same"

    def __post_init__(self):
        check_choice("unit", self.unit, UNITS)
        check_choice("standardization", self.standardization, STANDARDIZATIONS)
        check_choice("conv_padding", self.conv_padding, CONV_PADDINGS)
        check_choice("root_pool", self.root_pool, ROOT_POOLS)
        check_at_least("trunk_width", self.trunk_width, 1)
        if self.trunk_width % NUM_GROUPS:
            raise ValueError(
                f"Channels are normalised in {NUM_GROUPS} groups. Expected: a "
                f"`trunk_width` that is a multiple of {NUM_GROUPS}. Received: "
                f"trunk_width={self.trunk_width}."
            )
        if self.stages is not None:
            set_field(self, "stages", tuple(self.stages))
            for units in self.stages:
                check_at_least("stages", units, 1)

    @property
    def pre_activation(self):
        """Whether units normalise and activate their input."""
        return self.unit == "pre_activation"

    @property
    def stride(self):
        """Pixels from one position of the feature map to the next."""
        if self.stages is None:
            return 1
        return 4 * 2 ** max(len(self.stages) - 1, 0)

    @property
    def channels(self):
        """Channels of the feature map; 3 without a trunk."""
        if not self.stages:
            return 3 if self.stages is None else self.trunk_width
        return 4 * self.trunk_width * 2 ** (len(self.stages) - 1)


@dataclasses.dataclass(frozen=True)
class TokenConfig:
    """What is added to the patch tokens before the first block.

    Prefix tokens stand in the order class, distillation, registers. The first
    two have a position each with `prefix_positions`, registers only with
    `register_positions` as well, which few have. `position` is one
    of `none`, `learned` (1-D, the paper's choice), `learned_2d` (half of the
    width per axis), `relative` (a bias per head and offset in every block),
    `sincos_2d` (fixed). `resampling` is the rule of `keras_vit.resample` that
    fits them to another grid. `norm_pre` normalises the tokens, as in CLIP.
    """

    class_token: bool = True
    distillation_token: bool = False
    num_registers: int = 0
    position: str = "learned"
    prefix_positions: bool = True
    register_positions: bool = False
    resampling: str = "bicubic_antialias"
    norm_pre: bool = False

    def __post_init__(self):
        check_choice("position", self.position, POSITIONS)
        check_at_least("num_registers", self.num_registers, 0)


@dataclasses.dataclass(frozen=True)
class BlockConfig:
    """The numerics of an encoder block.

    `activation` is `gelu` (erf), `gelu_tanh`, `quick_gelu` or `swiglu`;
    `layer_scale` is the initial value of a learned scale on each residual
    branch, or `None`. Rates are in `[0, 1)`; `stochastic_depth_rate` is that
    of the last block, growing linearly from 0 at the first.
    """

    activation: str = "gelu"
    epsilon: float = 1e-6
    qkv_bias: bool = True
    layer_scale: float | None = None
    dropout_rate: float = 0.0
    attention_dropout_rate: float = 0.0
    stochastic_depth_rate: float = 0.0

    def __post_init__(self):
        check_choice("activation", self.activation, ACTIVATIONS)
        if not 0 < self.epsilon < 1:
            raise ValueError(
                f"The layer normalisation needs a small positive number under "
                f"its root. Expected: 0 < epsilon < 1. Received: epsilon="
                f"{self.epsilon}. Flax and timm use 1e-6, torch 1e-5."
            )
        for name in dataclasses.asdict(self):
            if name.endswith("_rate"):
                check_rate(name, getattr(self, name))


@dataclasses.dataclass(frozen=True)
class HeadConfig:
    """How tokens become class scores.

    `num_classes=0` gives pooled features. `pooling` is `token` (the class
    token), `gap` (mean of the patch tokens, prefix left out), `map`
    (attention pooling) or `token_gap` (class token and mean side by side, as
    DINOv2's classifiers read them); `norm` is where the final norm stands:
    `before_pooling`, `after_pooling` or `none`. `pre_logits` is the width of
    a tanh layer before the head, or `None`. A distillation token has a head
    of its own, averaged with the other, unless `distillation_head=False`.
    """

    num_classes: int = 1000
    pooling: str = "token"
    norm: str = "before_pooling"
    pre_logits: int | None = None
    head_bias: bool = True
    distillation_head: bool = True

    def __post_init__(self):
        check_choice("pooling", self.pooling, POOLINGS)
        check_choice("norm", self.norm, NORMS)
        check_at_least("num_classes", self.num_classes, 0)
        if self.pre_logits is not None:
            check_at_least("pre_logits", self.pre_logits, 1)


@dataclasses.dataclass(frozen=True)
class PixelConfig:
    """How a picture file becomes the pixels that the model was evaluated on.

    `mean` and `std` are per channel, in units of the full range: a pixel
    `p` in 0..255 enters as `(p / 255 - mean) / std`. `resize` is `squash`
    (straight to `image_size`, aspect ignored) or `crop` (the shorter side to
    `image_size / crop_fraction`, then a central crop). `interpolation` is
    `nearest`, `bilinear`, `bicubic` or `lanczos`; `antialias` widens its
    kernel when shrinking, as Pillow always does.
    """

    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    resize: str = "squash"
    crop_fraction: float = 1.0
    interpolation: str = "bicubic"
    antialias: bool = True

    def __post_init__(self):
        check_choice("resize", self.resize, RESIZES)
        check_choice("interpolation", self.interpolation, INTERPOLATIONS)
        for name in ("mean", "std"):
            values = tuple(float(v) for v in getattr(self, name))
            set_field(self, name, values)
            if len(values) != 3:
                raise ValueError(
                    f"Pixels have three channels. Expected: three numbers in "
                    f"`{name}`. Received: {name}={values}."
                )
        if min(self.std) <= 0:
            raise ValueError(
                f"Pixels are divided by `std`. Expected: positive numbers. "
                f"Received: std={self.std}."
            )
        if not 0 < self.crop_fraction <= 1:
            raise ValueError(
                f"`crop_fraction` is the part of the resized image that is "
                f"kept. Expected: 0 < crop_fraction <= 1. Received: "
                f"{self.crop_fraction}."
            )
