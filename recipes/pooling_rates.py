"""Class token and mean of the patches, each at its own learning rate.

    apt-get install dataset-fashion-mnist    # or --data FOLDER, or --data tfds
    KERAS_BACKEND=jax python recipes/pooling_rates.py

Appendix D.3 of the paper (figure 9) in small: the two ways to pool a ViT look
unequal until each has a learning rate of its own. Two blocks on Fashion-MNIST,
600 steps of 64 images, rated on 5,000 held-out training images; the recipe is
that of `data_scale.py`. 20 seconds a run on one core.

    rate     token                    mean of the patches
    3e-04    48.4 % (48.4 48.3)       47.7 % (49.3 46.1)
    1e-03    65.4 % (66.6 64.2)       62.8 % (64.3 61.3)
    3e-03    72.2 % (70.9 73.5)       69.2 % (69.9 68.5)
    1e-02    68.3 % (66.3 70.4)       69.3 % (67.3 71.2)

The token is ahead at one rate and behind at another.
"""

import argparse

import keras
import numpy as np
from data_scale import HELD_OUT
from data_scale import Stream
from train_fashion_mnist import load
from train_fashion_mnist import make_optimizer
from train_fashion_mnist import smoothed_loss

import keras_vit

POOLINGS = {"token": True, "gap": False}  # and whether there is a class token


def run(pooling, rate, seed, data, args):
    """Trains one model, and returns the share of held-out images it knows."""
    keras.utils.set_random_seed(seed)
    images, labels = data
    model = keras_vit.ViT(
        keras_vit.vit_config(
            "nano/4",
            depth=2,
            mlp_dim=128,
            image_size=28,
            num_classes=10,
            pooling=pooling,
            class_token=POOLINGS[pooling],
        )
    )
    optimizer = make_optimizer(args.steps, args.steps // 10, rate, model)
    optimizer.use_ema = False  # it would still remember the first weights
    model.compile(
        optimizer,
        smoothed_loss(0.1, 10),
        jit_compile=keras.config.backend() != "torch",
    )
    train = images[:-HELD_OUT], labels[:-HELD_OUT]
    model.fit(Stream(*train, 64, seed, args.steps), verbose=0)
    logits = model.predict(images[-HELD_OUT:], batch_size=500, verbose=0)
    return float((logits.argmax(-1) == labels[-HELD_OUT:]).mean())


def parse(arguments=None):
    """Returns the arguments of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=2, help="how many")
    parser.add_argument(
        "--rates", nargs="*", type=float, default=[3e-4, 1e-3, 3e-3, 1e-2]
    )
    return parser.parse_args(arguments)


def main(arguments=None):
    """Prints a line for each pooling and rate, seeds averaged."""
    args = parse(arguments)
    data = load(args.data, "train")
    for pooling in POOLINGS:
        for rate in args.rates:
            right = [
                run(pooling, rate, seed, data, args)
                for seed in range(args.seeds)
            ]
            cells = " ".join(f"{100 * r:.1f}" for r in right)
            print(
                f"{pooling:6} {rate:7.0e} {100 * np.mean(right):5.1f} % "
                f"({cells})",
                flush=True,
            )


if __name__ == "__main__":
    main()
