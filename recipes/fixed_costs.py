"""What a program pays once: import, building, loading, compiling.

    KERAS_BACKEND=jax python recipes/fixed_costs.py
    KERAS_BACKEND=tensorflow python recipes/fixed_costs.py --depths 4 8 16 32

First times are taken in a process of their own each, warm ones in turn inside
one; medians. A bare graph is what Keras itself takes for a functional model of
as many layers that hold next to nothing. On two cores with seven rounds about
five minutes, and as much for the depths. The figures of ours: docs/speed.md.
"""

import argparse
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time


def main():
    """Prints one table."""
    args, say = arguments(), print
    if args.part:
        say(json.dumps(PARTS[args.part](args)))
        return
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        args.folder = folder
        run(args, "files")
        for _ in range(args.rounds):
            for part in FIRST_TIMES:
                collect(rows, run(args, part))
        collect(rows, run(args, "warm"))
        for depth in args.depths:
            args.depth = depth
            for part in ("predict", "fit"):
                collect(rows, run(args, part))
    say(f"| {os.environ.get('KERAS_BACKEND', 'the backend')} | seconds |")
    say("|---|---|")
    for name, values in rows.items():
        say(f"| {name} | {statistics.median(values):.2f} |")


def arguments():
    """Returns the words of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variant", default="b/16")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--depths", type=int, nargs="*", default=[], help="of the compiled ones"
    )
    for hidden in ("--part", "--folder", "--depth"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    return parser.parse_args()


def collect(rows, found):
    """Adds the figures of one process to those of the others."""
    for name, seconds in found.items():
        rows.setdefault(name, []).extend(
            seconds if isinstance(seconds, list) else [seconds]
        )


def run(args, part):
    """Returns what a fresh process measures."""
    words = itertools.chain.from_iterable(map(word, vars(args).items()))
    command = [sys.executable, __file__, *words, "--part", part]
    out = subprocess.run(
        command,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    ).stdout
    return json.loads(out.splitlines()[-1])


def word(item):
    """An argument as it stands on the command line."""
    name, value = item
    if name in ("depths", "part") or value is None:
        return ()
    return (f"--{name.replace('_', '-')}", str(value))


def seconds(function, *args):
    """Returns how long a call takes."""
    begun = time.perf_counter()
    function(*args)
    return time.perf_counter() - begun


def importing(args):
    """`import keras_vit` after `import keras`."""
    import keras  # noqa: F401

    def ours():
        import keras_vit  # noqa: F401

    return {"import, over that of Keras": seconds(ours)}


def model_of(args, **changes):
    """Returns a new model."""
    import keras_vit

    config = keras_vit.vit_config(
        args.variant, image_size=args.image_size, num_classes=1000
    )
    return keras_vit.ViT(config.replace(**changes))


def building(args):
    """A model with random weights, and what it first predicts."""
    import keras_vit  # noqa: F401

    begun = time.perf_counter()
    model = model_of(args)
    built = time.perf_counter() - begun
    return {
        "building, random weights": built,
        "first prediction": seconds(predict, model),
        "second prediction": seconds(predict, model),
    }


def predict(model):
    """One black picture, without a bar."""
    import numpy as np

    pixels = np.zeros((1, *model.config.image_size, 3), "uint8")
    model.predict(pixels, verbose=0)


def fit(model):
    """One step on it."""
    import numpy as np

    pixels = np.zeros((1, *model.config.image_size, 3), "uint8")
    model.fit(pixels, np.zeros(1, "int32"), verbose=0)


def files(args):
    """The files that the others load."""
    import keras_vit

    folder, model = pathlib.Path(args.folder), model_of(args)
    keras_vit.save_checkpoint(model, folder / "flax.npz", format="google")
    keras_vit.save_checkpoint(model, folder / "timm.safetensors")
    model.save_to_preset(folder / "preset")
    return {}


def read_npz(folder):
    """Every array of an npz file, by NumPy."""
    import numpy as np

    with np.load(folder / "flax.npz") as file:
        return [file[name] for name in file.files]


def read_safetensors(folder):
    """Every array of a safetensors file, by its own library."""
    from safetensors.numpy import load_file

    return load_file(folder / "timm.safetensors")


def read_h5(folder):
    """Every array of a preset, by h5py."""
    import h5py

    arrays = []

    def visit(name, item):
        if isinstance(item, h5py.Dataset):
            arrays.append(item[()])

    with h5py.File(folder / "preset" / "model.weights.h5") as file:
        file.visititems(visit)
    return arrays


def load_npz(folder):
    """A model from a published file of the Flax layout."""
    import keras_vit

    return keras_vit.load_checkpoint(folder / "flax.npz")


def load_safetensors(folder):
    """A model from a published file of timm's layout."""
    import keras_vit

    return keras_vit.load_checkpoint(folder / "timm.safetensors")


def load_preset(folder):
    """A model from a preset of ours."""
    import keras_vit

    return keras_vit.ViT.from_preset(folder / "preset")


JOBS = {
    "npz: reading its arrays": read_npz,
    "npz: load_checkpoint": load_npz,
    "safetensors: reading its arrays": read_safetensors,
    "safetensors: load_checkpoint": load_safetensors,
    "preset: reading its arrays": read_h5,
    "preset: from_preset": load_preset,
}


def first_time(name):
    """A job in a process that has done nothing but import."""

    def part(args):
        import keras_vit  # noqa: F401

        took = seconds(JOBS[name], pathlib.Path(args.folder))
        return {f"{name}, first time": took}

    return part


def warm(args):
    """All jobs in turn, and the graph that is the least of them."""
    times, folder = {}, pathlib.Path(args.folder)
    jobs = {**JOBS, "bare graph of Keras": bare_graph(args)}
    for i in range(args.rounds + 1):
        for name, job in jobs.items():
            took = seconds(job, folder)
            if i:
                times.setdefault(f"{name}, warm", []).append(took)
    return times


def bare_graph(args):
    """Keras' own time for as many layers with weights as the model has."""
    import keras

    layers = [
        x for x in model_of(args)._flatten_layers() if x._trainable_variables
    ]

    def build(_):
        x = images = keras.Input((8,))
        for _ in layers:
            x = keras.layers.Dense(8, kernel_initializer="zeros")(x)
        return keras.Model(images, x)

    return build


def compiling(step):
    """The first step over the next one, at one depth, with XLA."""

    def part(args):
        import keras

        model = model_of(args, depth=int(args.depth))
        # Of four by four patches: what there is to compile is the same.
        model = model.with_image_size(4 * model.config.stem.patch_size[0])
        model.compile(
            keras.optimizers.SGD(1e-3),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=keras.config.backend() != "torch",
        )
        first = seconds(step, model)
        name = f"compiling {step.__name__}, depth {args.depth}"
        return {name: first - seconds(step, model)}

    return part


FIRST_TIMES = {
    "import": importing,
    "build": building,
    **{name.replace(" ", "-"): first_time(name) for name in JOBS},
}
PARTS = {
    "files": files,
    "warm": warm,
    "predict": compiling(predict),
    "fit": compiling(fit),
    **FIRST_TIMES,
}

if __name__ == "__main__":
    main()
