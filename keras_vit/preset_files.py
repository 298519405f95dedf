"""A preset on disk: a directory with a config, weights and labels."""

import contextlib
import json
import os
import pathlib
import tempfile
import typing

from keras_vit.version import __version__

FORMAT = 1
CONFIG = "config.json"
WEIGHTS = "model.weights.h5"
LABELS = "labels.json"


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
        if target.exists():
            target.rename(pathlib.Path(scratch) / "old")
        new.rename(target)


def read_preset(
    directory: str | os.PathLike, kind: str
) -> tuple[dict, pathlib.Path]:
    """Returns the `get_config()` and the weight file of a preset directory.

    Raises:
        ValueError: A file is missing, cut short or not what it should be, or
            a newer version wrote it. The message names the file.
    """
    directory = pathlib.Path(directory)
    facts = _read_json(directory / CONFIG)
    if not isinstance(facts, dict) or "model" not in facts:
        raise ValueError(
            f"Not a keras_vit preset. Expected: {CONFIG} with the keys format, "
            f"class and model. Received: {directory / CONFIG} without them."
        )
    if facts.get("format", 0) > FORMAT:
        raise ValueError(
            f"A newer version of keras_vit wrote this preset. Expected: format "
            f"{FORMAT} or older. Received: format {facts['format']} of "
            f"keras_vit {facts.get('keras_vit')} in {directory}. Upgrade with "
            f"`pip install -U keras-vit-garden`."
        )
    if facts.get("class") != kind:
        raise ValueError(
            f"This preset is of another class. Expected: {kind}. Received: "
            f"{facts.get('class')} in {directory}. Call "
            f"{facts.get('class')}.from_preset."
        )
    for name, size in facts.get("bytes", {}).items():
        _check_size(directory / name, size)
    config = dict(facts["model"])
    if LABELS in facts.get("bytes", {}):
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
        f"{WEIGHTS}. Received: {path.parent} without {path.name}."
    )
