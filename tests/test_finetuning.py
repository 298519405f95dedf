"""Fine-tuning in one call, and on the command line."""

import json
import pathlib

import keras
import numpy as np
import pytest
from PIL import Image
from random_weights import predict

import keras_vit
from keras_vit.cli import main
from keras_vit.runs.finetune import RECIPES
from keras_vit.runs.finetune import _splits

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


def test_accumulation_changes_nothing_but_memory(tmp_path, quick):
    """G04: batch, rate, steps, averages and mixing stay what they are."""
    models = []
    for parts in (1, 3):
        keras_vit.finetune(
            PRESET,
            shades(),
            tmp_path / str(parts),
            "modern",
            augment="shift",
            batch_size=12,
            accumulate=parts,
            stochastic_depth_rate=0.0,
            test=shades(3),
            **quick,
        )
        out = tmp_path / str(parts) / "model"
        models.append(keras_vit.ViT.from_preset(out))
    rows = [
        (tmp_path / str(parts) / "log.csv").read_text().splitlines()
        for parts in (1, 3)
    ]
    assert [r.split(",")[0] for r in rows[0]] == ["step", "2", "4"]
    assert [r.split(",")[0] for r in rows[1]] == ["step", "2", "4"]
    for one, parts in zip(*(m.weights for m in models), strict=True):
        np.testing.assert_allclose(
            *map(keras.ops.convert_to_numpy, (one, parts)),
            atol=1e-7,
            err_msg=one.path,
        )
    with pytest.raises(ValueError, match="steps=5 times 1.*Received: 12"):
        keras_vit.finetune(
            PRESET,
            shades(),
            tmp_path / "5",
            batch_size=12,
            accumulate=5,
            **quick,
        )


@pytest.mark.once
def test_few_images_are_held_out_too(tmp_path):
    """And a test split of as many images as the training is one."""
    train_on, held = _splits(shades(4), None, seed=7)
    assert (len(train_on), len(held)) == (3, 1)
    for split in ("train", "test"):
        folders(tmp_path / split, shades(6))
    train_on, held = _splits(tmp_path, None, seed=0)
    assert {p.parts[-3] for p in train_on.images} == {"train"}
    assert {p.parts[-3] for p in held.images} == {"test"}
    assert len(train_on) == len(held) == 6
    train_on, held = _splits(tmp_path / "train", None, seed=0)
    assert not set(train_on.images) & set(held.images)


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
    with pytest.raises(ValueError, match="1 images, none of them"):
        keras_vit.accuracy(model, read.subset([1]), on_error="skip")
    wrong = keras_vit.data.LabelledImages(pixels, labels + 5, range(15))
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
