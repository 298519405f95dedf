"""Opening any file of weights, told by what is in it."""

import contextlib
import json
import os
import pathlib
import stat

from keras_vit.checks import did_you_mean
from keras_vit.fetching.hub import WEIGHTS
from keras_vit.weights.h5_file import KERAS_MEMBER
from keras_vit.weights.h5_file import open_h5
from keras_vit.weights.h5_file import open_keras
from keras_vit.weights.npz_file import SUFFIX
from keras_vit.weights.npz_file import open_npz
from keras_vit.weights.pickle_file import LEGACY_MAGIC
from keras_vit.weights.pickle_file import is_data_pickle
from keras_vit.weights.pickle_file import open_legacy_pth
from keras_vit.weights.pickle_file import open_pth
from keras_vit.weights.safetensors_file import open_safetensors
from keras_vit.weights.stranger_files import KNOWN
from keras_vit.weights.stranger_files import stranger
from keras_vit.weights.tensor_file import CheckpointError
from keras_vit.weights.tensor_file import TensorFile
from keras_vit.weights.tensor_file import guarded
from keras_vit.weights.tensor_file import problem
from keras_vit.weights.tensor_file import shown
from keras_vit.weights.zip_members import open_archive

HEAD = 512  # bytes that tell the kinds of files apart
MAX_INDEX = 2**26  # bytes of JSON; one tensor takes about a hundred


def open_tensors(path: str | os.PathLike) -> TensorFile:
    """Opens a file of weights as a mapping from names to unread tensors.

    The kind is told by the first bytes, never by the suffix. No code in the
    file runs, and no more memory is taken than what is read needs.

    Args:
        path: An npz, safetensors, PyTorch or HDF5 file, a `.keras` archive,
            the `.index.json` of a sharded model, or a folder of timm's or
            Hugging Face's.

    Returns:
        A context manager. Values are read one tensor at a time:
        `tensors[name].read()`.

    Raises:
        CheckpointError: Another kind of file, a damaged one, or one that
            needs code to be read.

    Example:
    ```python
    model = keras_vit.ViT(keras_vit.vit_config("nano/4", image_size=28))
    keras_vit.save_checkpoint(model, "nano.safetensors")
    with open_tensors("nano.safetensors") as tensors:
        cls = tensors["cls_token"].read()
    ```
    """
    path = pathlib.Path(path)
    if path.is_dir():
        path = _in_folder(path)
    head = _head(path)
    if head.lstrip().startswith(b"{"):
        return _open_shards(path)
    return _open_one(path, head)


def _open_one(path, head):
    if head.startswith(b"PK"):
        return _open_zip(path)
    if head.startswith(b"\x89HDF\r\n\x1a\n"):
        return open_h5(path)
    if head.startswith(LEGACY_MAGIC[:14]):
        return open_legacy_pth(path)
    if head[8:9] == b"{":
        return open_safetensors(path)
    raise stranger(path, head)


def _head(path):
    with guarded(path, "this file"):
        try:
            regular = stat.S_ISREG(path.stat().st_mode)
        except FileNotFoundError:
            raise _missing(path) from None
        if not regular:
            raise problem(
                path,
                "This is no file.",
                KNOWN,
                "a device, socket or pipe",
                "Write it to disk first.",
            )
        with open(path, "rb") as file:
            return file.read(HEAD)


def _missing(path):
    near = path.parent.iterdir() if path.parent.is_dir() else ()
    hint = did_you_mean(path.name, sorted(p.name for p in near))
    return CheckpointError(
        f"There is no such file. Expected: {KNOWN}. Received: {path}.{hint}"
    )


def _in_folder(folder):
    for name in WEIGHTS:
        if (folder / name).is_file():
            return folder / name
    raise problem(
        folder,
        "This folder has none of the files that weights are in.",
        f"one of {', '.join(WEIGHTS)}",
        shown(sorted(p.name for p in folder.iterdir())),
        "Fetch one of those, or give the path of the file itself.",
    )


def _open_zip(path):
    with contextlib.ExitStack() as stack:
        names = open_archive(stack, path).namelist()
    if any(map(is_data_pickle, names)):
        return open_pth(path)
    if KERAS_MEMBER in names:
        return open_keras(path)
    if any(name.endswith(SUFFIX) for name in names):
        return open_npz(path)
    raise problem(
        path,
        "This zip archive holds no weights.",
        f"members {SUFFIX} (npz), data.pkl (PyTorch) or {KERAS_MEMBER} (Keras)",
        shown(map(repr, names)),
        "Unpack it first.",
    )


def _open_shards(path):
    """Opens the files that the index of a sharded model lists as one."""
    where, metadata = _index(path)
    shards, tensors, ignored = {}, {}, []
    with contextlib.ExitStack() as stack:
        for name in dict.fromkeys(where.values()):
            shard = path.parent / name
            # Not open_tensors: an index may not lead to another index.
            shards[name] = stack.enter_context(_open_one(shard, _head(shard)))
            ignored += [n for n in shards[name] if where.get(n) != name]
        for name, file in where.items():
            if name not in shards[file]:
                raise problem(
                    path.parent / file,
                    f"The tensor {name!r} is missing.",
                    f"it, as {path.name} says",
                    shown(shards[file]),
                    "The files are of two models: fetch them all again.",
                )
            tensors[name] = shards[file][name]
        close = stack.pop_all().close
    kind = next(iter(shards.values())).format
    return TensorFile(path, kind, tensors, close, metadata, ignored)


def _index(path):
    """Returns `weight_map`, tensor to file beside it, and `metadata`."""
    with guarded(path, "this JSON file"):
        with open(path, "rb") as file:
            index = json.loads(file.read(MAX_INDEX).decode("utf-8"))
        where, metadata = index.get("weight_map"), index.get("metadata")
    if not isinstance(where, dict) or not where:
        raise problem(
            path,
            "This JSON file lists no weights.",
            "a `weight_map` from tensors to files",
            f"the keys {shown(index)}",
            "Give the path of the weights themselves.",
        )
    for name in where.values():
        if isinstance(name, str) and pathlib.PurePath(name).name == name:
            continue
        raise problem(
            path,
            "The index of this sharded model leads out of its folder.",
            "names of files beside it",
            repr(name)[:200],
            "Do not use it.",
        )
    return where, metadata if isinstance(metadata, dict) else {}
