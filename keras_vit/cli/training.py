"""Commands that train and measure: finetune, evaluate."""

import json


def finetune(args):
    """Fine-tunes a preset on a folder of images."""
    import logging

    from keras_vit.runs import finetune as run

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    changes = {"rate": args.rate, "batch_size": args.batch_size}
    result = run(
        args.preset,
        args.images,
        args.out,
        recipe=args.recipe,
        steps=args.steps,
        every=args.every,
        devices=args.devices,
        image_size=args.image_size,
        augment=args.augment,
        accumulate=args.accumulate,
        cache=args.cache,
        on_error=args.on_error,
        seed=args.seed,
        **{k: v for k, v in changes.items() if v is not None},
    )
    if args.json:
        print(json.dumps(result))
    else:
        print(
            f"{100 * result['top_1']:.2f} % of {result['images']} images; "
            f"model in {args.out}/model"
        )
    return 0


def evaluate(args):
    """Measures the accuracy of a preset on labelled images."""
    import keras_vit

    model = keras_vit.ViT.from_preset(args.preset)
    images = keras_vit.data.open_images(args.images, args.split, model.labels)
    result = keras_vit.accuracy(model, images, args.batch_size, args.on_error)
    if args.json:
        print(json.dumps(result))
    else:
        parts = [
            f"top {name.removeprefix('top_')} {100 * value:.2f} %"
            for name, value in result.items()
            if name != "images"
        ]
        print(f"{', '.join(parts)} of {result['images']} images")
    return 0


def add_finetune(commands, positive):
    """Adds the command line of `finetune`."""
    sub = commands.add_parser("finetune", help="train on your own images")
    sub.add_argument(
        "images", help="a folder of class folders, a .csv, or tfds:name"
    )
    sub.add_argument("--preset", required=True, help="what to start from")
    sub.add_argument("--out", required=True, help="folder of the run")
    sub.add_argument("--recipe", default="paper", help="paper or modern")
    sub.add_argument("--steps", type=positive, default=500, help="(500)")
    sub.add_argument(
        "--every", type=positive, default=100, help="steps per checkpoint (100)"
    )
    sub.add_argument("--batch-size", type=positive, help="of all devices")
    sub.add_argument(
        "--accumulate",
        type=positive,
        default=1,
        help="parts that a batch is fed in, to need less memory (1)",
    )
    sub.add_argument("--rate", type=float, help="highest learning rate")
    sub.add_argument("--image-size", type=positive, help="pixels")
    sub.add_argument(
        "--augment", default="crop", help="crop, shift or none (crop)"
    )
    sub.add_argument(
        "--cache", action="store_true", help="decode once, keep in memory"
    )
    sub.add_argument("--devices", default="auto", help="such as gpu:4 (auto)")
    sub.add_argument("--seed", type=int, default=0)
    _add_common(sub)
    sub.set_defaults(run=finetune)


def add_evaluate(commands, positive):
    """Adds the command line of `evaluate`."""
    sub = commands.add_parser("evaluate", help="accuracy on labelled images")
    sub.add_argument(
        "images", help="a folder of class folders, a .csv, or tfds:name"
    )
    sub.add_argument("--preset", required=True, help="a preset or a directory")
    sub.add_argument("--split", default="test", help="(test)")
    sub.add_argument("--batch-size", type=positive, default=64)
    _add_common(sub)
    sub.set_defaults(run=evaluate)


def _add_common(sub):
    sub.add_argument(
        "--on-error", default="raise", help="raise, or skip unreadable files"
    )
    sub.add_argument("--json", action="store_true")
