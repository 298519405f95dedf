"""Everything that the next training step depends on, in one file."""

import json
import logging
import os
import pathlib
import zipfile

import keras
import numpy as np

logger = logging.getLogger("keras_vit")
# What a file that is cut short or has wrong bits makes NumPy raise.
DAMAGE = (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile)
KEPT = 2  # the last one, and one in case that the last one is damaged


def save_state(folder, step, model, facts, generators):
    """Writes the state of a run, whole or not at all.

    Written under another name, flushed to the disk, then renamed: whoever is
    killed in between leaves the checkpoints before it as they were.

    Args:
        folder: A `pathlib.Path`.
        step: Int, optimizer steps that have been made.
        model: A compiled, built `keras.Model`.
        facts: What JSON can hold, such as the history so far.
        generators: Name to array, of `generator_states`.

    Raises:
        OSError: The disk is full, or not there; nothing is left half-written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"step_{step:09d}.npz"
    part = target.with_suffix(".part")
    arrays = {f"v{i}": _numpy(v) for i, v in enumerate(variables_of(model))}
    text = json.dumps({"step": step, "paths": _paths(model), **facts})
    try:
        with open(part, "wb") as file:
            np.savez(file, meta=np.array(text), **arrays, **generators)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    for old in sorted(folder.glob("step_*.npz"))[:-KEPT]:
        old.unlink(missing_ok=True)


def load_state(folder, model):
    """Loads the newest whole checkpoint into a model.

    Args:
        folder: A `pathlib.Path`.
        model: A compiled, built `keras.Model`, like the one that was saved.

    Returns:
        `(step, facts)`; `(0, {})` where there is none.

    Raises:
        ValueError: The checkpoints are of another model or optimizer.
    """
    for leftover in folder.glob("*.part"):
        leftover.unlink(missing_ok=True)
    for path in sorted(folder.glob("step_*.npz"), reverse=True):
        try:
            with open(path, "rb") as raw, np.load(raw) as file:
                meta = json.loads(str(file["meta"]))
                arrays = [file[f"v{i}"] for i in range(len(meta["paths"]))]
                states = {n: file[n] for n in file.files if "torch" in n}
        except DAMAGE as error:
            logger.warning(
                "%s is damaged (%s): using the one before", path, error
            )
            continue
        _check_paths(path, meta["paths"], _paths(model))
        for variable, array in zip(variables_of(model), arrays, strict=True):
            variable.assign(array.astype(_dtype(variable)))
        return meta.pop("step"), {**meta, "generators": states}
    return 0, {}


def variables_of(model):
    """Weights, seeds and the optimizer's variables, each once, in order."""
    seen = {}
    for variable in [*model.variables, *model.optimizer.variables]:
        seen.setdefault(id(variable), variable)
    metrics = {id(v) for v in model.metrics_variables}
    return [v for key, v in seen.items() if key not in metrics]


def _paths(model):
    return [f"{v.path} {tuple(v.shape)} {v.dtype}" for v in variables_of(model)]


def _check_paths(path, stored, expected):
    # Names carry numbers that count models of this process.
    old, new = (
        [p.split(" ", 1)[1] for p in paths] for paths in (stored, expected)
    )
    if old != new:
        different = [p for p in stored if p not in expected][:5]
        raise ValueError(
            f"This run was of another model. Expected: {len(new)} variables "
            f"of the model and optimizer given. Received: {path} with "
            f"{len(old)}, such as {', '.join(different)}. Use another "
            f"directory, or the settings that began this one."
        )


def _numpy(variable):
    array = keras.ops.convert_to_numpy(variable)
    # NumPy's files know no bfloat16; float32 holds it to the bit.
    return array.astype("float32") if _dtype(variable) == "float32" else array


def _dtype(variable):
    return "float32" if variable.dtype == "bfloat16" else variable.dtype


def folder_of(directory):
    """Where the checkpoints of a run are."""
    return pathlib.Path(directory) / "checkpoints"
