"""The model: sizes, names, inputs, numerics and errors."""

import math

import keras
import numpy as np
import pytest
from random_weights import filled
from random_weights import pictures
from random_weights import predict
from random_weights import tiny
from random_weights import values

import keras_vit

# Size and patch -> weights with 1000 classes and without a head. Those of
# Ti, S, B, L and H are published; the rest is 3 p^2 w + w (stem), (n + 2) w
# (class token, positions), depth (4 w^2 + 2 w m + 9 w + m), 2 w, and the head.
PARAMS = {
    "nano/4": (519_464, 454_464),
    "ti/16": (5_717_416, 5_524_416),
    "s/16": (22_050_664, 21_665_664),
    "m/16": (38_837_736, 38_324_736),
    "b/16": (86_567_656, 85_798_656),
    "b/32": (88_224_232, 87_455_232),
    "l/16": (304_326_632, 303_301_632),
    "so400m/14": (413_597_656, 412_444_656),
    "h/14": (632_045_800, 630_764_800),
    "g/14": (1_012_611_432, 1_011_202_432),
    "G/14": (1_844_440_680, 1_842_775_680),
}
# C06: layout maps, learning-rate groups and checkpoint tables match on these.
BLOCK_PATHS = [
    "norm_1/gamma",
    "norm_1/beta",
    "attention/qkv/kernel",
    "attention/qkv/bias",
    "attention/out/kernel",
    "attention/out/bias",
    "norm_2/gamma",
    "norm_2/beta",
    "mlp/dense_1/kernel",
    "mlp/dense_1/bias",
    "mlp/dense_2/kernel",
    "mlp/dense_2/bias",
]
PATHS = [
    "patch_embedding/kernel",
    "patch_embedding/bias",
    "class_token/token",
    "position_embedding/grid",
    "position_embedding/prefix",
    *(f"block_{i}/{path}" for i in range(2) for path in BLOCK_PATHS),
    "norm/gamma",
    "norm/beta",
    "head/kernel",
    "head/bias",
]
POSITIONS = ["none", "learned", "learned_2d", "relative", "sincos_2d"]
PREFIXES = {
    "none": {"class_token": False},
    "class": {},
    "distilled": {"distillation_token": True},
    "registers": {"num_registers": 3, "prefix_positions": False},
}
POOLINGS = ["token", "gap", "map", "token_gap"]
SPARSE = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.fixture(scope="module")
def model():
    return filled()


@pytest.fixture(scope="module")
def logits(model):
    return predict(model, pictures())


@pytest.mark.parametrize("size", keras_vit.SIZES)
def test_every_size_has_a_golden_count(size):
    """C04: closed form of the config; a new row needs its number here."""
    rows = {k: v for k, v in PARAMS.items() if k.split("/")[0] == size}
    assert rows
    for variant, (full, features) in rows.items():
        config = keras_vit.vit_config(variant)
        assert keras_vit.count_params(config) == full
        bare = config.replace(num_classes=0)
        assert keras_vit.count_params(bare) == features


def test_multiply_adds():
    """17.56 G, what the literature prints as the FLOPs of B/16."""
    config = keras_vit.vit_config("b/16")
    assert keras_vit.count_macs(config) == 17_563_828_224


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("position", POSITIONS)
def test_counts_are_those_of_the_model(position, prefix, pooling):
    """C04: each weight counted once, over all kinds of a model."""
    if "token" in pooling and prefix == "none":
        pytest.skip("no class token to pool")
    # What stands beside the three axes takes both values along them.
    odd = (POSITIONS.index(position) + POOLINGS.index(pooling)) % 2
    config = tiny(
        image_size=(8, 12),
        depth=1,
        position=position,
        pooling=pooling,
        activation="swiglu" if odd else "gelu",
        layer_scale=1e-5 if odd else None,
        norm_pre=bool(odd),
        norm="after_pooling" if odd else "before_pooling",
        pre_logits=None if odd else 6,
        qkv_bias=not odd,
        patch_bias=not odd,
        **PREFIXES[prefix],
    )
    model = keras_vit.ViT(config)
    assert model.count_params() == keras_vit.count_params(config)
    assert model.output.shape == (None, 5)


def test_golden_weight_paths():
    """C06: ordered, and the same after a round trip of the config."""
    model = keras_vit.ViT(tiny())
    assert [v.path for v in model.weights] == PATHS
    again = keras_vit.ViT.from_config(model.get_config())
    assert [v.path for v in again.weights] == PATHS


def test_inputs_of_any_dtype(model, logits):
    """F01: the same pixels are the same logits; mean and std in the model."""
    images = pictures()
    for dtype in ("int32", "float32"):
        np.testing.assert_array_equal(
            predict(model, images.astype(dtype)), logits
        )
    raw = filled(preprocessing=False)
    scaled = (images.astype("float32") - 127.5) / 127.5
    np.testing.assert_allclose(predict(raw, scaled), logits, atol=1e-5)


def test_channels_first():
    """F08: on a CPU too, of every backend, equal to channels last."""
    images, sizes = pictures(2, 8, 12), {"image_size": (8, 12), "depth": 1}
    last = predict(filled(**sizes), images)
    model = filled(**sizes, data_format="channels_first")
    first = predict(model, images.transpose(0, 3, 1, 2))
    np.testing.assert_allclose(first, last, atol=1e-6)


def test_order_of_channels():
    """F14: channel 0 is red, with the first mean and std."""
    model = filled(mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))
    red = np.full((1, 28, 28, 3), [255, 0, 0], "uint8")
    pixels = predict(model.feature_model("pixels"), red)["pixels"]
    expected = [0.9 / 0.4, -0.2 / 0.5, -0.3 / 0.6]
    np.testing.assert_allclose(pixels[0, 0, 0], expected, rtol=1e-6)


def test_features_without_a_head(model):
    """L05: pooled features, those that enter the head of the full model."""
    bare, images = filled(num_classes=0), pictures()
    features = predict(bare, images)
    assert features.shape == (3, 64)
    inner = predict(model.feature_model("pre_logits"), images)
    np.testing.assert_array_equal(inner["pre_logits"], features)
    assert bare.feature_model("pre_logits").output["pre_logits"] is bare.output


@pytest.mark.parametrize("classes", [5, 1000])
def test_first_loss(classes):
    """D11: the head starts at zero, so the first loss is ln(classes)."""
    config = tiny(image_size=8, depth=1, num_classes=classes)
    model = keras_vit.ViT(config)
    model.compile(loss=SPARSE)
    loss = model.evaluate(pictures(3, 8, 8), np.arange(3), verbose=0)
    assert loss == pytest.approx(math.log(classes), abs=1e-6)


@pytest.mark.parametrize(
    ("position", "pooling"),
    [
        ("learned", "token"),
        ("none", "gap"),
        ("relative", "map"),
        ("sincos_2d", "gap"),
        ("learned_2d", "token_gap"),
    ],
)
def test_one_step_moves_every_weight(position, pooling):
    """Every gradient flows; only the key bias cancels in the softmax."""
    model = filled(
        image_size=(8, 12),
        depth=1,
        position=position,
        pooling=pooling,
        distillation_token=True,
        num_registers=2,
        layer_scale=0.5,
        norm_pre=True,
        pre_logits=8,
    )
    before = values(model)
    model.compile(keras.optimizers.SGD(0.1), SPARSE)
    model.fit(pictures(3, 8, 12), np.arange(3), verbose=0)
    for path, after in values(model).items():
        moved = np.abs(after - before[path])
        assert moved.max() > 1e-7, path
        if path.endswith("qkv/bias"):
            query, _, value = moved.reshape(3, -1).max(axis=1)
            assert min(query, value) > 1e-7


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision(policy, logits):
    """D06: logits in float32, finite for any pixels, close to float32."""
    model = filled(dtype=policy)
    assert model.output.dtype == "float32"
    bare = keras_vit.ViT(tiny(num_classes=0, depth=1), dtype=policy)
    assert bare.output.dtype == "float32"
    images = np.zeros((6, 28, 28, 3), "float32")
    images[:3] = pictures()
    images[3:] = np.array([255, 1e6, -1e6])[:, None, None, None]
    half = predict(model, images)
    assert np.isfinite(half).all()
    assert 0 < np.abs(half[:3] - logits).max() < 0.1


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_training_in_half_precision(policy):
    """D08: 20 steps, loss scaled once: finite, and falling as in float32."""
    images, labels = pictures(8, 8, 8), np.arange(8) % 5
    history = {}
    for dtype in ("float32", policy):
        model = filled(dtype=dtype, image_size=8, depth=1)
        model.compile(keras.optimizers.Adam(1e-3), SPARSE)
        fit = model.fit(images, labels, epochs=20, verbose=0)
        history[dtype] = np.array(fit.history["loss"])
        assert all(np.isfinite(v).all() for v in values(model).values())
    losses = history[policy]
    assert losses[-1] < 0.1 * losses[0]
    np.testing.assert_allclose(losses[:3], history["float32"][:3], rtol=0.1)


ERRORS = {
    "rank": ((28, 28, 3), r"\(batch, 28, 28, 3\).*\(28, 28, 3\).*images\[No"),
    "gray": ((1, 28, 28, 1), r"\(1, 28, 28, 1\).*np\.repeat"),
    "alpha": ((1, 28, 28, 4), r"\(1, 28, 28, 4\).*\[\.\.\., :3\]"),
    "first": ((1, 3, 28, 28), r"channels_first"),
    "B08-height": ((1, 29, 28, 3), r"height.*patch size 4.*29.*28 and 32"),
    "B08-width": ((1, 28, 27, 3), r"width.*patch size 4.*27.*24 and 28"),
    "B09-size": ((1, 32, 28, 3), r"\(28, 28\).*\(32, 28\).*with_image_size"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_wrong_images(name, model):
    """B08: what was expected, received and what to do, before a backend."""
    shape, match = ERRORS[name]
    images = np.zeros(shape, "uint8")
    model.compile(loss=SPARSE)
    for method in (model, model.predict, model.fit, model.evaluate):
        with pytest.raises(ValueError, match=match):
            method(images)


def test_pixels_scaled_already(model):
    """F02: a warning that points at the caller; none without the scaling."""
    images = pictures() / 255
    with pytest.warns(UserWarning, match=r"0\.\.255.*preprocessing") as caught:
        model.predict(images, verbose=0)
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="largest value"):
        model.evaluate(images, np.zeros(3), verbose=0)
    predict(model, (images > 0.5).astype("uint8"))
    raw = keras_vit.ViT(tiny(preprocessing=False, depth=1))
    predict(raw, images)
