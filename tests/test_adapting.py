"""A model made from another one: heads, inner activations, LoRA, int8."""

import logging

import keras
import numpy as np
import pytest
from random_weights import changed
from random_weights import fill
from random_weights import filled
from random_weights import pictures
from random_weights import predict
from random_weights import values

import keras_vit

SPARSE = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
HEAD = {"head/kernel", "head/bias"}


@pytest.fixture(scope="module")
def model():
    return filled(labels="abcde")


@pytest.mark.parametrize("classes", [3, 5, 0])
def test_with_num_classes(model, caplog, classes):
    """A15: only the head is new, and starts at zero; one line each."""
    with caplog.at_level(logging.INFO, "keras_vit"):
        other = model.with_num_classes(classes)
    after = values(other)
    fresh = HEAD if classes == 3 else set()
    assert changed(values(model), after) == fresh
    assert not any(after[path].any() for path in fresh)
    lines = [r.getMessage() for r in caplog.records]
    expected = [
        "head/kernel: new, (64, 5) -> (64, 3)",
        "head/bias: new, (5,) -> (3,)",
    ]
    assert lines == (expected if classes == 3 else [])
    assert other.config.head.num_classes == classes
    assert other.labels == (model.labels if classes == 5 else None)


def test_with_labels(model):
    other = model.with_num_classes(2, labels=["cat", "dog"])
    assert other.labels == ("cat", "dog")
    with pytest.raises(ValueError, match=r"2 labels.*num_classes=2.*1 labels"):
        model.with_num_classes(2, labels=["cat"])


def test_with_config(model):
    """Same weights, another computation; the source stays as it was."""
    before = values(model)
    other = model.with_config(activation="gelu_tanh", dropout_rate=0.1)
    assert changed(before, values(other)) == set()
    assert changed(before, values(model)) == set()
    assert other.config == model.config.replace(
        activation="gelu_tanh", dropout_rate=0.1
    )
    other.weights[0].assign(before["patch_embedding/kernel"] + 1)
    assert changed(before, values(model)) == set()


def test_policy_goes_along():
    half = filled(depth=1, dtype="mixed_bfloat16").with_num_classes(2)
    assert half.policy.name == "mixed_bfloat16"


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"num_registers": 2}, r"Missing: register_tokens/token"),
        ({"layer_scale": 0.1}, r"Missing: block_0/layer_scale_1/gamma"),
        ({"depth": 3}, r"Missing: block_2/norm_1/gamma"),
        ({"mlp_dim": 64}, r"\(64, 64\) for block_0/mlp/dense_1/kernel.*192"),
        ({"widht": 3}, r"Did you mean 'width'"),
    ],
    ids=["registers", "layer-scale", "depth", "shape", "unknown"],
)
def test_changes_that_lack_weights(model, changes, match):
    """A16: nothing is left at random."""
    with pytest.raises(ValueError, match=match):
        model.with_config(**changes)


def test_feature_model(model):
    """By name and by index, of the same weights, without touching them."""
    names = [0, -1, "block_0", "norm", "pre_logits", "logits"]
    inner = model.feature_model(names)
    images = pictures(2)
    outputs = predict(inner, images)
    assert set(outputs) == {
        "block_0",
        "block_1",
        "norm",
        "pre_logits",
        "logits",
    }
    assert outputs["block_0"].shape == outputs["norm"].shape == (2, 50, 64)
    np.testing.assert_array_equal(outputs["norm"][:, 0], outputs["pre_logits"])
    kernel, bias = model.get_layer("head").get_weights()
    logits = outputs["pre_logits"] @ kernel + bias
    np.testing.assert_allclose(outputs["logits"], logits, atol=1e-5)
    assert [id(v) for v in inner.weights] == [id(v) for v in model.weights]


@pytest.mark.parametrize("name", [2, -3, "block_2", "nrom"])
def test_unknown_activation(model, name):
    with pytest.raises(ValueError, match=rf"2 blocks.*{name!r}.*"):
        model.feature_model(name)


def test_lora():
    """Only the updates and the head move; changing the head keeps them."""
    model, images = filled(depth=1, image_size=8), pictures(4, 8, 8)
    start = predict(model, images)
    model.enable_lora(2)
    np.testing.assert_array_equal(predict(model, images), start)
    before = values(model)
    model.compile(keras.optimizers.SGD(0.1), SPARSE)
    model.fit(images, np.arange(4), batch_size=2, verbose=0)
    moved = changed(before, values(model))
    updates = {path for path in before if "/lora_kernel_" in path}
    assert len(updates) == 8
    assert moved == updates | HEAD
    # Everything that copies weights sees the sum, not the frozen kernel.
    trained = predict(model, images)
    merged = model.with_config(stochastic_depth_rate=0.1)
    assert np.abs(trained - start).max() > 1e-2
    np.testing.assert_allclose(predict(merged, images), trained, atol=1e-5)
    assert not updates & set(values(merged))


def test_lora_targets():
    model = filled(depth=1, image_size=8)
    model.enable_lora(2, targets=("qkv",))
    paths = {v.path for v in model.trainable_weights}
    lora = "block_0/attention/qkv/lora_kernel_"
    assert paths == {f"{lora}a", f"{lora}b"} | HEAD


def test_int8(tmp_path, recwarn):
    """C11: close to float, and the same after a round trip."""
    model, images = filled(depth=1, image_size=8), pictures(4, 8, 8)
    exact = predict(model, images)
    model.quantize("int8")
    assert model.quantization == "int8"
    rounded = predict(model, images)
    difference = np.abs(rounded - exact).max()
    assert 1e-4 < difference < 0.05 * np.abs(exact).max()
    model.save_to_preset(tmp_path / "int8")
    again = keras_vit.ViT.from_preset(tmp_path / "int8")
    assert again.quantization == "int8"
    np.testing.assert_array_equal(predict(again, images), rounded)
    said = [str(w.message) for w in recwarn.list]
    assert not [t for t in said if "quantiz" in t.lower()]  # of what stays
    with pytest.raises(ValueError, match=r"quantised to int8"):
        again.with_num_classes(3)


def test_lora_after_fill_is_not_random():
    """The helper of these tests draws by path: two models are equal."""
    one, two = filled(depth=1), filled(depth=1)
    assert changed(values(one), values(two)) == set()
    assert changed(values(one), values(fill(two, seed=1)))
