"""Files of the safetensors format."""

import collections
import contextlib
import json
import math
import os
import typing

import numpy as np

from keras_vit.weights.tensor_file import BFLOAT16
from keras_vit.weights.tensor_file import Tensor
from keras_vit.weights.tensor_file import TensorFile
from keras_vit.weights.tensor_file import guarded
from keras_vit.weights.tensor_file import problem
from keras_vit.weights.tensor_file import read_values
from keras_vit.weights.tensor_file import shown

# Names of the format, https://github.com/huggingface/safetensors.
DTYPES = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": BFLOAT16,
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
MAX_HEADER = 100_000_000  # bytes, the format's own limit


class _Entry(typing.NamedTuple):
    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def open_safetensors(path) -> TensorFile:
    """Opens one file; `metadata` is its `__metadata__`.

    Raises:
        CheckpointError: A header that is no JSON or names a tensor twice, an
            unknown dtype, or tensors that overlap, leave holes or do not fit
            the bytes that are there.
    """
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open(path, "rb"))
        size = os.path.getsize(path)
        header, start = _read_header(path, file, size)
        metadata = _metadata(path, header.pop("__metadata__", {}))
        entries = [_entry(path, n, facts) for n, facts in header.items()]
        _check_places(path, entries, size - start)
        tensors = {e.name: _tensor(path, file, start, e) for e in entries}
        close = stack.pop_all().close
    return TensorFile(path, "safetensors", tensors, close, metadata)


def _read_header(path, file, size):
    """Returns the header and where the tensors begin, in bytes."""
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(MAX_HEADER, size - 8):
        raise problem(
            path,
            "The header of this safetensors file does not fit into it.",
            f"at most {max(0, min(MAX_HEADER, size - 8))} bytes",
            f"a header of {length} bytes in a file of {size}",
            "The file is cut short or damaged: fetch it again.",
        )
    with guarded(path, "the header of this safetensors file"):
        header = json.loads(
            file.read(length).decode("utf-8"),
            object_pairs_hook=_no_name_twice,
        )
        if not isinstance(header, dict):
            raise TypeError(f"a {type(header).__name__} is not a dictionary")
    return header, 8 + length


def _no_name_twice(pairs):
    values = dict(pairs)
    if len(values) < len(pairs):
        counts = collections.Counter(name for name, _ in pairs)
        twice = [name for name, count in counts.items() if count > 1]
        raise ValueError(f"named twice: {shown(map(repr, twice))}")
    return values


def _metadata(path, values):
    texts = isinstance(values, dict) and all(
        isinstance(v, str) for v in values.values()
    )
    if not texts:
        raise problem(
            path,
            "Cannot read the metadata of this safetensors file.",
            "a dictionary of strings",
            str(values)[:80],
        )
    return values


def _entry(path, name, facts):
    with guarded(path, f"what the header says of the tensor {name!r}"):
        dtype, shape = facts["dtype"], tuple(facts["shape"])
        begin, end = facts["data_offsets"]
        counts = (*shape, begin, end)
        if not all(type(n) is int and n >= 0 for n in counts):
            raise ValueError("sizes and places are ints from 0 up")
    if dtype not in DTYPES:
        raise problem(
            path,
            f"Cannot read the dtype of {name!r}.",
            f"one of {', '.join(DTYPES)}",
            f"dtype {str(dtype)[:40]}",
            "Save the weights again in one of these.",
        )
    nbytes = math.prod(shape) * DTYPES[dtype].itemsize
    if nbytes != end - begin:
        raise problem(
            path,
            f"The shape of {name!r} does not fit its data.",
            f"{nbytes} bytes for {shape} of {dtype}",
            f"{end - begin} bytes, from {begin} to {end}",
        )
    return _Entry(name, dtype, shape, begin, end)


def _check_places(path, entries, room):
    """The tensors fill the file from end to end, without holes."""
    last, reached = "the header", 0
    for entry in sorted(entries, key=lambda e: (e.begin, e.end)):
        if entry.begin != reached:
            kind = "overlaps" if entry.begin < reached else "leaves a hole to"
            raise problem(
                path,
                f"The tensor {entry.name!r} {kind} what is before it.",
                f"a start at byte {reached}, behind {last}",
                f"a start at byte {entry.begin}",
            )
        last, reached = repr(entry.name), entry.end
    if reached != room:
        raise problem(
            path,
            "The tensors of this safetensors file do not fill it.",
            f"{reached} bytes, up to the end of {last}",
            f"{room} bytes",
            "The file is cut short or damaged: fetch it again.",
        )


def _tensor(path, file, start, entry):
    stored = DTYPES[entry.dtype]

    def load():
        file.seek(start + entry.begin)
        values = read_values(file, stored, math.prod(entry.shape))
        return values.reshape(entry.shape)

    return Tensor(path, entry.name, entry.shape, stored, load)
