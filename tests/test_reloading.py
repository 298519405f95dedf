"""A model that was loaded goes on as the one that was saved."""

import h5py
import keras
import numpy as np
import pytest
from random_weights import changed
from random_weights import filled
from random_weights import pictures
from random_weights import predict
from random_weights import values

import keras_vit

SPARSE = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
SMALL = {"image_size": (8, 12), "depth": 1}


def test_dtype_of_a_preset_can_change(tmp_path):
    """Same weights, another policy; without `dtype` that of the file."""
    model = filled(**SMALL, dtype="mixed_bfloat16")
    model.save_to_preset(tmp_path / "half")
    again = keras_vit.ViT.from_preset(tmp_path / "half", dtype="float32")
    assert again.policy.name == "float32"
    assert again.get_layer("block_0").compute_dtype == "float32"
    assert changed(values(model), values(again)) == set()
    kept = keras_vit.ViT.from_preset(tmp_path / "half")
    assert kept.get_layer("block_0").compute_dtype == "bfloat16"


def test_nothing_is_initialised_again(tmp_path):
    """E20: neither `build`, a graph around it, `compile` nor `fit`."""
    filled(**SMALL).save_to_preset(tmp_path / "vit")
    model = keras_vit.ViT.from_preset(tmp_path / "vit")
    before = values(model)
    model.build((None, 8, 12, 3))
    outer = keras.Sequential([keras.Input((8, 12, 3)), model])
    model.feature_model("norm")
    outer.compile(keras.optimizers.SGD(0.0), SPARSE)
    outer.fit(pictures(4, 8, 12), np.arange(4), verbose=0)
    assert changed(before, values(model)) == set()


def fit(model, epochs=2):
    images, labels = pictures(4, 8, 12), np.arange(4)
    model.fit(images, labels, epochs=epochs, shuffle=False, verbose=0)


def compiled():
    model = filled(**SMALL)
    model.compile(keras.optimizers.AdamW(1e-3), SPARSE)
    fit(model)
    return model


def test_training_goes_on(tmp_path):
    """A `.keras` file has the optimizer: two halves are one whole."""
    whole, half = compiled(), compiled()
    half.save(tmp_path / "half.keras")
    again = keras.models.load_model(tmp_path / "half.keras")
    fit(whole)
    fit(again)
    assert changed(values(whole), values(again)) == set()


def test_preset_has_no_optimizer(tmp_path):
    """Nor does the model lose it by being saved."""
    model, twin = compiled(), compiled()
    model.save_to_preset(tmp_path / "vit")
    with h5py.File(tmp_path / "vit" / "model.weights.h5") as file:
        assert "optimizer" not in file
    fit(model)
    fit(twin)
    assert changed(values(twin), values(model)) == set()


@pytest.mark.parametrize("form", ["keras", "preset"])
def test_frozen_layers_stay_frozen(form, tmp_path):
    """A linear probe that is loaded does not start to train its backbone."""
    model = filled(**SMALL)
    for layer in model.layers[:-1]:
        layer.trainable = False
    model.get_layer("block_0").mlp.trainable = True
    model.compile(keras.optimizers.AdamW(1e-3), SPARSE)
    fit(model)
    if form == "keras":
        model.save(tmp_path / "probe.keras")
        again = keras.models.load_model(tmp_path / "probe.keras")
    else:
        model.save_to_preset(tmp_path / "probe")
        again = keras_vit.ViT.from_preset(tmp_path / "probe")
        again.compile(keras.optimizers.AdamW(1e-3), SPARSE)
    paths = [v.path for v in model.trainable_weights]
    assert [v.path for v in again.trainable_weights] == paths
    assert len(paths) == 6
    before = values(again)
    fit(again)
    assert changed(before, values(again)) == set(paths)


@pytest.mark.parametrize("form", ["keras", "preset"])
def test_lora_is_merged(form, tmp_path):
    """As in Keras, the update is added to its kernel when saved."""
    model, images = filled(**SMALL), pictures(2, 8, 12)
    model.enable_lora(2)
    model.compile(keras.optimizers.SGD(0.1), SPARSE)
    fit(model)
    trained = predict(model, images)
    if form == "keras":
        model.save(tmp_path / "lora.keras")
        again = keras.models.load_model(tmp_path / "lora.keras", compile=False)
    else:
        model.save_to_preset(tmp_path / "lora")
        again = keras_vit.ViT.from_preset(tmp_path / "lora")
    assert {v.path for v in again.weights} == set(values(filled(**SMALL)))
    np.testing.assert_allclose(predict(again, images), trained, atol=1e-5)
