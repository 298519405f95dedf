"""Classification by the nearest training images."""

import numpy as np

from keras_vit.checks import check_at_least
from keras_vit.evaluation.features import features_of

AT_ONCE = 1024  # test images


def knn(model, train, test, k=20, temperature=0.07, **options):
    """Returns the accuracy of a vote among the nearest training images.

    Nearest by cosine similarity; each of the `k` votes with a weight of
    `exp(similarity / temperature)`.

    Args:
        model: A `ViT` or `ResNetV2`, or `None` where train and test hold
            features already.
        train: `(images, labels)`, labels ints from 0; or `(features,
            labels)` with features `(n, channels)`.
        test: The same, of other images.
        k: Int, how many vote; 10 or 20 for DINO.
        temperature: Float.
        options: `name` and `batch_size` of `features_of`.

    Returns:
        Float, 0..1.

    Raises:
        ValueError: There are fewer than `k` training images.

    References:
        - [Wu et al., 2018](https://arxiv.org/abs/1805.01978), section 3.4
        - [Caron et al., 2021](https://arxiv.org/abs/2104.14294), section 4.1
    """
    (x, y), (x_test, y_test) = (
        (_directions(features_of(model, images, **options)), np.asarray(labels))
        for images, labels in (train, test)
    )
    check_at_least("k", k, 1)
    if len(x) < k:
        raise ValueError(
            f"There are too few images to vote. Expected: at least k={k}. "
            f"Received: {len(x)}."
        )
    votes = np.eye(y.max() + 1)[y]
    right = 0
    for start in range(0, len(x_test), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        alike = x_test[part] @ x.T
        near = np.argpartition(-alike, k - 1, axis=1)[:, :k]
        nearest = np.take_along_axis(alike, near, 1)
        # The largest weight is 1: a low temperature would overflow.
        nearest = nearest - nearest.max(axis=1, keepdims=True)
        weights = np.exp(nearest / temperature)
        scores = np.einsum("nk,nkc->nc", weights, votes[near])
        right += (scores.argmax(axis=1) == y_test[part]).sum()
    return float(right / len(x_test))


def _directions(features):
    length = np.linalg.norm(features, axis=1, keepdims=True)
    return features / np.maximum(length, 1e-12)
