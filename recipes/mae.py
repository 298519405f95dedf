"""Masked autoencoder: pre-training without labels, then few-shot accuracy.

    python recipes/mae.py --variant b/16 --data tfds:imagenet2012 \
        --image-size 224 --batch-size 4096 --epochs 800 --out runs/mae_b16

At full size (He et al., 2022): 1600 epochs of ImageNet, then 83.6 % after
fine-tuning B/16. Not run here.

    python recipes/mae.py --toy

Here: Fashion-MNIST, 1,500 steps of 128, five minutes on two CPU cores.
"""

import argparse
import pathlib

import keras

import keras_vit
from keras_vit.analysis.plots import reconstruction_figure

FASHION_MNIST = "/usr/share/datasets/fashion-mnist"


class ImagesAlone:
    """Batches without their labels."""

    def __init__(self, batches):
        self.batches = batches

    def stream(self, start=0):
        """Yields the images of step `start` and on."""
        inner = self.batches.stream(start)
        try:
            for images, _ in inner:
                yield (images,)
        finally:
            inner.close()


def build(args):
    """An autoencoder whose decoder is half as wide, two blocks deep."""
    config = keras_vit.vit_config(
        args.variant,
        image_size=args.image_size,
        num_classes=0,
        position="sincos_2d",
    )
    return keras_vit.MaskedAutoencoder(
        keras_vit.ViT(config),
        decoder_width=args.decoder_width,
        decoder_depth=args.decoder_depth,
        decoder_heads=args.decoder_heads,
        normalize_pixels=not args.plain_pixels,
        seed=args.seed,
    )


def compile_for(model, args, steps):
    """AdamW as in the paper's table 8, with decay of kernels alone."""
    rate = keras_vit.scaled_rate(args.rate, args.batch_size, 256)
    rate = keras_vit.WarmUp(rate, steps, steps // 20)
    optimizer = keras_vit.AdamW(
        rate, weight_decay=0.05, beta_1=0.9, beta_2=0.95
    )
    optimizer.exclude_from_weight_decay(
        [v for v in model.trainable_variables if v.name != "kernel"]
    )
    model.compile(optimizer)


def parse():
    """Returns the arguments of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--toy", action="store_true")
    parser.add_argument("--variant", default="b/16")
    parser.add_argument("--data", default=FASHION_MNIST)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--rate", type=float, default=1.5e-4, help="for 256")
    parser.add_argument("--epochs", type=int, default=800)
    parser.add_argument("--steps", type=int, help="instead of epochs")
    parser.add_argument("--every", type=int, default=500)
    parser.add_argument("--decoder-width", type=int, default=512)
    parser.add_argument("--decoder-depth", type=int, default=8)
    parser.add_argument("--decoder-heads", type=int, default=16)
    parser.add_argument("--plain-pixels", action="store_true")
    parser.add_argument("--augment", default="crop")
    parser.add_argument("--devices", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="runs/mae")
    args = parser.parse_args()
    if args.toy:
        parser.set_defaults(
            variant="nano/4",
            image_size=28,
            batch_size=128,
            rate=3e-3,
            steps=1500,
            decoder_width=48,
            decoder_depth=2,
            decoder_heads=2,
            plain_pixels=True,
            augment="shift",
        )
        args = parser.parse_args()
    return args


def main():
    """Trains, draws what it completes, measures its features."""
    args = parse()
    devices = keras_vit.use_devices(args.devices)
    keras.utils.set_random_seed(args.seed)
    images = keras_vit.data.open_images(args.data, "train")
    batches = keras_vit.data.Batches(
        images, args.batch_size, args.image_size, args.augment, seed=args.seed
    )
    steps = args.steps or args.epochs * batches.steps_per_epoch
    steps += -steps % args.every
    with devices.scope():
        model = build(args)
        compile_for(model, args, steps)
    with devices.alone(model) as single:
        before = few_shot(single.encoder, images, args)
    history = keras_vit.train(
        devices.prepare(model),
        ImagesAlone(batches),
        steps,
        args.out,
        args.every,
        facts=vars(args),
        devices=devices,
        verbose=2 if devices.writer else 0,
    )
    with devices.alone(model) as single:
        after = few_shot(single.encoder, images, args)
        if devices.writer:
            draw(single, args)
    if devices.writer:
        model.encoder.save_to_preset(f"{args.out}/encoder")
        print(f"loss {history['loss'][0]:.3f} -> {history['loss'][-1]:.3f}")
        print(f"10-shot accuracy {100 * before:.1f} -> {100 * after:.1f} %")


def draw(model, args):
    """Test images, what the encoder saw, and what came back."""
    test = keras_vit.data.open_images(args.data, "test")
    pixels = keras_vit.load_images(list(test.images[:8]), model.encoder)
    masked, completed = model.reconstruct(pixels)
    figure = reconstruction_figure(pixels, masked, completed)
    figure.savefig(pathlib.Path(args.out) / "reconstructions.png")


def few_shot(encoder, images, args):
    """Ten images per class, features of 2,000 train and 2,000 test images."""
    parts = []
    for split in ("train", "test"):
        some = keras_vit.data.open_images(args.data, split, images.names)
        some = some.subset(slice(2000))
        pixels = keras_vit.load_images(list(some.images), encoder)
        parts.append((pixels, some.labels))
    return keras_vit.few_shot(encoder, *parts, shots=(10,), name="norm")[10]


if __name__ == "__main__":
    main()
