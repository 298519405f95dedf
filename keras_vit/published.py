"""Published checkpoints by name or address: fetched, loaded, checked."""

import functools
import logging
import os
import pathlib
import typing

from keras_vit.checkpoints import CHANGES
from keras_vit.checkpoints import load_checkpoint
from keras_vit.checks import check_labels
from keras_vit.config import ViTConfig
from keras_vit.fetching import fetch
from keras_vit.imagenet import TABLES
from keras_vit.imagenet import imagenet_labels
from keras_vit.presets import AUGREG
from keras_vit.presets import Preset
from keras_vit.presets import find_preset

logger = logging.getLogger("keras_vit")

ADDRESSES = ("gs://", "hf://", "timm/", "https://", "http://")
# What no file says and the catalogue therefore has to.
UNSAID = ("activation", "epsilon", "resampling")

# What a name stands for, and no other file may have under it.
IDENTITY = (
    "depth",
    "width",
    "mlp_dim",
    "num_heads",
    "class_token",
    "distillation_token",
    "num_registers",
    "stages",
    "trunk_width",
    "unit",
)


def load_published(
    preset: str | os.PathLike,
    dtype: typing.Any = None,
    labels: typing.Sequence[str] | None = None,
    **overrides: typing.Any,
) -> typing.Any:
    """Returns the model of a name, an address or another library's folder.

    Args:
        preset: See `ViT.from_preset`.
        dtype: Dtype policy.
        labels: Class names; those of the checkpoint by default.
        overrides: Fields of the config, by plain name.

    Raises:
        ValueError: An unknown name, a damaged file, or one that is not what
            the catalogue says.
        OSError: The file cannot be fetched.
    """
    name = os.fspath(preset)
    if pathlib.Path(name).expanduser().is_dir():
        path = pathlib.Path(name).expanduser()
        return load_checkpoint(path, dtype, labels, **overrides)
    if name.startswith(ADDRESSES) and not name.startswith(AUGREG):
        return load_checkpoint(fetch(name), dtype, labels, **overrides)
    row = find_preset(name)
    _say_licence(row.license, row.commercial)
    return _load_row(row, fetch(row.source), dtype, labels, overrides)


def _load_row(row: Preset, path, dtype, labels, overrides):
    config = row.config
    # Not the defaults but for pixels, on which the stated accuracy depends:
    # where the row is silent, the layout has its own.
    facts = {k: v for k, v in row.fields.items() if k in UNSAID}
    facts |= vars(config.pixels)
    if isinstance(config, ViTConfig):
        facts["num_heads"] = config.num_heads
    changes = {k: overrides.pop(k) for k in CHANGES if k in overrides}
    model = load_checkpoint(path, dtype, **{**facts, **overrides})
    _check(row, config, model.config)
    # FlexiViT's files hold a larger patch than the one that is published.
    for name in ("patch_size", "image_size"):
        ours, theirs = _plain(config).get(name), _plain(model.config).get(name)
        if ours != theirs and name not in changes:
            changes[name] = ours
    classes = model.config.num_classes
    if labels is None and model.labels is None and classes in TABLES:
        model.labels = imagenet_labels(classes)
    if changes:
        loaded, model = model, model.with_config(**changes)
        model.report = loaded.report.after(loaded, model)
    if labels is not None:
        check_labels(labels, model.config.num_classes)
        model.labels = tuple(labels)
    return model


def _plain(config):
    """Fields of a config and of its parts by plain name."""
    fields = {}
    for name, value in vars(config).items():
        fields |= vars(value) if hasattr(value, "__dict__") else {name: value}
    return fields


def _check(row, config, found):
    """The file against the catalogue, in what a name stands for."""
    expected_of, received_of = _plain(config), _plain(found)
    for name in IDENTITY:
        expected = expected_of.get(name)
        received = received_of.get(name)
        if expected != received:
            raise ValueError(
                f"The file is not the one that the catalogue describes. "
                f"Expected: {name}={expected} for {row.name}. Received: "
                f"{name}={received} in {row.source}. Load it by "
                f"keras_vit.load_checkpoint if it is the right one."
            )


@functools.cache
def _say_licence(license, commercial):
    """Once for each licence, not at every load."""
    if not commercial:
        logger.warning(
            "These weights are for non-commercial use only: %s.", license
        )
