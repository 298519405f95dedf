"""Masked patch prediction and distillation: what is asked, and what moves."""

import keras
import numpy as np
import pytest
from keras import ops
from random_weights import changed
from random_weights import fill
from random_weights import filled
from random_weights import pictures
from random_weights import predict
from random_weights import tiny
from random_weights import values

import keras_vit

SMALL = {"image_size": (8, 12), "width": 16, "mlp_dim": 16}
X, Y = pictures(6, 8, 12), np.arange(6) % 5


def numpy(x):
    return ops.convert_to_numpy(x)


def masked(**options):
    encoder = filled(**SMALL, num_classes=0)
    return keras_vit.MaskedPatchPrediction(encoder, seed=0, **options)


def test_colours_are_the_means_in_three_bits():
    """By hand: red 200 is level 6, and 31 and 32 fall on two sides."""
    image = np.zeros((1, 8, 12, 3), "uint8")
    image[0, :4, :4] = (200, 31, 32)
    image[0, 4:, 8:] = 255
    image[0, :2, 4:8, 2] = 66  # half of a patch: the mean is 33
    found = numpy(masked().colours(image))[0]
    assert found.tolist() == [6 * 64 + 1, 1, 0, 0, 0, 511]


def test_corruption_is_80_10_10():
    """Of half of the patches; a swapped one is another of its image."""
    model = masked()
    x = np.random.default_rng(0).normal(size=(400, 6, 16)).astype("float32")
    token = numpy(model.mask_token)[0, 0]
    y, corrupted = map(numpy, model._corrupt(ops.convert_to_tensor(x)))
    same = (y == x).all(-1)
    is_token = (y == token).all(-1)
    other = ~same & ~is_token
    assert same[corrupted == 0].all()
    assert corrupted.mean() == pytest.approx(0.5, abs=0.03)
    chosen = corrupted == 1
    assert is_token[chosen].mean() == pytest.approx(0.8, abs=0.03)
    assert other[chosen].mean() == pytest.approx(0.1, abs=0.03)
    assert same[chosen].mean() == pytest.approx(0.1, abs=0.03)
    for image, patch in np.argwhere(other):
        places = np.flatnonzero((x[image] == y[image, patch]).all(-1))
        assert len(places) == 1
        assert places[0] != patch


def test_loss_and_accuracy_of_the_corrupted_ones():
    model = masked()
    tensors = model(X)
    out = {k: numpy(v) for k, v in tensors.items()}
    assert out["logits"].shape == (6, 6, 512)
    colours = numpy(model.colours(X))
    logs = out["logits"] - np.log(np.exp(out["logits"]).sum(-1, keepdims=True))
    each = -np.take_along_axis(logs, colours[..., None], -1)[..., 0]
    chosen = out["corrupted"] == 1
    loss = float(numpy(model.compute_loss(X, None, tensors)))
    assert loss == pytest.approx(each[chosen].mean(), rel=1e-5)
    found = model.compute_metrics(X, None, tensors)["accuracy"]
    right = out["logits"].argmax(-1) == colours
    assert float(numpy(found)) == pytest.approx(right[chosen].mean(), abs=1e-6)


def test_masked_patches_train_every_weight(tmp_path):
    model = masked()
    before = values(model)
    model.compile(keras.optimizers.SGD(0.5))
    history = model.fit(X, batch_size=6, epochs=2, verbose=0).history
    assert {"loss", "accuracy"} <= set(history)
    after = values(model)
    still = [
        path
        for path, value in after.items()
        if np.array_equal(value, before[path])
    ]
    assert not [p for p in still if "seed" not in p and "accuracy" not in p]
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        predict(again.encoder, X), predict(model.encoder, X)
    )
    assert predict(again.encoder.with_num_classes(3), X).shape == (6, 3)


@pytest.mark.parametrize("rate", [0, 1, -0.1])
def test_rates_out_of_range(rate):
    with pytest.raises(ValueError, match=f"corrupted_rate={rate}"):
        masked(corrupted_rate=rate)


def teacher():
    config = keras_vit.resnet_config(
        "r26x1", stages=(1,), trunk_width=32, image_size=(8, 12), num_classes=5
    )
    return fill(keras_vit.ResNetV2(config), seed=3)


def distiller(token=True, **options):
    student = fill(keras_vit.ViT(tiny(**SMALL, distillation_token=token)))
    return keras_vit.Distiller(student, teacher(), **options)


def logs(x):
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


@pytest.mark.parametrize("kind", ["hard", "soft"])
@pytest.mark.parametrize("token", [True, False])
def test_loss_is_equation_2_or_3(kind, token):
    weight, tau = (0.5, 3.0) if kind == "hard" else (0.1, 2.0)
    model = distiller(token, kind=kind, weight=weight, temperature=tau)
    out = {k: numpy(v) for k, v in model(X).items()}
    label, taught, answer = (
        logs(out[k]) for k in ("class", "distillation", "teacher")
    )
    rows = np.arange(6)
    expected = -(1 - weight) * label[rows, Y].mean()
    if kind == "hard":
        expected -= weight * taught[rows, answer.argmax(-1)].mean()
    else:
        p, q = logs(out["teacher"] / tau), logs(out["distillation"] / tau)
        divergence = (np.exp(p) * (p - q)).sum(-1)
        expected += weight * tau**2 * divergence.mean()
    loss = float(numpy(model.compute_loss(X, Y, out)))
    assert loss == pytest.approx(expected, rel=1e-5)
    mean = (out["class"] + out["distillation"]) / 2
    np.testing.assert_allclose(out["logits"], mean, atol=1e-5)
    np.testing.assert_allclose(predict(model.student, X), mean, atol=1e-5)
    np.testing.assert_allclose(
        predict(model.teacher, X), out["teacher"], atol=1e-4
    )


def test_student_learns_and_teacher_does_not(tmp_path):
    """D08 too: metrics are of what the student answers."""
    model = distiller()
    before, frozen = values(model.student), values(model.teacher)
    model.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"])
    history = model.fit(X, Y, batch_size=6, verbose=0).history
    after = values(model.student)
    assert changed(before, after) == set(after)
    assert not changed(frozen, values(model.teacher))
    assert set(history) == {"loss", "accuracy"}
    assert model.count_params() == (
        model.student.count_params() + model.teacher.count_params()
    )
    _, accuracy = model.evaluate(X, Y, verbose=0)
    right = predict(model.student, X).argmax(-1) == Y
    assert accuracy == pytest.approx(right.mean(), abs=1e-6)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(
        predict(again.student, X), predict(model.student, X), atol=1e-6
    )
    assert not again.teacher.trainable_variables


def test_mixed_labels():
    """What `Mix` makes goes in as labels."""
    model = distiller(label_smoothing=0.1)
    model.compile(keras.optimizers.SGD(0.1))
    images, labels = keras_vit.Mix(5, seed=0)(X, Y)
    history = model.fit(images, labels, batch_size=6, verbose=0).history
    assert np.isfinite(history["loss"]).all()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"kind": "warm"}, "kind='warm'"),
        ({"weight": 2}, "weight=2"),
        ({"temperature": 0}, "temperature=0"),
    ],
)
def test_distiller_errors(options, text):
    with pytest.raises(ValueError, match=text):
        distiller(**options)


def test_other_classes_are_refused():
    student = keras_vit.ViT(tiny(**SMALL, num_classes=4))
    with pytest.raises(ValueError, match="4 values.*num_classes=4.*5 of the"):
        keras_vit.Distiller(student, teacher())
