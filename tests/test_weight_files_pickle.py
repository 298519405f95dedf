"""Files of PyTorch's, read without it and without running what they say.

`oracles/pth_container` holds files that torch 2.14 saved, `expected.npz` and
`scripted.npz` what it reads from them; `scripted.pt` is `torch.jit.script` of
a linear layer in half precision under `visual`, as OpenAI's CLIP is saved.
"""

import io
import os
import pathlib
import pickle
import tracemalloc
import zipfile

import numpy as np
import pytest

from keras_vit.weights.open_file import open_tensors
from keras_vit.weights.tensor_file import CheckpointError

pytestmark = pytest.mark.once

FILES = pathlib.Path(__file__).parent / "oracles" / "pth_container"


def expected(name="expected.npz"):
    with np.load(FILES / name) as arrays:
        return dict(arrays)


CASES = {
    # file: its tensors, metadata, ignored
    "zip.pth": (None, {}, []),
    "legacy.pth": (None, {}, []),
    "bare.pth": ("f32 i64", {}, []),
    "state_dict_module.pth": (
        "f32 i64",
        {"epoch": 3, "arch": "vit"},
        ["epoch", "arch"],
    ),
    "parameters.pth": ("f32 i64", {}, []),
    "with_namespace.pth": (
        "f32 i64",
        {"epoch": 1},
        ["optimizer", "epoch", "args"],
    ),
    "numpy_scalar.pth": ("f32 i64", {}, ["best"]),
}


@pytest.mark.parametrize("file", CASES)
def test_files_of_torch(file):
    """Views, shared storages, every dtype, both containers."""
    names, metadata, ignored = CASES[file]
    arrays = expected()
    with open_tensors(FILES / file) as tensors:
        assert tensors.format == "pth"
        assert set(tensors) == set(names.split() if names else arrays)
        assert tensors.metadata == metadata
        assert tensors.ignored == ignored
        for name in tensors:
            value = tensors[name].read()
            assert tensors[name].shape == value.shape == arrays[name].shape
            assert tensors[name].dtype == value.dtype == arrays[name].dtype
            assert value.flags.c_contiguous
            assert value.tobytes() == arrays[name].tobytes(), name


def test_torchscript_archive_of_clip_kind():
    arrays = expected("scripted.npz")
    with open_tensors(FILES / "scripted.pt") as tensors:
        assert set(tensors) == set(arrays)
        for name, array in arrays.items():
            value = tensors[name].read()
            assert value.dtype == array.dtype
            assert value.tobytes() == array.tobytes(), name


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("hostile.pth", "__builtin__.eval"),
        ("whole_module.pth", "torch.nn.modules.linear.Linear"),
    ],
)
def test_code_is_refused_by_name_and_not_run(file, name, monkeypatch):
    monkeypatch.delenv("KERAS_VIT_PICKLE_EXECUTED", raising=False)
    with pytest.raises(CheckpointError, match=name) as error:
        open_tensors(FILES / file)
    assert "KERAS_VIT_PICKLE_EXECUTED" not in os.environ
    assert "save_file" in str(error.value)


def test_big_endian_archive(tmp_path):
    """The member `byteorder` says how the values of an archive stand."""
    sizes = {"1": 2, "2": 2, "3": 8, "4": 8, "5": 1, "6": 1}  # others are 4
    with (
        zipfile.ZipFile(FILES / "zip.pth") as old,
        zipfile.ZipFile(tmp_path / "big.pth", "w") as new,
    ):
        for member in old.namelist():
            data, last = old.read(member), member.split("/")[-1]
            if member.endswith("byteorder"):
                data = b"big"
            elif "/data/" in member:
                size = sizes.get(last, 4)
                data = np.frombuffer(data, f"u{size}").byteswap().tobytes()
            new.writestr(member, data)
    arrays = expected()
    with open_tensors(tmp_path / "big.pth") as tensors:
        for name, array in arrays.items():
            value = tensors[name].read()
            assert value.dtype.isnative
            assert value.tobytes() == array.tobytes(), name


# A small writer of what torch.save writes, to say what torch never would.


class Named:
    """Stands for a global while pickling."""

    def __init__(self, name):
        self.name = name


class Call:
    def __init__(self, name, *arguments):
        self.name, self.arguments = name, arguments


def words(value):
    """The opcodes of a value, protocol 2."""
    if isinstance(value, Named):
        return b"c" + value.name.replace(":", "\n").encode() + b"\n"
    if isinstance(value, Call):
        return words(Named(value.name)) + words(value.arguments) + b"R"
    if isinstance(value, tuple) and value and value[0] == "storage":
        return b"(" + b"".join(map(words, value)) + b"tQ"
    if isinstance(value, tuple):
        return b"(" + b"".join(map(words, value)) + b"t"
    if isinstance(value, dict):
        items = b"".join(words(k) + words(v) for k, v in value.items())
        return b"}(" + items + b"u"
    return pickle.dumps(value, 2)[2:-1]


def tensor(shape, strides, offset=0, size=6, kind="Float", key="0"):
    storage = ("storage", Named(f"torch:{kind}Storage"), key, "cpu", size)
    hooks = Call("collections:OrderedDict")
    name = "torch._utils:_rebuild_tensor_v2"
    return Call(name, storage, offset, shape, strides, False, hooks)


def archive(path, root, storages=None, pickled=None):
    data = b"\x80\x02" + words(root) + b"." if pickled is None else pickled
    with zipfile.ZipFile(path, "w") as members:
        members.writestr("w/data.pkl", data)
        storages = storages or {"0": np.arange(6, dtype="<f4").tobytes()}
        for key, values in storages.items():
            members.writestr(f"w/data/{key}", values)
    return path


T = tensor((2, 3), (3, 1))
SCHEDULE = [
    # what is saved: names of the tensors, ignored
    ({"a": T}, ["a"], []),
    ({"module.a": T, "module.b": T}, ["a", "b"], []),
    ({"module._orig_mod.backbone.a": T}, ["a"], []),
    ({"module.a": T, "b": T}, ["module.a", "b"], []),
    ({"backbone.a": T, "head.b": T}, ["backbone.a", "head.b"], []),
    (
        {"student": {"module.x": T}, "teacher": {"backbone.a": T, "h.b": T}},
        ["a"],
        ["student", "teacher.h.b"],
    ),
    (
        {"model": {"a": T}, "model_ema": {"a": T, "b": T}, "epoch": 1},
        ["a"],
        ["model_ema", "epoch"],
    ),
    ({"model_ema": {"a": T}}, ["a"], []),
    ({"state_dict": {"model": {"a": T}, "lr": 0.1}}, ["a"], ["state_dict.lr"]),
    ({"model": {"x": 1}, "a": T}, ["a"], ["model"]),
    ({"model": "vit", "state_dict": {"a": T}}, ["a"], ["model"]),
    ({"a": T, "deep": {"b": T}, "n": 3}, ["a"], ["deep", "n"]),
]


@pytest.mark.parametrize(("root", "names", "ignored"), SCHEDULE)
def test_wrappers_and_prefixes_come_off(root, names, ignored, tmp_path):
    """A16: what is not taken is named."""
    with open_tensors(archive(tmp_path / "w", root)) as tensors:
        assert list(tensors) == names
        assert tensors.ignored == ignored
        assert tensors[names[0]].read().tolist() == [[0, 1, 2], [3, 4, 5]]


REFUSED = {
    "beyond": (tensor((2, 3), (3, 1), 1), "'t' reaches out.*end at 28"),
    "stride": (tensor((2, 3), (4, 1)), "'t' reaches out"),
    "huge": (tensor((2**40,), (1,)), "'t' reaches out"),
    "overflow": (tensor((2**62, 2**62), (0, 0)), "'t' repeats"),
    "expanded": (tensor((2**30,), (0,)), "'t' repeats its values"),
    "negative": (tensor((-1, 3), (3, 1)), "from 0 up"),
    "negative stride": (tensor((2, 3), (-3, 1)), "from 0 up"),
    "negative offset": (tensor((2,), (1,), -1), "from 0 up"),
    "ranks": (tensor((2, 3), (1,)), "without its strides"),
    "short": (tensor((2, 3), (3, 1), size=7), "'t' is not all there"),
    "wide": (tensor((2, 3), (3, 1), kind="Double"), "'t' is not all there"),
    "absent": (tensor((2, 3), (3, 1), key="9"), "the storage of 't'"),
    "escape": (tensor((2,), (1,), key="../data.pkl"), "the storage of 't'"),
    "complex": (
        tensor((3,), (1,), size=3, kind="ComplexFloat"),
        "dtype of 't'.*complex64",
    ),
    "kind": (tensor((2,), (1,), kind="Secret"), "torch.SecretStorage"),
    "system": (Call("os:system", "true"), "os.system"),
    "nested": (Call("torch.storage:_load_from_bytes", b""), "_load_from_by"),
    "getattr": (Call("builtins:getattr", 1, "real"), "builtins.getattr"),
    "no tensor": (3, "no weights.*'t'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_pickles_that_lie(case, tmp_path):
    root, message = REFUSED[case]
    path = archive(tmp_path / "lie.pth", {"t": root})
    with pytest.raises(CheckpointError, match=message) as error:
        open_tensors(path)
    assert "lie.pth" in str(error.value)


# The tuple of itself twice, thirty times over, as the key of a dictionary.
HASH_BOMB = b"\x80\x02}K\x01" + b"2\x86" * 60 + b"K\x00s."
PICKLES = {
    "no end": (b"\x80\x02}", "exhausted"),
    "empty stack": (b"\x80\x02.", "pickle"),
    "no mark": (b"\x80\x02K\x01t.", "no mark"),
    "long string": (b"\x80\x02X\xff\xff\xff\x7fabc.", "pickle"),
    "longer string": (b"\x80\x04\x8d" + b"\xff" * 7 + b"\x0fabc.", "pickle"),
    "far memo": (b"\x80\x02}r\xff\xff\xff\x7f.", "no weights"),
    "no memo": (b"\x80\x02h\x05.", "KeyError"),
    "hash bomb": (HASH_BOMB, "cannot be a key"),
    "instance": (b"(ios\nsystem\n.", "INST"),
    "extension": (b"\x80\x02\x82\x01.", "EXT1"),
    "call of text": (b"\x80\x02X\x02\0\0\0os)R.", "cannot be called"),
    "stacked": (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "os.system"),
    "itself": (b"\x80\x02}q\0X\x05\0\0\0modelh\0s.", "no weights"),
}


@pytest.mark.parametrize("case", PICKLES)
def test_pickles_that_bite(case, tmp_path):
    data, message = PICKLES[case]
    path = archive(tmp_path / "w", None, pickled=data)
    tracemalloc.start()
    with pytest.raises(CheckpointError, match=message):
        open_tensors(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**23


def test_legacy_storage_that_is_cut(tmp_path):
    data = (FILES / "legacy.pth").read_bytes()
    (tmp_path / "w").write_bytes(data[:-1])
    with pytest.raises(CheckpointError, match="not all there.*cut short"):
        open_tensors(tmp_path / "w")


def test_damaged_values_do_not_pass(tmp_path):
    """The checksum of the archive is looked at, for views of a part too."""
    data = bytearray((FILES / "zip.pth").read_bytes())
    with zipfile.ZipFile(io.BytesIO(data)) as members:
        info = members.getinfo("zip/data/9")
        start = data.index(members.read(info))
    data[start + 119] ^= 1  # the last byte, which `shared_slice` has not
    (tmp_path / "w").write_bytes(data)
    with open_tensors(tmp_path / "w") as tensors:
        tensors["f32"].read()
        for name in ("shared_slice", "shared_full"):
            with pytest.raises(CheckpointError, match=f"{name}.*CRC"):
                tensors[name].read()
