"""The catalogue, and the trained model inside the package."""

import json

import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit.presets import ASSETS
from keras_vit.presets import catalogue

NANO = "vit_nano_fashion_mnist"


@pytest.fixture(scope="module")
def model():
    return keras_vit.ViT.from_preset(NANO)


def answers(model, images):
    logits = model.predict(images, verbose=0)
    return [best[0][0] for best in keras_vit.top_labels(logits, model, k=1)]


def right(names):
    """How many of the ten samples got the label in their file name."""
    truth = [p.stem.replace("_", " ") for p in keras_vit.sample_images()]
    names = [name.lower().replace("/", " ") for name in names]
    return sum(a == b for a, b in zip(names, truth, strict=True))


def test_row_is_what_the_file_says(model):
    assert model.config == catalogue()[NANO].config
    assert len(model.labels) == model.config.head.num_classes


def test_embedded_model_is_small():
    """At most 2 MB in the package, samples included."""
    files = [*(ASSETS / NANO).iterdir(), *keras_vit.sample_images()]
    assert sum(path.stat().st_size for path in files) <= 2_000_000


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "LA", "P"])
@pytest.mark.parametrize("side", [28, 97, 256])
def test_samples_get_their_labels(model, tmp_path, mode, side):
    """A PNG of any size and kind: at least 9 of 10 right (F06)."""
    paths = []
    for path in keras_vit.sample_images():
        image = Image.open(path).resize((side, side), Image.BICUBIC)
        paths.append(tmp_path / path.name)
        image.convert(mode).save(paths[-1])
    assert right(answers(model, keras_vit.load_images(paths, model))) >= 9


def test_all_test_images(model, fashion_mnist):
    """What the table states is what 2,000 of the 10,000 test images give.

    Three standard errors of a sample of that size are 2.5 points.
    """
    import gzip

    with gzip.open(fashion_mnist / "t10k-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), "uint8", offset=16)
    with gzip.open(fashion_mnist / "t10k-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), "uint8", offset=8)[:2000]
    images = images.reshape(-1, 28, 28, 1)[:2000].repeat(3, axis=-1)
    logits = model.predict(images, batch_size=250, verbose=0)
    accuracy = 100 * float((logits.argmax(-1) == labels).mean())
    assert accuracy == pytest.approx(catalogue()[NANO].top_1, abs=2.5)


def test_list_presets():
    assert NANO in keras_vit.list_presets()
    assert list(keras_vit.list_presets("*NANO*")) == [NANO]
    assert keras_vit.list_presets("nothing*") == {}


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("vit_nano_fashion_mnits", "Did you mean 'vit_nano_fashion_mnist'"),
        ("runs/nowhere", "save_to_preset wrote"),
    ],
)
def test_unknown_names(name, match):
    with pytest.raises(ValueError, match=match):
        keras_vit.ViT.from_preset(name)


def test_a_file_is_no_preset(tmp_path):
    path = tmp_path / "weights.h5"
    path.write_bytes(b"\0")
    with pytest.raises(ValueError, match="A preset is a directory"):
        keras_vit.ViT.from_preset(path)


def test_overrides_keep_the_backbone(model):
    """A15, E20: another head or size, every other bit as it was."""
    other = keras_vit.ViT.from_preset(
        NANO, num_classes=3, image_size=56, labels=("a", "b", "c")
    )
    assert other.labels == ("a", "b", "c")
    values = {v.path: np.array(v) for v in model.weights}
    changed = {
        v.path
        for v in other.weights
        if v.shape != values[v.path].shape
        or (np.array(v) != values[v.path]).any()
    }
    assert changed == {"position_embedding/grid", "head/kernel", "head/bias"}


def test_config_is_plain_json():
    facts = json.loads((ASSETS / NANO / "config.json").read_text())
    assert facts["model"]["config"]["pixels"]["mean"] == [0.5, 0.5, 0.5]
