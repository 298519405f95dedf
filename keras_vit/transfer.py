"""Weights from one model into another of a different size."""

import logging

import keras
import numpy as np

from keras_vit.layers.initializers import unfilled_weights
from keras_vit.resampling import resample
from keras_vit.resampling import resize_patch_kernel

logger = logging.getLogger("keras_vit")


def rebuilt(source, config, **options):
    """Returns a new model of `config` with the weights of `source`.

    Args:
        source: A built model.
        config: Of the new model.
        options: Other arguments of the class of `source`.

    Raises:
        ValueError: See `copy_weights`.
    """
    with unfilled_weights():
        target = type(source)(config, name=source.name, **options)
    copy_weights(source, target)
    return target


def copy_weights(source, target):
    """Copies every weight of `target` from the one of that name in `source`.

    Equal shapes are copied bit by bit; positions and patch kernels are
    resampled, heads of another class count left as they were made. One INFO
    line each on the logger `keras_vit` for what is not a plain copy.

    Args:
        source: A built model.
        target: A built model of the same class, with its `config`.

    Raises:
        ValueError: `target` has a weight that `source` cannot give, or
            `source` is quantised.
    """
    if source.quantization:
        raise ValueError(
            f"A quantised model cannot change. Expected: float weights. "
            f"Received: a model quantised to {source.quantization}. Change it "
            f"first, then call `quantize`."
        )
    values = _values(source)
    fresh = []
    for variable in target.weights:
        value = values.get(variable.path)
        if _is_head(variable.path):
            if value is not None and value.shape == variable.shape:
                variable.assign(_copy(value))
            else:
                _log_head(variable, value)
        elif value is None:
            fresh.append(variable.path)
        elif value.shape == variable.shape:
            variable.assign(_copy(value))
        else:
            variable.assign(_resized(variable, value, target.config))
    if fresh:
        raise ValueError(
            f"This change needs weights that the model lacks. Expected: every "
            f"weight outside the head in the source. Missing: "
            f"{', '.join(fresh[:10])}. Build a new model with "
            f"keras_vit.ViT(config) to start from scratch."
        )


def add_lora(model, rank, targets):
    """Freezes all of `model` but the head and low-rank updates of kernels."""
    for layer in model.layers:
        if layer.name not in ("head", "head_distillation"):
            layer.trainable = False
    for block in model.blocks():
        block.trainable = True
        parts = list(block._flatten_layers(include_self=False))
        for part in parts:
            part.trainable = part.name in (*targets, "attention", "mlp")
        for part in (p for p in parts if p.name in targets):
            part.enable_lora(rank)
            if part.bias is not None:
                part.bias.trainable = False


def frozen_layers(model):
    """Returns the paths of layers that do not train in a model that does."""
    if not model.trainable:
        return []
    layers = model._flatten_layers(include_self=False)
    return [x.path for x in layers if x.path and not x.trainable]


def freeze_layers(model, paths):
    """The inverse of `frozen_layers`, for a model where every layer trains."""
    for layer in model._flatten_layers(include_self=False) if paths else ():
        # Parents come first, and setting one sets all that is in it.
        if layer.path and layer.trainable == (layer.path in paths):
            layer.trainable = not layer.trainable


def _values(model):
    """Path to weight; low-rank updates are added to their kernels."""
    values = {v.path: v for v in model.weights}
    for layer in model._flatten_layers():
        if getattr(layer, "lora_enabled", False):
            values[f"{layer.path}/kernel"] = layer.kernel
    return values


def _copy(value):
    # A buffer of its own: JAX gives a model's buffers away in `fit`.
    return np.array(keras.ops.convert_to_numpy(value))


def _is_head(path):
    return path.split("/")[0] in ("head", "head_distillation")


def _log_head(variable, value):
    old = "none" if value is None else tuple(value.shape)
    logger.info("%s: new, %s -> %s", variable.path, old, tuple(variable.shape))


def _resized(variable, value, config):
    """`value` as an array of the shape of `variable`, by its path's rule."""
    name = variable.path.split("/")[-1]
    layer = variable.path.split("/")[0]
    array = _copy(value).astype("float32")
    rule = config.tokens.resampling
    old, new = array.shape, tuple(variable.shape)
    if layer == "patch_embedding" and name == "kernel" and old[2:] == new[2:]:
        array = resize_patch_kernel(array, new[:2])
        logger.info("patch kernel %s -> %s", _by(old), _by(new))
    elif layer == "position_embedding" and name == "grid":
        array = resample(array, new[1:3], rule)
        logger.info("positions %s -> %s (%s)", _by(old[1:]), _by(new[1:]), rule)
    elif layer == "position_embedding" and name in ("rows", "columns"):
        array = resample(array[:, None], (new[0], 1), rule)[:, 0]
        logger.info("positions %d -> %d %s (%s)", old[0], new[0], name, rule)
    elif name == "table" and old[2:] == new[2:]:
        array = resample(array, new[:2], rule)
        logger.info("offsets %s -> %s (%s)", _by(old), _by(new), rule)
    if array.shape != new:
        raise ValueError(
            f"Cannot fit a weight to another shape. Expected: {new} for "
            f"{variable.path}. Received: {old}. Only positions, patch kernels "
            f"and heads can change; build a new model for the rest."
        )
    return array


def _by(shape):
    return f"{shape[0]}x{shape[1]}"
