"""DeiT: a student ViT with a distillation token, and any Keras teacher.

    python recipes/distill.py --variant s/16 --teacher runs/r50x1/model \
        --data tfds:imagenet2012 --image-size 224 --steps 375000 \
        --batch-size 1024 --out runs/deit_s16

At full size (Touvron et al., 2021): 300 epochs of ImageNet, hard distillation
from a RegNet of 82.9 %, 81.2 % for S/16 and 83.4 % for B/16. Not run here.

    python recipes/distill.py --toy

Here: 6,000 images of Fashion-MNIST, 500 steps of 64, three seeds each with and
without a teacher, ten minutes on two CPU cores.
"""

import argparse

import keras
import numpy as np

import keras_vit

FASHION_MNIST = "/usr/share/datasets/fashion-mnist"


def student_of(args, names):
    """A ViT with a distillation token."""
    config = keras_vit.vit_config(
        args.variant,
        image_size=args.image_size,
        num_classes=len(names),
        distillation_token=True,
    )
    return keras_vit.ViT(config, labels=names)


def teacher_of(args):
    """A ViT or a BiT ResNet by its preset, or any saved Keras model."""
    if args.teacher.endswith(".keras"):
        return keras.saving.load_model(args.teacher)
    try:
        return keras_vit.ViT.from_preset(args.teacher)
    except ValueError as error:
        if "ResNetV2.from_preset" not in str(error):
            raise
    return keras_vit.ResNetV2.from_preset(args.teacher)


def compile_for(model, args, **options):
    """AdamW, cosine, clipped at a norm of 1."""
    rate = keras_vit.WarmUp(args.rate, args.steps, args.steps // 10)
    optimizer = keras_vit.AdamW(rate, weight_decay=0.05, global_clipnorm=1.0)
    optimizer.exclude_from_weight_decay(
        [v for v in model.trainable_variables if v.name != "kernel"]
    )
    model.compile(optimizer, metrics=["accuracy"], **options)


def one(args, images, test, seed, taught, devices):
    """Accuracy of a student, with a teacher or without."""
    keras.utils.set_random_seed(seed)
    batches = keras_vit.data.Batches(
        images, args.batch_size, args.image_size, args.augment, seed=seed
    )
    with devices.scope():
        student = model = student_of(args, images.names)
        if taught:
            teacher = teacher_of(args)
            model = keras_vit.Distiller(
                student, teacher, args.kind, label_smoothing=0.1
            )
            compile_for(model, args)
        else:
            compile_for(model, args, loss=keras_vit.Crossentropy(0.1))
    out = f"{args.out}/{'taught' if taught else 'alone'}_{seed}"
    keras_vit.train(
        devices.prepare(model),
        batches,
        args.steps,
        out,
        args.every,
        facts=vars(args),
        devices=devices,
        verbose=2 if devices.writer else 0,
    )
    if devices.writer:
        student.save_to_preset(f"{out}/student")
    with devices.alone(student) as student:
        return keras_vit.accuracy(student, test)["top_1"]


def parse():
    """Returns the arguments of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--toy", action="store_true")
    parser.add_argument("--variant", default="s/16")
    parser.add_argument("--teacher", default="vit_nano_fashion_mnist")
    parser.add_argument("--kind", default="hard", help="or soft")
    parser.add_argument("--data", default=FASHION_MNIST)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--steps", type=int, default=375_000)
    parser.add_argument("--every", type=int, default=500)
    parser.add_argument("--augment", default="crop")
    parser.add_argument("--devices", default="auto")
    parser.add_argument("--limit", type=int, help="training images")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", default="runs/distill")
    args = parser.parse_args()
    if args.toy:
        parser.set_defaults(
            variant="nano/4",
            image_size=28,
            batch_size=64,
            rate=2e-3,
            steps=500,
            augment="shift",
            limit=6000,
            seeds=3,
        )
        args = parser.parse_args()
    return args


def main():
    """Trains the same student with and without a teacher."""
    args = parse()
    devices = keras_vit.use_devices(args.devices)
    images = keras_vit.data.open_images(args.data, "train")
    images = images.subset(slice(args.limit))
    test = keras_vit.data.open_images(args.data, "test", images.names)
    found = {
        name: [
            one(args, images, test, seed, name == "taught", devices)
            for seed in range(args.seeds)
        ]
        for name in ("alone", "taught")
    }
    for name, values in found.items():
        values = 100 * np.array(values)
        if devices.writer:
            print(
                f"{name}: {values.mean():.2f} % ({values.min():.2f} to "
                f"{values.max():.2f}), {args.seeds} seeds"
            )


if __name__ == "__main__":
    main()
