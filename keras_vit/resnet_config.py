"""What a BiT ResNet is, as plain values that print as JSON."""

import dataclasses
import typing

from keras_vit.checks import as_pair
from keras_vit.checks import check_at_least
from keras_vit.checks import check_choice
from keras_vit.checks import check_image_size
from keras_vit.checks import did_you_mean
from keras_vit.config import DATA_FORMATS
from keras_vit.config_parts import PixelConfig
from keras_vit.config_parts import TrunkConfig
from keras_vit.config_parts import set_field
from keras_vit.nested_config import NestedConfig

# Big Transfer, as its paper and its first code have it.
BIT = TrunkConfig(
    stages=(3, 4, 6, 3),
    unit="pre_activation",
    standardization="sqrt_var_plus_eps",
    conv_epsilon=1e-10,
    group_norm_epsilon=1e-5,
    conv_padding="fixed",
    root_pool="zero",
)
# fmt: off
RESNETS = {
    # He et al., 2016, table 1; each with a width factor x1 to x4
    "r26":  (2, 2, 2, 2),
    "r50":  (3, 4, 6, 3),
    "r101": (3, 4, 23, 3),
    "r152": (3, 8, 36, 3),
}
# fmt: on


@dataclasses.dataclass(frozen=True)
class ResNetConfig(NestedConfig):
    """A BiT ResNet as plain values: nothing about it is implied.

    `trunk` holds the stages and their numerics, `num_classes=0` gives pooled
    features. `image_size` is `(height, width)` in pixels; with
    `any_image_size` the model also takes every other, in whole multiples of
    the trunk's stride where that pads as TensorFlow does.
    `preprocessing=False` leaves pixel scaling to the caller. `data_format` is
    the layout of the *input* only.

    Raises:
        ValueError: A value is out of range, or two do not fit together.

    References:
        - [Kolesnikov et al., 2020](https://arxiv.org/abs/1912.11370)
    """

    image_size: tuple[int, int] = (224, 224)
    num_classes: int = 1000
    trunk: TrunkConfig = BIT
    pixels: PixelConfig = PixelConfig()
    any_image_size: bool = False
    preprocessing: bool = True
    data_format: str = "channels_last"

    def __post_init__(self):
        set_field(self, "image_size", as_pair("image_size", self.image_size))
        check_at_least("num_classes", self.num_classes, 0)
        check_choice("data_format", self.data_format, DATA_FORMATS)
        if not self.trunk.stages:
            raise ValueError(
                f"A ResNet has stages. Expected: the units of each, such as "
                f"stages=(3, 4, 6, 3). Received: stages={self.trunk.stages}."
            )
        check_image_size(self.image_size, self.stride)

    @property
    def depth(self):
        """Stages, each one tensor of `feature_model`."""
        return len(self.trunk.stages or ())

    @property
    def stride(self):
        """What the sides of an image must be multiples of.

        Padding that depends on the size is written down for even sizes only.
        """
        fixed = self.trunk.conv_padding == "fixed"
        return (1, 1) if fixed else (self.trunk.stride, self.trunk.stride)


def resnet_config(variant: str, **overrides: typing.Any) -> ResNetConfig:
    """Returns the config of a BiT, such as `"r50x1"` or `"R152x4"`.

    Args:
        variant: `"depth" "x" "width factor"`: a key of `RESNETS`, upper or
            lower case, and any number, such as `"r26x0.5"`.
        overrides: Any field of `ResNetConfig` or of its parts, by plain name:
            `image_size=480`, `num_classes=10`.

    Raises:
        ValueError: Unknown depth or field; the nearest names are listed.

    Example:
    ```python
    config = keras_vit.resnet_config("r50x1", num_classes=10, image_size=160)
    ```
    """
    name, _, factor = variant.lower().partition("x")
    try:
        width = 64 * float(factor)
    except ValueError:
        width = 0
    if name not in RESNETS or width <= 0 or width != int(width):
        raise ValueError(
            f"No such variant. Expected: one of {', '.join(RESNETS)}, 'x' and "
            f"a width factor, such as 'r50x1'. Received: variant={variant!r}."
            f"{did_you_mean(name, RESNETS)}"
        )
    trunk = dataclasses.replace(
        BIT, stages=RESNETS[name], trunk_width=int(width)
    )
    return ResNetConfig(trunk=trunk).replace(**overrides)
