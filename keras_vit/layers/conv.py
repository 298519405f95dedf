"""Convolution with standardised kernels and what normalises its output."""

import keras
from keras import ops

from keras_vit.checks import check_choice
from keras_vit.config_parts import CONV_PADDINGS
from keras_vit.config_parts import NUM_GROUPS
from keras_vit.config_parts import STANDARDIZATIONS
from keras_vit.layers.initializers import initial


def standardize(kernel, flavour, epsilon):
    """Returns a kernel of zero mean and unit variance per output channel.

    Args:
        kernel: `(height, width, in, out)`.
        flavour: `"std_plus_eps"` divides by `std + epsilon`,
            `"sqrt_var_plus_eps"` by `sqrt(variance + epsilon)`, `"stored"`
            returns the kernel.
        epsilon: Float.
    """
    if flavour == "stored":
        return kernel
    kernel = kernel - ops.mean(kernel, (0, 1, 2), keepdims=True)
    variance = ops.mean(ops.square(kernel), (0, 1, 2), keepdims=True)
    if flavour == "std_plus_eps":
        return kernel / (ops.sqrt(variance) + epsilon)
    return kernel * ops.rsqrt(variance + epsilon)


@keras.saving.register_keras_serializable("keras_vit")
class StdConv2D(keras.layers.Layer):
    """A convolution whose kernels are standardised in every call.

    No bias: a normalisation follows or precedes it. Kernels are standardised
    in float32 whatever the dtype policy, then cast to the compute dtype.

    Args:
        width: Int, channels of the output.
        kernel_size: Odd int, height and width of the kernel.
        stride: Int.
        standardization: `"std_plus_eps"` (Google's hybrids),
            `"sqrt_var_plus_eps"` (BiT, timm) or `"stored"` (for inference
            only), see `standardize`.
        epsilon: Float. Google's hybrids 1e-5, BiT 1e-10, timm 1e-8.
        padding: `"same"`, as in TensorFlow and XLA: the odd pixel at the end;
            `"fixed"`, half the kernel on every side.

    Input shape:
        `(batch, rows, columns, channels)`.

    Output shape:
        `(batch, rows / stride, columns / stride, width)`, rounded up.

    Raises:
        ValueError: Unknown `standardization` or `padding`.

    References:
        - [Qiao et al., 2019](https://arxiv.org/abs/1903.10520)
    """

    def __init__(
        self,
        width,
        kernel_size,
        stride=1,
        standardization="std_plus_eps",
        epsilon=1e-5,
        padding="same",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_choice("standardization", standardization, STANDARDIZATIONS)
        check_choice("padding", padding, CONV_PADDINGS)
        self.width = width
        self.kernel_size = kernel_size
        self.stride = stride
        self.standardization = standardization
        self.epsilon = epsilon
        self.padding = padding

    def build(self, input_shape):
        # `autocast=False`: a kernel rounded before it is standardised has
        # lost what the float32 statistics are for.
        self.kernel = self.add_weight(
            shape=(
                self.kernel_size,
                self.kernel_size,
                input_shape[-1],
                self.width,
            ),
            initializer=initial("lecun_normal"),
            autocast=False,
            name="kernel",
        )

    def standardized(self):
        """Returns the kernel that the convolution has, in float32."""
        return standardize(self.kernel, self.standardization, self.epsilon)

    def call(self, x):
        kernel = ops.cast(self.standardized(), self.compute_dtype)
        s = self.stride
        if self.kernel_size == 1:
            # A matrix product is never slower than a 1x1 convolution and on
            # torch, which would turn the layout over and back, half the time.
            x = x if s == 1 else x[:, ::s, ::s]
            return ops.matmul(x, kernel[0, 0])
        padding = "same"
        if self.padding == "fixed" and s > 1:
            x = pad_borders(x, self.kernel_size // 2, 0.0)
            padding = "valid"
        return ops.conv(x, kernel, s, padding, data_format="channels_last")

    def compute_output_shape(self, input_shape):
        return (*shrunk(input_shape, self.stride)[:-1], self.width)

    def get_config(self):
        return {
            **super().get_config(),
            "width": self.width,
            "kernel_size": self.kernel_size,
            "stride": self.stride,
            "standardization": self.standardization,
            "epsilon": self.epsilon,
            "padding": self.padding,
        }


def pad_borders(x, pixels, value):
    """Adds `pixels` rows and columns of `value` on every side."""
    borders = ((0, 0), (pixels, pixels), (pixels, pixels), (0, 0))
    return ops.pad(x, borders, constant_values=value)


def shrunk(shape, stride):
    """The shape of images after a stride, sides rounded up."""
    batch, *size, channels = shape
    size = (n if n is None else -(-n // stride) for n in size)
    return (batch, *size, channels)


@keras.saving.register_keras_serializable("keras_vit")
class GroupNormalization(keras.layers.Layer):
    """Normalises each of 32 groups of channels over an image, then scales.

    `(x - mean) / sqrt(variance + epsilon) * gamma + beta`. Statistics, scale
    and offset are float32 whatever the compute dtype.

    Args:
        epsilon: Float, added to the variance. Google's hybrids 1e-6, BiT and
            timm 1e-5.
        gamma_initializer: `"ones"`, or `"zeros"` where a residual branch ends.

    Input shape:
        `(batch, rows, columns, channels)`, channels a multiple of 32.

    Output shape:
        Same as the input.

    References:
        - [Wu and He, 2018](https://arxiv.org/abs/1803.08494)
    """

    def __init__(self, epsilon=1e-6, gamma_initializer="ones", **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon
        self.gamma_initializer = gamma_initializer

    def build(self, input_shape):
        channels = input_shape[-1]
        if channels % NUM_GROUPS:
            raise ValueError(
                f"Channels are normalised in {NUM_GROUPS} groups. Expected: a "
                f"multiple of {NUM_GROUPS} channels. Received: {channels}."
            )
        self.gamma = self.add_weight(
            shape=(channels,),
            initializer=self.gamma_initializer,
            autocast=False,
            name="gamma",
        )
        self.beta = self.add_weight(
            shape=(channels,),
            initializer="zeros",
            autocast=False,
            name="beta",
        )

    def call(self, x):
        y = ops.cast(x, "float32")
        # Sums per channel first, then groups of those: the image is read once
        # and never reshaped, 2 to 8 times faster than Keras' own layer. What
        # comes here is the output of kernels of zero mean or a sum of those,
        # so that the squares lose nothing to a large mean.
        mean = self._grouped(ops.mean(y, (1, 2)))
        square = self._grouped(ops.mean(ops.square(y), (1, 2)))
        variance = ops.maximum(square - ops.square(mean), 0.0)
        scale = self._spread(ops.rsqrt(variance + self.epsilon)) * self.gamma
        offset = self.beta - self._spread(mean) * scale
        y = y * scale[:, None, None] + offset[:, None, None]
        return ops.cast(y, self.compute_dtype)

    def _grouped(self, x):
        """`(batch, channels)` to the mean of each group."""
        size = x.shape[-1] // NUM_GROUPS
        return ops.mean(ops.reshape(x, (-1, NUM_GROUPS, size)), -1)

    def _spread(self, x):
        """`(batch, groups)` to one value per channel."""
        return ops.repeat(x, self.gamma.shape[0] // NUM_GROUPS, axis=-1)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {
            **super().get_config(),
            "epsilon": self.epsilon,
            "gamma_initializer": self.gamma_initializer,
        }
