"""Resizing and cropping as `load_images` does it, as a Keras layer."""

import keras

from keras_vit.checks import as_pair
from keras_vit.checks import check_choice
from keras_vit.config_parts import RESIZES


# The base is what Keras has for `tf.data`: in there it computes on
# TensorFlow whatever the backend, which a plain `Layer` cannot.
@keras.saving.register_keras_serializable("keras_vit")
class EvaluationResize(keras.layers.Resizing):
    """Brings pictures of any size to that of a model, as it was evaluated.

    For `tf.data`, where it works on every backend, and for arrays. Within 1 of
    the pixels (0..255) that `load_images` gives, in the mean over a photo: it
    computes in float32 where Pillow rounds after each axis.

    Args:
        image_size: Int or `(height, width)` in pixels.
        resize: `"squash"` scales each side by itself; `"crop"` scales both by
            one factor until they cover `image_size / crop_fraction` and cuts
            the centre out.
        crop_fraction: Float in (0, 1].
        interpolation: `"bicubic"`, `"bilinear"`, `"lanczos"` or `"nearest"`.
        antialias: Bool, whether the kernel widens when it shrinks.

    Input shape:
        `(rows, columns, 3)` or `(batch, rows, columns, 3)`, 0..255.

    Output shape:
        `(height, width, 3)` or `(batch, height, width, 3)`, float32, whole
        numbers 0..255.

    Raises:
        ValueError: Unknown `resize`.

    Example:
    ```python
    model = keras_vit.ViT.from_preset("vit_nano_fashion_mnist")
    resize = keras_vit.layers.EvaluationResize.of(model)
    images = resize(np.zeros((2, 40, 50, 3), "uint8"))  # (2, 28, 28, 3)
    ```
    """

    def __init__(
        self,
        image_size,
        resize="squash",
        crop_fraction=1.0,
        interpolation="bicubic",
        antialias=True,
        **kwargs,
    ):
        check_choice("resize", resize, RESIZES)
        height, width = as_pair("image_size", image_size)
        kind = "lanczos3" if interpolation == "lanczos" else interpolation
        super().__init__(
            height,
            width,
            interpolation=kind,
            antialias=antialias,
            data_format="channels_last",
            **kwargs,
        )
        self.resize = resize
        self.crop_fraction = crop_fraction
        self.options = {
            "image_size": (height, width),
            "resize": resize,
            "crop_fraction": crop_fraction,
            "interpolation": interpolation,
            "antialias": antialias,
        }

    @classmethod
    def of(cls, model, **kwargs):
        """Returns the layer for a model, or for a config."""
        config = getattr(model, "config", model)
        p = config.pixels
        return cls(
            config.image_size,
            p.resize,
            p.crop_fraction,
            p.interpolation,
            p.antialias,
            **kwargs,
        )

    def call(self, images, training=None):
        images = self.backend.cast(images, "float32")
        size = (self.height, self.width)
        if self.resize == "crop":
            # The small number keeps 224 / (224 / 354) from becoming 353.
            size = [int(n / self.crop_fraction + 1e-6) for n in size]
            size = self._cover(self.backend.shape(images)[-3:-1], size)
        images = self.backend.image.resize(
            images,
            size,
            interpolation=self.interpolation,
            antialias=self.antialias,
            data_format="channels_last",
        )
        images = self.backend.numpy.clip(
            self.backend.numpy.round(images), 0, 255
        )
        top, left = (
            self._whole((n - m) / 2)
            for n, m in zip(size, (self.height, self.width), strict=True)
        )
        rows = slice(top, top + self.height)
        return images[..., rows, left : left + self.width, :]

    def _cover(self, size, target):
        """As `pixels` has it: one side at the target, the other beyond."""
        (height, width), (rows, columns) = size, target
        ratio = width / height
        square = rows == columns
        across, down = rows * ratio, columns / ratio
        # Down for a square, to the nearest for a rectangle; a thousandth more
        # for ratios that float32 leaves just below a whole.
        shift = 0.499 if square else 0.0
        across, down = self._whole(across - shift), self._whole(down - shift)
        if isinstance(across, int):
            return max(rows, down), max(columns, across)
        maximum = self.backend.numpy.maximum
        return maximum(rows, down), maximum(columns, across)

    def _whole(self, number):
        """The nearest whole number, of a float or of a symbolic one."""
        if isinstance(number, (int, float)):
            return round(number)
        return self.backend.cast(self.backend.numpy.round(number), "int32")

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-3], self.height, self.width, input_shape[-1])

    def get_config(self):
        base = keras.layers.Layer.get_config(self)
        return {**base, **self.options}
