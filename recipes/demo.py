"""The trained model inside the package at work, in under a minute on a CPU.

    make demo    # or: python recipes/demo.py [--out demo]

Classifies ten pictures, fine-tunes for a few steps, and draws what it saw.
"""

import argparse
import pathlib

import keras
import numpy as np

import keras_vit
from keras_vit.analysis.plots import prediction_figure


def main():
    """Predicts, draws and fine-tunes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="demo", help="folder of the results")
    out = pathlib.Path(parser.parse_args().out)
    say = print
    say(f"keras_vit {keras_vit.__version__}, {keras.config.backend()} backend")

    model = keras_vit.ViT.from_preset("vit_nano_fashion_mnist")
    paths = keras_vit.sample_images()
    images = keras_vit.load_images(paths, model)
    answers = keras_vit.top_labels(model.predict(images, verbose=0), model, 3)
    say(f"\n{'image':<18}{'first':<22}{'second':<22}third")
    for path, best in zip(paths, answers, strict=True):
        cells = "".join(f"{f'{name} {p:.1%}':<22}" for name, p in best)
        say(f"{path.stem:<18}{cells}".rstrip())

    out.mkdir(parents=True, exist_ok=True)
    maps = keras_vit.attention_rollout(model, images)
    prediction_figure(images, maps, answers).savefig(out / "predictions.png")

    say("\nFine-tuning on the same ten pictures, shifted and mirrored:")
    labels = [model.labels.index(name) for name in sample_labels(paths)]
    fine_tune(model, images, np.array(labels))
    model.save_to_preset(out / "fine_tuned")
    say(f"\nwritten: {out / 'predictions.png'}, {out / 'fine_tuned'}")


def sample_labels(paths):
    """The class in the file name: `ankle_boot.png` is an `Ankle boot`."""
    names = {"t-shirt_top": "T-shirt/top"}
    return [
        names.get(path.stem, path.stem.replace("_", " ").capitalize())
        for path in paths
    ]


def fine_tune(model, images, labels, copies=32):
    """A few steps of plain `model.fit`."""
    rng = np.random.default_rng(0)
    x = np.concatenate([images] * copies)
    x = np.stack([np.roll(i, rng.integers(-2, 3, 2), (0, 1)) for i in x])
    x[::2] = x[::2, :, ::-1]
    model.compile(
        keras_vit.AdamW(1e-4),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(x, np.tile(labels, copies), batch_size=32, epochs=3)


if __name__ == "__main__":
    main()
