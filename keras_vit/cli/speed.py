"""The command `benchmark`: this package against its peers."""

import json
import os

from keras_vit.cli.tables import print_table


def benchmark(args):
    """Measures every combination that was asked for, and prints a table."""
    if args.device == "cpu":
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
    from keras_vit.benchmark import benchmark as measure
    from keras_vit.benchmark import task_of

    tasks = [
        task_of(
            variant=variant,
            image_size=size,
            batch=batch,
            mode=mode,
            dtype=args.dtype,
        )
        for variant in args.variant
        for size in args.image_size
        for mode in args.mode
        for batch in args.batch
    ]
    for task in tasks:
        rows = measure(task, args.peers, args.rounds)
        if args.json:
            for row in rows:
                print(json.dumps({**vars(task), **row}), flush=True)
        else:
            _print(task, rows)
    return 0


def _print(task, rows):
    import keras

    print(
        f"{task.variant} at {task.image_size}, batch {task.batch}, {task.mode},"
        f" {task.dtype}, {keras.config.backend()}"
    )
    head = ["", "ms", "quartiles", "images/s", "ratio", "floor", "peak"]
    print_table(
        [head]
        + [
            [
                row["name"],
                f"{row['ms']:.4g}",
                f"{row['low']:.4g} to {row['high']:.4g}",
                f"{row['images_per_second']:.3g}",
                f"{row['ratio']:.2f}",
                f"{100 * row['floor']:.0f} %",
                f"{row['peak'] / 2**30:.2f} GiB",
            ]
            for row in rows
        ]
    )


def add_benchmark(commands, positive):
    """Adds the command line of `benchmark`."""
    sub = commands.add_parser("benchmark", help="speed, beside other libraries")
    sub.add_argument("--variant", nargs="+", default=["b/16"], help="(b/16)")
    sub.add_argument("--image-size", nargs="+", type=positive, default=[224])
    sub.add_argument("--batch", nargs="+", type=positive, default=[1, 8])
    sub.add_argument(
        "--mode", nargs="+", default=["infer"], help="infer, train (infer)"
    )
    sub.add_argument("--dtype", default="float32", help="or bfloat16, int8")
    sub.add_argument(
        "--device", default="cpu", help="cpu, or auto for an accelerator (cpu)"
    )
    sub.add_argument(
        "--peers", nargs="*", help="by default all that are installed"
    )
    sub.add_argument("--rounds", type=positive, default=7, help="(7)")
    sub.add_argument("--json", action="store_true", help="one object a line")
    sub.set_defaults(run=benchmark)
