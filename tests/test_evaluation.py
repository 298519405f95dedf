"""Few-shot least squares and nearest neighbours.

`oracles/few_shot.npz`: features, draws, accuracies and scores of big_vision's
`fewshot_lsr` (JAX on a CPU, float32). Its own float32 eigenvectors are 1e-2 off
at small penalties with a bias of 100, which is one test sample of 126; from
1024 on accuracies are equal and scores 2e-5 apart.
"""

import pathlib

import numpy as np
import pytest
from random_weights import filled
from random_weights import pictures
from random_weights import predict

import keras_vit
from keras_vit.evaluation.features import features_of
from keras_vit.evaluation.few_shot import choose_shots
from keras_vit.evaluation.few_shot import few_shot_accuracy
from keras_vit.evaluation.few_shot import ridge_scores

ORACLE = pathlib.Path(__file__).parent / "oracles" / "few_shot.npz"
SHOTS = (1, 5, 10, 25)
PENALTIES = (2.0**-10, 2.0**-4, 1.0, 16.0, 1024.0, 16384.0, 2.0**20)
SMALL = {"image_size": 8, "width": 8, "mlp_dim": 8, "depth": 1}


@pytest.fixture(scope="module")
def oracle():
    with np.load(ORACLE) as file:
        return dict(file)


def parts(oracle):
    return [(oracle[f"x_{n}"], oracle[f"y_{n}"]) for n in ("train", "test")]


@pytest.mark.once
def test_accuracies_are_the_references(oracle):
    """E13: for every seed, number of shots and penalty."""
    train, test = parts(oracle)
    found = few_shot_accuracy(train, test, SHOTS, PENALTIES, (0, 1, 2))
    off = np.abs(found - oracle["accuracy"]) * len(test[1])
    assert off[..., 4:].max() < 1e-3
    assert off.max() < 1.001
    assert 0.2 < found.mean() < 0.99
    table = keras_vit.few_shot(None, train, test, shots=SHOTS)
    means = found[:, :, 4].mean(axis=0)
    assert table == dict(zip(SHOTS, means, strict=True))


@pytest.mark.once
@pytest.mark.parametrize("shots", [1, 5])
def test_draws_and_scores_are_the_references(shots, oracle):
    """E13: 7 images of 24 features take the dual form, 35 the primal."""
    (x, y), (x_test, _) = parts(oracle)
    for seed in range(3):
        chosen = choose_shots(y, shots, seed)
        name = f"index_seed{seed}_shots{shots}"
        np.testing.assert_array_equal(chosen, oracle[name])
    chosen = choose_shots(y, shots, 0)
    scores = ridge_scores(x[chosen], y[chosen], x_test, 1024.0)
    expected = oracle[f"scores_seed0_shots{shots}_l2_1024"]
    np.testing.assert_allclose(scores, expected, atol=2e-5)


@pytest.mark.once
@pytest.mark.parametrize("count", [6, 40])
def test_both_forms_are_a_direct_solution(count):
    """E13: the equations as the paper has them, in one matrix."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(count, 10)), np.arange(count) % 3
    x_test = rng.normal(size=(5, 10))
    mean, std = x.mean(0), x.std(0) + 1e-5
    a, b = (
        np.hstack([(part - mean) / std, np.full((len(part), 1), 100.0)])
        for part in (x, x_test)
    )
    targets = np.where(np.eye(3)[y] > 0, 1.0, -1.0)
    weights = np.linalg.solve(a.T @ a + 8.0 * np.eye(11), a.T @ targets)
    np.testing.assert_allclose(
        ridge_scores(x, y, x_test, 8.0), b @ weights, atol=1e-8
    )


@pytest.mark.once
def test_too_few_images():
    x, y = np.zeros((5, 2)), np.array([0, 0, 1, 1, 1])
    with pytest.raises(ValueError, match="3 shots.*2 images of class 0"):
        keras_vit.few_shot(None, (x, y), (x, y), shots=(1, 3))
    with pytest.raises(ValueError, match="k=20.*Received: 5"):
        keras_vit.knn(None, (x, y), (x, y))


def test_features_of_a_model():
    model, images = filled(**SMALL), pictures(6, 8, 8)
    inner = predict(model.feature_model(["pre_logits", "norm"]), images)
    np.testing.assert_allclose(
        features_of(model, images, batch_size=4),
        inner["pre_logits"],
        atol=1e-6,
    )
    np.testing.assert_allclose(
        features_of(model, images, "norm"),
        inner["norm"][:, 1:].mean(axis=1),
        atol=1e-6,
    )
    labels = np.arange(6) % 2
    by_model = keras_vit.few_shot(
        model, (images, labels), (images, labels), shots=(3,)
    )
    x = inner["pre_logits"]
    by_array = keras_vit.few_shot(None, (x, labels), (x, labels), shots=(3,))
    assert by_model == by_array


@pytest.mark.once
def test_nearest_by_hand():
    """Two of three near ones outvote the nearest; length does not count."""
    x = np.array([[1, 0], [1, 0.2], [10, 2.1], [0, 1], [-1, 0]])
    y = np.array([1, 0, 0, 1, 2])
    test = np.array([[5, 0.1]])
    for k, label in ((1, 1), (3, 0)):
        found = [
            keras_vit.knn(None, (x, y), (test, np.array([c])), k=k)
            for c in range(3)
        ]
        assert found.index(1.0) == label
    # A low temperature listens to the nearest alone.
    cold = keras_vit.knn(
        None, (x, y), (test, np.array([1])), k=3, temperature=1e-4
    )
    assert cold == 1.0


@pytest.mark.once
def test_nearest_of_many_at_once(monkeypatch):
    from keras_vit.evaluation import nearest

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 4)), np.arange(60) % 3
    x[:, 0] += 2 * (y == 1)
    whole = keras_vit.knn(None, (x[:40], y[:40]), (x[40:], y[40:]), k=7)
    monkeypatch.setattr(nearest, "AT_ONCE", 3)
    assert keras_vit.knn(None, (x[:40], y[:40]), (x[40:], y[40:]), k=7) == whole
    assert 0.3 < whole < 1
