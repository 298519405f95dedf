"""HDF5 files of Keras and TensorFlow: `.h5`, `.weights.h5` and `.keras`."""

import contextlib
import math
import shutil
import tempfile

import numpy as np

from keras_vit.weights.tensor_file import BFLOAT16
from keras_vit.weights.tensor_file import Tensor
from keras_vit.weights.tensor_file import TensorFile
from keras_vit.weights.tensor_file import guarded
from keras_vit.weights.tensor_file import is_readable
from keras_vit.weights.tensor_file import problem
from keras_vit.weights.tensor_file import read_dtype
from keras_vit.weights.zip_members import MAX_RATIO
from keras_vit.weights.zip_members import open_archive

KERAS_MEMBER = "model.weights.h5"


def open_h5(path) -> TensorFile:
    """Opens an HDF5 file; names are the paths of its datasets.

    Links to other files are not followed.

    Raises:
        CheckpointError: A damaged file, or a dataset whose shape does not fit
            the bytes stored or whose data is in another file.
    """
    with contextlib.ExitStack() as stack:
        return _open(path, path, stack)


def open_keras(path) -> TensorFile:
    """Opens the weights inside a `.keras` archive.

    They are unpacked to a temporary file first, because HDF5 jumps about.

    Raises:
        CheckpointError: See `open_h5`.
    """
    with contextlib.ExitStack() as stack:
        archive = open_archive(stack, path)
        unpacked = stack.enter_context(tempfile.TemporaryFile())
        with (
            guarded(path, f"the member {KERAS_MEMBER!r}"),
            archive.open(KERAS_MEMBER) as member,
        ):
            shutil.copyfileobj(member, unpacked)
        return _open(path, unpacked, stack)


def _open(path, source, stack):
    import h5py

    with guarded(path, "this HDF5 file"):
        file = stack.enter_context(h5py.File(source, "r"))
        datasets = {}

        def visit(name, item):
            if isinstance(item, h5py.Dataset):
                datasets[name] = item

        file.visititems(visit)
    tensors, ignored = {}, []
    for name, dataset in datasets.items():
        with guarded(path, f"the dataset {name!r}"):
            readable = _is_tensor(dataset)
            if readable:
                _check_storage(path, name, dataset)
                tensors[name] = _tensor(path, name, dataset)
            else:
                ignored.append(name)
    close = stack.pop_all().close
    return TensorFile(path, "h5", tensors, close, ignored=ignored)


def _is_tensor(dataset):
    # An empty dataset has no shape; texts and references are no weights.
    return dataset.shape is not None and is_readable(dataset.dtype)


def _check_storage(path, name, dataset):
    if dataset.external or dataset.is_virtual:
        raise problem(
            path,
            f"The data of {name!r} is outside of this file.",
            "data inside it",
            "a link to another file",
            "Copy the weights into one file with h5repack or Keras.",
        )
    wanted = math.prod(dataset.shape) * dataset.dtype.itemsize
    room = dataset.file.id.get_filesize()
    there = min(dataset.id.get_storage_size(), room)
    most = there * (MAX_RATIO if dataset.compression else 1)
    if wanted > most:
        raise problem(
            path,
            f"The shape of {name!r} does not fit its data.",
            f"{wanted} bytes for {dataset.shape} of {dataset.dtype}",
            f"{there} bytes stored",
        )


def _tensor(path, name, dataset):
    def load():
        if dataset.dtype == BFLOAT16:
            bits = dataset[()].view("<u2").astype("u4") << 16
            return bits.view("float32")
        values = np.empty(dataset.shape, read_dtype(dataset.dtype))
        if values.size:
            dataset.read_direct(values)
        return values

    return Tensor(path, name, dataset.shape, dataset.dtype, load)
