"""Files of `numpy.savez`: Google's checkpoints."""

import contextlib
import math

import numpy as np

from keras_vit.weights.tensor_file import Bounded
from keras_vit.weights.tensor_file import Tensor
from keras_vit.weights.tensor_file import TensorFile
from keras_vit.weights.tensor_file import guarded
from keras_vit.weights.tensor_file import is_readable
from keras_vit.weights.tensor_file import problem
from keras_vit.weights.tensor_file import read_values
from keras_vit.weights.tensor_file import skip
from keras_vit.weights.zip_members import open_archive
from keras_vit.weights.zip_members import open_member

SUFFIX = ".npy"
MAX_HEADER = 2**16  # bytes; NumPy reads no more than 10,000 of them


def open_npz(path) -> TensorFile:
    """Opens an archive of `.npy` members; names lose that suffix.

    Raises:
        CheckpointError: A damaged archive, an array of Python objects, or
            a shape that does not fit the bytes stored.
    """
    with contextlib.ExitStack() as stack:
        archive = open_archive(stack, path)
        tensors, ignored = {}, []
        for info in archive.infolist():
            name = info.filename.removesuffix(SUFFIX)
            if name == info.filename:
                ignored.append(name)
                continue
            with guarded(path, f"the tensor {name!r}"):
                tensor = _tensor(path, archive, info, name)
            if tensor is None:
                ignored.append(name)
            else:
                tensors[name] = tensor
        close = stack.pop_all().close
    return TensorFile(path, "npz", tensors, close, ignored=ignored)


def _tensor(path, archive, info, name):
    """The tensor of a member, or `None` for text and dates."""
    with archive.open(info) as stream:
        shape, fortran, stored = _header(Bounded(stream, MAX_HEADER))
        start = stream.tell()
    if stored.hasobject:
        raise problem(
            path,
            f"The array {name!r} holds Python objects, which only running "
            f"code could read.",
            "numbers",
            f"dtype {stored}",
            "Ask for a file without it, or convert a file that you trust "
            "with numpy.load(allow_pickle=True).",
        )
    if not is_readable(stored):
        return None
    nbytes = math.prod(shape) * stored.itemsize
    if nbytes != info.file_size - start:
        raise problem(
            path,
            f"The shape of {name!r} does not fit its data.",
            f"{nbytes} bytes for {shape} of {stored}",
            f"{info.file_size - start} bytes",
        )

    def load():
        with open_member(archive, info.filename) as stream:
            skip(stream, start)
            values = read_values(stream, stored, math.prod(shape))
            skip(stream)  # at the end of a member its CRC is checked
        if fortran:
            return np.ascontiguousarray(values.reshape(shape[::-1]).T)
        return values.reshape(shape)

    return Tensor(path, name, shape, stored, load)


def _header(stream):
    """Returns `(shape, fortran_order, dtype)` of a `.npy` stream."""
    version = np.lib.format.read_magic(stream)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"npy version {version} is not one of 1.0 and 2.0")
    shape, fortran, stored = readers[version](stream)
    if any(n < 0 for n in shape):
        raise ValueError(f"the shape {shape} has a negative side")
    return tuple(map(int, shape)), fortran, stored
