"""Pictures as the checkpoint was evaluated: resized, cropped, in a batch."""

import os
import typing
import warnings

import numpy as np

from keras_vit.checks import as_pair
from keras_vit.checks import check_choice
from keras_vit.config_parts import PixelConfig
from keras_vit.image_files import ImageError
from keras_vit.image_files import decode_image
from keras_vit.image_files import list_images
from keras_vit.resampling import resize_matrix

# Scaling a strip of 1 x 100,000 to cover a square must not exhaust memory.
MAX_SCALED_PIXELS = 2**27


def load_images(
    paths: typing.Any,
    model: typing.Any = None,
    on_error: str = "raise",
    image_size: int | tuple[int, int] | None = None,
) -> np.ndarray:
    """Returns pictures as one batch, as the model was evaluated.

    Args:
        paths: A path, a sequence of paths, or a folder. Pillow images and
            uint8 arrays `(height, width, 3)` are taken, too.
        model: A model (or a `ViTConfig`), whose `config.pixels` says how to
            resize and crop. Without one all pictures must have one size.
        on_error: `"raise"`, or `"skip"` to leave unreadable files out with
            one warning that lists them.
        image_size: Int or `(height, width)` in pixels; that of the model by
            default.

    Returns:
        uint8 array `(batch, height, width, 3)`, RGB, 0..255 (channels first
        for a model of that data format). The model itself does the scaling.

    Raises:
        ImageError: A file is unreadable (its path is in the message), or none
            is left.

    Example:
    ```python
    model = keras_vit.ViT.from_preset("vit_nano_fashion_mnist")
    images = keras_vit.load_images(keras_vit.sample_images(), model)
    ```
    """
    check_choice("on_error", on_error, ("raise", "skip"))
    config = _config_of(model)
    pixels = None if config is None else config.pixels
    if image_size is None and config is not None:
        image_size = config.image_size
    images, failed = [], []
    for item in _items(paths):
        try:
            images.append(read_image(item, pixels, image_size))
        except ImageError as error:
            if on_error == "raise":
                raise
            failed.append(str(error))
    _report(images, failed)
    batch = np.stack(images)
    if getattr(config, "data_format", None) == "channels_first":
        batch = np.ascontiguousarray(np.moveaxis(batch, -1, 1))
    return batch


def read_image(
    path: typing.Any,
    pixels: PixelConfig | None = None,
    image_size: int | tuple[int, int] | None = None,
) -> np.ndarray:
    """Returns one picture as RGB pixels, at `image_size` if that is given.

    Args:
        path: A path, a Pillow image, or a uint8 array `(height, width, 3)`.
        pixels: How to resize; the default `PixelConfig` where it is `None`.
        image_size: Int or `(height, width)` in pixels.

    Returns:
        uint8 array `(height, width, 3)`, RGB, 0..255. Alpha is dropped.

    Raises:
        ImageError: The file is unreadable; its path is in the message.
    """
    image = _pixels_of(path)
    if image_size is None:
        return image
    try:
        return resize_image(image, pixels or PixelConfig(), image_size)
    except ImageError as error:
        raise ImageError(f"{error} This is about {_name_of(path)}.") from error


def resize_image(
    image: np.ndarray,
    pixels: PixelConfig,
    image_size: int | tuple[int, int],
) -> np.ndarray:
    """Returns `image` at `image_size` by the rule of a pixel recipe.

    Args:
        image: `(height, width, 3)` uint8.
        pixels: `resize="squash"` scales each side by itself; `"crop"` scales
            both by one factor until they cover `image_size / crop_fraction`
            and cuts the centre out.
        image_size: Int or `(height, width)` in pixels.

    Returns:
        uint8 array `(height, width, 3)`.

    Raises:
        ImageError: A picture so long and thin that, scaled, it would have
            over `MAX_SCALED_PIXELS`.
    """
    height, width = as_pair("image_size", image_size)
    if pixels.resize == "squash":
        return _scale(image, (height, width), pixels)
    # The small number keeps 224 / (224 / 354) from rounding down to 353.
    target = [int(n / pixels.crop_fraction + 1e-6) for n in (height, width)]
    size = _cover(image.shape[:2], target)
    image = _scale(image, size, pixels)
    top = round((size[0] - height) / 2)
    left = round((size[1] - width) / 2)
    return image[top : top + height, left : left + width]


def _cover(size, target):
    """The size with both sides at or over the target, the tighter one at it.

    The other side is rounded down for a square, as torchvision does, and to
    the nearest for a rectangle, as timm does.
    """
    (height, width), (rows, columns) = size, target
    whole = int if rows == columns else round
    if rows * width >= columns * height:
        return rows, max(whole(rows * width / height), columns)
    return max(whole(columns * height / width), rows), columns


def check_pixels(images: typing.Any) -> None:
    """Warns if float images seem to be scaled to 0..1 already.

    Args:
        images: Array or tensor `(batch, ...)` of any backend. The first 64
            images are looked at; integers pass.
    """
    kind = str(getattr(images, "dtype", ""))
    if "float" not in kind or 0 in images.shape:
        return
    first = images[:64]
    # Only TensorFlow's tensors have no `max`; only they are always on a host.
    first = first if hasattr(first, "max") else np.asarray(first)
    largest = float(first.max())
    if 0 < largest <= 1:
        warnings.warn(
            f"These images seem to be scaled already. Expected: pixels 0..255."
            f" Received: a largest value of {largest:.4g}. Multiply by 255, or "
            f"build the model with preprocessing=False.",
            UserWarning,
            stacklevel=4,
        )


def _scale(image, size, pixels):
    if image.shape[:2] == size:
        return image
    if size[0] * size[1] > MAX_SCALED_PIXELS:
        raise ImageError(
            f"This picture is too long and thin. Expected: at most "
            f"{MAX_SCALED_PIXELS:,} pixels after scaling. Received: "
            f"{image.shape[:2]}, which becomes {size}. Crop it before."
        )
    if pixels.interpolation == "lanczos" and not pixels.antialias:
        raise ValueError(
            "There is no lanczos rule without antialias. Expected: "
            "antialias=True with interpolation='lanczos'. Received: "
            "antialias=False. Take 'bicubic', or antialias."
        )
    if pixels.antialias or pixels.interpolation == "nearest":
        from PIL import Image

        # Pillow widens the kernel when it shrinks, in 8-bit arithmetic: what
        # most checkpoints were trained and evaluated with.
        how = Image.Resampling[pixels.interpolation.upper()]
        return np.asarray(Image.fromarray(image).resize(size[::-1], how))
    rows, columns = (
        resize_matrix(old, new, pixels.interpolation)
        for old, new in zip(image.shape, size, strict=False)
    )
    # A large picture is mostly skipped: two or four sources per output.
    up, across = rows.any(axis=0), columns.any(axis=0)
    image = image[up][:, across].astype("float32")
    rows, columns = rows[:, up], columns[:, across]
    values = np.einsum("ih,hwc,jw->ijc", rows, image, columns, optimize=True)
    return np.clip(np.round(values), 0, 255).astype("uint8")


def _config_of(model):
    config = getattr(model, "config", model)
    if config is not None and not hasattr(config, "pixels"):
        raise TypeError(
            f"Cannot tell how to resize the pictures. Expected: a model, a "
            f"ViTConfig or None. Received: model={model!r}. For a preset, "
            f"pass keras_vit.ViT.from_preset(name)."
        )
    return config


def _items(paths):
    if isinstance(paths, str) and not paths.strip():
        raise ValueError(
            f"There is nothing to load. Expected: a path. Received: {paths!r}."
        )
    if isinstance(paths, str | os.PathLike):
        return list_images([paths])
    # A Pillow image, or an array of one picture: 2 axes are told below.
    if hasattr(paths, "convert") or getattr(paths, "ndim", 0) in (2, 3):
        return [paths]
    items = list(paths)
    if not items:
        raise ValueError(
            f"There is nothing to load. Expected: at least one path. "
            f"Received: {paths!r}."
        )
    return items


def _pixels_of(item):
    if isinstance(item, str | os.PathLike):
        return decode_image(item)
    if hasattr(item, "convert"):
        return _pixels_of_pillow(item)
    array = np.asarray(item)
    if array.ndim != 3 or array.shape[-1] != 3 or array.dtype != "uint8":
        raise ImageError(
            f"This is not a picture. Expected: a path, a Pillow image or a "
            f"uint8 array of shape (height, width, 3). Received: shape "
            f"{array.shape} of {array.dtype}."
        )
    return array


def _pixels_of_pillow(image):
    from PIL import ImageOps

    if image.mode == "F" or image.mode.startswith("I"):
        raise ImageError(
            f"Pillow would cut these pixels off at 255. Expected: 8 bits per "
            f"channel. Received: mode {image.mode!r} in {_name_of(image)}. "
            f"Pass the path of the file, which is then scaled to 0..255."
        )
    try:
        image.load()
    except Exception as error:  # Pillow raises nearly every kind of error.
        raise ImageError(
            f"Cannot read this picture. Expected: a whole Pillow image. "
            f"Received: {_name_of(image)}, which fails with: {error}. Copy "
            f"its file again."
        ) from error
    image = ImageOps.exif_transpose(image)
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return np.asarray(image.convert("RGB"))


def _name_of(item):
    if isinstance(item, str | os.PathLike):
        return os.fspath(item)
    return getattr(item, "filename", "") or f"a {type(item).__name__}"


def _report(images, failed):
    if failed:
        warnings.warn(
            f"Left out {len(failed)} unreadable of "
            f"{len(failed) + len(images)} pictures:\n" + "\n".join(failed),
            UserWarning,
            stacklevel=3,
        )
    if not images:
        raise ImageError(
            f"No picture could be read. Expected: at least one. Received: "
            f"{len(failed)} unreadable ones."
        )
    sizes = sorted({image.shape[:2] for image in images})
    if len(sizes) > 1:
        raise ImageError(
            f"The pictures differ in size. Expected: one size, or a model or "
            f"image_size to fit them to. Received: "
            f"{', '.join(map(str, sizes[:5]))}."
        )
