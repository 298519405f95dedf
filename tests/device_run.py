"""Five steps of a small model on the devices named; a test compares.

python device_run.py OUT.npz SPEC [SPEC ...]
"""

import pathlib
import sys

import keras
import numpy as np

import keras_vit

IMAGES = np.random.default_rng(0).integers(0, 256, (16, 8, 8, 3), "uint8")
LABELS = np.arange(16, dtype="int32") % 8
NAMES = tuple("abcdefgh")


class Same:
    """The same batch in every step."""

    def stream(self, start=0):
        while True:
            yield IMAGES, LABELS


def run(spec, out):
    """Weights, metrics, logits and bytes per device after five steps."""
    devices = keras_vit.use_devices(spec)
    keras.utils.set_random_seed(0)
    with devices.scope():
        config = keras_vit.vit_config(
            "nano/4",
            image_size=8,
            depth=2,
            width=16,
            num_heads=4,
            mlp_dim=32,
            num_classes=8,
        )
        model = keras_vit.ViT(config)
        optimizer = keras.optimizers.SGD(0.05, momentum=0.9, weight_decay=0.01)
        model.compile(
            keras_vit.layer_decay(optimizer, model, 0.8),
            keras_vit.Crossentropy(label_smoothing=0.1),
            metrics=[
                "accuracy",
                keras.metrics.SparseTopKCategoricalAccuracy(5, name="top_5"),
            ],
        )
    devices.prepare(model)
    directory = out.with_name(f"{out.stem}_{spec.replace(':', '_')}")
    history = keras_vit.train(
        model, Same(), 5, directory, every=5, devices=devices, verbose=0
    )
    found = {f"{spec}/metric/{k}": v[-1] for k, v in history.items()}
    for variable in model.weights:
        value = keras.ops.convert_to_numpy(variable)
        found[f"{spec}/weight/{variable.path}"] = value
    found[f"{spec}/replicas"] = devices.replicas
    if keras.config.backend() == "jax":
        for variable in model.weights:
            shards = variable.value.addressable_shards
            sizes = [shard.data.size for shard in shards]
            found[f"{spec}/shards/{variable.path}"] = sizes
    if devices.processes == 1:
        logits = model.predict(IMAGES, batch_size=16, verbose=0)
        found[f"{spec}/logits"] = logits
    # Batches of 7 and 2: no multiples of the devices.
    odd = keras_vit.data.LabelledImages(IMAGES[:9], LABELS[:9], NAMES)
    with devices.alone(model) as single:
        top_1 = keras_vit.accuracy(single, odd, batch_size=7)["top_1"]
    found[f"{spec}/metric/odd"] = top_1
    return found, devices.writer


def main():
    """Runs every spec, and writes one file."""
    out, *specs = sys.argv[1:]
    found, writer = {}, True
    for spec in specs:
        more, writer = run(spec, pathlib.Path(out))
        found.update(more)
        keras.utils.clear_session()
    if writer:
        np.savez(out, **found)


if __name__ == "__main__":
    main()
