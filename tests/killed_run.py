"""A small run, for tests that kill it."""

import keras
import numpy as np

import keras_vit

STEPS, EVERY = 24, 3


def images(count=20):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (count, 8, 8, 3), dtype="uint8")
    return keras_vit.data.LabelledImages(
        pixels, np.arange(count, dtype="int32") % 3, ("a", "b", "c")
    )


def made():
    """Dropout, an average, a schedule and mixing: all that has a state."""
    keras.utils.set_random_seed(0)
    config = keras_vit.vit_config(
        "nano/4",
        image_size=8,
        depth=1,
        width=8,
        mlp_dim=8,
        num_classes=3,
        dropout_rate=0.2,
        stochastic_depth_rate=0.2,
    )
    model = keras_vit.ViT(config)
    schedule = keras_vit.WarmUp(0.05, STEPS, 5)
    optimizer = keras.optimizers.AdamW(schedule, use_ema=True, ema_momentum=0.9)
    model.compile(
        keras_vit.layer_decay(optimizer, model, 0.8),
        keras_vit.Crossentropy(),
        metrics=["accuracy"],
    )
    return model


def batches():
    mix = keras_vit.Mix(3)
    return keras_vit.data.Batches(images(), 6, 8, augment="crop", mix=mix)


def run(directory, steps=STEPS, **options):
    model = made()
    options = {"every": EVERY, "verbose": 0, **options}
    history = keras_vit.train(model, batches(), steps, directory, **options)
    return model, history


def weights(model):
    return [
        np.array(keras.ops.convert_to_numpy(v))
        for v in (*model.weights, *model.optimizer.variables)
    ]


def child(directory, result):
    """What a process does that may be killed."""
    model, _ = run(directory, every=1)
    np.savez(result, *weights(model))
