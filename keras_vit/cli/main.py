"""The command `keras-vit`: predict, explain, finetune, list and more.

Exit codes: 0, all done; 1, some images could not be read (the others were
done); 2, nothing done, and the message says what to change.
"""

import argparse
import json
import os
import sys

from keras_vit.cli.explain import explain
from keras_vit.cli.models import convert
from keras_vit.cli.models import info
from keras_vit.cli.models import list_command
from keras_vit.cli.speed import add_benchmark
from keras_vit.cli.tables import print_table
from keras_vit.cli.training import add_evaluate
from keras_vit.cli.training import add_finetune

DEFAULT_PRESET = "vit_nano_fashion_mnist"


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    args = _parser().parse_args(arguments)
    # Logs of a backend would drown the answer; an explicit level wins.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        return args.run(args)
    except BrokenPipeError:
        # The reader has seen enough (`keras-vit list | head`).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, ImportError, OSError) as error:
        print(f"keras-vit: {error}", file=sys.stderr)
        return 2


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
    print_table(
        [
            [path, *(f"{name} {p:.1%}" for name, p in best)]
            for path, best in rows
        ]
    )


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
    for add in (_add_predict, _add_explain, _add_list, _add_info, _add_convert):
        add(commands)
    for add in (add_finetune, add_evaluate, add_benchmark):
        add(commands, _positive)
    return parser


def _add_predict(commands):
    sub = commands.add_parser("predict", help="label images")
    sub.add_argument("images", nargs="+", help="image files or folders")
    _add_preset(sub)
    sub.add_argument("--top", type=_positive, default=3, help="labels (3)")
    sub.add_argument("--json", action="store_true", help="one object a line")
    sub.set_defaults(run=predict)


def _add_explain(commands):
    sub = commands.add_parser("explain", help="a page on what a model sees")
    sub.add_argument("image", help="an image file")
    _add_preset(sub)
    sub.add_argument(
        "--out", default="report.html", help="the page (report.html)"
    )
    sub.set_defaults(run=explain)


def _add_preset(sub):
    sub.add_argument(
        "--preset",
        default=DEFAULT_PRESET,
        help=f"a name of `list`, an address or a directory (default: "
        f"{DEFAULT_PRESET})",
    )


def _add_list(commands):
    sub = commands.add_parser("list", help="show the presets")
    sub.add_argument("pattern", nargs="?", default="*", help="such as '*b16*'")
    sub.add_argument("--json", action="store_true")
    sub.set_defaults(run=list_command)


def _add_info(commands):
    sub = commands.add_parser("info", help="what a model is and costs")
    sub.add_argument("model", help="a preset, a directory or `b/16`")
    sub.add_argument("--image-size", type=_positive, help="pixels")
    sub.add_argument("--full", action="store_true", help="the whole config")
    sub.add_argument("--json", action="store_true")
    sub.set_defaults(run=info)


def _add_convert(commands):
    sub = commands.add_parser("convert", help="write for another library")
    sub.add_argument("source", help="a checkpoint, a preset or an address")
    sub.add_argument("target", help="ends in .safetensors or .npz")
    sub.add_argument("--format", default="timm", help="a layout (timm)")
    sub.add_argument("--prefix", default="", help="before every name")
    sub.add_argument(
        "--set",
        nargs="*",
        default=[],
        metavar="FIELD=VALUE",
        help="what the source cannot say, such as num_heads=6",
    )
    sub.set_defaults(run=convert)
