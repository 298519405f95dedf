"""Looking inside by gradients: relevance of a class, receptive field."""

import keras
import numpy as np
import pytest
from analysis_kinds import SMALL
from analysis_kinds import images_of
from analysis_kinds import made
from random_weights import fill
from random_weights import filled
from random_weights import pictures
from random_weights import tiny

import keras_vit
from keras_vit.analysis import relevance
from keras_vit.layers import attention as attention_layer

GRADIENTS = [keras_vit.class_relevance, keras_vit.effective_receptive_field]


def test_relevance_of_many_images(monkeypatch):
    model, images = made("class"), images_of("class", 2)
    whole = keras_vit.class_relevance(model, images)
    monkeypatch.setattr(relevance, "IMAGES_AT_ONCE", 1)
    parts = keras_vit.class_relevance(model, images)
    np.testing.assert_allclose(parts, whole, rtol=1e-5, atol=1e-6)


def test_relevance_by_finite_differences(monkeypatch):
    """Each entry of attention is moved by itself, up and down."""
    model, image = made("class"), images_of("class", 1)
    depth, heads, tokens = 3, 2, 7
    index, step = 1, 1e-2
    entries = depth * heads * tokens * tokens
    shifts = step * np.eye(entries, dtype="float32")
    shifts = shifts.reshape(entries, depth, heads, tokens, tokens)
    shifts = np.concatenate([shifts, -shifts])
    block = -1

    def moved(qkv, num_heads, bias=None):
        nonlocal block
        block += 1
        query, key, value = attention_layer.split_heads(qkv, num_heads)
        maps = attention_layer.attention_probabilities(query, key, bias)
        maps = keras.ops.add(maps, shifts[:, block])
        return attention_layer.merge_heads(keras.ops.matmul(maps, value))

    monkeypatch.setattr(attention_layer, "attend_from", moved)
    x = np.repeat(image, len(shifts), axis=0)
    logits = keras.ops.convert_to_numpy(model(x))[:, index]
    monkeypatch.undo()
    assert block == depth - 1
    slopes = (logits[:entries] - logits[entries:]) / (2 * step)
    slopes = slopes.reshape(depth, heads, tokens, tokens)
    maps = keras_vit.attention_maps(model, image)[:, 0]
    flow = np.eye(tokens)
    for i in range(depth):
        flow = flow + np.maximum(slopes[i] * maps[i], 0).mean(axis=0) @ flow
    found = keras_vit.class_relevance(model, image, index)
    expected = flow[0, 1:].reshape(1, 2, 3)
    np.testing.assert_allclose(found, expected, rtol=2e-2)
    other = keras_vit.class_relevance(model, image, index + 1)
    assert np.abs(found - other).max() > 0.05 * found.max()


def test_receptive_field_of_a_patch_that_reads_itself():
    """Without attention a token depends on its own patch alone."""
    model, images = made("class"), images_of("class")
    for block in model.blocks():
        for weight in block.attention.out.weights:
            weight.assign(np.zeros(weight.shape, "float32"))
    field = keras_vit.effective_receptive_field(model, images, at=(1, 0))
    assert field.shape == (8, 12)
    assert field.sum() == pytest.approx(1)
    assert field[4:, :4].min() > 0
    field[4:, :4] = 0
    assert not field.any()


def test_channels_first():
    """F08: the other layout of the input gives the same figures."""
    config = tiny(**SMALL)
    last = fill(keras_vit.ViT(config))
    first = fill(keras_vit.ViT(config.replace(data_format="channels_first")))
    images = pictures(4, 8, 12)
    turned = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    for figure in GRADIENTS:
        np.testing.assert_allclose(
            figure(first, turned), figure(last, images), rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda m, x: keras_vit.attention_maps(m, x, blocks=[2]), "-2 to 1"),
        (lambda m, x: keras_vit.attention_rollout(m, x, "median"), "median"),
        (
            lambda m, x: keras_vit.attention_rollout(m, x, discard_ratio=1),
            "discard_ratio=1",
        ),
        (lambda m, x: keras_vit.class_relevance(m, x, 5), "0 to 4"),
        (
            lambda m, x: keras_vit.class_relevance(m.with_num_classes(0), x),
            "num_classes=0",
        ),
        (
            lambda m, x: keras_vit.effective_receptive_field(m, x, at=(2, 0)),
            "2x3",
        ),
    ],
)
def test_errors_say_what_was_wrong(call, text):
    with pytest.raises(ValueError, match=text):
        call(made("both"), images_of("both"))


OF_IMAGES = [
    keras_vit.attention_distance,
    keras_vit.attention_entropy,
    keras_vit.attention_maps,
    keras_vit.attention_rollout,
    keras_vit.class_attention,
    keras_vit.layer_cka,
    *GRADIENTS,
]


@pytest.mark.parametrize("figure", OF_IMAGES)
def test_images_are_looked_at_first(figure):
    """An empty batch has no mean; gray would be taken for colour (F06)."""
    model = made("both")  # of 8x12 pixels
    for shape, text in (
        ((0, 8, 12, 3), "at least one image"),
        ((8, 12, 3), "at least one image"),
        ((4, 8, 12, 1), "Repeat gray pixels"),
        ((4, 8, 12, 4), "Drop the alpha"),
        ((4, 12, 8, 3), r"\(12, 8\)"),
        ((4, 1, 12, 3), "multiple of the patch size"),
    ):
        with pytest.raises(ValueError, match=text):
            figure(model, np.zeros(shape, "uint8"))


def test_other_models_are_refused():
    other = keras.Sequential([keras.Input((8, 12, 3)), keras.layers.Flatten()])
    for figure in OF_IMAGES:
        with pytest.raises(TypeError, match="Sequential"):
            figure(other, pictures(4, 8, 12))
    for figure in (keras_vit.patch_filters, keras_vit.position_similarity):
        with pytest.raises(TypeError, match="Sequential"):
            figure(other)


def test_no_attention_in_a_resnet():
    config = keras_vit.resnet_config("r26x1", stages=(1,), image_size=32)
    model = keras_vit.ResNetV2(config)
    for figure in OF_IMAGES:
        if figure != keras_vit.layer_cka:
            with pytest.raises(TypeError, match="ResNetV2"):
                figure(model, pictures(4, 32, 32))


@pytest.mark.parametrize(
    "kind",
    [
        "mixed_float16",
        pytest.param("bfloat16", marks=pytest.mark.slow),
        pytest.param("int8", marks=pytest.mark.slow),
        pytest.param("lora", marks=pytest.mark.slow),
    ],
)
def test_gradients_of_cheaper_models(kind):
    """Those of the same weights in float32, to what the kind rounds."""
    small = {**SMALL, "depth": 1}
    images, plain = pictures(1, 8, 12), filled(**small)
    model = filled(**small, dtype=kind if "float" in kind else None)
    if kind == "int8":
        model.quantize("int8")
    if kind == "lora":
        model.enable_lora(2)
    for figure in (keras_vit.attention_rollout, *GRADIENTS):
        found, expected = figure(model, images), figure(plain, images)
        assert found.dtype == np.float32
        alike = np.corrcoef(found.ravel(), expected.ravel())[0, 1]
        assert alike > 0.99, figure
