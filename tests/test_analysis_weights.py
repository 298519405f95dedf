"""Looking inside: positions, patch filters, CKA."""

import keras
import numpy as np
import pytest
from random_weights import fill
from random_weights import filled
from random_weights import pictures
from random_weights import predict
from random_weights import tiny

import keras_vit

GRID = {"image_size": (8, 12), "width": 16, "mlp_dim": 24}


@pytest.mark.parametrize("position", ["learned", "learned_2d", "sincos_2d"])
def test_position_similarity(position):
    """I06: `(rows, columns)` tiles of `(rows, columns)`, prefix left out."""
    model = filled(**GRID, position=position, num_registers=2)
    found = keras_vit.position_similarity(model)
    layer = model.get_layer("position_embedding")
    zeros = np.zeros((1, model.config.num_tokens, 16), "float32")
    vectors = keras.ops.convert_to_numpy(layer(zeros))[0, 3:]
    assert found.shape == (2, 3, 2, 3)
    for i, a in enumerate(vectors):
        for j, b in enumerate(vectors):
            cosine = a @ b / np.sqrt((a @ a) * (b @ b))
            tile = found[i // 3, i % 3]
            assert tile[j // 3, j % 3] == pytest.approx(cosine, abs=1e-6)
    flat = found.reshape(6, 6)
    np.testing.assert_allclose(np.diag(flat), 1, atol=1e-6)
    np.testing.assert_allclose(flat, flat.T, atol=1e-6)


@pytest.mark.parametrize("position", ["none", "relative"])
def test_no_positions_to_compare(position):
    with pytest.raises(ValueError, match=f"position='{position}'"):
        keras_vit.position_similarity(filled(**GRID, position=position))


def test_positions_of_zero_are_refused():
    model = filled(**GRID)
    table = model.get_layer("position_embedding").tables["grid"]
    values = np.array(keras.ops.convert_to_numpy(table))
    values[0, 1, 2] = 0
    table.assign(values)
    with pytest.raises(ValueError, match="1 of 6"):
        keras_vit.position_similarity(model)


def test_patch_filters():
    """I07: known components come back, the largest first, sign fixed."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(48, 3)))[0].T
    peak = np.abs(basis).argmax(axis=1)
    basis *= np.sign(basis[np.arange(3), peak])[:, None]
    scores = np.linalg.qr(rng.normal(size=(64, 4)) + [1, 0, 0, 0])[0][:, 1:]
    scores -= scores.mean(axis=0)
    scores = np.linalg.qr(scores)[0] * [3, 2, 1]
    filters = scores @ basis + rng.normal(size=48)  # a mean that is removed
    model = filled()
    kernel = filters.T.reshape(4, 4, 3, 64)
    model.get_layer("patch_embedding").kernel.assign(kernel)
    found, variance = keras_vit.patch_filters(model, k=3, with_variance=True)
    assert found.shape == (3, 4, 4, 3)
    np.testing.assert_allclose(found.reshape(3, 48), basis, atol=1e-5)
    np.testing.assert_allclose(variance, np.array([9, 4, 1]) / 14, atol=1e-5)


def test_patch_filters_of_the_embedded_model():
    model = keras_vit.ViT.from_preset("vit_nano_fashion_mnist")
    found, variance = keras_vit.patch_filters(model, with_variance=True)
    assert found.shape == (28, 4, 4, 3)
    assert (np.diff(variance) <= 0).all()
    assert 0.9 < variance.sum() <= 1 + 1e-6
    flat = found.reshape(28, -1)
    np.testing.assert_allclose(flat @ flat.T, np.eye(28), atol=1e-5)
    assert (flat[np.arange(28), np.abs(flat).argmax(1)] > 0).all()
    np.testing.assert_array_equal(keras_vit.patch_filters(model, 5), found[:5])


def test_patch_filters_of_a_root():
    """Of the kernel as the convolution has it: standardised."""
    config = tiny(patch_size=1, image_size=32, stages=(), trunk_width=32)
    hybrid = fill(keras_vit.ViT(config))
    found = keras_vit.patch_filters(hybrid)
    assert found.shape == (28, 7, 7, 3)
    kernel = hybrid.get_layer("root").conv.kernel
    kernel.assign(3 * kernel + 1)
    np.testing.assert_allclose(
        keras_vit.patch_filters(hybrid), found, atol=1e-4
    )
    config = keras_vit.resnet_config("r50x1", stages=(1,), trunk_width=32)
    resnet = fill(keras_vit.ResNetV2(config))
    assert keras_vit.patch_filters(resnet, 4).shape == (4, 7, 7, 3)


@pytest.mark.parametrize("k", [0, 49])
def test_too_many_filters(k):
    with pytest.raises(ValueError, match=f"1 to 48 .*k={k}"):
        keras_vit.patch_filters(filled(), k)


def test_cka_does_not_see_rotation_scale_and_shift():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3, 4))
    turn = np.linalg.qr(rng.normal(size=(12, 12)))[0]
    same = 5 * x.reshape(40, 12) @ turn + rng.normal(size=12)
    assert keras_vit.linear_cka(x, x) == pytest.approx(1, abs=1e-12)
    assert keras_vit.linear_cka(x, same) == pytest.approx(1, abs=1e-9)
    # Not any linear map: one that stretches directions apart is seen.
    stretched = x.reshape(40, 12) * 2.0 ** np.arange(12)
    assert keras_vit.linear_cka(x, stretched) < 0.9


def test_cka_of_independent_representations_is_nothing():
    """Without bias, where the biased estimate is 0.98 for wide layers."""
    rng = np.random.default_rng(0)
    values = [
        keras_vit.linear_cka(
            rng.normal(size=(32, 2000)), rng.normal(size=(32, 2000))
        )
        for _ in range(20)
    ]
    assert abs(np.mean(values)) < 0.03


def test_cka_is_the_mean_over_its_definition():
    """HSIC_1 by its sum over distinct images i, j, q, r."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(6, 3)), rng.normal(size=(6, 2))
    y[:, 0] += x[:, 0]

    def hsic(k, m):
        n, total = len(k), 0.0
        pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
        for i, j in pairs:
            for q, r in pairs:
                if len({i, j, q, r}) == 4:
                    total += k[i, j] * (m[i, j] + m[q, r] - 2 * m[i, q])
        return total / (n * (n - 1) * (n - 2) * (n - 3))

    k, m = x @ x.T, y @ y.T
    expected = hsic(k, m) / np.sqrt(hsic(k, k) * hsic(m, m))
    assert keras_vit.linear_cka(x, y) == pytest.approx(expected, rel=1e-9)


def test_layer_cka():
    model = filled(**GRID)
    images = pictures(12, 8, 12)
    tokens = predict(model.feature_model([0, 1]), images)
    layers = [tokens["block_0"], tokens["block_1"]]
    found = keras_vit.layer_cka(model, images)
    expected = [[keras_vit.linear_cka(a, b) for b in layers] for a in layers]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(np.diag(found), 1, atol=1e-6)
    assert found[0, 1] < 0.999
    # In batches: another estimate of the same, memory of one batch.
    batches = keras_vit.layer_cka(model, images, batch_size=6)
    np.testing.assert_allclose(np.diag(batches), 1, atol=1e-6)
    assert 0 < np.abs(batches - found).max() < 0.3


def test_layer_cka_of_two_models():
    model, other = filled(**GRID), filled(**{**GRID, "depth": 3}, seed=1)
    images = pictures(12, 8, 12)
    found = keras_vit.layer_cka(model, images, other)
    assert found.shape == (2, 3)
    back = keras_vit.layer_cka(other, images, model)
    np.testing.assert_allclose(found, back.T, atol=1e-6)
    narrow = filled(**{**GRID, "width": 8})
    assert keras_vit.layer_cka(model, images, narrow).shape == (2, 2)
    twin = filled(**GRID)
    np.testing.assert_allclose(
        keras_vit.layer_cka(model, images, twin),
        keras_vit.layer_cka(model, images),
        atol=1e-6,
    )


def test_layer_cka_of_a_resnet():
    config = keras_vit.resnet_config(
        "r50x1", stages=(1, 1, 1), trunk_width=32, image_size=32
    )
    model = fill(keras_vit.ResNetV2(config))
    found = keras_vit.layer_cka(model, pictures(6, 32, 32))
    assert found.shape == (3, 3)
    np.testing.assert_allclose(np.diag(found), 1, atol=1e-6)


@pytest.mark.parametrize(
    ("x", "y", "text"),
    [
        (np.eye(3), np.eye(3), "at least 4 .*Received: 3"),
        (np.eye(4), np.eye(5), "4 and 5"),
        (np.ones((5, 2)), np.eye(5), "the images"),
        # The mean of 54 is not exactly 0.7: of what is left CKA would be 1.
        (np.full((54, 3), 0.7), np.eye(54), "the images"),
        (np.full((5, 2), np.nan), np.eye(5), "finite .*nan"),
    ],
)
def test_cka_of_too_little(x, y, text):
    with pytest.raises(ValueError, match=text):
        keras_vit.linear_cka(x, y)


def test_layer_cka_of_too_little():
    model = filled(**GRID)
    for images, size, text in (
        (pictures(3, 8, 12), 32, "at least 4 .*Received: 3"),
        (pictures(8, 8, 12), 0, "batch_size=0"),
        (np.repeat(pictures(1, 8, 12), 8, axis=0), 32, "differ"),
    ):
        with pytest.raises(ValueError, match=text):
            keras_vit.layer_cka(model, images, batch_size=size)
    other = filled(image_size=16)
    with pytest.raises(ValueError, match=r"\(16, 16\)"):
        keras_vit.layer_cka(model, pictures(8, 8, 12), other)
