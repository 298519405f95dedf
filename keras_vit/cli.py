"""The command `keras-vit`: predict, list, info.

Exit codes: 0, all done; 1, some images could not be read (the others were
done); 2, nothing done, and the message says what to change.
"""

import argparse
import json
import os
import sys

DEFAULT_PRESET = "vit_nano_fashion_mnist"


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    args = _parser().parse_args(arguments)
    # Logs of a backend would drown the answer; an explicit level wins.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        return args.run(args)
    except (ValueError, ImportError) as error:
        print(f"keras-vit: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader has seen enough (`keras-vit list | head`).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def predict(args):
    """Prints the best labels of each image."""
    import keras_vit
    from keras_vit.pixels import ImageError
    from keras_vit.pixels import list_images

    model = keras_vit.ViT.from_preset(args.preset)
    good, failed = [], 0
    for path in list_images(args.images):
        try:
            good.append((path, keras_vit.load_images(path, model)[0]))
        except ImageError as error:
            failed += 1
            print(f"keras-vit: {error}", file=sys.stderr)
    rows = []
    if good:
        paths, images = zip(*good, strict=True)
        logits = _predict(model, images)
        best = keras_vit.top_labels(logits, model, k=args.top)
        rows = list(zip(map(str, paths), best, strict=True))
    _print_predictions(rows, args.json)
    if not rows:
        return 2
    return 1 if failed else 0


def _predict(model, images):
    import numpy as np

    return model.predict(np.stack(images), verbose=0)


def _print_predictions(rows, as_json):
    if as_json:
        for path, best in rows:
            labels = [{"label": n, "probability": p} for n, p in best]
            print(json.dumps({"image": path, "labels": labels}))
        return
    _print_table(
        [
            [path, *(f"{name} {p:.1%}" for name, p in best)]
            for path, best in rows
        ]
    )


def list_command(args):
    """Prints the presets that match a pattern."""
    import keras_vit

    found = keras_vit.list_presets(args.pattern)
    if not found:
        raise ValueError(
            f"No preset matches. Expected: a shell pattern such as '*b16*'. "
            f"Received: {args.pattern!r}. `keras-vit list` shows all."
        )
    rows = [_facts(name, preset) for name, preset in found.items()]
    if args.json:
        print(json.dumps(rows, indent=2))
        return 0
    _print_table(
        [["preset", "pixels", "params", "GFLOPs", "top-1", "licence"]]
        + [
            [
                row["preset"],
                "x".join(map(str, row["image_size"])),
                _short(row["params"]),
                f"{row['gflops']:.3g}",
                f"{row['top_1']:.2f}",
                row["license"],
            ]
            for row in rows
        ]
    )
    return 0


def _facts(name, preset):
    import keras_vit

    config = preset.config
    return {
        "preset": name,
        "description": preset.description,
        "image_size": list(config.image_size),
        "params": keras_vit.count_params(config),
        "gflops": 2 * keras_vit.count_macs(config) / 1e9,
        "top_1": preset.top_1,
        "dataset": preset.dataset,
        "license": preset.license,
        "source": preset.source,
    }


def info(args):
    """Prints what a preset, a directory or a variant is and costs."""
    import keras_vit

    config = _config_of(args.model)
    if args.image_size:
        config = config.replace(image_size=args.image_size)
    facts = {
        "model": args.model,
        "params": keras_vit.count_params(config),
        "params_without_head": keras_vit.count_params(
            config.replace(num_classes=0)
        ),
        "tokens": config.num_tokens,
        "grid": list(config.grid),
        "gmacs": keras_vit.count_macs(config) / 1e9,
        "gflops": 2 * keras_vit.count_macs(config) / 1e9,
        "config": config.to_dict(),
    }
    if args.json:
        print(json.dumps(facts, indent=2))
        return 0
    _print_facts(facts, config)
    if args.full:
        print(config)
    return 0


def _print_facts(facts, config):
    height, width = config.image_size
    rows, columns = config.grid
    _print_table(
        [
            ["model", facts["model"]],
            ["image", f"{height} x {width} pixels"],
            ["patches", f"{rows} x {columns} of {config.stem.patch_size}"],
            ["tokens", f"{config.num_tokens} ({config.num_prefix} in front)"],
            ["blocks", f"{config.depth} of width {config.width}"],
            ["parameters", f"{facts['params']:,}"],
            ["without head", f"{facts['params_without_head']:,}"],
            ["multiply-adds", f"{facts['gmacs']:.3f} G per image"],
            [
                "FLOPs",
                f"{facts['gflops']:.3f} G per image (2 per multiply-add)",
            ],
        ]
    )


def _config_of(name):
    import keras_vit
    from keras_vit.preset_files import read_preset
    from keras_vit.presets import find_preset

    presets = keras_vit.list_presets()
    if name in presets:
        return presets[name].config
    size, _, patch = name.partition("/")
    if patch.isdigit() and not os.path.isdir(name):
        return keras_vit.vit_config(name)
    config, _ = read_preset(find_preset(name), "ViT")
    return keras_vit.ViTConfig.from_dict(config["config"])


def _print_table(rows):
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        )
        print("  ".join(cells).rstrip())


def _short(number):
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return str(number)


def _positive(text):
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(
            f"expected a whole number of at least 1, received {text!r}"
        )
    return int(text)


def _parser():
    parser = argparse.ArgumentParser(
        prog="keras-vit",
        description="Vision Transformers for Keras 3.",
        epilog="Exit codes: 0 all done, 1 some images failed, 2 nothing done.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    sub = commands.add_parser("predict", help="label images")
    sub.add_argument("images", nargs="+", help="image files or folders")
    sub.add_argument(
        "--preset",
        default=DEFAULT_PRESET,
        help=f"a name of `list` or a directory (default: {DEFAULT_PRESET})",
    )
    sub.add_argument("--top", type=_positive, default=3, help="labels (3)")
    sub.add_argument("--json", action="store_true", help="one object a line")
    sub.set_defaults(run=predict)

    sub = commands.add_parser("list", help="show the presets")
    sub.add_argument("pattern", nargs="?", default="*", help="such as '*b16*'")
    sub.add_argument("--json", action="store_true")
    sub.set_defaults(run=list_command)

    sub = commands.add_parser("info", help="what a model is and costs")
    sub.add_argument("model", help="a preset, a directory or `b/16`")
    sub.add_argument("--image-size", type=_positive, help="pixels")
    sub.add_argument("--full", action="store_true", help="the whole config")
    sub.add_argument("--json", action="store_true")
    sub.set_defaults(run=info)
    return parser


if __name__ == "__main__":
    sys.exit(main())
