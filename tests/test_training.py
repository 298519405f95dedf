"""Schedules, losses, mixing, freezing, averages: the parts of the recipes."""

import pathlib
import warnings

import keras
import numpy as np
import pytest
from keras import ops
from random_weights import changed
from random_weights import filled
from random_weights import pictures
from random_weights import predict
from random_weights import values

import keras_vit
from keras_vit.training.schedules import check_rate_for

SMALL = {"image_size": 8, "width": 8, "mlp_dim": 8, "depth": 2}
X, Y = pictures(6, 8, 8), np.arange(6) % 5


def rates(schedule, steps):
    return np.array([float(schedule(step)) for step in steps])


@pytest.mark.parametrize("decay", ["cosine", "linear", "rsqrt"])
def test_schedule_starts_at_0_peaks_at_its_rate_and_ends_at_0(decay):
    schedule = keras_vit.WarmUp(0.5, 100, 20, decay)
    found = rates(schedule, range(0, 121))
    assert found[0] == 0
    assert found[20] == found.max() == pytest.approx(0.5)
    np.testing.assert_allclose(found[:21], 0.5 * np.arange(21) / 20, rtol=1e-6)
    assert (np.diff(found[20:101]) < 0).all()
    np.testing.assert_allclose(found[100:], 0, atol=1e-8)


def test_schedule_is_keras_cosine():
    theirs = keras.optimizers.schedules.CosineDecay(
        0.0, 80, warmup_target=0.3, warmup_steps=20
    )
    steps = range(0, 110, 5)
    np.testing.assert_allclose(
        rates(keras_vit.WarmUp(0.3, 100, 20), steps),
        rates(theirs, steps),
        atol=1e-7,
    )


def test_schedule_by_numbers():
    linear = keras_vit.WarmUp(1.0, 100, 20, "linear")
    assert float(linear(60)) == pytest.approx(0.5)
    rsqrt = keras_vit.WarmUp(1.0, 100_000, 10, "rsqrt", timescale=100)
    assert float(rsqrt(310)) == pytest.approx(0.5)  # sqrt(100 / 400)
    constant = keras_vit.WarmUp(2.0, 10, 5, "constant")
    assert rates(constant, (0, 5, 50)).tolist() == [0, 2, 2]
    assert float(keras_vit.WarmUp(2.0, 10)(0)) == 2  # without a warm-up
    again = keras_vit.WarmUp.from_config(rsqrt.get_config())
    assert again.get_config() == rsqrt.get_config()
    with pytest.raises(ValueError, match="warmup_steps=10, steps=10"):
        keras_vit.WarmUp(1.0, 10, 10)


def test_rate_grows_with_the_batch():
    """E08: 0.03 for 512 images is 0.00375 for 64."""
    assert keras_vit.scaled_rate(0.03, 64) == pytest.approx(0.00375)
    assert keras_vit.scaled_rate(1e-3, 4096, 256) == pytest.approx(0.016)


@pytest.mark.parametrize(
    ("optimizer", "pretrained", "warned"),
    [
        (lambda: keras.optimizers.Adam(1e-2), True, "0.01"),
        (lambda: keras.optimizers.AdamW(keras_vit.WarmUp(0.005, 9)), True, "5"),
        (lambda: keras.optimizers.Adam(1e-2), False, None),
        (lambda: keras.optimizers.Adam(1e-4), True, None),
        (lambda: keras.optimizers.SGD(1e-2), True, None),
    ],
)
def test_high_rates_are_warned_of(optimizer, pretrained, warned):
    """E04: Adam at 1e-2 unlearns what a checkpoint knows."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        check_rate_for(optimizer(), pretrained)
    found = [w for w in found if "unlearns" in str(w.message)]
    assert len(found) == bool(warned)
    if warned:
        assert warned in str(found[0].message)


def test_loss_of_every_kind_of_label():
    """E10: integers and one-hot alike, with and without smoothing."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(4, 5)).astype("float32")
    labels = np.array([4, 0, 2, 2])
    one_hot = np.eye(5, dtype="float32")[labels]
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    for s in (0.0, 0.1):
        loss = keras_vit.Crossentropy(label_smoothing=s)
        soft = (1 - s) * one_hot + s / 5
        expected = -(soft * logs).sum(-1).mean()
        for y in (labels, labels[:, None], one_hot):
            found = float(loss(ops.convert_to_tensor(y), logits))
            assert found == pytest.approx(expected, rel=1e-6)
        theirs = keras.losses.CategoricalCrossentropy(True, label_smoothing=s)
        assert found == pytest.approx(float(theirs(one_hot, logits)), rel=1e-6)
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert again.label_smoothing == 0.1


def test_mixup_by_its_pixels():
    """Labels are mixed as the pixels are, which are one number each here."""
    values = np.arange(5, dtype="float32") * 50
    images = np.tile(values[:, None, None, None], (1, 4, 6, 3))
    mix = keras_vit.Mix(5, mixup=1.0, cutmix=0, label_smoothing=0.1, seed=1)
    mixed, labels = mix(images.astype("uint8"), np.arange(5))
    assert mixed.dtype == labels.dtype == np.float32
    np.testing.assert_allclose(labels.sum(-1), 1, atol=1e-6)
    clean = (labels - 0.1 / 5) / 0.9
    np.testing.assert_allclose(mixed[:, 0, 0, 0], clean @ values, atol=1e-3)
    assert ((clean > 0.01).sum(axis=1) == 2).sum() >= 3


def test_cutmix_by_its_pixels():
    """The label is the share of pixels, to the last one."""
    images = np.tile(np.arange(5.0)[:, None, None, None], (1, 7, 9, 3))
    mix = keras_vit.Mix(5, mixup=0, cutmix=1.0, seed=0)
    boxes = set()
    for _ in range(20):
        mixed, labels = mix(images, np.arange(5))
        for image, label in zip(mixed, labels, strict=True):
            share = [(image[..., 0] == k).mean() for k in range(5)]
            np.testing.assert_allclose(label, share, atol=1e-6)
            boxes.add(tuple(np.round(label, 3)))
    assert len(boxes) > 50


def test_mix_draws():
    both = keras_vit.Mix(5, mixup=0.8, cutmix=1.0, switch_rate=0.5, seed=0)
    images = np.tile(np.arange(5.0)[:, None, None, None], (1, 8, 8, 3))
    pasted = [
        bool((np.unique(both(images, np.arange(5))[0]) % 1 == 0).all())
        for _ in range(200)
    ]
    assert 70 < sum(pasted) < 130
    rng = [np.random.default_rng(7) for _ in range(2)]
    first, second = (both(images, np.arange(5), r) for r in rng)
    np.testing.assert_array_equal(first[0], second[0])
    np.testing.assert_array_equal(first[1], second[1])
    off = keras_vit.Mix(5, 0, 0)
    np.testing.assert_array_equal(off(images, np.arange(5))[1], np.eye(5))
    one_hot = np.eye(5, dtype="float32")
    np.testing.assert_array_equal(off(images, one_hot)[1], one_hot)


def test_mix_in_tf_data():
    tf = pytest.importorskip("tensorflow")
    mix = keras_vit.Mix(5, seed=3)
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(6).map(mix)
    images, labels = next(iter(data))
    expected = keras_vit.Mix(5, seed=3)(X, Y)
    np.testing.assert_array_equal(images.numpy(), expected[0])
    np.testing.assert_array_equal(labels.numpy(), expected[1])
    assert data.element_spec[0].shape == (None, 8, 8, 3)
    model = filled(**SMALL)
    model.compile(keras.optimizers.SGD(0.1), keras_vit.Crossentropy())
    history = model.fit(data, shuffle=False, verbose=0).history
    assert np.isfinite(history["loss"][0])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: keras_vit.Mix(5)(X, Y + 1), "0 to 4. Received: 5"),
        (lambda: keras_vit.Mix(5, mixup=-1), "mixup=-1"),
        (lambda: keras_vit.Mix(5, switch_rate=2), "switch_rate=2"),
        (lambda: keras_vit.Crossentropy(1.0), "label_smoothing=1.0"),
    ],
)
def test_values_out_of_range(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def test_frozen_after_compile_stays_frozen():
    """E03: bit-equal on every backend, and the rest trains."""
    model = filled(**SMALL)
    model.compile(keras.optimizers.SGD(0.1), keras_vit.Crossentropy())
    model.fit(X, Y, verbose=0)
    before = values(model)
    count = keras_vit.freeze(model)
    assert count == 8 * 5 + 5
    assert count == sum(np.prod(v.shape) for v in model.trainable_weights)
    model.fit(X, Y, verbose=0)
    assert changed(before, values(model)) == {"head/kernel", "head/bias"}
    before = values(model)
    keras_vit.freeze(model, ["patch_embedding", "block_0", "*_token"])
    model.fit(X, Y, verbose=0)
    moved = {path.split("/")[0] for path in changed(before, values(model))}
    assert moved == {"block_1", "norm", "head", "position_embedding"}
    keras_vit.freeze(model, ())
    assert len(model.trainable_weights) == len(model.weights)
    with pytest.raises(ValueError, match="'blocks_0'.*mean 'block_0'"):
        keras_vit.freeze(model, "blocks_0")


def test_validation_and_best_checkpoint_use_the_average(tmp_path):
    """E09, H06: what is measured is what is saved, on every backend."""
    model = filled(**SMALL)
    optimizer = keras.optimizers.SGD(0.5, use_ema=True, ema_momentum=0.8)
    model.compile(
        keras_vit.layer_decay(optimizer, model, 1.0),
        keras_vit.Crossentropy(),
        metrics=["accuracy"],
    )
    path = str(tmp_path / "best.weights.h5")
    seen = []
    history = model.fit(
        X,
        Y,
        epochs=3,
        validation_data=(X[::-1], Y[::-1]),
        callbacks=[
            keras.callbacks.SwapEMAWeights(swap_on_epoch=True),
            keras.callbacks.ModelCheckpoint(
                path, save_weights_only=True, save_best_only=True
            ),
            keras.callbacks.LambdaCallback(
                on_epoch_end=lambda epoch, logs: seen.append(logs["val_loss"])
            ),
        ],
        verbose=0,
    ).history
    best = filled(seed=9, **SMALL)
    best.load_weights(path)
    logits = predict(best, X[::-1])
    loss = float(keras_vit.Crossentropy()(Y[::-1], logits))
    assert loss == pytest.approx(min(history["val_loss"]), abs=1e-5)
    assert seen == history["val_loss"]
    # And it is the average: a run without one is elsewhere.
    plain = filled(**SMALL)
    plain.compile(keras.optimizers.SGD(0.5), keras_vit.Crossentropy())
    other = plain.fit(
        X, Y, epochs=3, validation_data=(X[::-1], Y[::-1]), verbose=0
    )
    np.testing.assert_allclose(
        history["loss"], other.history["loss"], atol=1e-5
    )
    gap = np.subtract(history["val_loss"], other.history["val_loss"])
    assert np.abs(gap).min() > 1e-3


def test_mixed_labels_count_against_a_model_that_is_right():
    """E14: its accuracy on what it trains on is the lower one."""
    model = keras_vit.ViT.from_preset("vit_nano_fashion_mnist")
    model.compile(loss=keras_vit.Crossentropy(), metrics=["accuracy"])
    pixels = keras_vit.load_images(keras_vit.sample_images(), model)
    labels = np.eye(10)[predict(model, pixels).argmax(-1)]
    mix = keras_vit.Mix(10, mixup=0.8, cutmix=1.0, seed=0)
    _, mixed = model.evaluate(*mix(pixels, labels), verbose=0)
    _, plain = model.evaluate(pixels, labels, verbose=0)
    assert plain == 1.0
    assert mixed < 0.9


@pytest.mark.once
def test_guide_says_what_to_expect():
    """E05, E14: from scratch on little data, and of mixed pictures."""
    guide = pathlib.Path(__file__).parent.parent / "docs" / "training.md"
    parts = guide.read_text("utf-8").split("\n## ")
    (scratch,) = [p for p in parts if p.startswith("From scratch on little")]
    for word in ("CIFAR", "Fine-tune", "hybrid", "DeiT", "data_scale.py"):
        assert word in scratch
    (lower,) = [p for p in parts if p.startswith("The training accuracy is")]
    assert "model.evaluate" in lower


@pytest.mark.once
def test_mixed_labels_are_of_the_classes():
    with pytest.raises(ValueError, match=r"\(batch, 10\).*\(6, 5\)"):
        keras_vit.Mix(10)(X, np.eye(5)[Y])
