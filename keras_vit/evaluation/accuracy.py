"""Accuracy of a classifier on labelled images."""

import numpy as np

from keras_vit.evaluation.answers import answers
from keras_vit.pixels import load_images


def accuracy(model, images, batch_size=64, on_error="raise"):
    """Returns how often a model is right.

    Images are resized and cropped as the checkpoint was evaluated.

    Args:
        model: A `ViT` or `ResNetV2` with a head.
        images: `data.LabelledImages`, whose labels are the model's classes.
        batch_size: Int.
        on_error: `"raise"`, or `"skip"` to leave out unreadable files.

    Returns:
        `{"top_1": ..., "top_5": ..., "images": n}`, accuracies 0..1; without
        `"top_5"` for fewer than 6 classes.

    Raises:
        ValueError: The model has fewer classes than the labels, or no image
            can be read.

    Example:
    ```python
    model = keras_vit.ViT.from_preset("vit_nano_fashion_mnist")
    pixels = keras_vit.load_images(keras_vit.sample_images(), model)
    images = keras_vit.data.LabelledImages(pixels, np.arange(10), model.labels)
    keras_vit.accuracy(model, images)["images"]  # 10
    ```
    """
    classes = model.config.num_classes
    if len(images) and images.labels.max() >= classes:
        raise ValueError(
            f"The model does not know these classes. Expected: labels 0 to "
            f"{classes - 1}. Received: {images.labels.max()}."
        )
    right = {k: 0 for k in (1, 5) if k < classes}
    seen = 0
    for start in range(0, len(images), batch_size):
        part = images.subset(slice(start, start + batch_size))
        found, labels = _read(model, part, on_error)
        if not len(found):
            continue
        logits = answers(model, found, batch_size)
        best = np.argsort(-logits, axis=1)
        for k in right:
            right[k] += (best[:, :k] == labels[:, None]).any(axis=1).sum()
        seen += len(labels)
    if not seen:
        raise ValueError(
            f"There is nothing to measure. Expected: at least one image that "
            f"can be read. Received: {len(images)} images, none of them."
        )
    found = {f"top_{k}": float(n / seen) for k, n in right.items()}
    return {**found, "images": seen}


def _read(model, part, on_error):
    if on_error == "raise":
        return load_images(list(part.images), model), part.labels
    pixels, labels = [], []
    for item, label in zip(part.images, part.labels, strict=True):
        try:
            pixels.append(load_images([item], model)[0])
        except ValueError:
            continue
        labels.append(label)
    return np.array(pixels), np.array(labels)
