"""ImageNet's class names, and its reassessed labels."""

import csv
import functools
import gzip
import io
import json
import typing

import numpy as np
from keras import ops

from keras_vit.presets import ASSETS

# Classes of a head -> the table of their names.
TABLES = {1000: "imagenet1k.tsv", 21843: "imagenet21k.tsv.gz"}


@functools.cache
def imagenet_labels(num_classes: int = 1000) -> tuple[str, ...]:
    """Returns the class names of ImageNet-1k or -21k, in order of their index.

    Args:
        num_classes: 1000, or 21843 for the whole of ImageNet in the order of
            Google's checkpoints (other libraries use other subsets).

    Raises:
        ValueError: Another number.
    """
    if num_classes not in TABLES:
        raise ValueError(
            f"No table of names has this length. Expected: one of "
            f"{', '.join(map(str, TABLES))}. Received: {num_classes}."
        )
    data = (ASSETS / TABLES[num_classes]).read_bytes()
    if TABLES[num_classes].endswith(".gz"):
        data = gzip.decompress(data)
    text = io.StringIO(data.decode("utf-8"))
    rows = csv.DictReader(text, delimiter="\t", quoting=csv.QUOTE_NONE)
    return tuple(row["name"] for row in rows)


def real_accuracy(predictions: typing.Any) -> float:
    """Returns the top-1 accuracy on the reassessed labels of ImageNet, 0 to 1.

    An image may have several right labels; the 3,163 that have none are left
    out.

    Args:
        predictions: `(50000, 1000)` scores or `(50000,)` class indices, in
            the order of the validation files `ILSVRC2012_val_00000001` on.

    Raises:
        ValueError: Another number of images or classes.

    References:
        - [Beyer et al., 2020](https://arxiv.org/abs/2006.07159)
    """
    scores = np.asarray(ops.convert_to_numpy(predictions))
    labels = _real_labels()
    if scores.shape not in ((len(labels),), (len(labels), 1000)):
        raise ValueError(
            f"These are not predictions for ImageNet's validation images. "
            f"Expected: shape ({len(labels)}, 1000) or ({len(labels)},). "
            f"Received: {scores.shape}."
        )
    best = scores if scores.ndim == 1 else scores.argmax(-1)
    pairs = zip(best, labels, strict=True)
    return float(np.mean([b in right for b, right in pairs if right]))


@functools.cache
def _real_labels():
    data = (ASSETS / "imagenet_real_labels.json.gz").read_bytes()
    return json.loads(gzip.decompress(data))
