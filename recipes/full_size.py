"""Full-size models on this machine: built, saved, reloaded, trained a step.

    KERAS_BACKEND=jax python recipes/full_size.py

ViT-B/16, R50+B/16 and BiT-R50x1 at 224 pixels with random weights, each in a
process of its own: about a minute and 4 GB each on two cores. Prints a row per
model: weights, GFLOPs, seconds to save and to load, seconds of a training step
(forward, backward, SGD) of 8 images after the first, and the peak memory of
the process. Fails if what is loaded differs in a bit.
"""

import argparse
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import keras
import numpy as np

import keras_vit

MODELS = {
    "b/16": lambda: keras_vit.ViT(keras_vit.vit_config("b/16")),
    "r50+b/16": lambda: keras_vit.ViT(keras_vit.vit_config("r50+b/16")),
    "r50x1": lambda: keras_vit.ResNetV2(keras_vit.resnet_config("r50x1")),
}
HEAD = "| model | weights | GFLOPs | save | load | step | peak memory |"


def timed(function):
    """Seconds that a call takes, and what it gives."""
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def same_bits(a, b):
    """Whether two models have the same weights."""
    return all(
        np.array_equal(*map(keras.ops.convert_to_numpy, pair))
        for pair in zip(a.weights, b.weights, strict=True)
    )


def step_times(model, batch_size, steps):
    """Seconds of each training step after the first, which compiles."""
    model.compile(
        keras.optimizers.SGD(1e-3),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=keras.config.backend() != "torch",
    )
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (batch_size, 224, 224, 3), dtype="uint8")
    y = np.arange(batch_size)
    return [
        timed(lambda: model.train_on_batch(x, y))[0] for _ in range(steps + 1)
    ][1:]


def round_trip(name):
    """Seconds to save and to load a new model, and what was loaded."""
    model = MODELS[name]()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "preset"
        saving, _ = timed(lambda: model.save_to_preset(path))
        loading, again = timed(lambda: type(model).from_preset(path))
    if not same_bits(model, again):
        raise SystemExit(f"{name}: the loaded model is another one")
    return saving, loading, again


def row(name, batch_size, steps):
    """One line of the table."""
    saving, loading, model = round_trip(name)
    step = statistics.median(step_times(model, batch_size, steps))
    flops = 2 * keras_vit.count_macs(model.config) / 1e9
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return (
        f"| `{name}` | {model.count_params():,} | {flops:.1f} | "
        f"{saving:.1f} s | {loading:.1f} s | {step:.2f} s | {peak:.1f} GB |"
    )


def main():
    """Prints the table; each model in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()
    if args.model:
        print(row(args.model, args.batch_size, args.steps))
        return
    print(f"keras {keras.__version__}, {keras.config.backend()} backend")
    print(f"{HEAD}\n|{'---|' * 7}", flush=True)
    for name in MODELS:
        options = ["--batch-size", args.batch_size, "--steps", args.steps]
        command = [sys.executable, __file__, "--model", name, *options]
        subprocess.run(list(map(str, command)), check=True)


if __name__ == "__main__":
    main()
