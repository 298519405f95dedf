"""What a Vision Transformer is, as plain values that print as JSON."""

import dataclasses
import json
import math
import typing

from keras_vit.checks import as_pair
from keras_vit.checks import check_at_least
from keras_vit.checks import check_choice
from keras_vit.checks import check_image_size
from keras_vit.checks import did_you_mean
from keras_vit.config_parts import BlockConfig
from keras_vit.config_parts import HeadConfig
from keras_vit.config_parts import PixelConfig
from keras_vit.config_parts import StemConfig
from keras_vit.config_parts import TokenConfig
from keras_vit.config_parts import set_field

DATA_FORMATS = ("channels_last", "channels_first")


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
        set_field(self, "image_size", as_pair("image_size", self.image_size))
        for name in ("depth", "width", "mlp_dim", "num_heads"):
            check_at_least(name, getattr(self, name), 1)
        check_choice("data_format", self.data_format, DATA_FORMATS)
        check_image_size(self.image_size, self.stem.patch_size)
        self._check_widths()
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

    @property
    def num_classifiers(self):
        """Classifiers whose logits are averaged: 2 for a distilled model."""
        two = self.tokens.distillation_token and self.head.distillation_head
        return 2 if two and self.head.pooling == "token" else 1

    @property
    def pooled_width(self):
        """Channels of the pooled vector."""
        return self.width * (2 if self.head.pooling == "token_gap" else 1)

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
    fields: dict[str, typing.Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in values.items()
    }
    return cls(**fields)
