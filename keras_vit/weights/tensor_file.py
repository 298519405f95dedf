"""A file of weights as a mapping from names to tensors not yet read."""

import collections.abc
import contextlib
import math
import typing

import numpy as np

# NumPy writes bfloat16, which it does not know, as two bytes without a type.
BFLOAT16 = np.dtype("V2")
CHUNK = 2**20  # bytes


class CheckpointError(ValueError):
    """A file of weights that cannot be read, and what to do about it."""


def problem(path, what, expected, received, advice=None) -> CheckpointError:
    """Returns an error in the four parts that all errors here have."""
    advice = advice or "The file is damaged: fetch it again."
    return CheckpointError(
        f"{what} Expected: {expected}. Received: {received}, in {path}. "
        f"{advice}"
    )


@contextlib.contextmanager
def guarded(path, part: str):
    """Turns whatever a damaged file sets off into a `CheckpointError`.

    Args:
        path: The file.
        part: What is being read, such as `"the tensor 'cls'"`.
    """
    try:
        yield
    except CheckpointError:
        raise
    # zipfile, zlib, json, NumPy and HDF5 raise any of twenty kinds of errors
    # on bytes that make no sense; none of them is of use to the reader.
    except Exception as error:
        raise problem(
            path,
            f"Cannot read {part}.",
            "an undamaged file",
            f"{type(error).__name__}: {str(error)[:200]}",
        ) from error


class Tensor:
    """One tensor of a file, read when it is asked for.

    Attributes:
        name: Its name in the file.
        shape: Tuple of ints.
        dtype: NumPy's dtype of what `read` returns: float32 for bfloat16.
    """

    def __init__(self, path, name, shape, stored, load):
        self.name, self.shape = name, tuple(shape)
        self.dtype = np.dtype(read_dtype(stored))
        self._path, self._load = path, load

    def read(self) -> np.ndarray:
        """Returns the values, contiguous; memory is that of one tensor.

        Raises:
            CheckpointError: The bytes are damaged or not there.
        """
        with guarded(self._path, f"the tensor {self.name!r}"):
            return self._load()

    def forget(self) -> None:
        """Lets go of the file: what closing it does."""
        self._load = self._closed

    def _closed(self):
        raise problem(
            self._path,
            f"Cannot read the tensor {self.name!r} any more.",
            "an open file",
            "a closed one",
            "Read inside the `with` block that opens the file.",
        )

    def __repr__(self):
        return f"Tensor({self.name!r}, {self.shape}, {self.dtype})"


class TensorFile(collections.abc.Mapping):
    """A read-only mapping from names to tensors; a context manager.

    Attributes:
        path: The file.
        format: `"npz"`, `"safetensors"`, `"pth"` or `"h5"`.
        metadata: Plain values beside the tensors: the strings of a
            safetensors header, or `epoch` and the like of a `.pth` file.
        ignored: Names of what the file holds beside the weights.
    """

    def __init__(self, path, format, tensors, close, metadata=None, ignored=()):
        self.path, self.format = path, format
        self.metadata = dict(metadata or {})
        self.ignored = list(ignored)
        self._tensors, self._close = tensors, close

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __iter__(self) -> typing.Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def close(self) -> None:
        """Closes the file; its tensors cannot be read afterwards."""
        for tensor in self._tensors.values():
            tensor.forget()
        self._close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Bounded:
    """A binary stream that ends early, so that no length in it is believed."""

    def __init__(self, stream: typing.BinaryIO, limit: int):
        self._stream, self._left = stream, limit

    def read(self, count: int) -> bytes:
        # Piece by piece: a file object takes memory for all that it is asked.
        pieces, left = [], count
        while left > 0 and (piece := self._piece(left)):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    def _piece(self, count):
        return self._count(self._stream.read(min(count, self._left, CHUNK)))

    def readline(self) -> bytes:
        return self._count(self._stream.readline(self._left))

    def _count(self, data):
        self._left -= len(data)
        return data


def read_dtype(stored: np.dtype) -> np.dtype:
    """The dtype that values of a stored dtype have once read."""
    if stored == BFLOAT16:
        return np.dtype("float32")
    return stored.newbyteorder("=")


def is_readable(stored: np.dtype) -> bool:
    """Whether values of this dtype are numbers: ints, floats, booleans."""
    return stored == BFLOAT16 or stored.kind in "biuf"


def read_values(stream, stored: np.dtype, count: int, swap: bool = False):
    """Returns the next values of a stream, `(count,)`, in native byte order.

    The memory taken is that of the result. Callers compare `count` with the
    size of the file first.

    Args:
        stream: A binary file.
        stored: Dtype in the file; `BFLOAT16` gives float32.
        count: Number of values.
        swap: Whether the file has them in big-endian order although
            `stored` cannot say so.
    """
    if stored == BFLOAT16:
        return _read_bfloat16(stream, count, swap)
    values = np.empty(count, stored.newbyteorder(">") if swap else stored)
    target = memoryview(values.view("u1")) if count else memoryview(b"")
    for start in range(0, len(target), CHUNK):
        _read_into(stream, target[start : start + CHUNK])
    if values.dtype.isnative:
        return values
    return values.byteswap(inplace=True).view(read_dtype(values.dtype))


def _read_bfloat16(stream, count, swap):
    """A bfloat16 is the upper half of a float32."""
    bits = np.zeros(count, "u4")
    chunk = np.empty(CHUNK // 2, ">u2" if swap else "<u2")
    for start in range(0, count, len(chunk)):
        part = chunk[: count - start]
        _read_into(stream, memoryview(part.view("u1")))
        upper = bits[start : start + len(part)]
        upper[:] = part
        upper <<= 16
    return bits.view("float32")


def _read_into(stream, target):
    filled = 0
    while filled < len(target):
        got = stream.readinto(target[filled:])
        if not got:
            raise EOFError(f"{len(target) - filled} bytes are missing")
        filled += got


def skip(stream, count: int | None = None) -> None:
    """Reads and drops `count` bytes, or all up to the end."""
    left = math.inf if count is None else count
    while left > 0:
        got = len(stream.read(int(min(left, CHUNK))))
        if not got and count is not None:
            raise EOFError(f"{left} bytes are missing")
        left = left - got if got else 0


def check_finite(name: str, array: np.ndarray) -> None:
    """Raises `CheckpointError` if a tensor holds NaN or infinity."""
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return
    count = int((~np.isfinite(array)).sum())
    first = np.argwhere(~np.isfinite(array))[0]
    where = tuple(int(i) for i in first)
    raise CheckpointError(
        f"Some weights are not numbers. Expected: finite values in {name!r}. "
        f"Received: {count} NaN or infinite of {array.size}, the first at "
        f"{where}. The file is damaged, or its training diverged: take "
        f"another one."
    )


def shown(names: typing.Iterable, limit: int = 10) -> str:
    """The first names as one short line for an error."""
    names = [str(name)[:80] for name in names]
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return (", ".join(names[:limit]) or "nothing") + more
