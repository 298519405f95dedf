"""Masked autoencoders against their references, and in training.

`oracles/golden/{mae_pretrain,hf_vitmae}`: files, inputs and noise of MAE's own
code and of transformers, and what these gave on a CPU in float32. Two
implementations differ by 2.1e-6; the bar is 2e-5.
"""

import pathlib

import keras
import numpy as np
import pytest
from keras import ops
from random_weights import fill
from random_weights import filled
from random_weights import pictures
from random_weights import predict
from random_weights import tiny
from random_weights import values

import keras_vit
from keras_vit.pretraining.patches import to_images
from keras_vit.pretraining.patches import to_patches

GOLDEN = pathlib.Path(__file__).parent / "oracles" / "golden"
# The file, and what it cannot say.
FILES = {
    "mae_pretrain": ("model.safetensors", {"num_heads": 4}),
    "hf_vitmae": ("hf", {}),
}
SMALL = {"image_size": (8, 12), "width": 16, "mlp_dim": 16, "num_classes": 0}
DECODER = {"decoder_width": 8, "decoder_depth": 1, "decoder_heads": 2}
X = pictures(4, 8, 12)


def made(encoder=None, **options):
    encoder = encoder or keras_vit.ViT(tiny(**SMALL))
    model = keras_vit.MaskedAutoencoder(
        encoder, **{**DECODER, "seed": 0, **options}
    )
    fill(model.encoder)
    fill(model.decoder, seed=1)
    return model


def arrays(outputs):
    return {k: ops.convert_to_numpy(v) for k, v in outputs.items()}


@pytest.mark.parametrize("name", FILES)
def test_oracle(name):
    """Tokens, prediction, mask, and both losses of the reference."""
    file, facts = FILES[name]
    with np.load(GOLDEN / name / "io.npz") as io:
        data = dict(io)
    model = keras_vit.MaskedAutoencoder.from_checkpoint(
        GOLDEN / name / file, decoder_heads=2, preprocessing=False, **facts
    )
    noise = ops.convert_to_tensor(data["noise"])
    images = ops.convert_to_tensor(data["images"])
    out = model(images, noise=noise)
    found = arrays(out)
    expected = data["pred" if "pred" in data else "logits"]
    np.testing.assert_allclose(found["patches"], expected, atol=2e-5)
    np.testing.assert_allclose(found["tokens"], data["tokens"], atol=2e-5)
    np.testing.assert_array_equal(found["mask"], data["mask"])
    for normalize, key in ((True, "loss_norm_pix"), (False, "loss")):
        model.normalize_pixels = normalize
        loss = ops.convert_to_numpy(model.compute_loss(images, None, out))
        assert float(loss) == pytest.approx(float(data[key][0]), abs=2e-5)


def test_patches_and_back():
    """A patch is a row of (row, column, channel), patches go row by row."""
    patches = ops.convert_to_numpy(to_patches(X, (4, 4)))
    np.testing.assert_array_equal(patches[1, 4], X[1, 4:, 4:8].ravel())
    back = ops.convert_to_numpy(to_images(patches, (2, 3), (4, 4)))
    np.testing.assert_array_equal(back, X)


def test_encoder_sees_what_is_kept_and_nothing_else():
    model = made(mask_ratio=0.5)
    noise = np.array([[5, 1, 3, 0, 4, 2]] * 4, "float32")  # keeps 3, 1, 5
    before = arrays(model(X, noise=noise))
    np.testing.assert_array_equal(before["mask"][0], [1, 0, 1, 0, 1, 0])
    changed = X.copy()
    changed[:, :4, :4] = 255 - changed[:, :4, :4]  # patch 0
    after = arrays(model(changed, noise=noise))
    np.testing.assert_array_equal(after["patches"], before["patches"])
    changed = X.copy()
    changed[:, :4, 4:8] = 255 - changed[:, :4, 4:8]  # patch 1
    after = arrays(model(changed, noise=noise))
    assert np.abs(after["patches"] - before["patches"]).max() > 0.1


def test_masks_are_drawn_anew():
    """For each image and call; as many patches as asked for."""
    model = made()
    masks = [arrays(model(X))["mask"] for _ in range(4)]
    assert {m.sum(axis=1).tolist()[0] for m in masks} == {5.0}  # of 6: 1 kept
    assert len({m.tobytes() for m in masks}) > 1
    assert len({row.tobytes() for m in masks for row in m}) > 2


@pytest.mark.parametrize("position", ["sincos_2d", "learned"])
def test_training_moves_every_weight(position):
    model = made(decoder_position=position)
    before = {**values(model.encoder), **values(model.decoder)}
    model.compile(keras.optimizers.SGD(0.5))
    history = model.fit(X, epochs=2, batch_size=4, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    after = {**values(model.encoder), **values(model.decoder)}
    for path, value in after.items():
        assert np.abs(value - before[path]).max() > 0, path
    assert np.isfinite(model.evaluate(X, verbose=0))


def test_learns_to_complete_a_plain_image():
    """From 1, what a mean of 0 gives, to less than a half in 60 steps."""
    keras.utils.set_random_seed(1)
    ramp = np.linspace(0, 255, 12, dtype="float32")[None, None, :, None]
    x = np.broadcast_to(ramp, (4, 8, 12, 3)).astype("uint8")
    model = keras_vit.MaskedAutoencoder(
        keras_vit.ViT(tiny(**SMALL)), **DECODER, normalize_pixels=False, seed=0
    )
    model.compile(keras.optimizers.Adam(1e-2))
    loss = model.fit(x, epochs=60, batch_size=4, verbose=0).history["loss"]
    assert loss[-1] < 0.5 * loss[0]
    masked, completed = model.reconstruct(x)
    error = [np.abs(y - x.astype(float)).mean() for y in (masked, completed)]
    assert error[1] < 0.7 * error[0]


def test_reconstruction_keeps_what_was_seen():
    model = made(mask_ratio=0.5)
    noise = np.array([[5, 1, 3, 0, 4, 2]] * 4, "float32")
    masked, completed = model.reconstruct(X, noise)
    for picture in (masked, completed):
        assert picture.dtype == np.uint8
        np.testing.assert_array_equal(picture[:, :4, 4:8], X[:, :4, 4:8])
        np.testing.assert_array_equal(picture[:, 4:, :4], X[:, 4:, :4])
    out = arrays(model(X, noise=noise))["patches"][0, 0].reshape(4, 4, 3)
    patch = X[0, :4, :4] / 127.5 - 1
    scale = np.sqrt(patch.var(ddof=1) + 1e-6)
    expected = 127.5 * (out * scale + patch.mean() + 1)
    np.testing.assert_allclose(
        completed[0, :4, :4], np.clip(expected, 0, 255), atol=0.51
    )


def test_saved_and_loaded(tmp_path):
    model = made()
    noise = np.random.default_rng(0).random((4, 6), "float32")
    before = arrays(model(X, noise=noise))["patches"]
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        arrays(again(X, noise=noise))["patches"], before
    )
    assert len(again.weights) == len(model.weights)
    classifier = again.encoder.with_num_classes(3)
    assert predict(classifier, X).shape == (4, 3)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"num_classes": 5}, "num_classes=5"),
        ({"pooling": "map", "class_token": False}, "pooling='map'"),
        ({"position": "relative"}, "position='relative'"),
        ({"image_size": None}, "image_size='None'"),
    ],
)
def test_encoders_that_cannot(changes, text):
    encoder = filled(**{**SMALL, **changes})
    with pytest.raises(ValueError, match=text):
        keras_vit.MaskedAutoencoder(encoder, **DECODER)


def test_other_errors():
    encoder = filled(**SMALL)
    with pytest.raises(ValueError, match=r"0\.8333 for 6 patches"):
        keras_vit.MaskedAutoencoder(encoder, **DECODER, mask_ratio=0.9)
    path = GOLDEN / "timm_vit"
    with pytest.raises(ValueError, match="no decoder"):
        keras_vit.MaskedAutoencoder.from_checkpoint(
            next(path.rglob("*.safetensors")).parent, preprocessing=False
        )
