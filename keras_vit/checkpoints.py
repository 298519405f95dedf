"""Any published checkpoint in, and out again in any layout that can hold it."""

import os
import pathlib
import typing

import keras

from keras_vit.checks import did_you_mean
from keras_vit.layers.initializers import unfilled_weights
from keras_vit.nested_config import field_names
from keras_vit.resnet import ResNetV2
from keras_vit.resnet_config import ResNetConfig
from keras_vit.vit import ViT
from keras_vit.weights.assign import Report
from keras_vit.weights.assign import arrays
from keras_vit.weights.assign import ignored_names
from keras_vit.weights.assign import plan
from keras_vit.weights.describe import Reading
from keras_vit.weights.describe import describe
from keras_vit.weights.describe import stored_heads
from keras_vit.weights.detect import LAYOUTS
from keras_vit.weights.detect import count_blocks
from keras_vit.weights.detect import find_layout
from keras_vit.weights.facts import folder_facts
from keras_vit.weights.fill import fill
from keras_vit.weights.open_file import open_tensors
from keras_vit.weights.resnet_layouts import BITS
from keras_vit.weights.resnet_layouts import saving_layout
from keras_vit.weights.resnet_layouts import unnumbered
from keras_vit.weights.resnet_layouts import with_trunk
from keras_vit.weights.scan import unscan
from keras_vit.weights.transforms import rules_of
from keras_vit.weights.write import write_tensors

# What changes the loaded model rather than says what the file leaves out.
CHANGES = ("num_classes", "image_size", "patch_size")


def load_checkpoint(
    path: str | os.PathLike,
    dtype: typing.Any = None,
    labels: typing.Sequence[str] | None = None,
    **overrides: typing.Any,
) -> ViT | ResNetV2:
    """Returns a model with the weights and the numerics of a checkpoint.

    The layout and the architecture are read from the names and shapes in the
    file; heads, activation, epsilon and pixel statistics from the
    `config.json` beside it, from `overrides`, or else from the defaults of
    the family. `model.report` says what became of every tensor.

    Args:
        path: An npz, safetensors, `.pth` or `.h5` file (told by its content),
            or a folder of timm's or Hugging Face's with one.
        dtype: Dtype policy; float32 weights by default.
        labels: Class names; those of the folder by default.
        overrides: Fields of `ViTConfig` (of `ResNetConfig` for a BiT) or of
            its parts, by plain name. `image_size` is needed where the stored
            grid is not square; otherwise it, `num_classes` and `patch_size`
            change the loaded model as `with_config` does.

    Raises:
        ValueError: The file is damaged, of no known layout, holds a tensor
            that the layout does not know or lacks one, or does not say enough.

    Example:
    ```python
    model = keras_vit.ViT(keras_vit.vit_config("nano/4", image_size=28))
    keras_vit.save_checkpoint(model, "nano.safetensors", format="timm")
    same = keras_vit.load_checkpoint("nano.safetensors", num_heads=2)
    ```
    """
    with open_tensors(path) as tensors:
        reading = _reading(tensors)
        facts = folder_facts(_folder(path))
        config, changes = _config(reading, facts.fields, overrides)
        names = labels or facts.labels
        if names is not None and len(names) != config.num_classes:
            names = None
        resnet = isinstance(config, ResNetConfig)
        with unfilled_weights():
            model = (ResNetV2 if resnet else ViT)(config, names, dtype)
        _load(model, reading)
    if not changes:
        return model
    loaded, model = model, model.with_config(**changes)
    model.report = loaded.report.after(loaded, model)
    return model


def load_weights(model: ViT | ResNetV2, path: str | os.PathLike) -> Report:
    """Loads a checkpoint into a model of the same architecture.

    Args:
        model: A `ViT` or `ResNetV2`, whose config stays as it is.
        path: See `load_checkpoint`.

    Returns:
        What became of every tensor.

    Raises:
        ValueError: See `load_checkpoint`; a tensor of another shape, too.
    """
    with open_tensors(path) as tensors:
        return _load(model, _reading(tensors))


def load_parts(model, layout, prefix, tensors, config):
    """Loads the tensors that a layout names into any model of our layers.

    Args:
        model: A built model whose layers are called as the layout's rows.
        layout: A `Layout`.
        prefix: What stands before every name.
        tensors: Name to tensor; those that the layout does not know are not
            looked at.
        config: The config that says how positions are stored.
    """
    variables = {v.path: v for v in model.weights}
    shapes = {path: tuple(v.shape) for path, v in variables.items()}
    depth = sum(path.endswith("/norm_1/gamma") for path in variables)
    names = {
        prefix + name
        for rule in rules_of(layout, depth)
        for name in rule.theirs
    }
    some = {name: tensors[name] for name in tensors if name in names}
    reading = Reading(layout, prefix, some)
    for path, array in arrays(reading, plan(reading, shapes), shapes, config):
        fill(variables[path], array)


def save_checkpoint(
    model: ViT | ResNetV2,
    path: str | os.PathLike,
    format: str = "timm",
    prefix: str = "",
) -> None:
    """Writes the weights as another library reads them.

    Args:
        model: A `ViT` or `ResNetV2`.
        path: Where; `.npz` or `.safetensors`. Written whole or not at all.
        format: A name of `LAYOUTS`, such as `"timm"`, `"hf"`, `"google"`,
            `"big_vision"`, `"torchvision"`; of a BiT `"bit"`, `"bit_timm"`.
        prefix: Put before every name, such as `"params/"`.

    Raises:
        ValueError: An unknown format, or one that cannot hold this model; the
            variables without a name in it are listed.
    """
    if format not in LAYOUTS:
        raise ValueError(
            f"No such format. Expected: one of {', '.join(LAYOUTS)}. "
            f"Received: format={format!r}.{did_you_mean(format, LAYOUTS)}"
        )
    variables = {v.path: v for v in model.weights}
    depth, filled, out = model.config.depth, set(), {}
    layout = saving_layout(LAYOUTS[format], model.config.trunk.stages)
    for rule in rules_of(layout, depth):
        ours = set(rule.ours)
        if not ours <= variables.keys() or ours & filled:
            continue
        if rule.when and not rule.when(model.config):
            continue
        filled |= ours
        values = [_numpy(variables[path]) for path in rule.ours]
        for name, array in zip(
            rule.theirs, rule.save(values, model.config), strict=True
        ):
            full = name[1:] if name[0] == "^" else prefix + name
            out[full] = array
    left = sorted(variables.keys() - filled)
    if left:
        raise ValueError(
            f"This format cannot hold this model. Expected: a name for every "
            f"variable. Received: format={format!r} without one for "
            f"{', '.join(left[:10])}. Save with save_to_preset, which can."
        )
    write_tensors(pathlib.Path(path), out)


def _reading(tensors):
    tensors = unnumbered(unscan(tensors))
    layout, prefix = find_layout(tensors.keys())
    layout, trunk = with_trunk(layout, prefix, tensors)
    return Reading(layout, prefix, tensors, trunk)


def _config(reading, stored, overrides):
    """What the file is, and what is to be changed once it is loaded."""
    if reading.layout.name in BITS:
        changes = {k: v for k, v in overrides.items() if k == "num_classes"}
        fields = field_names(ResNetConfig)
        stored = {k: v for k, v in stored.items() if k in fields}
        said = {k: v for k, v in overrides.items() if k not in changes}
        return describe(reading, {**stored, **said}), changes
    known = {**stored, **overrides}
    changes = _changes(reading, overrides, known, stored)
    return describe(reading, known), changes


def _load(model, reading):
    variables = {v.path: v for v in model.weights}
    shapes = {path: tuple(v.shape) for path, v in variables.items()}
    _check_depth(model, reading)
    rules = plan(reading, shapes)
    for path, array in arrays(reading, rules, shapes, model.config):
        fill(variables[path], array)
    used = {name for rule in rules for name in rule.theirs}
    ignored, _ = ignored_names(reading, used)
    model.report = Report(
        reading.layout.name, reading.prefix, sorted(used), ignored
    )
    return model.report


def _check_depth(model, reading):
    resnet = reading.layout.name in BITS
    depth = (
        len(reading.trunk["stages"])
        if resnet
        else count_blocks(reading.layout, reading.prefix, reading.tensors)
    )
    if resnet != isinstance(model, ResNetV2) or depth != model.config.depth:
        raise ValueError(
            f"This file is of another model. Expected: a "
            f"{type(model).__name__} with {model.config.depth} "
            f"{model.repeated}s. Received: a {'ResNetV2' if resnet else 'ViT'} "
            f"with {depth}."
        )


def _changes(reading, overrides, known, stored):
    """Takes out of `known` what is to change the model after loading."""
    changes = {k: overrides[k] for k in CHANGES if k in overrides}
    for name in changes:
        known.pop(name)
        known |= {name: stored[name]} if name in stored else {}
    size = changes.get("image_size")
    if size is None or not _stored_at(reading, size):
        return changes
    known["image_size"] = changes.pop("image_size")
    return changes


def _stored_at(reading, size):
    """Whether the stored positions can be those of this image size."""
    try:
        heads = stored_heads(reading) or 1
        describe(reading, {"image_size": size, "num_heads": heads})
    except ValueError:
        return False
    return True


def _folder(path):
    path = pathlib.Path(path)
    return path if path.is_dir() else path.parent


def _numpy(variable):
    return keras.ops.convert_to_numpy(variable)
