"""Whether a batch of images is one for this model, before a backend says so."""

import typing

import keras

from keras_vit.checks import check_image_size
from keras_vit.config import ViTConfig
from keras_vit.pixels import check_pixels


class ImageModel(keras.Model):
    """A `keras.Model` with a `config` that looks at its images first."""

    config: ViTConfig

    def __call__(self, *args, **kwargs):
        if args:
            check_images(args[0], self.config)
        return super().__call__(*args, **kwargs)

    def fit(self, x=None, *args, **kwargs):
        check_data(x, self.config)
        return super().fit(x, *args, **kwargs)

    def evaluate(self, x=None, *args, **kwargs):
        check_data(x, self.config)
        return super().evaluate(x, *args, **kwargs)

    def predict(self, x, *args, **kwargs):
        check_data(x, self.config)
        return super().predict(x, *args, **kwargs)


def input_shape(config: ViTConfig) -> tuple:
    """Returns the shape of one image, `None` for a side of any size."""
    size = (None, None) if config.any_image_size else config.image_size
    if config.data_format == "channels_first":
        return (3, *size)
    return (*size, 3)


def onnx_signature(config: ViTConfig) -> keras.InputSpec:
    """Returns the input of an ONNX file."""
    batch, shape = None, input_shape(config)
    if keras.config.backend() == "torch":
        # Keras exports no open axis of a model with layer normalisation.
        batch, shape = 1, input_shape(config.replace(any_image_size=False))
    return keras.InputSpec("float32", (batch, *shape), name="images")


def check_images(images: typing.Any, config: ViTConfig) -> None:
    """Raises if the shape of `images` is known and not for this model."""
    shape = _known_shape(images)
    if shape is None:
        return
    first = config.data_format == "channels_first"
    if len(shape) != 4 or shape[1 if first else 3] not in (3, None):
        expected = ", ".join(map(str, input_shape(config)))
        raise ValueError(
            f"These are not images for this model. Expected: an array of "
            f"shape (batch, {expected}), RGB, 0..255. Received: shape "
            f"{shape}. {_advice(shape)}"
        )
    size = shape[2:] if first else shape[1:3]
    if None in size or size == config.image_size:
        return
    check_image_size(size, config.stride)
    if not config.any_image_size:
        raise ValueError(
            f"This model takes one image size. Expected: images of "
            f"{config.image_size} (height, width). Received: {size}. Resize "
            f"them with keras_vit.load_images, or take "
            f"`model.with_image_size({size})`, or "
            f"`model.with_image_size(None)` for a model of any size."
        )


def check_data(data: typing.Any, config: ViTConfig) -> None:
    """`check_images` for what `fit`, `evaluate` and `predict` take.

    Arrays and the first batch of a `keras.utils.PyDataset` are also checked
    for pixels already scaled to 0..1; a `tf.data.Dataset` for its shapes.
    """
    if hasattr(data, "element_spec"):
        check_images(_images_of(data.element_spec), config)
        return
    if isinstance(data, keras.utils.PyDataset):
        data = _images_of(data[0])
    check_images(data, config)
    if _known_shape(data) is not None and config.preprocessing:
        check_pixels(data)


def _images_of(batch):
    return batch[0] if isinstance(batch, tuple | list) else batch


def _known_shape(images):
    """The shape as a tuple, or `None` if there is none yet."""
    shape = getattr(images, "shape", None)
    if shape is None or getattr(shape, "rank", 0) is None:
        return None
    return tuple(shape)


def _advice(shape):
    if len(shape) == 3:
        return "Add the batch axis: `images[None]`."
    if len(shape) == 4 and shape[-1] == 1:
        return "Repeat gray pixels: `np.repeat(images, 3, axis=-1)`."
    if len(shape) == 4 and shape[-1] == 4:
        return "Drop the alpha channel: `images[..., :3]`."
    if len(shape) == 4 and shape[1] == 3:
        return "For channels first, build with data_format='channels_first'."
    return "keras_vit.load_images(paths, model) gives what it takes."
