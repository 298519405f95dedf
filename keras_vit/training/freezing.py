"""Freezing layers of a model, before and after it was compiled."""

import fnmatch

from keras_vit.checks import did_you_mean

HEADS = ("head", "head_distillation")


def freeze(model, layers="backbone"):
    """Freezes layers by name; all others train.

    A model that was compiled is compiled again with the same loss, metrics
    and a fresh optimizer of the same settings: each backend keeps the
    variables that it trains from before, and would train on, or fail.

    Args:
        model: A built `keras.Model`.
        layers: `"backbone"` for all but the head, `()` for none, or names and
            patterns: `["patch_embedding", "block_[0-5]"]`.

    Returns:
        The number of weights that train now.

    Raises:
        ValueError: A pattern fits no layer.

    Example:
    ```python
    model = keras_vit.ViT.from_preset("vit_nano_fashion_mnist", num_classes=3)
    keras_vit.freeze(model)  # 195: the head
    ```
    """
    names = [layer.name for layer in model.layers]
    frozen = _matched(names, layers)
    model.trainable = True
    for layer in model.layers:
        layer.trainable = layer.name not in frozen
    if model.compiled:
        model.compile_from_config(model.get_compile_config())
    return sum(_size(v) for v in model.trainable_variables)


def _matched(names, layers):
    if layers == "backbone":
        return {name for name in names if name not in HEADS}
    patterns = [layers] if isinstance(layers, str) else list(layers)
    frozen = set()
    for pattern in patterns:
        found = fnmatch.filter(names, pattern)
        if not found:
            raise ValueError(
                f"This pattern fits no layer. Expected: 'backbone' or one of "
                f"{', '.join(names)}. Received: {pattern!r}."
                f"{did_you_mean(pattern, names)}"
            )
        frozen.update(found)
    return frozen


def _size(variable):
    size = 1
    for n in variable.shape:
        size *= n
    return size
