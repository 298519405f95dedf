"""The notebooks in small: what stands for their data, and what must hold.

For each notebook a function `(folder, monkeypatch)` that gives values for its
cell of parameters, and one that looks at the names which it leaves behind.
"""

import json

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit

EMBEDDED = "vit_nano_fashion_mnist"


def quickstart(folder, _):
    """Twelve pictures of two classes: two of the samples, shifted."""
    rng = np.random.default_rng(0)
    for path in keras_vit.sample_images()[:2]:
        image = np.asarray(Image.open(path))
        (folder / "mine" / path.stem).mkdir(parents=True)
        for i in range(6):
            shifted = np.roll(image, rng.integers(-2, 3, 2), (0, 1))
            name = folder / "mine" / path.stem / f"{i}.png"
            Image.fromarray(shifted).save(name)
    return {
        "FOLDER": folder / "mine",
        "PRESET": EMBEDDED,
        "EPOCHS": 6,
        "BATCH_SIZE": 5,
        "LEARNING_RATE": 1e-3,
    }


def quickstart_shows(names):
    """L01: it has learned, and what it wrote opens as the same model."""
    assert names["nearest"] == 1
    assert names["first"] == pytest.approx(np.log(2), abs=1e-6)
    assert names["history"].history["loss"][-1] < 0.55
    assert names["again"].labels == ("ankle_boot", "bag")
    x = names["x_test"]
    before, after = (
        names[model].predict(x, verbose=0) for model in ("model", "again")
    )
    np.testing.assert_array_equal(before, after)


def from_hf_or_timm(folder, _):
    """A folder as Hugging Face writes it, of a model with a class token."""
    config = keras_vit.vit_config(
        "nano/4", image_size=(28, 28), depth=2, num_classes=3
    )
    model = keras_vit.ViT(config)
    rng = np.random.default_rng(1)
    for variable in model.weights:
        variable.assign(rng.normal(0, 0.3, variable.shape))
    keras_vit.save_checkpoint(model, folder / "model.safetensors", "hf")
    facts = {
        "model_type": "vit",
        "num_attention_heads": config.num_heads,
        "hidden_act": "gelu",
        "id2label": {"0": "cat", "1": "dog", "2": "cow"},
    }
    (folder / "config.json").write_text(json.dumps(facts))
    return {"SOURCE": str(folder), "COMPARE": False}


def from_hf_or_timm_shows(names):
    assert names["model"].labels == ("cat", "dog", "cow")
    assert set(names["differences"]) == {"timm", "hf", "google", "big_vision"}
    assert max(names["differences"].values()) == 0
    assert "block_0/mlp/dense_1/bias" in names["complaint"]
    assert np.ptp(names["logits"]) > 0.1


def explore_augreg(*_):
    return {"PRESET": EMBEDDED}


def explore_augreg_shows(names):
    assert len(names["measured"]) > 50
    assert all(row[3] <= 40 for row in names["measured"])
    prices = [row[3] for row in names["frontier"]]
    scores = [row[1].top_1 for row in names["frontier"]]
    assert len(scores) > 5
    assert prices == sorted(prices)
    assert scores == sorted(scores)
    assert names["features"].shape == (4, 64)


def tpu_finetune(_, monkeypatch):
    """Forty pictures in the place of CIFAR-10's 60,000."""
    if keras.config.backend() != "jax":
        pytest.skip("JAX is the backend for a TPU")
    images = [np.asarray(Image.open(p)) for p in keras_vit.sample_images()]
    x = np.repeat(np.stack(images)[..., None], 3, -1)
    x = np.pad(x, ((0, 0), (2, 2), (2, 2), (0, 0)))
    train = (np.tile(x, (3, 1, 1, 1)), np.tile(np.arange(10), 3)[:, None])
    test = (x, np.arange(10)[:, None])
    monkeypatch.setattr(
        keras.datasets.cifar10, "load_data", lambda: (train, test)
    )
    return {
        "PRESET": EMBEDDED,
        "IMAGE_SIZE": 28,
        "BATCH_SIZE": 16,
        "STEPS": 6,
        "LEARNING_RATE": 1.0,
    }


def tpu_finetune_shows(names):
    """J07: what a T4 can take is less than what runs out of memory there."""
    assert names["on_training"] > 0.35  # a tenth before
    plan, b16 = names["plan"], keras_vit.vit_config("b/16", image_size=384)
    batch, accumulate = plan(b16, 512, 1, 15 * 2**30, num_bytes=4)
    assert batch * accumulate == 512
    assert batch == 8
    assert plan(b16, 512, 8, 15 * 2**30) == (128, 4)
    assert plan(keras_vit.vit_config("ti/16"), 64, 1, 80 * 2**30) == (64, 1)


def figures(*_):
    return {"PRESET": EMBEDDED, "PHOTOS": keras_vit.sample_images()[:3]}


def figures_shows(names):
    """I08: every figure from one documented call, on one's own pictures."""
    assert names["titles"][0].startswith("Ankle boot 9")
    for name in ("rollout", "relevance"):
        assert names[name].shape == (3, 7, 7)
    assert names["filters"].shape == (28, 4, 4, 3)
    assert names["similarity"].shape == (7, 7, 7, 7)
    assert names["distance"].shape == names["entropy"].shape == (6, 2)
    assert (names["distance"] < 1.3 * names["even"]).all()
    assert (names["entropy"] <= np.log(49) + 1e-5).all()
    for field in names["fields"].values():
        assert field.sum() == pytest.approx(1, abs=1e-4)


# Notebook: what makes its `SMALL` values, and what must hold at its end.
SMALL = {
    "quickstart": (quickstart, quickstart_shows),
    "from_hf_or_timm": (from_hf_or_timm, from_hf_or_timm_shows),
    "explore_augreg": (explore_augreg, explore_augreg_shows),
    "figures": (figures, figures_shows),
    "tpu_finetune": (tpu_finetune, tpu_finetune_shows),
}
