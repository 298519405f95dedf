"""Weights of a model of another shape: named, with the way to adapt them."""

import pytest
from random_weights import changed
from random_weights import filled
from random_weights import values

SMALL = {"image_size": (8, 12), "depth": 1}


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        (
            {"image_size": (8, 12)},
            {"image_size": (16, 8)},
            r"\(1, 4, 2, 64\) for position_embedding/grid\. Received: "
            r"\(1, 2, 3, 64\) \(2x3 -> 4x2 patches\).*model\.with_image_size",
        ),
        (
            {"position": "learned_2d", "image_size": 8},
            {"position": "learned_2d", "image_size": 12},
            r"\(3, 32\) for position_embedding/(rows|columns).*\(2, 32\).*"
            r"model\.with_image_size",
        ),
        (
            {"position": "relative", "image_size": 8},
            {"position": "relative", "image_size": 12},
            r"\(5, 5, 2\) for relative_position_0/table.*\(3, 3, 2\).*"
            r"model\.with_image_size",
        ),
        (
            {"num_classes": 5},
            {"num_classes": 7},
            r"\(64, 7\) for head/kernel.*\(64, 5\).*model\.with_num_classes",
        ),
        (
            {"patch_size": 4, "image_size": 8},
            {"patch_size": 8, "image_size": 16},
            r"\(8, 8, 3, 64\) for patch_embedding/kernel.*\(4, 4, 3, 64\).*"
            r"with_config\(patch_size",
        ),
    ],
    ids=["B12-grid", "B12-axes", "B12-offsets", "classes", "patch"],
)
def test_weights_of_another_shape(old, new, match, tmp_path):
    """B12: named weight, both shapes, the method; the model stays whole."""
    path = tmp_path / "old.weights.h5"
    filled(**{**SMALL, **old}).save_weights(path)
    model = filled(**{**SMALL, **new}, seed=1)
    before = values(model)
    with pytest.raises(ValueError, match=f"(?s){match}"):
        model.load_weights(path)
    assert changed(before, values(model)) == set()


def test_weights_by_the_way_that_the_error_names(tmp_path):
    """B12: load at the old size, then adapt; or skip what does not fit."""
    path = tmp_path / "old.weights.h5"
    old = filled(**SMALL)
    old.save_weights(path)
    model = filled(**SMALL, seed=1)
    model.load_weights(path)
    larger = values(model.with_image_size((16, 24)))
    assert changed(values(old), larger) == {"position_embedding/grid"}
    assert larger["position_embedding/grid"].shape == (1, 4, 6, 64)
