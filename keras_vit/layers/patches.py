"""From an image to a grid of patch embeddings."""

import keras
from keras import ops

from keras_vit.checks import as_pair
from keras_vit.checks import check_choice
from keras_vit.checks import check_image_size
from keras_vit.layers.initializers import initial


@keras.saving.register_keras_serializable("keras_vit")
class Pixels(keras.layers.Layer):
    """Takes images as they are stored and normalises each channel.

    `(pixel / 255 - mean) / std`, in float32 whatever the dtype policy: the
    256 levels of a pixel do not survive half precision arithmetic.

    Args:
        mean: Three floats in units of the full range.
        std: Three positive floats in units of the full range.
        rescale: `False` returns the values as they are, for callers who have
            normalised them already.
        data_format: Layout of the *input*, `"channels_last"` or
            `"channels_first"`.

    Input shape:
        `(batch, height, width, 3)`, RGB, any integer or float dtype, 0..255;
        `(batch, 3, height, width)` with `"channels_first"`.

    Output shape:
        `(batch, height, width, 3)`, float32.

    Raises:
        ValueError: Unknown `data_format`.
    """

    def __init__(
        self,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        rescale=True,
        data_format="channels_last",
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)  # not even the input
        check_choice(
            "data_format", data_format, ("channels_last", "channels_first")
        )
        self.mean = tuple(mean)
        self.std = tuple(std)
        self.rescale = rescale
        self.data_format = data_format

    def call(self, images):
        x = ops.cast(images, "float32")
        if self.data_format == "channels_first":
            x = ops.transpose(x, (0, 2, 3, 1))
        if not self.rescale:
            return x
        # Centred before it is scaled: 0, 127.5 and 255 become -1, 0 and 1.
        mean = ops.array([255.0 * m for m in self.mean], "float32")
        std = ops.array([255.0 * s for s in self.std], "float32")
        return (x - mean) / std

    def compute_output_shape(self, input_shape):
        if self.data_format == "channels_last":
            return input_shape
        batch, channels, *size = input_shape
        return (batch, *size, channels)

    def compute_output_spec(self, images):
        shape = self.compute_output_shape(images.shape)
        return keras.KerasTensor(shape, "float32")

    def get_config(self):
        return {
            **super().get_config(),
            "mean": self.mean,
            "std": self.std,
            "rescale": self.rescale,
            "data_format": self.data_format,
        }


@keras.saving.register_keras_serializable("keras_vit")
class PatchEmbedding(keras.layers.Layer):
    """Cuts an image into patches and projects each one linearly.

    A convolution whose stride is its kernel size, so each output is one
    patch times one matrix.

    Args:
        width: Int, channels of a token.
        patch_size: Int or `(height, width)`, pixels.
        use_bias: Whether the projection has a bias.

    Input shape:
        `(batch, height, width, channels)`, sides multiples of the patch size.

    Output shape:
        `(batch, rows, columns, width)`.

    Raises:
        ValueError: A side of the image is no whole number of patches.

    References:
        - [Dosovitskiy et al., 2021](https://arxiv.org/abs/2010.11929),
          equation 1
    """

    def __init__(self, width, patch_size, use_bias=True, **kwargs):
        super().__init__(**kwargs)
        self.width = width
        self.patch_size = as_pair("patch_size", patch_size)
        self.use_bias = use_bias
        self.bias = None

    def build(self, input_shape):
        self.kernel = self.add_weight(
            shape=(*self.patch_size, input_shape[-1], self.width),
            initializer=initial("lecun_normal"),
            name="kernel",
        )
        if self.use_bias:
            self.bias = self.add_weight(
                shape=(self.width,), initializer="zeros", name="bias"
            )

    def call(self, x):
        if None not in x.shape[1:3]:
            check_image_size(x.shape[1:3], self.patch_size)
        x = ops.conv(
            x,
            self.kernel,
            strides=self.patch_size,
            padding="valid",
            data_format="channels_last",
        )
        return x if self.bias is None else x + self.bias

    def compute_output_shape(self, input_shape):
        batch, *size, _ = input_shape
        grid = (
            n if n is None else n // p
            for n, p in zip(size, self.patch_size, strict=True)
        )
        return (batch, *grid, self.width)

    def get_config(self):
        return {
            **super().get_config(),
            "width": self.width,
            "patch_size": self.patch_size,
            "use_bias": self.use_bias,
        }
