"""Trains from scratch: the paper's table 3, and the AugReg recipe.

    python recipes/pretrain.py --recipe imagenet21k --variant b/16 \
        --data tfds:imagenet21k --out runs/b16

At full size (table 3): Adam, batches of 4096, warm-up of 10,000 steps, then
down in a line, dropout, a tanh layer before the head, clipped at 1. B/16 on
ImageNet-21k takes 0.23k TPUv3-core-days (table 2). Not run here.

    python recipes/pretrain.py --toy [--augreg]

Here: Fashion-MNIST, 600 steps of 64, two minutes on two CPU cores.
"""

import argparse
import dataclasses

import keras

import keras_vit


@dataclasses.dataclass(frozen=True)
class Recipe:
    """One row of the paper's table 3: what is trained, and how."""

    epochs: int
    rate: float
    decay: str
    weight_decay: float
    dropout_rate: float
    batch_size: int = 4096
    warmup_steps: int = 10_000
    pre_logits: bool = True
    label_smoothing: float = 0.0
    mixup: float = 0.0
    stochastic_depth_rate: float = 0.0
    rand_augment: int = 0  # magnitude, 0 for none


# fmt: off
RECIPES = {
    # data set       epochs  rate   decay    weight decay  dropout
    "jft_b":        Recipe(7,   8e-4, "linear", 0.1,  0.0),
    "jft_l":        Recipe(7,   4e-4, "linear", 0.1,  0.0),
    "jft_h":        Recipe(14,  3e-4, "linear", 0.1,  0.0),
    "imagenet21k":  Recipe(90,  1e-3, "linear", 0.03, 0.1),
    "imagenet":     Recipe(300, 3e-3, "cosine", 0.3,  0.1),
    # Steiner et al., 2021: "medium1" augmentation, light regularisation.
    "augreg_21k":   Recipe(
        300, 1e-3, "cosine", 0.03, 0.1, pre_logits=False, mixup=0.2,
        stochastic_depth_rate=0.1, rand_augment=15),
    # On two CPU cores: Fashion-MNIST, the size inside the package.
    "toy":          Recipe(
        1, 2e-3, "cosine", 0.05, 0.0, batch_size=64, warmup_steps=60),
    "toy_augreg":   Recipe(
        1, 2e-3, "cosine", 0.05, 0.1, batch_size=64, warmup_steps=60,
        pre_logits=False, mixup=0.2, stochastic_depth_rate=0.1,
        rand_augment=5),
}
# fmt: on
FASHION_MNIST = "/usr/share/datasets/fashion-mnist"


def model_of(variant, names, recipe, image_size):
    """A model with the recipe's regularisation and a zero head."""
    config = keras_vit.vit_config(
        variant,
        image_size=image_size,
        num_classes=len(names),
        dropout_rate=recipe.dropout_rate,
        stochastic_depth_rate=recipe.stochastic_depth_rate,
    )
    if recipe.pre_logits:
        config = config.replace(pre_logits=config.width)
    return keras_vit.ViT(config, labels=names)


def compile_for(model, recipe, steps, accumulate):
    """Adam with decoupled decay of kernels, clipped at a norm of 1."""
    warmup = min(recipe.warmup_steps, steps // 5)
    rate = keras_vit.WarmUp(recipe.rate, steps, warmup, recipe.decay)
    optimizer = keras_vit.AdamW(
        rate,
        weight_decay=recipe.weight_decay,
        beta_1=0.9,
        beta_2=0.999,
        epsilon=1e-8,
        global_clipnorm=1.0,
        gradient_accumulation_steps=accumulate if accumulate > 1 else None,
    )
    model.compile(
        keras_vit.layer_decay(optimizer, model, 1.0),
        keras_vit.Crossentropy(recipe.label_smoothing),
        metrics=["accuracy"],
    )


def batches_of(images, recipe, image_size, augment, seed):
    """Crops (or shifts), RandAugment and MixUp, as far as the recipe goes."""
    mix = None
    if recipe.mixup:
        mix = keras_vit.Mix(len(images.names), recipe.mixup, cutmix=0)
    if recipe.rand_augment:
        layer = keras.layers.RandAugment(
            value_range=(0, 255), num_ops=2, factor=recipe.rand_augment / 30
        )
        augment = augment, keras_vit.data.augment_by_layer(layer)
    return keras_vit.data.Batches(
        images, recipe.batch_size, image_size, augment, mix, seed
    )


def parse():
    """Returns the arguments of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--toy", action="store_true")
    parser.add_argument("--augreg", action="store_true", help="with --toy")
    parser.add_argument("--recipe", default="imagenet21k", choices=RECIPES)
    parser.add_argument("--variant", default="b/16")
    parser.add_argument("--data", default=FASHION_MNIST)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--augment", default="crop")
    parser.add_argument("--steps", type=int, help="instead of epochs")
    parser.add_argument("--every", type=int, default=500)
    parser.add_argument("--devices", default="auto")
    parser.add_argument("--accumulate", type=int, default=1, help="parts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="runs/pretrain")
    args = parser.parse_args()
    if args.toy:
        parser.set_defaults(
            recipe="toy_augreg" if args.augreg else "toy",
            variant="nano/4",
            image_size=28,
            augment="shift",
            steps=600,
            every=200,
        )
        args = parser.parse_args()
    return args


def main():
    """Trains, measures, saves."""
    args = parse()
    devices = keras_vit.use_devices(args.devices)
    recipe = RECIPES[args.recipe]
    images = keras_vit.data.open_images(args.data, "train")
    batches = batches_of(
        images, recipe, args.image_size, args.augment, args.seed
    )
    steps = args.steps or recipe.epochs * batches.steps_per_epoch
    steps += -steps % args.every
    keras.utils.set_random_seed(args.seed)
    with devices.scope():
        model = model_of(args.variant, images.names, recipe, args.image_size)
        compile_for(model, recipe, steps, args.accumulate)
    keras_vit.train(
        devices.prepare(model),
        batches,
        steps,
        args.out,
        args.every,
        facts={"recipe": dataclasses.asdict(recipe), **vars(args)},
        devices=devices,
        verbose=2 if devices.writer else 0,
    )
    test = keras_vit.data.open_images(args.data, "test", images.names)
    with devices.alone(model) as model:
        result = keras_vit.accuracy(model, test)
    if devices.writer:
        model.save_to_preset(f"{args.out}/model")
        print(f"{100 * result['top_1']:.2f} % of {result['images']} images")


if __name__ == "__main__":
    main()
