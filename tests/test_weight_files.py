"""Files of weights: values, names, lazy reading, and telling them apart."""

import json
import shutil
import tracemalloc
import zipfile

import h5py
import keras
import numpy as np
import pytest

from keras_vit.weights.open_file import open_tensors
from keras_vit.weights.tensor_file import CheckpointError
from keras_vit.weights.tensor_file import check_finite

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)
ARRAYS = {
    "block/0/kernel": RNG.normal(size=(3, 4)).astype("float32"),
    "half": RNG.normal(size=(2, 5)).astype("float16"),
    "double": RNG.normal(size=6),
    "count": np.array([3, -1, 7]),
    "byte": np.arange(5, dtype="uint8"),
    "flag": np.array([True, False]),
    "scalar": np.float32(2.5),
    "empty": np.zeros((0, 3), "float32"),
}
# Exact in bfloat16, whose bits are the upper half of those of a float32.
ROUND = np.array([[1.0, -2.5, 3.140625], [0.0, np.inf, -1e-38]], "float32")
ROUND.view("u4")[...] &= 0xFFFF0000
HALVES = (ROUND.view("u4") >> 16).astype("<u2")


def write_npz(path, arrays):
    with open(path, "wb") as file:
        np.savez(file, **arrays)


def write_small_npz(path, arrays):
    with open(path, "wb") as file:
        np.savez_compressed(file, **arrays)


def write_safetensors(path, arrays, names=None, metadata=None):
    """By the format's description, not by the library that wrote it."""
    kinds = {"f2": "F16", "f4": "F32", "f8": "F64", "i8": "I64", "u1": "U8"}
    kinds |= {"b1": "BOOL", "V2": "BF16"}
    header, body = {}, b""
    for name, array in arrays.items():
        data = np.ascontiguousarray(array).tobytes()
        header[name] = {
            "dtype": kinds[np.asarray(array).dtype.str[1:]],
            "shape": list(np.shape(array)),
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    if metadata:
        header["__metadata__"] = metadata
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def write_h5(path, arrays):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array


def write_keras(path, arrays):
    inner = path.with_suffix(".inner")
    write_h5(inner, arrays)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", "{}")
        archive.write(inner, "model.weights.h5")


WRITERS = {
    "npz": write_npz,
    "small_npz": write_small_npz,
    "safetensors": write_safetensors,
    "h5": write_h5,
    "keras": write_keras,
}
FORMATS = {"small_npz": "npz", "keras": "h5"}


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("suffix", [".npz", ".pth", ""])
def test_values_come_back_whatever_the_file_is_called(kind, suffix, tmp_path):
    path = tmp_path / f"weights{suffix}"
    WRITERS[kind](path, ARRAYS)
    with open_tensors(path) as tensors:
        assert tensors.format == FORMATS.get(kind, kind)
        assert set(tensors) == set(ARRAYS)
        for name, array in ARRAYS.items():
            tensor, value = tensors[name], tensors[name].read()
            assert tensor.shape == value.shape == array.shape
            assert tensor.dtype == value.dtype == array.dtype
            assert value.flags.c_contiguous
            assert value.tobytes() == array.tobytes(), name


@pytest.mark.parametrize("kind", ["npz", "small_npz", "safetensors", "h5"])
def test_bfloat16_reads_as_float32(kind, tmp_path):
    """A10: NumPy keeps bfloat16 as two bytes without a type."""
    WRITERS[kind](tmp_path / "w", {"a/b": HALVES.view("V2")})
    with open_tensors(tmp_path / "w") as tensors:
        assert tensors["a/b"].dtype == "float32"
        assert tensors["a/b"].read().tobytes() == ROUND.tobytes()


def test_many_bfloat16_are_converted_piece_by_piece(tmp_path):
    values = np.arange(3 * 2**19 + 5, dtype="<u2")
    write_safetensors(tmp_path / "w", {"x": values.view("V2")})
    with open_tensors(tmp_path / "w") as tensors:
        bits = tensors["x"].read().view("u4")
    np.testing.assert_array_equal(bits, values.astype("u4") << 16)


@pytest.mark.parametrize("order", ["<", ">"])
def test_byte_and_axis_order_of_npz(order, tmp_path):
    array = np.asfortranarray(np.arange(24, dtype=f"{order}f4").reshape(2, 12))
    np.savez(tmp_path / "w.npz", x=array)
    with open_tensors(tmp_path / "w.npz") as tensors:
        value = tensors["x"].read()
    assert value.dtype.isnative
    assert value.flags.c_contiguous
    np.testing.assert_array_equal(value, array)


def test_what_is_no_number_is_ignored_by_name(tmp_path):
    """A16: nothing is left out without being named."""
    np.savez(tmp_path / "w.npz", x=np.ones(2), names=np.array(["a", "b"]))
    with open_tensors(tmp_path / "w.npz") as tensors:
        assert list(tensors) == ["x"]
        assert tensors.ignored == ["names"]


def test_metadata_of_safetensors(tmp_path):
    write_safetensors(tmp_path / "w", ARRAYS, metadata={"format": "pt"})
    with open_tensors(tmp_path / "w") as tensors:
        assert tensors.metadata == {"format": "pt"}


def test_keras_files_of_a_real_model(tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    kernel = keras.ops.convert_to_numpy(model.layers[0].kernel)
    model.save(tmp_path / "m.keras")
    model.save_weights(tmp_path / "m.weights.h5")
    for name in ("m.keras", "m.weights.h5"):
        with open_tensors(tmp_path / name) as tensors:
            found = [t.read() for n, t in tensors.items() if "layers/" in n]
        assert any(np.array_equal(value, kernel) for value in found), name


def test_compressed_h5_is_read(tmp_path):
    with h5py.File(tmp_path / "w", "w") as file:
        file.create_dataset("x", data=np.zeros((300, 300)), compression="gzip")
    with open_tensors(tmp_path / "w") as tensors:
        assert not tensors["x"].read().any()


def write_shards(folder, lie=None):
    first = {"a": np.ones(2), "b": np.zeros(3)}
    write_safetensors(folder / "one.safetensors", first)
    write_safetensors(folder / "two.safetensors", {"c": np.full(4, 7.0)})
    where = {"a": "one.safetensors", "b": "one.safetensors"}
    where |= {"c": "two.safetensors", **(lie or {})}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": where}))
    return index


def test_shards_open_as_one(tmp_path):
    index = write_shards(tmp_path)
    for path in (index, tmp_path):
        with open_tensors(path) as tensors:
            assert sorted(tensors) == ["a", "b", "c"]
            assert tensors["c"].read().tolist() == [7, 7, 7, 7]
            assert tensors.format == "safetensors"


@pytest.mark.parametrize(
    ("lie", "message"),
    [
        ({"d": "two.safetensors"}, r"'d' is missing.*two\.safetensors"),
        ({"d": "../two.safetensors"}, "leads out of its folder"),
        ({"d": "/etc/hostname"}, "leads out of its folder"),
        ({"d": ".."}, "This is no file"),
        ({"d": ["two"]}, "leads out of its folder"),
        ({"d": "three.safetensors"}, "no such file.*three"),
        ({"d": "model.safetensors.index.json"}, "no file of weights"),
    ],
)
def test_shards_that_lie(lie, message, tmp_path):
    index = write_shards(tmp_path, lie)
    with pytest.raises(CheckpointError, match=message):
        open_tensors(index)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_folder_opens_its_weights(name, tmp_path):
    """A05: a repository with either file."""
    write_safetensors(tmp_path / name, ARRAYS)
    (tmp_path / "config.json").write_text("{}")
    with open_tensors(tmp_path) as tensors:
        assert len(tensors) == len(ARRAYS)
        assert tensors.path == tmp_path / name


def test_folder_without_weights_lists_its_files(tmp_path):
    """A05, L08: what TFViT and FlaxViT left is named, safetensors opened."""
    for name in ("config.json", "flax_model.msgpack", "tf_model.h5"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(CheckpointError, match=r"flax_\w+\.msgpack, tf_model"):
        open_tensors(tmp_path)
    write_safetensors(tmp_path / "model.safetensors", ARRAYS)
    with open_tensors(tmp_path) as tensors:
        assert tensors.path.name == "model.safetensors"


STRANGERS = {
    "empty": (b"", "an empty file"),
    "page": (b"\n <!DOCTYPE html><html>404</html>", "a web page"),
    "xml": (b"<?xml version='1.0'?><Error/>", "an XML page"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    "gzip": (b"\x1f\x8b\x08\0\0\0\0\0", "gzip.*Unpack it first"),
    "npy": (b"\x93NUMPY\x01\0v\0{'descr'", "one array of numpy.save"),
    "picture": (b"\x89PNG\r\n\x1a\n", "load_images"),
    "pickle": (b"\x80\x04\x95\0\0\0\0", "a pickle that torch.save did not"),
    "json": (b'{"architectures": ["ViT"]}', "keys architectures"),
    "bad json": (b'{"weight_map": ', "this JSON file"),
    "cut zip": (b"PK\x03\x04" + bytes(40), "directory of this zip"),
    "noise": (b"\x07\x08" * 30, "start with b"),
}


@pytest.mark.parametrize("kind", STRANGERS)
def test_other_kinds_of_files_are_named(kind, tmp_path):
    data, message = STRANGERS[kind]
    (tmp_path / "model.npz").write_bytes(data)
    with pytest.raises(CheckpointError, match=f"(?s){message}") as error:
        open_tensors(tmp_path / "model.npz")
    assert "model.npz" in str(error.value)


def test_missing_file_names_its_neighbours(tmp_path):
    (tmp_path / "vit_b16.npz").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"mean 'vit_b16\.npz'"):
        open_tensors(tmp_path / "vit_b_16.npz")


def test_zip_without_weights_lists_its_members(tmp_path):
    with zipfile.ZipFile(tmp_path / "w.zip", "w") as archive:
        archive.writestr("readme.txt", "nothing")
    with pytest.raises(CheckpointError, match=r"readme\.txt"):
        open_tensors(tmp_path / "w.zip")


def test_closed_file_says_so(tmp_path):
    write_npz(tmp_path / "w", ARRAYS)
    with open_tensors(tmp_path / "w") as tensors:
        tensor = tensors["half"]
    with pytest.raises(CheckpointError, match="'half' any more"):
        tensor.read()
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_values_that_are_no_numbers(bad):
    array = np.ones((3, 4), "float32")
    check_finite("head/kernel", array)
    check_finite("count", np.arange(3))
    array[1, 2] = bad
    with pytest.raises(CheckpointError, match=r"1 NaN .* of 12.*\(1, 2\)"):
        check_finite("head/kernel", array)


@pytest.mark.parametrize("kind", WRITERS)
def test_peak_memory_is_one_tensor(kind, tmp_path):
    """J04: 64 MB in four tensors, never more than 1.3 of them."""
    big = {f"t{i}": np.full((2048, 2048), i, "float32") for i in range(4)}
    WRITERS[kind](tmp_path / "w", big)
    largest = big["t0"].nbytes
    del big
    tracemalloc.start()
    with open_tensors(tmp_path / "w") as tensors:
        opened = tracemalloc.get_traced_memory()[1]
        for name in tensors:
            assert tensors[name].read()[0, 0] == int(name[1])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert opened < 2**22
    assert peak < 1.3 * largest
