"""Fine-tuning in one call, on the command line, and every recipe, small."""

import gzip
import json
import pathlib
import runpy
import sys

import keras
import numpy as np
import pytest
from PIL import Image
from random_weights import predict

import keras_vit
from keras_vit.cli import main
from keras_vit.runs.finetune import RECIPES

RECIPE_FILES = pathlib.Path(__file__).parent.parent / "recipes"
PRESET = "vit_nano_fashion_mnist"
QUICK = {"steps": 4, "every": 2, "verbose": 0, "devices": "cpu:1"}


@pytest.fixture
def quick(backend):
    return {**QUICK, "devices": "cpu" if backend == "torch" else "cpu:1"}


def shades(count=40, size=28):
    """Three classes that differ in brightness."""
    labels = np.arange(count, dtype="int32") % 3
    noise = np.random.default_rng(0).integers(0, 40, (count, size, size, 1))
    pixels = (noise + 80 * labels[:, None, None, None]).astype("uint8")
    pixels = np.repeat(pixels, 3, axis=-1)
    return keras_vit.data.LabelledImages(pixels, labels, ("low", "mid", "high"))


def folders(root, images):
    for i, (pixels, label) in enumerate(
        zip(images.images, images.labels, strict=True)
    ):
        folder = root / images.names[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{i}.png")
    return root


def idx_files(root, count=300):
    """The four files of a tiny Fashion-MNIST."""
    rng = np.random.default_rng(0)
    for prefix in ("train", "t10k"):
        images = rng.integers(0, 256, (count, 28, 28), dtype="uint8")
        labels = (np.arange(count) % 10).astype("uint8")
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            head = bytes([0, 0, 8, array.ndim])
            sizes = np.array(array.shape, ">u4").tobytes()
            with gzip.open(root / f"{prefix}-{name}-ubyte.gz", "wb") as file:
                file.write(head + sizes + array.tobytes())
    return root


def test_learns_and_saves(tmp_path, quick):
    """L01: a preset, images, a directory; the result is a preset."""
    images = shades()
    result = keras_vit.finetune(
        PRESET,
        images,
        tmp_path,
        augment="shift",
        batch_size=12,
        rate=2.0,
        **{**quick, "steps": 20, "every": 10},
    )
    assert result["images"] == 4  # every tenth is held out
    assert result["top_1"] == 1.0
    assert json.loads((tmp_path / "result.json").read_text()) == result
    model = keras_vit.ViT.from_preset(tmp_path / "model")
    assert model.labels == images.names
    held = images.subset([i for i in range(40) if i % 10 == 0])
    assert keras_vit.accuracy(model, held)["top_1"] == 1.0
    facts = json.loads((tmp_path / "run.json").read_text())
    assert facts["recipe"]["rate"] == 2.0
    assert facts["preset"] == PRESET
    # Again: nothing is trained, the same model comes out.
    again = keras_vit.finetune(
        PRESET,
        images,
        tmp_path,
        augment="shift",
        batch_size=12,
        rate=2.0,
        **{**quick, "steps": 20, "every": 10},
    )
    assert again == result
    other = keras_vit.ViT.from_preset(tmp_path / "model")
    np.testing.assert_array_equal(
        predict(other, held.images), predict(model, held.images)
    )


def test_modern_recipe(tmp_path, quick):
    """Layer decay, mixing, smoothing and stochastic depth, all at once."""
    result = keras_vit.finetune(
        PRESET,
        shades(),
        tmp_path,
        recipe="modern",
        batch_size=12,
        image_size=32,
        test=shades(9),
        **quick,
    )
    assert result["images"] == 9
    model = keras_vit.ViT.from_preset(tmp_path / "model")
    assert model.config.image_size == (32, 32)
    assert model.config.block.stochastic_depth_rate == 0.1
    facts = json.loads((tmp_path / "run.json").read_text())
    assert facts["recipe"]["layer_decay"] == 0.75


@pytest.mark.once
def test_recipes_are_the_papers_numbers():
    """E06, E08: table 4, and the rate goes with the batch."""
    paper, modern = RECIPES["paper"], RECIPES["modern"]
    assert (paper.batch_size, paper.rate, paper.optimizer) == (512, 0.03, "sgd")
    assert (paper.average, paper.weight_decay) == (0.9999, 0.0)
    assert (modern.mixup, modern.cutmix, modern.label_smoothing) == (
        0.8,
        1,
        0.1,
    )


@pytest.mark.once
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"recipe": "papers"}, "mean 'paper'"),
        ({"rates": 1.0}, "field='rates'.*mean 'rate'"),
    ],
)
def test_unknown_words(options, text, tmp_path):
    with pytest.raises(ValueError, match=text):
        keras_vit.finetune(PRESET, shades(), tmp_path, **options)


@pytest.mark.once
def test_accuracy(tmp_path):
    model = keras_vit.ViT.from_preset(PRESET)
    pixels = keras_vit.load_images(keras_vit.sample_images(), model)
    # Samples are in the order of the alphabet.
    order = sorted(range(10), key=lambda i: model.labels[i].lower())
    labels = np.array(order)
    images = keras_vit.data.LabelledImages(pixels, labels, model.labels)
    best = predict(model, pixels).argmax(-1)
    found = keras_vit.accuracy(model, images, batch_size=4)
    assert found["top_1"] == (best == labels).mean()
    assert found["top_5"] == 1.0
    assert found["images"] == 10
    plain = [str(i) for i in range(10)]  # a slash would be a folder
    named = keras_vit.data.LabelledImages(pixels, labels, plain)
    paths = folders(tmp_path, named)
    next((paths / "1").iterdir()).write_bytes(b"broken")
    read = keras_vit.data.open_images(paths, names=plain)
    with pytest.raises(ValueError, match="Cannot read this picture"):
        keras_vit.accuracy(model, read)
    assert keras_vit.accuracy(model, read, on_error="skip")["images"] == 9
    wrong = keras_vit.data.LabelledImages(pixels, labels + 5, model.labels)
    with pytest.raises(ValueError, match="labels 0 to 9. Received: 14"):
        keras_vit.accuracy(model, wrong)


@pytest.mark.once
def test_command_line(tmp_path, capsys):
    folders(tmp_path / "train", shades())
    folders(tmp_path / "test", shades(9))
    words = ["finetune", str(tmp_path), "--preset", PRESET, "--steps", "2"]
    words += ["--every", "1", "--batch-size", "8", "--augment", "shift"]
    words += ["--out", str(tmp_path / "run"), "--json", "--devices", "cpu:1"]
    assert main(words) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["images"] == 9
    model = str(tmp_path / "run" / "model")
    words = ["evaluate", str(tmp_path), "--preset", model]
    assert main([*words, "--json"]) == 0
    again = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert again == {"top_1": result["top_1"], "images": 9}
    assert main([*words, "--split", "validation"]) == 2
    assert "splits, but not that one" in capsys.readouterr().err


@pytest.mark.once
# Of torch, in Keras' RandAugment.
@pytest.mark.filterwarnings("ignore:.*Tensor.T is deprecated")
@pytest.mark.parametrize(
    ("recipe", "words", "said"),
    [
        (
            "finetune",
            ["--toy", "--steps", "2", "--batch-size", "8"],
            "300 test",
        ),
        ("pretrain", ["--toy", "--steps", "2", "--every", "1"], "300 images"),
        (
            "pretrain",
            ["--toy", "--augreg", "--steps", "1", "--every", "1"],
            "of 300",
        ),
        (
            "mae",
            ["--toy", "--steps", "2", "--every", "1", "--batch-size", "8"],
            "loss",
        ),
        (
            "masked_patches",
            ["--toy", "--steps", "2", "--every", "1", "--batch-size", "8"],
            "commonest",
        ),
        (
            "distill",
            ["--toy", "--steps", "2", "--every", "1", "--batch-size", "8"]
            + ["--seeds", "1"],
            "taught",
        ),
        ("fewshot", [], "20 nearest"),
        ("linear_probe", ["--epochs", "1"], "300 test"),
        (
            "linear_probe",
            ["--epochs", "1", "--optimizer", "lamb", "--features", "norm"],
            "300 test",
        ),
    ],
)
def test_recipe_runs(recipe, words, said, tmp_path, monkeypatch, capsys):
    """E12, E13: each of them, from its command line."""
    words = [f"{recipe}.py", "--data", str(idx_files(tmp_path)), *words]
    if recipe not in ("fewshot", "linear_probe"):
        words += ["--out", str(tmp_path / "run")]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.syspath_prepend(str(RECIPE_FILES))
    runpy.run_path(str(RECIPE_FILES / f"{recipe}.py"), run_name="__main__")
    assert said in capsys.readouterr().out
    if recipe == "mae":
        assert (tmp_path / "run" / "reconstructions.png").stat().st_size > 5000


def test_same_result_on_every_backend(tmp_path, quick):
    """D12: the same seed and data give the same model, up to rounding."""
    oracle = pathlib.Path(__file__).parent / "oracles" / "finetuned.npy"
    images = shades()
    keras_vit.finetune(
        PRESET,
        images,
        tmp_path,
        augment="shift",
        batch_size=12,
        rate=0.5,
        test=images,
        **{**quick, "steps": 12, "every": 12},
    )
    model = keras_vit.ViT.from_preset(tmp_path / "model")
    logits = predict(model, images.images)
    if not oracle.exists() and keras.config.backend() == "jax":
        np.save(oracle, logits)
    expected = np.load(oracle)
    assert np.abs(expected).max() > 0.5
    np.testing.assert_allclose(logits, expected, atol=2e-3)
