"""Tensors onto disk, whole or not at all."""

import os
import pathlib
import tempfile
import typing

import numpy as np


def write_tensors(
    path: pathlib.Path, tensors: typing.Mapping[str, np.ndarray]
) -> None:
    """Writes an `.npz` or a `.safetensors` file.

    Raises:
        ValueError: Another suffix.
    """
    if path.suffix not in (".npz", ".safetensors"):
        raise ValueError(
            f"Cannot write this kind of file. Expected: a name that ends in "
            f".npz or .safetensors. Received: {path.name!r}."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {k: np.ascontiguousarray(a) for k, a in tensors.items()}
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        new = pathlib.Path(scratch) / path.name
        if path.suffix == ".npz":
            np.savez(new, **tensors)
        else:
            from safetensors.numpy import save_file

            save_file(tensors, new)
        os.replace(new, path)
