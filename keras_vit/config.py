"""What a Vision Transformer is, as plain values that print as JSON."""

import dataclasses
import json
import math
import typing

from keras_vit.checks import as_pair
from keras_vit.checks import check_at_least
from keras_vit.checks import check_choice
from keras_vit.checks import check_image_size
from keras_vit.checks import check_rate
from keras_vit.checks import did_you_mean

ACTIVATIONS = ("gelu", "gelu_tanh", "quick_gelu", "swiglu")
POSITIONS = ("none", "learned", "learned_2d", "relative", "sincos_2d")
POOLINGS = ("token", "gap", "map")
NORMS = ("before_pooling", "after_pooling", "none")
RESIZES = ("squash", "crop")
INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos")
DATA_FORMATS = ("channels_last", "channels_first")


def _set(config, name, value):
    # The documented way to normalise a field of a frozen dataclass.
    object.__setattr__(config, name, value)


@dataclasses.dataclass(frozen=True)
class StemConfig:
    """How an image becomes patches.

    `patch_size` is `(height, width)` in pixels (an int means a square);
    `patch_bias` gives the projection a bias (CLIP towers have none).
    """

    patch_size: tuple[int, int] = (16, 16)
    patch_bias: bool = True

    def __post_init__(self):
        _set(self, "patch_size", as_pair("patch_size", self.patch_size))


@dataclasses.dataclass(frozen=True)
class TokenConfig:
    """What is added to the patch tokens before the first block.

    Prefix tokens stand in the order class, distillation, registers, and only
    the first two can have a position (`prefix_positions`). `position` is one
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
    token), `gap` (mean of the patch tokens, prefix left out) or `map`
    (attention pooling); `norm` is where the final norm stands:
    `before_pooling`, `after_pooling` or `none`. `pre_logits` is the width of
    a tanh layer before the head, or `None`.
    """

    num_classes: int = 1000
    pooling: str = "token"
    norm: str = "before_pooling"
    pre_logits: int | None = None

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
            _set(self, name, values)
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


@dataclasses.dataclass(frozen=True)
class ViTConfig:
    """A Vision Transformer as plain values: nothing about it is implied.

    `image_size` is `(height, width)` in pixels and fixes the grid of stored
    positions; with `any_image_size` the model also takes every other multiple
    of the patch size. `preprocessing=False` leaves pixel scaling to the
    caller. `data_format` is the layout of the *input* only.

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
    stem: StemConfig = StemConfig()
    tokens: TokenConfig = TokenConfig()
    block: BlockConfig = BlockConfig()
    head: HeadConfig = HeadConfig()
    pixels: PixelConfig = PixelConfig()
    any_image_size: bool = False
    preprocessing: bool = True
    data_format: str = "channels_last"

    def __post_init__(self):
        _set(self, "image_size", as_pair("image_size", self.image_size))
        for name in ("depth", "width", "mlp_dim", "num_heads"):
            check_at_least(name, getattr(self, name), 1)
        check_choice("data_format", self.data_format, DATA_FORMATS)
        check_image_size(self.image_size, self.stem.patch_size)
        self._check_widths()
        if self.head.pooling == "token" and not self.tokens.class_token:
            raise ValueError(
                "Token pooling reads the class token. Expected: "
                "class_token=True with pooling='token'. Received: "
                "class_token=False. Use pooling='gap' or 'map'."
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
        (h, w), (p, q) = self.image_size, self.stem.patch_size
        return h // p, w // q

    @property
    def num_prefix(self):
        """Tokens in front of the patches."""
        t = self.tokens
        return t.class_token + t.distillation_token + t.num_registers

    @property
    def num_prefix_positions(self):
        """Prefix tokens that have a position of their own."""
        t = self.tokens
        return t.prefix_positions * (t.class_token + t.distillation_token)

    @property
    def num_tokens(self):
        """Tokens in the encoder, prefix included."""
        return self.num_prefix + math.prod(self.grid)

    def replace(self, **changes: typing.Any) -> "ViTConfig":
        """Returns a copy with fields replaced, nested ones by plain name.

        `config.replace(num_classes=10, stochastic_depth_rate=0.1)`. An
        `image_size` of `None` means any multiple of the patch size.
        """
        if "image_size" in changes:
            size = changes.pop("image_size")
            changes["any_image_size"] = size is None
            if size is not None:
                changes["image_size"] = size
        top, nested = {}, {}
        for name, value in changes.items():
            owner = _owner(name)
            if owner is None:
                top[name] = value
            else:
                nested.setdefault(owner, {})[name] = value
        for owner, values in nested.items():
            part = top.get(owner, getattr(self, owner))
            top[owner] = dataclasses.replace(part, **values)
        return dataclasses.replace(self, **top)

    def to_dict(self) -> dict:
        """Returns nested dicts and lists of plain values, JSON's types."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def from_dict(cls, values: dict) -> "ViTConfig":
        """The inverse of `to_dict`. Unknown fields raise."""
        return _from_dict(cls, values)

    def __str__(self):
        return json.dumps(dataclasses.asdict(self), indent=2)


PARTS = {
    "stem": StemConfig,
    "tokens": TokenConfig,
    "block": BlockConfig,
    "head": HeadConfig,
    "pixels": PixelConfig,
}


def _field_names(cls):
    return [f.name for f in dataclasses.fields(cls)]


def _owner(name):
    """The part that holds a field; `None` if it is `ViTConfig` itself."""
    if name in _field_names(ViTConfig):
        return None
    for owner, part in PARTS.items():
        if name in _field_names(part):
            return owner
    known = _field_names(ViTConfig)
    known += [n for part in PARTS.values() for n in _field_names(part)]
    raise ValueError(
        f"Unknown field. Expected: one of {', '.join(sorted(known))}. "
        f"Received: {name!r}.{did_you_mean(name, known)}"
    )


def _from_dict(cls, values):
    known = _field_names(cls)
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ValueError(
            f"Cannot read this {cls.__name__}: it has fields that this "
            f"version of keras_vit does not know. Expected: "
            f"{', '.join(known)}. Received also: {', '.join(unknown)}. If a "
            f"newer version wrote it, upgrade with "
            f"`pip install -U keras-vit-garden`."
        )
    values = dict(values)
    for name, part in PARTS.items():
        if cls is ViTConfig and isinstance(values.get(name), dict):
            values[name] = _from_dict(part, values[name])
    values = {
        k: tuple(v) if isinstance(v, list) else v for k, v in values.items()
    }
    return cls(**values)
