"""Labelled images from wherever they are, and batches by their number."""

import gzip
import itertools
import sys
import threading

import keras
import numpy as np
import pytest
from PIL import Image
from random_weights import filled
from random_weights import pictures

import keras_vit
from keras_vit.data import Batches
from keras_vit.data import LabelledImages
from keras_vit.data import open_images
from keras_vit.data.batches import random_crop
from keras_vit.data.batches import random_shift
from keras_vit.image_files import ImageError

pytestmark = pytest.mark.once


def picture(path, value, size=(20, 30)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size[::-1], (value, value, value)).save(path)


def pets(root, splits=("",)):
    for split in splits:
        for i, name in enumerate(("cat", "dog", "emu")):
            for k in range(4):
                picture(root / split / name / f"{k}.png", 20 * k + i)
    return root


def numbered(count=10, size=8):
    """Images that are their own number."""
    pixels = np.arange(count, dtype="uint8")[:, None, None, None]
    pixels = np.tile(pixels, (1, size, size, 3))
    return LabelledImages(pixels, np.arange(count), tuple("abcdefghij"))


def write_idx(path, array):
    head = bytes([0, 0, 8, array.ndim])
    sizes = np.array(array.shape, ">u4").tobytes()
    with gzip.open(path, "wb") as file:
        file.write(head + sizes + array.tobytes())


def test_folder_of_class_folders(tmp_path):
    found = open_images(pets(tmp_path))
    assert found.names == ("cat", "dog", "emu")
    assert found.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert found.images[5].name == "1.png"
    some = found.subset(slice(3, 5))
    assert some.labels.tolist() == [0, 1]
    assert [p.parent.name for p in some.images] == ["cat", "dog"]
    with pytest.raises(ValueError, match=r"classes dog, cat.*\['emu'\]"):
        open_images(tmp_path, names=("dog", "cat"))


def test_folder_with_splits(tmp_path):
    pets(tmp_path, ("train", "test"))
    assert len(open_images(tmp_path, "test")) == 12
    with pytest.raises(ValueError, match="one of test, train.*'validation'"):
        open_images(tmp_path, "validation")


@pytest.mark.parametrize("heading", [True, False])
def test_table_of_paths_and_labels(heading, tmp_path):
    pets(tmp_path)
    rows = ["cat/0.png,10", "dog/1.png,9", "emu/2.png,9"]
    table = tmp_path / "labels.csv"
    table.write_text("\n".join([*["path,label"] * heading, *rows]))
    found = open_images(table)
    assert found.names == ("9", "10")  # as numbers
    assert found.labels.tolist() == [1, 0, 0]
    table.write_text("cat/0.png\n")
    with pytest.raises(ValueError, match=r"no label.*\['cat/0.png'\]"):
        open_images(table)


def test_idx_files(tmp_path):
    images = np.arange(48, dtype="uint8").reshape(3, 4, 4)
    write_idx(tmp_path / "train-images-idx3-ubyte.gz", images)
    write_idx(tmp_path / "train-labels-idx1-ubyte.gz", np.uint8([2, 0, 1]))
    found = open_images(tmp_path)
    np.testing.assert_array_equal(found.images[..., 2], images)
    assert found.labels.tolist() == [2, 0, 1]
    assert found.names == ("0", "1", "2")
    with pytest.raises(ValueError, match="t10k-images-idx3-ubyte.gz"):
        open_images(tmp_path, "test")
    path = tmp_path / "train-images-idx3-ubyte.gz"
    with gzip.open(path) as file:
        data = file.read()
    for bad, text in ((data[:-5], "48 bytes.*43"), (b"GIF89a", "47 49 46 38")):
        with gzip.open(path, "wb") as file:
            file.write(bad)
        with pytest.raises(ValueError, match=text):
            open_images(tmp_path)


def test_fashion_mnist(fashion_mnist):
    found = open_images(fashion_mnist, "test")
    assert found.images.shape == (10_000, 28, 28, 3)
    assert found.names[9] == "Ankle boot"
    model = keras_vit.ViT.from_preset("vit_nano_fashion_mnist")
    assert found.names == model.labels


def test_nothing_there(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="which is not there"):
        open_images(tmp_path / "missing")
    with pytest.raises(ValueError, match="0 in"):
        open_images(tmp_path)
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ImportError, match=r"keras-vit-garden\[recipes\]"):
        open_images("tfds:cifar100")


class FakeSet:
    """What the loader asks of tensorflow-datasets."""

    def __init__(self, rows, labels):
        class Label:
            names = labels

        self.rows = rows
        self.features = {"image": None, "label": Label()}

    def load(self, name, split, data_dir, with_info):
        self.asked = (name, split, data_dir)
        return self.rows, self

    def as_numpy(self, rows):
        return rows


def test_tensorflow_datasets(tmp_path, monkeypatch):
    rows = [{"image": pictures(1, 8, 8)[0][..., :1], "label": 1}] * 3
    fake = FakeSet(rows, ["a", "b"])
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", fake)
    found = open_images("tfds:mnist", "train[:3]", data_dir=str(tmp_path))
    assert fake.asked == ("mnist", "train[:3]", str(tmp_path))
    assert found.images.shape == (3, 8, 8, 3)
    assert found.names == ("a", "b")
    fake.features = {"text": None}
    with pytest.raises(ValueError, match="with text"):
        open_images("tfds:poems")


def test_vtab_has_19_tasks():
    table = keras_vit.data.VTAB
    assert len(table) == 19
    assert sum(classes for _, _, classes, _ in table.values()) == 795 + 62 + 83
    assert table["pets"] == ("oxford_iiit_pet", "test", 37, "label")


def test_batches_are_functions_of_their_number():
    first, second = (
        Batches(numbered(), 3, 8, augment="shift", seed=5) for _ in range(2)
    )
    steps = [0, 7, 3, 100, 7]
    for step in steps:
        for a, b in zip(first[step], second[step], strict=True):
            np.testing.assert_array_equal(a, b)
    other = Batches(numbered(), 3, 8, augment="shift", seed=6)
    assert not np.array_equal(first[0][1], other[0][1])


def test_an_epoch_sees_each_image_once():
    """F12: indices are shuffled; what is left over is left out."""
    batches = Batches(numbered(), 3, 8, augment="none")
    assert batches.steps_per_epoch == 3
    orders = []
    for epoch in range(4):
        labels = [batches[3 * epoch + i][1].tolist() for i in range(3)]
        flat = sum(labels, [])
        assert len(set(flat)) == 9
        orders.append(tuple(flat))
    assert len(set(orders)) == 4
    pixels, labels = batches[0]
    np.testing.assert_array_equal(pixels[:, 0, 0, 0], labels)


def test_streams_start_anywhere():
    batches = Batches(numbered(), 3, 8, augment="crop")
    stream = batches.stream(11)
    for step, (pixels, labels) in enumerate(itertools.islice(stream, 9), 11):
        np.testing.assert_array_equal(pixels, batches[step][0])
        np.testing.assert_array_equal(labels, batches[step][1])
    before = threading.active_count()
    stream.close()
    assert threading.active_count() < before  # F11: no thread is left


def test_unreadable_files(tmp_path):
    """F07: named, or left out and listed."""
    found = open_images(pets(tmp_path))
    bad = tmp_path / "dog" / "2.png"
    bad.write_bytes(bad.read_bytes()[:40])
    batches = Batches(found, 12, 8, augment="none")
    with pytest.raises(ImageError, match=r"dog.2\.png"):
        batches[0]
    batches = Batches(found, 12, 8, augment="none", on_error="skip")
    pixels, _ = batches[0]
    assert pixels.shape == (12, 8, 8, 3)
    assert list(batches.failed) == [str(bad)]
    again, _ = batches[0]
    np.testing.assert_array_equal(pixels, again)


def test_crops_are_parts_of_the_image():
    """Of 8 to 100 %, aspect 3/4 to 4/3, half of them flipped."""
    ramp = np.linspace(0, 255, 60).astype("uint8")
    image = np.broadcast_to(ramp[None, :, None], (40, 60, 3)).copy()
    rng = np.random.default_rng(0)
    flips, widths = 0, []
    for draw in rng.random((300, 5)):
        part = random_crop(image, (16, 24), draw).astype(float)
        assert part.shape == (16, 24, 3)
        slope = part[0, -1, 0] - part[0, 0, 0]
        flips += slope < 0
        widths.append(abs(slope) / 255)
    assert 110 < flips < 190
    assert min(widths) > 0.12
    assert max(widths) > 0.85
    square = image[:, :40]
    whole = random_crop(square, (40, 40), np.array([1, 0.5, 0, 0, 0.9]))
    np.testing.assert_array_equal(whole, square)


def test_shifts_are_small():
    image = np.zeros((28, 28, 3), "uint8")
    image[14, 14] = 255
    seen = set()
    for draw in np.random.default_rng(0).random((200, 5)):
        row, column = np.argwhere(random_shift(image, draw)[..., 0])[0]
        seen.add((row - 14, min(abs(column - 14), abs(column - 13))))
    assert {abs(int(r)) for r, _ in seen} == {0, 1, 2}
    assert max(c for _, c in seen) <= 2


def test_keras_layers_augment():
    """RandAugment, and what it draws depends on the step alone."""
    layer = keras.layers.RandAugment(value_range=(0, 255))
    augment = keras_vit.data.augment_by_layer(layer)
    images = LabelledImages(pictures(6, 16, 16), np.arange(6), tuple("abcdef"))
    batches = Batches(images, 6, 16, augment=augment)
    first, other, again = batches[4][0], batches[5][0], batches[4][0]
    assert first.dtype == np.uint8
    np.testing.assert_array_equal(first, again)
    order = np.argsort(batches[4][1])
    assert np.abs(first[order].astype(int) - images.images).mean() > 1
    assert not np.array_equal(first, other)


def test_a_crop_and_then_a_function():
    """AugReg: crops, then RandAugment on what they give."""
    images = numbered()
    plain = Batches(images, 4, 8, augment="shift")
    both = Batches(images, 4, 8, augment=("shift", lambda x, rng: 255 - x))
    np.testing.assert_array_equal(both[2][0], 255 - plain[2][0])
    with pytest.raises(ValueError, match="mean 'shift'"):
        Batches(images, 4, 8, augment=("shifts", lambda x, rng: x))


def test_batches_train_a_model():
    batches = Batches(
        numbered(5), 4, 8, augment="shift", mix=keras_vit.Mix(5), seed=1
    )
    model = filled(image_size=8, width=8, mlp_dim=8, depth=1)
    model.compile(keras.optimizers.SGD(0.1), keras_vit.Crossentropy())
    stream = batches.stream()
    history = model.fit(stream, steps_per_epoch=3, shuffle=False, verbose=0)
    stream.close()
    assert np.isfinite(history.history["loss"]).all()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"batch_size": 11}, "batch_size=11 images. Received: 10"),
        ({"augment": "twirl"}, "augment='twirl'"),
        ({"on_error": "pass"}, "on_error='pass'"),
    ],
)
def test_errors(options, text):
    with pytest.raises(ValueError, match=text):
        Batches(numbered(), **{"batch_size": 2, "image_size": 8, **options})
