"""The paper's few-shot evaluation: least squares in closed form."""

import numpy as np

from keras_vit.evaluation.features import features_of

BIAS = 100.0  # a feature of its own, so large that its penalty is nothing
STD_OFFSET = 1e-5


def few_shot(
    model, train, test, shots=(1, 5, 10, 25), l2=2.0**10, seeds=3, **options
):
    """Returns the accuracy of a linear classifier of a few images per class.

    Frozen features of `shots` images of each class, scaled to mean 0 and
    deviation 1 (plus 1e-5) over those, with a bias feature of 100, are mapped
    to targets of +1 and -1 by ridge regression, which has a closed form.

    Args:
        model: A `ViT` or `ResNetV2`, or `None` where train and test hold
            features already.
        train: `(images, labels)`, labels ints from 0; or `(features,
            labels)` with features `(n, channels)`.
        test: The same, of other images.
        shots: Images per class.
        l2: Float, the penalty: 1024 in big_vision's code.
        seeds: Int, draws of the images; their accuracies are averaged.
        options: `name` and `batch_size` of `features_of`.

    Returns:
        `{shots: accuracy}`, 0..1.

    Raises:
        ValueError: A class has fewer images than `shots`.

    References:
        - [Dosovitskiy et al., 2021](https://arxiv.org/abs/2010.11929),
          section 4.1, "Metrics"

    Example:
    ```python
    model = keras_vit.ViT.from_preset("vit_nano_fashion_mnist", num_classes=0)
    images = keras_vit.load_images(keras_vit.sample_images(), model)
    labels = np.arange(10)
    keras_vit.few_shot(model, (images, labels), (images, labels), shots=(1,))
    ```
    """
    parts = [
        (features_of(model, images, **options), np.asarray(labels))
        for images, labels in (train, test)
    ]
    found = few_shot_accuracy(*parts, shots, (l2,), range(seeds))
    return dict(zip(shots, map(float, found.mean(axis=0)[:, 0]), strict=True))


def few_shot_accuracy(train, test, shots, l2, seeds):
    """Returns the accuracy for each seed, number of shots and penalty.

    Args:
        train: `(features, labels)`, `(n, channels)` and `(n,)`.
        test: The same.
        shots: Images per class.
        l2: Penalties.
        seeds: Of the draws: `default_rng(seed)`, for each class in order a
            permutation of its images, of which the first are taken.

    Returns:
        Float array `(seeds, shots, l2)`.
    """
    accuracy = np.empty((len(seeds), len(shots), len(l2)))
    for i, seed in enumerate(seeds):
        for j, count in enumerate(shots):
            chosen = choose_shots(train[1], count, seed)
            x, y = train[0][chosen], train[1][chosen]
            for k, penalty in enumerate(l2):
                scores = ridge_scores(x, y, test[0], penalty)
                accuracy[i, j, k] = (scores.argmax(axis=1) == test[1]).mean()
    return accuracy


def choose_shots(labels, shots, seed):
    """Returns the indices of `shots` images of each class, class by class."""
    rng = np.random.default_rng(seed)
    chosen = []
    for label in range(labels.max() + 1):
        places = np.flatnonzero(labels == label)
        if len(places) < shots:
            raise ValueError(
                f"A class has too few images. Expected: at least {shots} "
                f"shots. Received: {len(places)} images of class {label}."
            )
        chosen.append(rng.permutation(places)[:shots])
    return np.concatenate(chosen)


def ridge_scores(x, y, x_test, l2):
    """Returns the scores of a ridge regression from features to classes.

    Args:
        x: `(n, channels)`.
        y: `(n,)` ints from 0.
        x_test: `(m, channels)`.
        l2: Float, the penalty.

    Returns:
        Float64 array `(m, classes)`.
    """
    x, x_test = (np.asarray(part, "float64") for part in (x, x_test))
    mean, std = x.mean(axis=0), x.std(axis=0) + STD_OFFSET
    x, x_test = (_with_bias((part - mean) / std) for part in (x, x_test))
    targets = 2.0 * np.eye(y.max() + 1)[y] - 1.0
    count, channels = x.shape
    if count >= channels:
        gram = x.T @ x + l2 * np.eye(channels)
        return x_test @ np.linalg.solve(gram, x.T @ targets)
    # The same weights from the smaller system of equations.
    gram = x @ x.T + l2 * np.eye(count)
    return x_test @ (x.T @ np.linalg.solve(gram, targets))


def _with_bias(x):
    return np.pad(x, ((0, 0), (0, 1)), constant_values=BIAS)
