"""From a picture file to RGB pixels, or an error that names the file."""

import os
import pathlib
import typing

import numpy as np

SUFFIXES = [
    ".bmp",
    ".gif",
    ".jpeg",
    ".jpg",
    ".npy",
    ".png",
    ".ppm",
    ".tif",
    ".tiff",
    ".webp",
]


class ImageError(ValueError):
    """A file is not a readable picture; the message names it."""


def list_images(paths: typing.Iterable[str | os.PathLike]) -> list:
    """Returns the paths, with folders replaced by their pictures, sorted.

    Raises:
        ImageError: A folder without pictures.
    """
    files = []
    for path in map(pathlib.Path, paths):
        if not path.is_dir():
            files.append(path)
            continue
        inside = sorted(
            p for p in path.iterdir() if p.suffix.lower() in SUFFIXES
        )
        if not inside:
            raise ImageError(
                f"No pictures in this folder. Expected: files that end in one "
                f"of {' '.join(SUFFIXES)}. Received: {path}."
            )
        files += inside
    return files


def decode_image(path: str | os.PathLike) -> np.ndarray:
    """Returns the pixels of a file, `(height, width, 3)` uint8 RGB 0..255.

    The orientation that a camera noted is applied. Gray is repeated, a
    palette looked up, alpha dropped (as the references' conversion to RGB
    does), 16-bit gray scaled to 8 bits. An `.npy` array of shape
    `(height, width)`, `(height, width, 1)` or `(height, width, 3)` and a float
    TIFF are taken as they are, 0..255.

    Raises:
        ImageError: No such file, not a picture, cut short, too large, or with
            values that are not finite or not in 0..255.
    """
    path = pathlib.Path(path)
    _check_file(path)
    try:
        if path.suffix.lower() == ".npy":
            array = np.load(path, allow_pickle=False)
        else:
            array = _decode(path)
    except ImageError:
        raise
    except Exception as error:  # Pillow raises nearly every kind of error.
        raise ImageError(
            f"Cannot read this picture. Expected: a whole image file. "
            f"Received: {path}, which {_looks(path)} and fails with: {error}. "
            f"Open it in a viewer, or copy it again."
        ) from error
    return _as_rgb(array, path)


def _check_file(path):
    if path.is_dir():
        raise ImageError(
            f"This is a folder. Expected: a picture file. Received: {path}."
        )
    if not path.exists():
        raise ImageError(
            f"No such file. Expected: a picture file. Received: {path}."
        )
    if path.stat().st_size == 0:
        raise ImageError(
            f"This file is empty. Expected: a picture. Received: {path} with "
            f"0 bytes. Copy it again."
        )


def _decode(path):
    from PIL import Image
    from PIL import ImageOps

    with Image.open(path) as image:
        image.load()
        image = ImageOps.exif_transpose(image)
        if image.mode == "F" or image.mode.startswith("I"):
            array = np.asarray(image)
            if image.mode == "F":
                return array
            # 16 bits per pixel: the upper byte, not a value cut off at 255.
            return (np.clip(array, 0, 65535) // 257).astype("uint8")
        if image.mode == "P" and "transparency" in image.info:
            image = image.convert("RGBA")
        return np.asarray(image.convert("RGB"))


def _as_rgb(array, path):
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim == 3 and array.shape[-1] == 1:
        array = np.repeat(array, 3, axis=-1)
    if array.ndim != 3 or array.shape[-1] != 3 or array.dtype.kind not in "uif":
        raise ImageError(
            f"These are not the pixels of a picture. Expected: numbers of "
            f"shape (height, width), (height, width, 1) or (height, width, 3). "
            f"Received: shape {array.shape} of {array.dtype} in {path}."
        )
    if not np.isfinite(array).all():
        bad = int((~np.isfinite(array)).sum())
        raise ImageError(
            f"Some pixels are not numbers. Expected: finite values, 0..255. "
            f"Received: {bad} NaN or infinite values in {path}."
        )
    if array.size == 0 or array.min() < 0 or array.max() > 255:
        span = f"{array.min()}..{array.max()}" if array.size else "no pixels"
        raise ImageError(
            f"These are not pixels of 8 bits. Expected: values in 0..255. "
            f"Received: {span} in {path}."
        )
    return np.round(array).astype("uint8")


def _looks(path):
    with path.open("rb") as file:
        start = file.read(16)
    if start.lstrip().lower().startswith((b"<!doc", b"<html", b"<?xml")):
        return "holds a web page, not a picture,"
    return f"starts with the bytes {start[:8].hex(' ')}"
