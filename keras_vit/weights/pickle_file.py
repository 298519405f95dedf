"""Files of `torch.save`, read without PyTorch and without running code."""

import contextlib
import io
import math
import os

import numpy as np

from keras_vit.weights.inert_pickle import load as load_pickle
from keras_vit.weights.state_dict import find_weights
from keras_vit.weights.tensor_file import Tensor
from keras_vit.weights.tensor_file import TensorFile
from keras_vit.weights.tensor_file import guarded
from keras_vit.weights.tensor_file import problem
from keras_vit.weights.tensor_file import read_values
from keras_vit.weights.tensor_file import skip
from keras_vit.weights.torch_names import DTYPES
from keras_vit.weights.torch_names import finder
from keras_vit.weights.torch_names import itemsize
from keras_vit.weights.torch_names import storage_of
from keras_vit.weights.zip_members import open_archive
from keras_vit.weights.zip_members import open_member

# First of a file of before PyTorch 1.6, as the pickle that it is.
LEGACY_MAGIC = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
# A view may repeat values (`expand`), up to this many bytes more than stored.
MAX_REPEATED = 2**20


def open_pth(path) -> TensorFile:
    """Opens a zip archive of `torch.save`, or one of TorchScript.

    Wrappers and prefixes are taken off: see `state_dict.find_weights`.

    Raises:
        CheckpointError: A damaged archive, a pickle that does more than hold
            data, or a tensor that reaches out of its storage.
    """
    with contextlib.ExitStack() as stack:
        archive = open_archive(stack, path)
        names = archive.namelist()
        pickle = next(n for n in names if is_data_pickle(n))
        folder = pickle.removesuffix("data.pkl")
        scripted = any(n.startswith(folder + "code/") for n in names)
        with guarded(path, f"the member {pickle!r}"):
            big = _is_big_endian(archive, folder + "byteorder")
            data = archive.open(pickle)
        with data:
            find = finder(path, scripted)
            root = load_pickle(path, data, find, storage_of)
        storages = _ZipStorages(archive, folder + "data/", big)
        return _file(path, root, storages, stack)


def _is_big_endian(archive, member):
    if member not in archive.namelist():
        return False  # files of before PyTorch 2.0 do not say
    with archive.open(member) as stream:
        return stream.read(3) == b"big"


def is_data_pickle(name: str) -> bool:
    """Whether a zip member is the pickle of `torch.save`."""
    return name.count("/") <= 1 and name.split("/")[-1] == "data.pkl"


def open_legacy_pth(path) -> TensorFile:
    """Opens a stream of `torch.save` of before PyTorch 1.6.

    Five pickles (magic number, protocol, machine, the object, keys), then
    each storage as its size, an int64, and its values.

    Raises:
        CheckpointError: See `open_pth`.
    """
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open(path, "rb"))
        storages = {}

        def persistent(pid):
            storage = storage_of(pid)
            if storages.setdefault(storage.key, storage)[:3] != storage[:3]:
                raise ValueError("two storages of one key differ")
            return storage

        find = finder(path, scripted=False)
        pickles = [load_pickle(path, file, find, persistent) for _ in range(5)]
        places = _legacy_places(path, file, storages, pickles[4])
        return _file(path, pickles[3], _StreamStorages(file, places), stack)


def _legacy_places(path, file, storages, keys):
    """Where the storages are: key to `(start, bytes)`."""
    total, places = os.path.getsize(path), {}
    with guarded(path, "the list of storages of this file"):
        for key in keys:
            storage = storages[key]
            size = int.from_bytes(file.read(8), "little", signed=True)
            start, nbytes = file.tell(), size * itemsize(storage.dtype)
            if size != storage.size or start + nbytes > total:
                raise problem(
                    path,
                    f"The storage {key!r} is not all there.",
                    f"{storage.size} values of {storage.dtype}",
                    f"a size of {size} and {total - start} bytes to the end",
                    "The file is cut short or damaged: fetch it again.",
                )
            places[key] = (start, nbytes)
            file.seek(nbytes, io.SEEK_CUR)
    return places


class _ZipStorages:
    def __init__(self, archive, folder, big_endian):
        self._archive, self._folder = archive, folder
        self._checked = set()
        self.big_endian = big_endian

    def nbytes(self, key):
        return self._archive.getinfo(self._folder + key).file_size

    @contextlib.contextmanager
    def at(self, key, offset):
        with open_member(self._archive, self._folder + key) as stream:
            skip(stream, offset)
            yield stream
            if key not in self._checked:
                skip(stream)  # at the end of a member its CRC is checked
        self._checked.add(key)


class _StreamStorages:
    big_endian = False  # the legacy format is little-endian on any machine

    def __init__(self, file, places):
        self._file, self._places = file, places

    def nbytes(self, key):
        return self._places[key][1]

    @contextlib.contextmanager
    def at(self, key, offset):
        self._file.seek(self._places[key][0] + offset)
        yield self._file


def _file(path, root, storages, stack):
    weights = find_weights(path, root)
    tensors = {
        name: _tensor(path, name, view, storages)
        for name, view in weights.views.items()
    }
    return TensorFile(
        path,
        "pth",
        tensors,
        stack.pop_all().close,
        weights.metadata,
        weights.ignored,
    )


def _tensor(path, name, view, storages):
    stored = DTYPES.get(view.dtype)
    if stored is None:
        raise problem(
            path,
            f"Cannot read the dtype of {name!r}.",
            f"one of {', '.join(DTYPES)}",
            view.dtype,
            "Save the weights again in one of these.",
        )
    with guarded(path, f"the storage of {name!r}"):
        there = storages.nbytes(view.storage.key)
    first, count = view.offset, _span(view)
    _check_bounds(path, name, view, there, first + count)

    def load():
        offset, swap = first * stored.itemsize, storages.big_endian
        with storages.at(view.storage.key, offset) as stream:
            flat = read_values(stream, stored, count, swap)
        return _strided(flat, view)

    return Tensor(path, name, view.shape, stored, load)


def _span(view):
    """How many values of the storage lie from the first to the last one."""
    if 0 in view.shape:
        return 0
    sides = zip(view.shape, view.strides, strict=True)
    return 1 + sum((n - 1) * stride for n, stride in sides)


def _check_bounds(path, name, view, there, end):
    storage, size = view.storage, itemsize(view.dtype)
    if storage.size * itemsize(storage.dtype) != there:
        raise problem(
            path,
            f"The storage of {name!r} is not all there.",
            f"{storage.size} values of {storage.dtype}",
            f"{there} bytes",
        )
    if end * size > there:
        raise problem(
            path,
            f"The tensor {name!r} reaches out of its storage.",
            f"at most {there} bytes",
            f"shape {view.shape}, strides {view.strides} and offset "
            f"{view.offset} of {view.dtype}, which end at {end * size}",
        )
    count = math.prod(view.shape)
    if count * size > there + MAX_REPEATED:
        raise problem(
            path,
            f"The tensor {name!r} repeats its values too often.",
            f"at most {MAX_REPEATED} bytes beyond the {there} stored",
            f"shape {view.shape} with strides {view.strides}",
            "Save the weights again after `.contiguous()`.",
        )


def _strided(flat, view):
    """The tensor `view.shape`, contiguous, from the values that it spans."""
    if 0 in view.shape:
        return flat.reshape(view.shape)
    strides = [stride * flat.itemsize for stride in view.strides]
    values = np.lib.stride_tricks.as_strided(flat, view.shape, strides)
    return np.ascontiguousarray(values).reshape(view.shape)
