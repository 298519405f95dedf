"""BiT and the hybrids: sizes, counts, and all that a plain ViT can do."""

import keras
import numpy as np
import pytest
from random_weights import changed
from random_weights import fill
from random_weights import pictures
from random_weights import predict
from random_weights import tiny
from random_weights import values

import keras_vit
from keras_vit.resnet import ResNetV2
from keras_vit.resnet_config import ResNetConfig
from keras_vit.resnet_config import resnet_config
from keras_vit.weights.resnet_layouts import BITS

# fmt: off
PUBLISHED = {
    # variant: weights with 1000 classes (published in millions), and without
    "r+ti/16":  (6_337_704,     6_144_704),    # 6.34
    "r26+s/32": (36_431_912,    36_046_912),   # 36.43
    "r26+b/32": (101_383_976,   100_614_976),
    "r50+b/16": (98_659_112,    97_890_112),   # 98.95 at 384 pixels
    "r50+l/32": (328_994_856,   327_969_856),  # 328.99
    "r50x1":    (25_549_352,    23_500_352),   # 25.55
    "r50x3":    (217_319_080,   211_174_080),  # 217.32
    "r101x1":   (44_541_480,    42_492_480),   # 44.54
    "r101x3":   (387_934_888,   381_789_888),  # 387.93
    "r152x2":   (236_335_208,   232_238_208),  # 236.34
    "r152x4":   (936_533_224,   928_340_224),  # 936.53
}
# fmt: on


def config_for(variant, **fields):
    make = keras_vit.vit_config if "/" in variant else resnet_config
    return make(variant, **fields)


@pytest.mark.parametrize("variant", PUBLISHED)
def test_published_counts(variant):
    """C04, A09: those of timm's table, to the last of its digits."""
    full, features = PUBLISHED[variant]
    config = config_for(variant)
    assert keras_vit.count_params(config) == full
    assert keras_vit.count_params(config.replace(num_classes=0)) == features


def test_multiply_adds():
    """Of R50x1, 4.1 G is what the literature prints as its FLOPs."""
    assert keras_vit.count_macs(resnet_config("r50x1")) == 4_089_184_256
    hybrid = keras_vit.vit_config("r50+b/16")
    assert keras_vit.count_macs(hybrid) == 21_535_358_976


@pytest.mark.parametrize(
    ("variant", "grid", "stages"),
    [
        ("R+Ti/16", (7, 7), ()),
        ("r26+s/32", (7, 7), (2, 2, 2, 2)),
        ("R50+B/16", (14, 14), (3, 4, 9)),
        ("r50+l/32", (7, 7), (3, 4, 6, 3)),
    ],
)
def test_variants(variant, grid, stages):
    """A09: the stride of R+Ti/16 is 32, whatever its name says."""
    config = keras_vit.vit_config(variant)
    assert (config.grid, config.trunk.stages) == (grid, stages)
    again = keras_vit.ViTConfig.from_dict(config.to_dict())
    assert again == config


TINY = {"trunk_width": 32, "image_size": (32, 24)}
# Each with a stride of eight; the stride of the plain one is four.
FIELDS = {
    "plain": {"image_size": (32, 24), "depth": 1},
    "root": {**TINY, "depth": 1, "stages": (), "patch_size": 2},
    "hybrid": {**TINY, "depth": 1, "stages": (1, 1), "patch_size": 1},
    "bit": {**TINY, "stages": (1, 1), "num_classes": 5},
    "bit-v1": {
        **TINY,
        "stages": (1, 1),
        "num_classes": 5,
        **BITS["bit_v1"].defaults,
    },
}
RESNETS = ("root", "hybrid", "bit", "bit-v1")  # the plain one is elsewhere
SPARSE = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def made(name, dtype=None, labels=None, **fields):
    fields = {**FIELDS[name], **fields}
    if name.startswith("bit"):
        config = resnet_config("r50x1", **fields)
    else:
        config = tiny(**fields)
    kind = ResNetV2 if isinstance(config, ResNetConfig) else keras_vit.ViT
    return fill(kind(config, labels=labels, dtype=dtype))


@pytest.mark.parametrize("name", FIELDS)
def test_counts_are_those_of_the_model(name):
    """C04, C06: in closed form, of the same names after a round trip."""
    model = made(name)
    assert model.count_params() == keras_vit.count_params(model.config)
    again = type(model).from_config(model.get_config())
    assert again.config == model.config
    paths = [v.path for v in model.weights]
    assert [v.path for v in again.weights] == paths
    if name == "bit":
        assert paths[1:4] == [
            f"stage_0/unit_0/conv_{i}/kernel" for i in (1, 2, 3)
        ]


@pytest.mark.parametrize("name", RESNETS)
def test_other_image_sizes(name):
    """B08, B09: the fixed model of a size and the free one agree."""
    model = made(name)
    free = model.with_image_size(None)
    for height, width in [(16, 32), (32, 24)]:
        images = pictures(2, height, width)
        fixed = model.with_image_size((height, width))
        np.testing.assert_allclose(
            predict(free, images), predict(fixed, images), atol=1e-5
        )
    if name == "bit":
        assert predict(free, pictures(1, 33, 31)).shape == (1, 5)
        return
    with pytest.raises(ValueError, match=r"height.*30.*(28 and|24 and) 32"):
        free.predict(pictures(1, 30, 32), verbose=0)


@pytest.mark.parametrize("name", RESNETS)
def test_heads_and_presets(name, tmp_path):
    """A15, C02: a new head is the only change; a directory keeps it all."""
    model = made(name, labels="abcde")
    other = model.with_num_classes(3, labels="xyz")
    head = {"head/kernel", "head/bias"}
    assert changed(values(model), values(other)) == head
    bare = model.with_num_classes(0)
    images = pictures(2, 32, 24)
    features = predict(model.feature_model("pre_logits"), images)
    np.testing.assert_array_equal(predict(bare, images), features["pre_logits"])
    model.save_to_preset(tmp_path / "it")
    again = type(model).from_preset(tmp_path / "it")
    assert again.labels == tuple("abcde")
    assert changed(values(model), values(again)) == set()
    np.testing.assert_array_equal(
        predict(again, images), predict(model, images)
    )


@pytest.mark.parametrize("name", RESNETS)
def test_one_step_moves_every_weight(name):
    model = made(name)
    before = values(model)
    model.compile(keras.optimizers.SGD(0.1), SPARSE)
    model.fit(pictures(3, 32, 24), np.arange(3), verbose=0)
    for path, after in values(model).items():
        assert np.isfinite(after).all()
        assert np.abs(after - before[path]).max() > 1e-7, path


@pytest.mark.parametrize("name", ["root", "hybrid", "bit"])
def test_half_precision(name):
    """D06: logits in float32, close to those of float32."""
    images = pictures(2, 32, 24)
    half = made(name, dtype="mixed_bfloat16")
    assert half.output.dtype == "float32"
    exact = predict(made(name), images)
    off = np.abs(predict(half, images) - exact).max()
    assert 0 < off < 0.2 * np.abs(exact).max()


@pytest.mark.parametrize("name", ["root", "hybrid"])
def test_attention_maps_and_int8(name):
    """C11: what the encoder can do, it can behind a trunk."""
    model, images = made(name, depth=2), pictures(2, 32, 24)
    tokens = model.config.num_tokens
    maps = keras_vit.attention_maps(model, images)
    assert maps.shape == (2, 2, 2, tokens, tokens)
    np.testing.assert_allclose(maps.sum(-1), 1, atol=1e-5)
    exact = predict(model, images)
    model.quantize("int8")
    assert model.quantization == "int8"
    off = np.abs(predict(model, images) - exact).max()
    assert 1e-5 < off < 0.1 * np.abs(exact).max()


@pytest.mark.parametrize("name", ["plain", "hybrid", "bit"])
def test_stored_kernels(name):
    """Standardised once: the same logits from other kernels."""
    model, images = made(name), pictures(2, 32, 24)
    once = model.with_stored_kernels()
    np.testing.assert_allclose(
        predict(once, images), predict(model, images), atol=2e-5, rtol=2e-5
    )
    kernels = {"root/conv/kernel"} if name != "plain" else set()
    assert kernels <= changed(values(model), values(once))
    assert bool(kernels) == bool(changed(values(model), values(once)))


def test_features_by_stage():
    inner = made("bit").feature_model([0, -1, "root"])
    outputs = predict(inner, pictures(1, 32, 24))
    assert {k: v.shape for k, v in outputs.items()} == {
        "root": (1, 8, 6, 32),
        "stage_0": (1, 8, 6, 128),
        "stage_1": (1, 4, 3, 256),
    }
    with pytest.raises(ValueError, match=r"2 stages.*stage_0.*2"):
        made("bit").feature_model(2)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: tiny(stages=(1,), trunk_width=48), r"32.*trunk_width=48"),
        (lambda: tiny(stages=(1, 0)), r"stages=0"),
        (
            lambda: tiny(image_size=16, stages=(), unit="pre_activation"),
            "post_activation",
        ),
        (lambda: tiny(stages=(1, 1, 1)), r"64.*28"),
        (lambda: resnet_config("r51x1"), "mean 'r50'"),
        (lambda: resnet_config("r50"), r"r50x1.*'r50'"),
        (lambda: resnet_config("r50x1", stages=()), "has stages"),
        (lambda: resnet_config("r50x1", widht=1), "mean 'trunk_width'"),
        (lambda: keras_vit.vit_config("r26+b/16"), r"r26\+b/32"),
    ],
)
def test_errors(make, match):
    with pytest.raises(ValueError, match=match):
        make()
