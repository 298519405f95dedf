"""Class scores become names, or an error that says what does not fit."""

import types

import keras
import numpy as np
import pytest
from keras import ops

import keras_vit
from keras_vit.labels import softmax
from keras_vit.labels import top_labels

ANIMALS = ("cat", "dog", "bird", "fish")
LOGITS = [[1.0, 3.0, 2.0, 0.0], [5.0, 1.0, 0.0, 4.0]]


def model_of(labels, num_classes=4):
    config = keras_vit.ViTConfig().replace(num_classes=num_classes)
    return types.SimpleNamespace(labels=labels, config=config)


def names_of(results):
    return [[name for name, _ in row] for row in results]


@pytest.mark.parametrize("model", [model_of(ANIMALS), ANIMALS, list(ANIMALS)])
def test_best_first(model):
    results = top_labels(LOGITS, model, k=2)
    assert names_of(results) == [["dog", "bird"], ["cat", "fish"]]
    powers = np.exp(LOGITS)
    expected = powers[0, 1] / powers[0].sum()
    assert results[0][0][1] == pytest.approx(expected, rel=1e-14)
    assert isinstance(results[0][0][1], float)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_tensors_of_the_backend(dtype):
    logits = ops.cast(ops.convert_to_tensor(LOGITS), dtype)
    assert top_labels(logits, ANIMALS) == top_labels(LOGITS, ANIMALS)


def test_tensors_that_take_gradients():
    dense = keras.layers.Dense(4)
    scores = dense(ops.ones((2, 3)))  # a torch tensor that requires gradients
    assert np.shape(top_labels(scores, ANIMALS, k=4)) == (2, 4, 2)


def test_one_row_is_a_batch_of_one():
    assert top_labels(LOGITS[0], ANIMALS) == top_labels(LOGITS[:1], ANIMALS)


def test_no_images_no_labels():
    assert top_labels(np.zeros((0, 4)), ANIMALS) == []


@pytest.mark.parametrize("k", [4, 5, 1000])
def test_k_is_cut_at_the_number_of_classes(k):
    results = top_labels(LOGITS, ANIMALS, k=k)
    assert [len(row) for row in results] == [4, 4]
    assert sum(p for _, p in results[0]) == pytest.approx(1, abs=1e-14)


def test_without_names_classes_are_numbered():
    scores = np.arange(20.0)
    assert names_of(top_labels(scores, None, k=2)) == [["class 19", "class 18"]]
    model = model_of(None, 20)
    assert names_of(top_labels(scores, model, k=1)) == [["class 19"]]


def test_ties_keep_the_order_of_the_classes():
    scores = [0.0, 1.0, 1.0, 1.0]
    assert names_of(top_labels(scores, ANIMALS, k=3)) == [list(ANIMALS[1:])]


def test_softmax_of_large_scores():
    """float32 would overflow at 89."""
    p = softmax(np.array([[1e4, 1e4 - 1, -1e4]], "float32"))
    assert p.dtype == "float64"
    np.testing.assert_allclose(p, [[0.731058578630005, 0.268941421369995, 0]])


def test_classes_can_be_ruled_out():
    results = top_labels([-np.inf, 0.0, 1.0, -np.inf], ANIMALS, k=4)
    assert names_of(results)[0][:2] == ["bird", "dog"]
    assert results[0][2:] == [("cat", 0.0), ("fish", 0.0)]


@pytest.mark.parametrize(
    ("scores", "count"),
    [
        ([[0.0, np.nan, 1.0, 2.0], [np.nan] * 4], 5),
        ([[0.0, np.inf, 1.0, 2.0]], 1),
        ([[-np.inf] * 4], 4),
    ],
    ids=["nan", "inf", "all-ruled-out"],
)
def test_scores_that_are_no_numbers(scores, count):
    with pytest.raises(ValueError, match=rf"{count} NaN or infinite"):
        top_labels(scores, ANIMALS)


@pytest.mark.parametrize("rows", [1, 3])
def test_untrained_head_warns(rows):
    """A03: a head of zeros gives every class the same score."""
    with pytest.warns(UserWarning, match="all 4 classes") as caught:
        results = top_labels(np.full((rows, 4), 0.5), ANIMALS)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert results[0][0] == ("cat", 0.25)


@pytest.mark.parametrize("labels", [ANIMALS[:3], [*ANIMALS, "frog"]])
def test_names_of_another_set(labels):
    """F13: 21,843, 21,841 and 11,221 names are not interchangeable."""
    with pytest.raises(ValueError, match=rf"4\. Rec.* {len(labels)} labels"):
        top_labels(LOGITS, labels)


def test_scores_of_another_model():
    """F13, L05: also where the model has no names."""
    with pytest.raises(ValueError, match=r"21843 classes .* Received: 4 "):
        top_labels(LOGITS, model_of(None, 21_843))
    with pytest.raises(ValueError, match=r"0 classes .* features, not scores"):
        top_labels(LOGITS, model_of(None, 0))


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 0)])
def test_shapes_that_are_no_scores(shape):
    with pytest.raises(ValueError, match=rf"Received: shape \({shape[0]}, "):
        top_labels(np.ones(shape), None)


@pytest.mark.parametrize("k", [0, -1, 2.0])
def test_k_is_a_count(k):
    with pytest.raises(ValueError, match=f"k={k}"):
        top_labels(LOGITS, ANIMALS, k=k)


@pytest.mark.parametrize("model", ["vit_b16", 4])
def test_a_name_is_not_a_model(model):
    with pytest.raises(TypeError, match=f"Received: {model!r}"):
        top_labels(LOGITS, model)
