"""Weights that are about to be loaded are made without values, once."""

import io
import zipfile

import keras
import numpy as np
import pytest
from keras import ops

import keras_vit
from keras_vit.layers.initializers import initial
from keras_vit.layers.initializers import unfilled_weights
from keras_vit.weights.fill import fill
from keras_vit.weights.zip_members import open_member

RNG = np.random.default_rng(0)


@pytest.fixture
def model():
    config = keras_vit.vit_config("nano/4", image_size=12, num_classes=3)
    return keras_vit.ViT(config.replace(depth=1))


@pytest.fixture
def no_values(monkeypatch):
    """Fails whoever draws a random weight."""

    def refuse(*_, **__):
        raise AssertionError("a random weight was drawn")

    for name in ("VarianceScaling", "RandomNormal"):
        kind = getattr(keras.initializers, name)
        monkeypatch.setattr(kind, "__call__", refuse)


def checkpoint(model, path):
    keras_vit.save_checkpoint(model, path / "m.npz")
    return lambda: keras_vit.load_checkpoint(path / "m.npz", num_heads=2)


def preset(model, path):
    model.save_to_preset(path / "preset")
    return lambda: keras_vit.ViT.from_preset(path / "preset")


@pytest.mark.parametrize(
    "source",
    [
        checkpoint,
        preset,
        lambda model, path: lambda: model.with_config(dropout_rate=0.5),
    ],
    ids=["checkpoint", "preset", "with_config"],
)
def test_weights_come_from_the_source_alone(source, model, tmp_path, request):
    make = source(model, tmp_path)
    request.getfixturevalue("no_values")
    copy = make()
    for old, new in zip(model.weights, copy.weights, strict=True):
        assert old.path == new.path
        assert new.trainable
        np.testing.assert_array_equal(
            ops.convert_to_numpy(old), ops.convert_to_numpy(new)
        )
    with pytest.raises(AssertionError, match="drawn"):
        keras_vit.ViT(model.config)


def test_weights_of_one_shape_stay_apart(model, tmp_path):
    """They may have shared a placeholder, which must not be seen later."""
    copy = preset(model, tmp_path)()
    first, *others = (v for v in copy.weights if v.shape == (64,))
    before = [ops.convert_to_numpy(v) for v in others]
    first.assign(np.full(64, 7.0))
    for variable, old in zip(others, before, strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(variable), old)


@pytest.mark.parametrize("shape", [(2, 3), (1200, 2000)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_placeholders_have_shape_and_dtype(shape, dtype):
    with unfilled_weights():
        initializer = initial("ones")
    made = initializer(shape, dtype=dtype)
    assert tuple(made.shape) == shape
    if keras.config.backend() == "torch":
        assert made.data_ptr() % 64 == 0
        assert made.is_contiguous()
    assert keras.backend.standardize_dtype(made.dtype) == dtype
    as_ever = keras.initializers.get(initial("ones"))((2,))
    np.testing.assert_array_equal(ops.convert_to_numpy(as_ever), 1.0)


@pytest.mark.parametrize(
    "array",
    [
        RNG.normal(size=(5, 7)).astype("float32"),
        RNG.normal(size=(5, 7)).astype("float32").T,
        RNG.normal(size=(5, 7)).astype("float32")[:, ::2],
        RNG.normal(size=(2, 3, 4, 5)).astype("float32").T,
        RNG.normal(size=7).astype("float32"),
        np.broadcast_to(np.float32(3), (2, 3)),
    ],
    ids=["plain", "transposed", "strided", "four_axes", "vector", "read_only"],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_fill_is_assign(array, dtype):
    one, two = (
        keras.Variable(np.zeros(array.shape), dtype=dtype) for _ in range(2)
    )
    one.assign(array)
    fill(two, array.copy("K") if array.flags.writeable else array)
    values = [ops.convert_to_numpy(ops.cast(v, "float32")) for v in (one, two)]
    np.testing.assert_array_equal(*values)
    two.assign(np.zeros(array.shape))
    assert one.trainable == two.trainable
    assert not np.any(ops.convert_to_numpy(ops.cast(two, "float32")))


def test_fill_takes_no_part_of_a_larger_array():
    whole = np.ones((2, 3), "float32")
    variables = [keras.Variable(np.zeros(3, "float32")) for _ in range(2)]
    for variable, row in zip(variables, whole, strict=True):
        fill(variable, row)
    for variable in variables:  # torch would write into it, as it trains
        variable.assign(np.full(3, 5.0))
    np.testing.assert_array_equal(whole, 1.0)


def test_fill_refuses_another_shape():
    variable = keras.Variable(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="shape"):
        fill(variable, np.zeros((3, 2), "float32"))


def archive_of(path, kind):
    with zipfile.ZipFile(path, "w", kind) as file:
        file.writestr("before", b"x" * 100)
        # An extra field, as torch.save has it for alignment.
        info = zipfile.ZipInfo("ünter/data")
        info.compress_type, info.extra = kind, b"FB\x04\x00ZZZZ"
        file.writestr(info, bytes(range(256)) * 20)
    return path


@pytest.mark.once
@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_members_read_as_zipfile_reads_them(kind, tmp_path):
    path = archive_of(tmp_path / "a.zip", kind)
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            whole = archive.read(name)
            with open_member(archive, name) as stream:
                target = bytearray(30)
                assert stream.readinto(target) == 30
                assert bytes(target) + stream.read(7) == whole[:37]
                rest = io.BytesIO()
                while piece := stream.read(1000):
                    rest.write(piece)
                assert rest.getvalue() == whole[37:]
                assert stream.readinto(target) == 0


@pytest.mark.once
def test_a_stored_member_that_changed_fails_at_its_end(tmp_path):
    path = archive_of(tmp_path / "a.zip", zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    data[data.index(bytes(range(256))) + 5000] ^= 1
    path.write_bytes(data)
    with zipfile.ZipFile(path) as archive:
        with open_member(archive, "before") as stream:
            assert stream.read() == b"x" * 100
        with open_member(archive, "ünter/data") as stream:
            stream.read(5000)
            with pytest.raises(zipfile.BadZipFile, match="CRC"):
                stream.read()
