"""Image files decoded once, for as many epochs as one likes."""

import concurrent.futures
import functools
import logging

import keras
import numpy as np

from keras_vit.checks import check_choice
from keras_vit.data.batches import WORKERS
from keras_vit.data.sources import LabelledImages
from keras_vit.image_files import ImageError
from keras_vit.pixels import read_image

logger = logging.getLogger("keras_vit")


def decode(
    images: LabelledImages, on_error: str = "raise", verbose: int = 1
) -> LabelledImages:
    """Returns the images in memory, so that no epoch decodes them again.

    Batches of them are the same ones. It takes three bytes per pixel: 0.5 MB
    for a photograph of 500 x 333 pixels.

    Args:
        images: `LabelledImages`, of files.
        on_error: `"raise"`, or `"skip"` to leave out what cannot be read,
            with a warning in the log for each.
        verbose: 1 for a progress bar, 0 for none.

    Raises:
        ImageError: A file cannot be read.

    Example:
    ```python
    paths = keras_vit.sample_images()
    images = keras_vit.data.LabelledImages(paths, np.zeros(10, int), ("a",))
    images = keras_vit.data.decode(images, verbose=0)
    images.images[0].shape  # (28, 28, 3)
    ```
    """
    check_choice("on_error", on_error, ("raise", "skip"))
    bar = keras.utils.Progbar(len(images), verbose=verbose, unit_name="image")
    found, good = [], []
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        one = functools.partial(_read, skip=on_error == "skip")
        for i, pixels in enumerate(pool.map(one, images.images)):
            bar.update(i + 1)
            if pixels is not None:
                found.append(pixels)
                good.append(i)
    if len({pixels.shape for pixels in found}) == 1:
        found = np.stack(found)
    return LabelledImages(found, images.labels[good], images.names)


def _read(item, skip):
    try:
        return read_image(item)
    except ImageError as error:
        if not skip:
            raise
        logger.warning("left out: %s", error)
        return None
