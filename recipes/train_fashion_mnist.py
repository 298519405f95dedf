"""Trains the embedded model `vit_nano_fashion_mnist` from scratch.

    apt-get install dataset-fashion-mnist    # or --data FOLDER, or --data tfds
    KERAS_BACKEND=jax python recipes/train_fashion_mnist.py --out runs/nano

60,000 training images of 28 x 28 pixels, 36 epochs of two to five minutes on
one slow core; all 10,000 test images are looked at once, at the end. The
weights in the package come from this command (KERAS_BACKEND=torch, one
thread): 91.52 % of the test images. The baselines published with the data set
reach 91 to 94 %.

Recipe: AdamW (learning rate 2e-3, weight decay 0.05 on matrices only), batch
128, one epoch of warm-up then cosine, label smoothing 0.1, stochastic depth
0.05, gradient clipping at 1, exponential moving average of the weights; random
shifts by up to 2 pixels and horizontal flips.
"""

import argparse
import gzip
import json
import pathlib
import time

import keras
import numpy as np

import keras_vit

LABELS = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


def read_idx(path):
    """Returns the array of a gzipped idx file (images or labels)."""
    with gzip.open(path) as file:
        data = file.read()
    if data[:2] != b"\0\0" or data[2] != 8:
        raise ValueError(
            f"Not an idx file of bytes. Expected: it to start with 00 00 08. "
            f"Received: {path}, which starts with {data[:4].hex(' ')}."
        )
    rank = data[3]
    shape = np.frombuffer(data, ">u4", rank, offset=4)
    return np.frombuffer(data, "uint8", offset=4 + 4 * rank).reshape(shape)


def load(data, split):
    """Returns RGB images `(n, 28, 28, 3)` 0..255 and integer labels `(n,)`."""
    if data == "tfds":
        import tensorflow_datasets as tfds

        name = {"train": "train", "t10k": "test"}[split]
        images, labels = tfds.as_numpy(
            tfds.load(
                "fashion_mnist", split=name, batch_size=-1, as_supervised=True
            )
        )
        images = images[..., 0]
    else:
        folder = pathlib.Path(data)
        images = read_idx(folder / f"{split}-images-idx3-ubyte.gz")
        labels = read_idx(folder / f"{split}-labels-idx1-ubyte.gz")
    return np.repeat(images[..., None], 3, axis=-1), labels.astype("int32")


class Augmented(keras.utils.PyDataset):
    """Shuffled batches with shifts and flips, new in every epoch."""

    def __init__(self, images, labels, batch_size, seed):
        super().__init__()
        self.images, self.labels = images, labels
        self.batch_size, self.seed, self.epoch = batch_size, seed, 0
        self.on_epoch_end()

    def __len__(self):
        return len(self.images) // self.batch_size

    def on_epoch_end(self):
        self.epoch += 1
        self.rng = np.random.default_rng((self.seed, self.epoch))
        self.order = self.rng.permutation(len(self.images))

    def __getitem__(self, index):
        size = self.batch_size
        chosen = self.order[index * size : (index + 1) * size]
        rng = np.random.default_rng((self.seed, self.epoch, index))
        return augment(self.images[chosen], rng), self.labels[chosen]


def augment(images, rng, shift=2):
    """Returns shifted and flipped copies of `(n, h, w, 3)` images."""
    n, height, width, _ = images.shape
    padded = np.pad(images, ((0, 0), (shift,) * 2, (shift,) * 2, (0, 0)))
    result = np.empty_like(images)
    for i in range(n):
        top, left = rng.integers(0, 2 * shift + 1, 2)
        image = padded[i, top : top + height, left : left + width]
        result[i] = image[:, ::-1] if rng.random() < 0.5 else image
    return result


def smoothed_loss(smoothing, classes):
    """Cross-entropy of logits with smoothed integer labels."""
    inner = keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=smoothing
    )

    def loss(labels, logits):
        # Keras may hand them over as floats.
        labels = keras.ops.cast(keras.ops.reshape(labels, (-1,)), "int32")
        return inner(keras.ops.one_hot(labels, classes), logits)

    return loss


def make_optimizer(steps, warmup, learning_rate, model):
    """AdamW as in the module's docstring, biases and norms not decayed."""
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0,
        decay_steps=steps - warmup,
        warmup_target=learning_rate,
        warmup_steps=warmup,
    )
    optimizer = keras_vit.AdamW(
        schedule,
        weight_decay=0.05,
        clipnorm=None,
        global_clipnorm=1.0,
        use_ema=True,
        ema_momentum=0.998,
    )
    optimizer.exclude_from_weight_decay(
        var_list=[v for v in model.trainable_variables if v.name != "kernel"]
    )
    return optimizer


def write_samples(images, labels, folder):
    """Writes the first picture of each class as a gray PNG."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    for i, label in enumerate(LABELS):
        first = images[np.flatnonzero(labels == i)[0]]
        name = label.lower().replace(" ", "_").replace("/", "_")
        Image.fromarray(first[..., 0]).save(folder / f"{name}.png")


def parse():
    """Returns the arguments of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--out", default="runs/vit_nano_fashion_mnist")
    parser.add_argument("--epochs", type=int, default=36)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--limit", type=int, help="images, for a trial run")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main():
    """Trains, evaluates once, and writes the preset and its samples."""
    args = parse()
    keras.utils.set_random_seed(args.seed)
    x, y = (a[: args.limit] for a in load(args.data, "train"))
    config = keras_vit.list_presets()["vit_nano_fashion_mnist"].config
    model = keras_vit.ViT(config, labels=LABELS)
    data = Augmented(x, y, args.batch_size, args.seed)
    model.compile(
        make_optimizer(
            args.epochs * len(data), len(data), args.learning_rate, model
        ),
        smoothed_loss(0.1, config.head.num_classes),
        metrics=["accuracy"],
        jit_compile=keras.config.backend() != "torch",
    )
    start = time.time()
    # A killed run goes on from its last whole epoch.
    backup = keras.callbacks.BackupAndRestore(args.out + "_backup")
    history = model.fit(data, epochs=args.epochs, callbacks=[backup], verbose=2)
    minutes = (time.time() - start) / 60
    x, y = load(args.data, "t10k")
    correct = model.predict(x, batch_size=500, verbose=0).argmax(-1) == y
    model.save_to_preset(args.out)
    write_samples(x, y, pathlib.Path(args.out + "_samples"))
    facts = {
        "top_1": round(100 * float(correct.mean()), 2),
        "images": len(y),
        "minutes": round(minutes, 1),
        "epochs": args.epochs,
        "backend": keras.config.backend(),
        "keras": keras.__version__,
        "loss": [round(v, 4) for v in history.history["loss"]],
    }
    path = pathlib.Path(args.out).with_suffix(".json")
    path.write_text(json.dumps(facts, indent=2) + "\n")
    print(  # noqa: T201
        f"{facts['top_1']} % of {len(y)} test images, {minutes:.0f} minutes; "
        f"saved to {args.out}"
    )


if __name__ == "__main__":
    main()
