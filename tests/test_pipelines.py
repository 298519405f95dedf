"""The same batches through `tf.data`, and from files decoded once."""

import itertools
import logging
import re

import keras
import numpy as np
import pytest
from random_weights import values
from test_data import numbered
from test_data import pets

import keras_vit
from keras_vit.data import Batches
from keras_vit.data import decode
from keras_vit.data import open_images
from keras_vit.image_files import ImageError


@pytest.mark.once
@pytest.mark.parametrize("mix", [None, keras_vit.Mix(10)])
def test_tf_data_gives_the_same_batches(mix):
    batches = Batches(numbered(), 4, 8, augment="shift", mix=mix)
    dataset = batches.dataset(start=3)
    shapes = [tuple(spec.shape) for spec in dataset.element_spec]
    assert shapes == [(4, 8, 8, 3), (4,) if mix is None else (4, 10)]
    for step, found in zip(range(3, 15), dataset, strict=False):
        for ours, theirs in zip(found, batches[step], strict=True):
            np.testing.assert_array_equal(ours.numpy(), theirs)
            assert ours.numpy().dtype == theirs.dtype


def test_fit_takes_either(backend):
    """F10: to the same weights, on JAX and TensorFlow."""
    if backend == "torch":
        pytest.skip("torch trains without TensorFlow")
    batches = Batches(numbered(), 4, 8, augment="shift")
    found = []
    for stream in (batches.dataset(), batches.stream()):
        keras.utils.set_random_seed(0)
        config = keras_vit.vit_config(
            "nano/4", image_size=8, depth=1, width=8, mlp_dim=8, num_classes=10
        )
        model = keras_vit.ViT(config)
        model.compile(keras.optimizers.SGD(0.1), keras_vit.Crossentropy())
        model.fit(stream, steps_per_epoch=4, shuffle=False, verbose=0)
        found.append(values(model))
    stream.close()
    for name, value in found[0].items():
        np.testing.assert_allclose(found[1][name], value, atol=1e-7)


@pytest.mark.once
def test_decoded_images_give_the_same_batches(tmp_path, capsys):
    files = open_images(pets(tmp_path))
    memory = decode(files)
    assert "12/12" in re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert memory.images.shape == (12, 20, 30, 3)
    for augment in ("crop", "shift", "none"):
        ours, theirs = (Batches(i, 5, 16, augment) for i in (memory, files))
        for step in range(4):
            for a, b in zip(ours[step], theirs[step], strict=True):
                np.testing.assert_array_equal(a, b)


@pytest.mark.once
def test_unreadable_files_are_left_out(tmp_path, caplog):
    """F07: and said so, or fatal."""
    files = open_images(pets(tmp_path))
    files.images[2].write_bytes(b"broken")
    with pytest.raises(ImageError, match=re.escape(str(files.images[2]))):
        decode(files, verbose=0)
    with caplog.at_level(logging.WARNING, "keras_vit"):
        memory = decode(files, on_error="skip", verbose=0)
    assert str(files.images[2]) in caplog.text
    labels = np.delete(files.labels, 2)
    np.testing.assert_array_equal(memory.labels, labels)
    pixel = [int(image[0, 0, 0]) for image in memory.images]
    expected = [20 * k + i for i, k in itertools.product(range(3), range(4))]
    assert pixel == expected[:2] + expected[3:]


@pytest.mark.once
@pytest.mark.parametrize(
    ("labels", "names", "text"),
    [
        ([0, 1], "ab", "3 integers.*shape \\(2,\\)"),
        ([0.0, 1.0, 1.0], "ab", "float64"),
        ([0, 1, -1], "ab", "3 integers from 0"),
        ([0, 1, 2], "ab", "0 to 1.*Received: 2"),
    ],
)
def test_labels_are_checked(labels, names, text):
    with pytest.raises(ValueError, match=text):
        keras_vit.data.LabelledImages(
            np.zeros((3, 4, 4, 3), "uint8"), np.array(labels), names
        )
