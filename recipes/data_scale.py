"""ViT, hybrid and ResNet on 1 %, 10 % and 100 % of Fashion-MNIST.

    apt-get install dataset-fashion-mnist    # or --data FOLDER, or --data tfds
    KERAS_BACKEND=jax python recipes/data_scale.py --out runs/data_scale

The paper's central comparison (section 4.3, figures 3 and 4) in small: three
models of about 4 million multiply-adds, the same 600 steps of 64 images
whatever the training set, three seeds, all 10,000 test images. 27 runs of one
to two minutes on one core. Each adds a line to `results.csv` when it is done,
and a run whose line is there is not made again; `data_scale.png` is drawn from
the lines at the end.

Recipe, the same for all three but for the learning rate: AdamW (weight decay
0.05 on matrices), 10 % warm-up then cosine, label smoothing 0.1, gradient
clipping at 1, shifts by up to 2 pixels and flips. The learning rate is the best
of 1e-3, 3e-3 and 1e-2 for each model, by the accuracy on 5,000 held-out
training images after 300 steps on 10 % (`--validate`): ViT 51.7, 59.2, 56.0 %;
hybrid 61.4, 73.0, 72.4 %; ResNet 70.4, 78.7, 80.8 %.
"""

import argparse
import csv
import itertools
import pathlib

import keras
import numpy as np
from train_fashion_mnist import Augmented
from train_fashion_mnist import augment
from train_fashion_mnist import load
from train_fashion_mnist import make_optimizer
from train_fashion_mnist import smoothed_loss

import keras_vit

FIELDS = ("model", "fraction", "seed", "steps", "learning_rate", "accuracy")
SMALL = {
    "image_size": 28,
    "num_classes": 10,
    "mlp_dim": 128,
    "class_token": False,
    "pooling": "gap",
}
# Model -> its config and its learning rate.
MODELS = {
    "ViT": (keras_vit.vit_config("nano/4", depth=2, **SMALL), 3e-3),
    "hybrid": (
        keras_vit.vit_config(
            "nano/1", depth=1, stages=(1,), trunk_width=32, **SMALL
        ),
        3e-3,
    ),
    "ResNet": (
        keras_vit.resnet_config(
            "r50x0.5", stages=(1, 1), image_size=28, num_classes=10
        ),
        1e-2,
    ),
}
COLORS = {"ViT": "#0072b2", "hybrid": "#009e73", "ResNet": "#d55e00"}
HELD_OUT = 5000


class Stream(Augmented):
    """So many batches, however often they go through the images."""

    def __init__(self, images, labels, batch_size, seed, steps):
        super().__init__(images, labels, batch_size, seed)
        self.steps = steps

    def __len__(self):
        return self.steps

    def __getitem__(self, index):
        size = self.batch_size
        epoch, batch = divmod(index, max(len(self.images) // size, 1))
        rng = np.random.default_rng((self.seed, epoch))
        chosen = rng.permutation(len(self.images))[batch * size :][:size]
        rng = np.random.default_rng((self.seed, epoch, batch))
        return augment(self.images[chosen], rng), self.labels[chosen]


def subset(labels, fraction, seed):
    """Indices of a part of the images, every class alike."""
    rng = np.random.default_rng(seed)
    parts = []
    for label in np.unique(labels):
        indices = rng.permutation(np.flatnonzero(labels == label))
        parts.append(indices[: max(round(fraction * len(indices)), 1)])
    return np.concatenate(parts)


def run(name, train, test, fraction, seed, args):
    """Trains one model, and returns the share of `test` that it gets right."""
    keras.utils.set_random_seed(seed)
    config, learning_rate = MODELS[name]
    kind = keras_vit.ResNetV2 if name == "ResNet" else keras_vit.ViT
    model = kind(config)
    chosen = subset(train[1], fraction, seed)
    data = Stream(
        train[0][chosen], train[1][chosen], args.batch_size, seed, args.steps
    )
    rate = args.learning_rate or learning_rate
    optimizer = make_optimizer(args.steps, args.steps // 10, rate, model)
    optimizer.use_ema = False  # it would still remember the first weights
    model.compile(
        optimizer,
        smoothed_loss(0.1, config.num_classes),
        jit_compile=keras.config.backend() != "torch",
    )
    model.fit(data, verbose=0)
    logits = model.predict(test[0], batch_size=500, verbose=0)
    return rate, float((logits.argmax(-1) == test[1]).mean())


def read_rows(path):
    """The finished runs."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_row(path, row):
    """Adds one finished run."""
    new = not path.is_file()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if new:
            writer.writeheader()
        writer.writerow(row)


def run_all(args, path):
    """Makes the runs that are not there yet."""
    train, test = (load(args.data, split) for split in ("train", "t10k"))
    if args.validate:
        images, labels = train
        train = images[:-HELD_OUT], labels[:-HELD_OUT]
        test = images[-HELD_OUT:], labels[-HELD_OUT:]
    done = {(r["model"], r["fraction"], r["seed"]) for r in read_rows(path)}
    for seed, fraction, name in itertools.product(
        range(args.seeds), args.fractions, args.models
    ):
        if (name, str(fraction), str(seed)) in done:
            continue
        rate, accuracy = run(name, train, test, fraction, seed, args)
        values = name, fraction, seed, args.steps, rate, accuracy
        write_row(path, dict(zip(FIELDS, values, strict=True)))
        print(f"{name} {fraction:.0%} {seed}: {accuracy:.2%}", flush=True)


def summary(rows):
    """`{(model, fraction): accuracies in per cent}`, fractions ascending."""
    table = {}
    for row in sorted(rows, key=lambda row: float(row["fraction"])):
        key = row["model"], float(row["fraction"])
        table.setdefault(key, []).append(100 * float(row["accuracy"]))
    return table


def print_table(table):
    """Mean and range of the seeds."""
    for name, (config, _) in MODELS.items():
        macs = keras_vit.count_macs(config) / 1e6
        cells = [
            f"{fraction:.0%}: {np.mean(v):.1f} ({min(v):.1f} to {max(v):.1f})"
            for (model, fraction), v in table.items()
            if model == name
        ]
        params = keras_vit.count_params(config)
        print(f"{name:<8}{macs:.1f} M, {params:,} weights  {'  '.join(cells)}")


def draw(table, path):
    """Accuracy against the images, the seeds as dots around the mean."""
    from matplotlib.figure import Figure

    figure = Figure((7.2, 4.4), dpi=100, layout="constrained")
    axis = figure.subplots()
    for name, color in COLORS.items():
        points = {f: v for (model, f), v in table.items() if model == name}
        if not points:
            continue
        x = [60000 * fraction for fraction in points]
        means = [np.mean(v) for v in points.values()]
        axis.plot(x, means, color=color, lw=2.5, marker="o", ms=7)
        for at, values in zip(x, points.values(), strict=True):
            axis.plot([at] * len(values), values, ".", color=color, alpha=0.5)
        axis.annotate(
            name,
            (x[-1], means[-1]),
            xytext=(10, 0),
            textcoords="offset points",
            color=color,
            va="center",
            fontsize=13,
        )
    axis.set_xscale("log")
    axis.set_xticks([600, 6000, 60000], ["600", "6,000", "60,000"])
    axis.set_xlim(450, 130000)
    axis.minorticks_off()
    axis.set_xlabel("training images", fontsize=12)
    axis.set_ylabel("right on the test set, %", fontsize=12)
    axis.set_title(
        "Fashion-MNIST, the same training steps", loc="left", fontsize=13
    )
    axis.grid(axis="y", alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


def parse(arguments=None):
    """Returns the arguments of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--out", default="runs/data_scale")
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument(
        "--fractions", nargs="*", type=float, default=[0.01, 0.1, 1.0]
    )
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, help="of all models")
    parser.add_argument("--validate", action="store_true", help="not the test")
    parser.add_argument("--plot-only", action="store_true")
    return parser.parse_args(arguments)


def main(arguments=None):
    """Runs, prints the table and draws."""
    args = parse(arguments)
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    if not args.plot_only:
        run_all(args, out / "results.csv")
    table = summary(read_rows(out / "results.csv"))
    print_table(table)
    draw(table, out / "data_scale.png")


if __name__ == "__main__":
    main()
