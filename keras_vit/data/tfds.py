"""Data sets of tensorflow-datasets by name."""

import typing

import numpy as np

from keras_vit.data.sources import LabelledImages
from keras_vit.devices.beside import tensorflow_beside


def load_tfds(
    name: str, split: str = "train", data_dir: str | None = None
) -> LabelledImages:
    """Returns a split of a data set, its images in memory.

    Args:
        name: Of tensorflow-datasets, such as `"cifar100"`; images of one size
            become an array, those of many a list of arrays.
        split: Any that tensorflow-datasets knows.
        data_dir: Where it looks first; a prepared copy there needs no network.

    Raises:
        ImportError: tensorflow-datasets is not installed.
        ValueError: The data set has no labelled images.
    """
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise ImportError(
            "Data sets by name need tensorflow-datasets. Expected: it to be "
            "installed. Received: no such package. Run "
            "`pip install 'keras-vit-garden[recipes]'`, or use a folder of "
            "class folders."
        ) from error
    tensorflow_beside()
    data, info = tfds.load(name, split=split, data_dir=data_dir, with_info=True)
    if not {"image", "label"} <= set(info.features or ()):
        raise ValueError(
            f"This data set is not one of labelled images. Expected: features "
            f"'image' and 'label'. Received: {name} with "
            f"{', '.join(info.features or ())}."
        )
    images, labels = [], []
    for row in tfds.as_numpy(data):
        images.append(_as_rgb(row["image"]))
        labels.append(row["label"])
    found: typing.Any = images
    if len({image.shape for image in images}) == 1:
        found = np.stack(images)
    names = tuple(info.features["label"].names)
    return LabelledImages(found, np.array(labels, "int32"), names)


def _as_rgb(image):
    return np.repeat(image, 3, axis=-1) if image.shape[-1] == 1 else image
