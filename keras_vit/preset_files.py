"""A preset on disk: a directory with a config, weights and labels."""

import collections
import contextlib
import json
import os
import pathlib
import re
import tempfile
import typing

from keras_vit.version import __version__

FORMAT = 1
CONFIG = "config.json"
WEIGHTS = "model.weights.h5"
LABELS = "labels.json"
KEYS = {"format": int, "class": str, "model": dict, "bytes": dict}


def write_preset(
    directory: str | os.PathLike,
    kind: str,
    config: dict,
    save_weights: typing.Callable[[str], None],
) -> None:
    """Writes a preset directory, whole or not at all.

    Args:
        directory: Where; missing parents are made, an earlier preset there is
            replaced.
        kind: Class name of the model.
        config: Its `get_config()`.
        save_weights: Writes the weights to the path that it is given.

    Raises:
        ValueError: `directory` holds something that is not a preset.
    """
    target = pathlib.Path(directory).absolute()
    _check_replaceable(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=f".{target.name}.", dir=target.parent
    ) as scratch:
        new = pathlib.Path(scratch) / "new"
        new.mkdir()
        save_weights(str(new / WEIGHTS))
        config = dict(config)
        labels = config.pop("labels", None)
        if labels is not None:
            _write_json(new / LABELS, list(labels))
        facts = {
            "format": FORMAT,
            "keras_vit": __version__,
            "class": kind,
            "model": config,
            "bytes": {
                path.name: path.stat().st_size for path in sorted(new.iterdir())
            },
        }
        _write_json(new / CONFIG, facts)
        _replace(target, new, pathlib.Path(scratch) / "old")


def read_preset(
    directory: str | os.PathLike, kind: str
) -> tuple[dict, pathlib.Path]:
    """Returns the `get_config()` and the weight file of a preset directory.

    Raises:
        ValueError: A file is missing, cut short or not what it should be, or
            a newer version wrote it. The message names the file.
    """
    directory = pathlib.Path(directory)
    facts = _read_facts(directory)
    if facts["format"] > FORMAT:
        raise ValueError(
            f"A newer version of keras_vit wrote this preset. Expected: format "
            f"{FORMAT} or older. Received: format {facts['format']} of "
            f"keras_vit {facts.get('keras_vit')} in {directory}. Upgrade with "
            f"`pip install -U keras-vit-garden`."
        )
    if facts["class"] != kind:
        raise ValueError(
            f"This preset is of another class. Expected: {kind}. Received: "
            f"{facts['class']} in {directory}. Call "
            f"{facts['class']}.from_preset."
        )
    for name, size in facts["bytes"].items():
        _check_size(directory / name, size)
    config = dict(facts["model"])
    if LABELS in facts["bytes"]:
        config["labels"] = _read_json(directory / LABELS)
    return config, directory / WEIGHTS


def load_h5(model: typing.Any, path: pathlib.Path) -> None:
    """`model.load_weights(path)`, with an error that names the file."""
    try:
        model.load_weights(str(path))
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(
            f"Cannot read the weights. Expected: an intact HDF5 file for this "
            f"model. Received: {path}, which fails with: {error} Copy or "
            f"save the preset again."
        ) from error


def check_shapes(model: typing.Any, path: str | os.PathLike) -> None:
    """Raises if a `.weights.h5` file is of another image size or head.

    Keras would name an object, not the weight, and print its values.
    """
    if not str(path).endswith(".h5") or not os.path.isfile(path):
        return
    import h5py

    with h5py.File(path) as file:
        for name, variable in _adaptable(model):
            stored = file.get(f"layers/{name}")
            if not isinstance(stored, h5py.Dataset):
                continue
            if stored.shape != tuple(variable.shape):
                _refuse(variable, stored.shape, path)


# First part of a weight's path -> what to do about another shape.
ADAPT = {
    "position_embedding": "with_image_size",
    "relative_position": "with_image_size",
    "patch_embedding": "with_config(patch_size=..., image_size=...)",
    "head": "with_num_classes",
}


def _adaptable(model):
    """Name in the file and variable, of the layers that can be adapted."""
    count = collections.Counter()
    for layer in model.layers:
        # Keras' rule: the class in snake case, numbered from the second on.
        kind = re.sub(r"(?<!^)(?=[A-Z])", "_", type(layer).__name__).lower()
        group = f"{kind}_{count[kind]}" if count[kind] else kind
        count[kind] += 1
        if layer.name.startswith(tuple(ADAPT)) and not model.quantization:
            for i, variable in enumerate(layer.weights):
                yield f"{group}/vars/{i}", variable


def _refuse(variable, old, path):
    advice = next(v for k, v in ADAPT.items() if variable.path.startswith(k))
    new = tuple(variable.shape)
    grids = ""
    if variable.path == "position_embedding/grid":
        grids = f" ({old[1]}x{old[2]} -> {new[1]}x{new[2]} patches)"
    raise ValueError(
        f"These weights are of a model of another shape. Expected: {new} for "
        f"{variable.path}. Received: {old}{grids} in {path}. Load them into a "
        f"model of the config that they were trained with, then call "
        f"`model.{advice}`, which returns a model of the new one."
    )


def _replace(target, new, old):
    """Puts `new` in the place of `target`, which comes back if that fails."""
    if not target.exists():
        new.rename(target)
        return
    target.rename(old)
    try:
        new.rename(target)
    except OSError:
        old.rename(target)
        raise


def _check_replaceable(target):
    if not target.exists():
        return
    if not target.is_dir():
        raise ValueError(
            f"A preset is a directory. Expected: a new path or a preset "
            f"directory. Received: the file {target}."
        )
    strangers = {p.name for p in target.iterdir()} - {CONFIG, WEIGHTS, LABELS}
    if strangers:
        raise ValueError(
            f"Will not replace a directory that holds something else. "
            f"Expected: a new path, an empty directory or a preset. Received: "
            f"{target} with {', '.join(sorted(strangers)[:5])}."
        )
    if not any(target.iterdir()):
        return
    try:
        # A config.json and weights of that name may be another library's.
        _read_facts(target)
    except ValueError as error:
        raise ValueError(
            f"Will not replace what may be somebody else's. Expected: a new "
            f"path, an empty directory or a whole preset. Received: {target}. "
            f"{error} Delete the directory or choose another."
        ) from error


def _read_facts(directory):
    facts = _read_json(directory / CONFIG)
    keys = facts if isinstance(facts, dict) else {}
    wrong = [k for k, kind in KEYS.items() if not isinstance(keys.get(k), kind)]
    if wrong or "config" not in keys["model"]:
        raise ValueError(
            f"Not a keras_vit preset. Expected: {CONFIG} with the keys "
            f"{', '.join(KEYS)}. Received: {directory / CONFIG} without "
            f"{', '.join(wrong) or 'a config in model'}. For a checkpoint of "
            f"another library call keras_vit.load_checkpoint."
        )
    return facts


def _check_size(path, size):
    found = path.stat().st_size if path.is_file() else None
    if found != size:
        state = "no such file" if found is None else f"{found} bytes"
        raise ValueError(
            f"This preset is not whole. Expected: {path} with {size} bytes. "
            f"Received: {state}. Copy or save the preset again."
        )


def _write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _read_json(path):
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(
                f"Cannot read {path.name}. Expected: whole JSON. Received: "
                f"{path}, which fails with: {error}. Copy or save the preset "
                f"again."
            ) from error
    raise ValueError(
        f"This preset is not whole. Expected: a directory with {CONFIG} and "
        f"{WEIGHTS}. Received: {path.parent} without {path.name}. "
        f"Copy or save the preset again."
    )
