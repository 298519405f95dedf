"""From class scores to names."""

import typing
import warnings

import numpy as np
from keras import ops

from keras_vit.checks import check_at_least


def top_labels(
    logits: typing.Any, model: typing.Any, k: int = 5
) -> list[list[tuple[str, float]]]:
    """Returns the `k` most probable labels of each image, best first.

    Args:
        logits: `(batch, classes)` or `(classes,)`, not probabilities. Minus
            infinity rules a class out.
        model: A model with `labels`, or a sequence of class names. Where
            there are no names, `"class 12"` stands for the 13th class.
        k: Int, at least 1; at most all classes are given.

    Returns:
        Per image a list of `(label, probability)`.

    Raises:
        ValueError: Names and scores differ in number, or a score is NaN.
        TypeError: `model` is neither a model nor a sequence of names.

    Example:
    ```python
    keras_vit.top_labels([[0.0, 2.0]], ["cat", "dog"], k=1)
    # [[("dog", 0.8807970779778823)]]
    ```
    """
    check_at_least("k", k, 1)
    scores = _scores(logits)
    labels = _labels(model, scores.shape[1])
    probabilities = softmax(scores)
    order = np.argsort(-probabilities, axis=-1, kind="stable")[:, :k]
    return [
        [(labels[i], float(row[i])) for i in best]
        for row, best in zip(probabilities, order, strict=True)
    ]


def softmax(logits: np.ndarray) -> np.ndarray:
    """Returns probabilities, float64, of the shape of `logits`."""
    logits = np.asarray(logits, "float64")
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def _scores(logits):
    """Checked logits: float64, `(batch, classes)`."""
    if not isinstance(logits, list | tuple):
        logits = ops.convert_to_numpy(logits)
    scores = np.atleast_2d(np.asarray(logits, "float64"))
    if scores.ndim != 2 or scores.shape[1] == 0:
        raise ValueError(
            f"These are not class scores. Expected: logits of shape (batch, "
            f"classes). Received: shape {scores.shape}. `model.predict` "
            f"gives them."
        )
    bad = int((np.isnan(scores) | (scores == np.inf)).sum())
    if bad or np.isneginf(scores).all(axis=1).any():
        bad = bad or int(np.isneginf(scores).sum())
        raise ValueError(
            f"Some class scores are not numbers. Expected: finite logits. "
            f"Received: {bad} NaN or infinite ones of {scores.size}. Look for "
            f"NaN in the images and the weights."
        )
    if scores.shape[1] > 1 and len(scores) and not _differ(scores):
        warnings.warn(
            f"This head is not trained. Expected: scores that differ. "
            f"Received: the same for all {scores.shape[1]} classes. Train the "
            f"head, or load a preset that has one.",
            UserWarning,
            stacklevel=3,
        )
    return scores


def _differ(scores):
    return (scores.min(axis=1) < scores.max(axis=1)).any()


def _labels(model, classes):
    _refuse_features(model, classes)
    labels = getattr(model, "labels", model)
    if labels is None:
        return [f"class {i}" for i in range(classes)]
    if isinstance(labels, str) or not hasattr(labels, "__len__"):
        raise TypeError(
            f"Cannot name the classes. Expected: a model, a sequence of names "
            f"or None. Received: {model!r}. For a preset, pass "
            f"keras_vit.ViT.from_preset(name)."
        )
    labels = list(labels)
    if len(labels) != classes:
        raise ValueError(
            f"These names are not for these scores. Expected: one label per "
            f"class, {classes}. Received: {len(labels)} labels. Class lists "
            f"of one data set differ in length and order between libraries: "
            f"pass the names that came with the checkpoint."
        )
    return labels


def _refuse_features(model, classes):
    head = getattr(getattr(model, "config", None), "head", None)
    if head is not None and head.num_classes != classes:
        raise ValueError(
            f"These scores are not from this model. Expected: "
            f"{head.num_classes} classes per image. Received: {classes} "
            f"values. With num_classes=0 a model gives features, not scores."
        )
