"""Attention maps of files that the references wrote, read by their path."""

import numpy as np
import pytest
from test_checkpoints import FOLDERS
from test_checkpoints import load

import keras_vit

NAMES = [
    name
    for name, folder in FOLDERS.items()
    if "attentions" in np.load(folder / "io.npz").files
]


def test_both_references_are_there():
    assert {"google_vit_augreg", "timm_vit"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_attention_of_the_reference(name):
    """I01: to 2e-6, and the same logits before and after (1e-5)."""
    model, io = load(name), np.load(FOLDERS[name] / "io.npz")
    before = model.predict(io["images"], verbose=0)
    maps = keras_vit.attention_maps(model, io["images"])
    np.testing.assert_allclose(maps, io["attentions"], rtol=0, atol=2e-6)
    after = model.predict(io["images"], verbose=0)
    np.testing.assert_allclose(after, before, rtol=0, atol=1e-5)
