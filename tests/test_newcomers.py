"""What people do in their first hour, and that the answer helps them."""

import json
import pathlib

import numpy as np
import pytest

import keras_vit

EMBEDDED = "vit_nano_fashion_mnist"
IMAGE = np.zeros((28, 28, 3), "uint8")


def embedded(**changes):
    return keras_vit.ViT.from_preset(EMBEDDED, **changes)


MISTAKES = {
    "a size for a config": (
        lambda: keras_vit.ViT("b/16"),
        TypeError,
        r"Received: 'b/16'. Write keras_vit.ViT\(keras_vit.vit_config",
    ),
    "a config of another class": (
        lambda: keras_vit.ResNetV2(keras_vit.vit_config("ti/16")),
        TypeError,
        r"Expected: a ResNetConfig.*keras_vit.resnet_config\(",
    ),
    "a name that is nearly right": (
        lambda: keras_vit.ViT.from_preset("vit-b16"),
        ValueError,
        "Did you mean 'vit_b16'",
    ),
    "one image for a batch": (
        lambda: embedded().predict(IMAGE, verbose=0),
        ValueError,
        r"Add the batch axis: `images\[None\]`",
    ),
    "another size": (
        lambda: embedded().predict(np.zeros((1, 32, 32, 3)), verbose=0),
        ValueError,
        r"with_image_size\(\(32, 32\)\)",
    ),
    "a size that is no multiple": (
        lambda: keras_vit.vit_config("b/16", image_size=225),
        ValueError,
        "The nearest legal values are 224 and 240",
    ),
    "a field that is called otherwise": (
        lambda: keras_vit.vit_config("b/16", classes=3),
        ValueError,
        "num_classes",
    ),
    "a file that is not there": (
        lambda: keras_vit.load_images("nothing.jpg", embedded()),
        ValueError,
        "No such file.*nothing.jpg",
    ),
    "a path where pixels go": (
        lambda: keras_vit.attention_maps(embedded(), "photo.jpg"),
        ValueError,
        r"Received: 'photo.jpg'. Files are read by keras_vit.load_images",
    ),
    "one image to look into": (
        lambda: keras_vit.attention_distance(embedded(), IMAGE),
        ValueError,
        r"Received: shape \(28, 28, 3\)",
    ),
    "a suffix nobody asked for": (
        lambda: keras_vit.save_checkpoint(embedded(), "model.pth"),
        ValueError,
        r"ends in .npz or .safetensors. Received: 'model.pth'",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_the_error_says_what_to_do(name):
    call, kind, message = MISTAKES[name]
    with pytest.raises(kind, match=message):
        call()


def test_lists_are_images_too():
    """What `as_images` lets through: nested lists, as Keras takes them."""
    one = keras_vit.attention_distance(embedded(), IMAGE[None])
    two = keras_vit.attention_distance(embedded(), IMAGE[None].tolist())
    np.testing.assert_array_equal(one, two)


def test_labels_of_a_head_of_ones_own(tmp_path):
    """The names travel with the folder, and the folder says what it is."""
    model = embedded(num_classes=2, labels=["cat", "dog"])
    model.save_to_preset(tmp_path / "mine")
    names = sorted(path.name for path in (tmp_path / "mine").iterdir())
    assert names == ["config.json", "labels.json", "model.weights.h5"]
    labels = pathlib.Path(tmp_path / "mine" / "labels.json").read_text("utf-8")
    assert json.loads(labels) == ["cat", "dog"]
