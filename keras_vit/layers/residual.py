"""The parts of a ResNet: root, residual unit, stage."""

import keras
from keras import ops

from keras_vit.checks import check_choice
from keras_vit.config_parts import ROOT_POOLS
from keras_vit.config_parts import UNITS
from keras_vit.layers.conv import GroupNormalization
from keras_vit.layers.conv import StdConv2D
from keras_vit.layers.conv import pad_borders
from keras_vit.layers.conv import shrunk

BORDERS = {"zero": 0.0, "minus_infinity": float("-inf")}


class ResNetLayer(keras.layers.Layer):
    """What root, unit and stage share: the numerics of a `TrunkConfig`.

    Args:
        width: Int, channels of the convolutions (a unit gives four times as
            many).
        unit: `"post_activation"` or `"pre_activation"`.
        standardization: Of the kernels, see `StdConv2D`.
        conv_epsilon: Float, of the standardisation.
        group_norm_epsilon: Float, see `GroupNormalization`.
        conv_padding: `"same"` or `"fixed"`, see `StdConv2D`.

    Raises:
        ValueError: An unknown choice.
    """

    def __init__(
        self,
        width,
        unit="post_activation",
        standardization="std_plus_eps",
        conv_epsilon=1e-5,
        group_norm_epsilon=1e-6,
        conv_padding="same",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_choice("unit", unit, UNITS)
        self.width = width
        self.unit = unit
        self.pre_activation = unit == "pre_activation"
        self.numerics = {
            "unit": unit,
            "standardization": standardization,
            "conv_epsilon": conv_epsilon,
            "group_norm_epsilon": group_norm_epsilon,
            "conv_padding": conv_padding,
        }

    def _conv(self, name, width, kernel_size, stride=1):
        return StdConv2D(
            width,
            kernel_size,
            stride,
            standardization=self.numerics["standardization"],
            epsilon=self.numerics["conv_epsilon"],
            padding=self.numerics["conv_padding"],
            dtype=self.dtype_policy,
            name=name,
        )

    def _norm(self, name, gamma="ones"):
        return GroupNormalization(
            self.numerics["group_norm_epsilon"],
            gamma,
            dtype=self.dtype_policy,
            name=name,
        )

    def get_config(self):
        return {**super().get_config(), "width": self.width, **self.numerics}


@keras.saving.register_keras_serializable("keras_vit")
class Root(ResNetLayer):
    """The start of a ResNet: a 7x7 convolution and a maximum, a quarter each.

    Normalised and activated between the two unless the units do that first.

    Args:
        width: Int, channels of the output.
        pool: How the maximum pads: `"same"`, as in TensorFlow and XLA, or by
            one on every side with `"zero"` (BiT, whose values may be
            negative here) or `"minus_infinity"` (big_vision's BiT).
        numerics: See `ResNetLayer`.

    Input shape:
        `(batch, height, width, 3)`.

    Output shape:
        `(batch, height / 4, width / 4, width)`, rounded up twice.

    Raises:
        ValueError: An unknown choice.
    """

    def __init__(self, width, pool="same", **numerics):
        super().__init__(width, **numerics)
        check_choice("pool", pool, ROOT_POOLS)
        self.pool = pool

    def build(self, input_shape):
        self.conv = self._conv("conv", self.width, 7, stride=2)
        self.conv.build(input_shape)
        self.norm = None
        if not self.pre_activation:
            self.norm = self._norm("norm")
            self.norm.build(self.conv.compute_output_shape(input_shape))

    def call(self, x):
        x = self.conv(x)
        if self.norm is not None:
            x = ops.relu(self.norm(x))
        padding = "same"
        if self.pool in BORDERS:
            x = pad_borders(x, 1, BORDERS[self.pool])
            padding = "valid"
        return ops.max_pool(x, 3, 2, padding, data_format="channels_last")

    def compute_output_shape(self, input_shape):
        shape = shrunk(shrunk(input_shape, 2), 2)
        return (*shape[:-1], self.width)

    def get_config(self):
        return {**super().get_config(), "pool": self.pool}


@keras.saving.register_keras_serializable("keras_vit")
class ResidualUnit(ResNetLayer):
    """A bottleneck: 1x1, 3x3 and 1x1 convolutions beside a shortcut.

    `post_activation` normalises after each convolution and activates the sum;
    `pre_activation` normalises and activates before each. The shortcut is a
    convolution, `conv_proj`, where the shape changes.

    Args:
        width: Int, channels of the first two convolutions.
        stride: Int, of the 3x3 convolution and the shortcut.
        numerics: See `ResNetLayer`.

    Input shape:
        `(batch, rows, columns, channels)`.

    Output shape:
        `(batch, rows / stride, columns / stride, 4 * width)`, rounded up.

    References:
        - [He et al., 2016](https://arxiv.org/abs/1603.05027), figure 4
    """

    def __init__(self, width, stride=1, **numerics):
        super().__init__(width, **numerics)
        self.stride = stride

    def build(self, input_shape):
        inner = (*shrunk(input_shape, self.stride)[:-1], self.width)
        outer = (*inner[:-1], 4 * self.width)
        pre = self.pre_activation
        # At first a post-activation unit is its shortcut.
        norms = {
            "norm_1": (input_shape if pre else inner, "ones"),
            "norm_2": (inner, "ones"),
            "norm_3": (inner, "ones") if pre else (outer, "zeros"),
        }
        convs = {
            "conv_1": (input_shape, (self.width, 1)),
            "conv_2": (inner, (self.width, 3, self.stride)),
            "conv_3": (inner, (4 * self.width, 1)),
        }
        self.conv_proj = self.norm_proj = None
        if self.stride > 1 or input_shape[-1] != outer[-1]:
            convs["conv_proj"] = input_shape, (4 * self.width, 1, self.stride)
            if not pre:
                norms["norm_proj"] = outer, "ones"
        for name, (shape, sizes) in convs.items():
            setattr(self, name, self._conv(name, *sizes))
            getattr(self, name).build(shape)
        for name, (shape, gamma) in norms.items():
            setattr(self, name, self._norm(name, gamma))
            getattr(self, name).build(shape)

    def call(self, x):
        if self.pre_activation:
            return self._pre_activated(x)
        y = ops.relu(self.norm_1(self.conv_1(x)))
        y = ops.relu(self.norm_2(self.conv_2(y)))
        y = self.norm_3(self.conv_3(y))
        if self.conv_proj is not None:
            x = self.norm_proj(self.conv_proj(x))
        return ops.relu(x + y)

    def _pre_activated(self, x):
        y = ops.relu(self.norm_1(x))
        if self.conv_proj is not None:
            x = self.conv_proj(y)
        y = ops.relu(self.norm_2(self.conv_1(y)))
        y = ops.relu(self.norm_3(self.conv_2(y)))
        return x + self.conv_3(y)

    def compute_output_shape(self, input_shape):
        return (*shrunk(input_shape, self.stride)[:-1], 4 * self.width)

    def get_config(self):
        return {**super().get_config(), "stride": self.stride}


@keras.saving.register_keras_serializable("keras_vit")
class ResidualStage(ResNetLayer):
    """Residual units of one width; the first takes the stride.

    Args:
        num_units: Int.
        width: Int, see `ResidualUnit`.
        stride: Int, of the first unit.
        numerics: See `ResNetLayer`.

    Input shape:
        `(batch, rows, columns, channels)`.

    Output shape:
        `(batch, rows / stride, columns / stride, 4 * width)`, rounded up.
    """

    def __init__(self, num_units, width, stride=1, **numerics):
        super().__init__(width, **numerics)
        self.num_units = num_units
        self.stride = stride

    def build(self, input_shape):
        self.units = []
        for i in range(self.num_units):
            unit = ResidualUnit(
                self.width,
                1 if i else self.stride,
                **self.numerics,
                dtype=self.dtype_policy,
                name=f"unit_{i}",
            )
            unit.build(input_shape)
            input_shape = unit.compute_output_shape(input_shape)
            self.units.append(unit)

    def call(self, x):
        for unit in self.units:
            x = unit(x)
        return x

    def compute_output_shape(self, input_shape):
        return (*shrunk(input_shape, self.stride)[:-1], 4 * self.width)

    def get_config(self):
        return {
            **super().get_config(),
            "num_units": self.num_units,
            "stride": self.stride,
        }
