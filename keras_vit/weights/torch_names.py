"""The names that a pickle of PyTorch's may mention, and what they stand for.

Everything here is data: a tensor becomes a `View` of a `Storage` not yet
read, an object of a class that only holds values a `Record`. Any other name
is refused.
"""

import typing

import numpy as np

from keras_vit.checks import is_int
from keras_vit.weights.inert_pickle import Global
from keras_vit.weights.inert_pickle import Record
from keras_vit.weights.inert_pickle import call
from keras_vit.weights.inert_pickle import pairs_of
from keras_vit.weights.tensor_file import BFLOAT16
from keras_vit.weights.tensor_file import problem

# fmt: off
DTYPES = {
    "float64": np.dtype("<f8"), "float32": np.dtype("<f4"),
    "float16": np.dtype("<f2"), "bfloat16": BFLOAT16,
    "int64": np.dtype("<i8"), "int32": np.dtype("<i4"),
    "int16": np.dtype("<i2"), "int8": np.dtype("i1"),
    "uint64": np.dtype("<u8"), "uint32": np.dtype("<u4"),
    "uint16": np.dtype("<u2"), "uint8": np.dtype("u1"),
    "bool": np.dtype("?"),
}
# Bytes of those that nothing here reads, but that stand between others.
OTHER_DTYPES = {
    "complex32": 4, "complex64": 8, "complex128": 16,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1, "qint8": 1, "quint8": 1, "qint32": 4, "untyped": 1,
}
STORAGES = {
    "torch.DoubleStorage": "float64", "torch.FloatStorage": "float32",
    "torch.HalfStorage": "float16", "torch.BFloat16Storage": "bfloat16",
    "torch.LongStorage": "int64", "torch.IntStorage": "int32",
    "torch.ShortStorage": "int16", "torch.CharStorage": "int8",
    "torch.ByteStorage": "uint8", "torch.BoolStorage": "bool",
    "torch.ComplexFloatStorage": "complex64",
    "torch.ComplexDoubleStorage": "complex128",
    "torch.QInt8Storage": "qint8", "torch.QUInt8Storage": "quint8",
    "torch.QInt32Storage": "qint32",
    "torch.storage.UntypedStorage": "untyped",
    "torch.UntypedStorage": "untyped",
}
# Classes and functions that hold values and do nothing, as training scripts
# leave them beside the weights. `builtins` was `__builtin__` in Python 2.
DATA_ONLY = frozenset((
    "argparse.Namespace", "types.SimpleNamespace", "datetime.datetime",
    "datetime.timedelta", "datetime.date",
    *(f"{module}.{name}"
      for module in ("pathlib", "pathlib._local")
      for name in ("Path", "PosixPath", "WindowsPath", "PurePath",
                   "PurePosixPath", "PureWindowsPath")),
    *(f"{module}.{name}"
      for module in ("builtins", "__builtin__")
      for name in ("set", "frozenset", "list", "tuple", "dict", "int",
                   "float", "bool", "str", "bytes", "bytearray", "complex",
                   "slice", "range", "object")),
    *(f"{module}.{name}"
      for module in ("numpy.core.multiarray", "numpy._core.multiarray")
      for name in ("scalar", "_reconstruct")),
    "numpy.dtype", "numpy.ndarray", "_codecs.encode",
    "numpy._core.numeric._frombuffer", "numpy.core.numeric._frombuffer",
    "copyreg._reconstructor", "copy_reg._reconstructor",
    "torch.device", "torch.Tensor", "torch.nn.parameter.Parameter",
    "torch.strided", "torch.contiguous_format", "torch.channels_last",
    *(f"numpy.{name}" for name in ("float16", "float32", "float64", "int32",
                                   "int64", "uint8", "bool_")),
    *(f"numpy.dtypes.{name}DType" for name in ("Float32", "Float64", "Int64")),
    *(f"torch.{name}" for name in (*DTYPES, *OTHER_DTYPES)),
))
# fmt: on


class Storage(typing.NamedTuple):
    """A run of values somewhere in the file; `size` and `offset` in values."""

    dtype: str
    key: str
    size: int
    offset: int = 0


class View(typing.NamedTuple):
    """A tensor: some values of a storage; strides in values."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


def itemsize(dtype: str) -> int:
    """Bytes of one value."""
    known = DTYPES.get(dtype)
    return OTHER_DTYPES[dtype] if known is None else known.itemsize


def finder(path, scripted: bool) -> typing.Callable:
    """Returns what looks up the names in the pickles of a file.

    Args:
        path: The file, for errors.
        scripted: Whether it is a TorchScript archive, whose classes have
            their code beside them; objects of theirs are records too.
    """

    def find(name):
        if name in BUILDERS:
            return BUILDERS[name]
        data_only = name in DATA_ONLY or name in STORAGES
        if data_only or (scripted and name.startswith("__torch__.")):
            return Record
        raise problem(
            path,
            f"This file needs {name[:200]!r}, which is code and not weights; "
            f"it was not run.",
            "tensors and plain values",
            f"a pickle that calls {name[:200]!r}",
            "If you trust the file, open it with torch.load in a place that "
            "it cannot harm, take the state_dict() and save that with "
            "safetensors.torch.save_file.",
        )

    return find


def storage_of(pid: typing.Any) -> Storage:
    """The storage that a persistent id describes.

    `("storage", class, key, device, size)`, then in files of before PyTorch
    1.6 `None` or `(key of the view, offset, size of the view)`.
    """
    if not isinstance(pid, tuple) or pid[:1] != ("storage",):
        raise ValueError("a reference to something that is no storage")
    kind, key, _, size, *view = pid[1:]
    offset = view[0][1] if view and view[0] is not None else 0
    if not isinstance(kind, Global) or not isinstance(key, str):
        raise TypeError("a storage without a class or key")
    _check_counts((size, offset))
    return Storage(STORAGES[kind.name], key, size, offset)


def _view(storage, offset, shape, strides, *_):
    return _checked_view(storage, offset, shape, strides, storage.dtype)


def _view_of_dtype(storage, offset, shape, strides, _, __, dtype, *___):
    name = dtype.name.removeprefix("torch.")
    return _checked_view(storage, offset, shape, strides, name)


def _checked_view(storage, offset, shape, strides, dtype):
    _check_counts((offset, *shape, *strides))
    if not isinstance(storage, Storage) or len(shape) != len(strides):
        raise ValueError("a tensor without a storage or without its strides")
    itemsize(dtype)
    # The offset of a storage that is a view of another counts on top.
    return View(
        storage, offset + storage.offset, tuple(shape), tuple(strides), dtype
    )


def _check_counts(values):
    if not all(is_int(n) and 0 <= n < 2**63 for n in values):
        raise ValueError("sizes, offsets and strides are ints from 0 up")


def _first(value, *_):
    return value


def _of_type(function, _, arguments, *__):
    return call(function, arguments)


def _dictionary(pairs=(), *_):
    return pairs_of(pairs)


BUILDERS = {
    "torch._utils._rebuild_tensor": _view,
    "torch._utils._rebuild_tensor_v2": _view,
    "torch._utils._rebuild_tensor_v3": _view_of_dtype,
    "torch._utils._rebuild_parameter": _first,
    "torch._utils._rebuild_parameter_with_state": _first,
    "torch._tensor._rebuild_from_type_v2": _of_type,
    "torch.jit._pickle.restore_type_tag": _first,
    "torch.jit._pickle.build_intlist": _first,
    "torch.jit._pickle.build_doublelist": _first,
    "torch.jit._pickle.build_boollist": _first,
    "torch.jit._pickle.build_tensorlist": _first,
    "torch.Size": _first,
    "collections.OrderedDict": _dictionary,
    "collections.Counter": _dictionary,
    "collections.defaultdict": lambda factory=None, *rest: _dictionary(*rest),
}
