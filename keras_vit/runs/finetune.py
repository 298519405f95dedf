"""Fine-tuning of a preset on labelled images: two recipes as a table."""

import dataclasses
import json
import logging
import pathlib

import keras
import numpy as np

from keras_vit.checks import check_choice
from keras_vit.data import Batches
from keras_vit.data import LabelledImages
from keras_vit.data import decode
from keras_vit.data import open_images
from keras_vit.devices import use_devices
from keras_vit.evaluation import accuracy
from keras_vit.runs.train import train
from keras_vit.training import Crossentropy
from keras_vit.training import Mix
from keras_vit.training import WarmUp
from keras_vit.training import layer_decay
from keras_vit.training import scaled_rate
from keras_vit.vit import ViT

logger = logging.getLogger("keras_vit")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How a pretrained model is fine-tuned; all of it plain numbers."""

    optimizer: str
    rate: float  # for a batch of `reference` images
    reference: int
    batch_size: int
    warmup: float  # part of the steps
    weight_decay: float = 0.0
    layer_decay: float = 1.0
    label_smoothing: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0
    stochastic_depth_rate: float = 0.0
    average: float = 0.9999  # of the weights; 0 for none


# fmt: off
RECIPES = {
    # Dosovitskiy et al., 2021, table 4 and appendix B.1.1: SGD, momentum 0.9,
    # cosine, clipped at 1; the rate is one of 0.003, 0.01, 0.03, 0.06.
    "paper": Recipe("sgd", 0.03, 512, 512, warmup=0.05),
    # Bao et al., 2022, and He et al., 2022, tables of fine-tuning.
    "modern": Recipe(
        "adamw", 5e-4, 256, 1024, warmup=0.1, weight_decay=0.05,
        layer_decay=0.75, label_smoothing=0.1, mixup=0.8, cutmix=1.0,
        stochastic_depth_rate=0.1),
}
# fmt: on


def finetune(
    preset,
    where,
    directory,
    recipe="paper",
    steps=500,
    every=100,
    test=None,
    devices="auto",
    **changes,
):
    """Fine-tunes a preset on labelled images and saves the result.

    A fresh zero head, positions resampled to the image size, then `train`:
    called again with the same arguments it goes on where it was killed. The
    model goes to `directory/model`, its accuracy to `directory/result.json`.

    Args:
        preset: See `ViT.from_preset`.
        where: See `data.open_images`; or `LabelledImages`.
        directory: Of this run alone.
        recipe: `"paper"` or `"modern"`.
        steps: Int; the paper: 500 (Pets, Flowers), 2,500 (VTAB), 10,000
            (CIFAR), 20,000 (ImageNet).
        every: Int, steps from checkpoint to checkpoint.
        test: `LabelledImages` to measure on. By default the split `"test"`, or
            every tenth training image, which is then not trained on.
        devices: See `use_devices`.
        changes: Fields of the recipe (`rate`, `batch_size`, `mixup`), and
            `image_size`, `augment`, `seed`, `on_error`, `verbose`;
            `accumulate`, the number of parts that each batch is fed in where
            it is too large for the memory; `cache=True` to decode each file
            once, see `data.decode`.

    Returns:
        `{"top_1": ..., "images": ..., "steps": ...}`.

    Raises:
        ValueError: Unknown recipe or field; see `data.open_images`.
    """
    check_choice("recipe", recipe, RECIPES)
    own = {k: changes.pop(k) for k in list(changes) if k in OPTIONS}
    options = {**OPTIONS, **own}
    r = _changed(RECIPES[recipe], changes)
    found = use_devices(devices)
    train_on, test = _splits(where, test, options["seed"])
    if options["cache"]:
        verbose = int(options["verbose"] and found.writer)
        train_on = decode(train_on, options["on_error"], verbose)
    keras.utils.set_random_seed(options["seed"])
    with found.scope():
        model = _model(preset, train_on.names, r, options["image_size"])
        model.compile(
            _optimizer(model, r, steps, options["accumulate"]),
            Crossentropy(0.0 if r.mixup or r.cutmix else r.label_smoothing),
            metrics=["accuracy"],
        )
    found.prepare(model)
    facts = {"preset": str(preset), "recipe": dataclasses.asdict(r), **options}
    facts |= {"images": len(train_on), "classes": train_on.names}
    train(
        model,
        _batches(model, train_on, r, options),
        steps,
        directory,
        every,
        facts=facts,
        devices=found,
        verbose=options["verbose"] if found.writer else 0,
    )
    with found.alone(model) as model:
        return _result(
            model, test, steps, pathlib.Path(directory), found.writer
        )


OPTIONS = {
    "image_size": None,
    "augment": "crop",
    "accumulate": 1,
    "cache": False,
    "seed": 0,
    "on_error": "raise",
    "verbose": 2,
}


def _changed(recipe, changes):
    known = [field.name for field in dataclasses.fields(recipe)]
    for name in changes:
        check_choice("field", name, [*known, *OPTIONS])
    return dataclasses.replace(recipe, **changes)


def _splits(where, test, seed):
    if isinstance(where, LabelledImages):
        images = where
    else:
        images = open_images(where)
        if test is None:
            try:
                test = open_images(where, "test", images.names)
            except (ValueError, FileNotFoundError) as error:
                logger.info("no test split: %s", error)
            if test is not None and _same(test.images, images.images):
                test = None  # the folder knows no splits
    if test is not None:
        return images, test
    first, period = seed % min(10, len(images)), 10
    held = [i for i in range(len(images)) if i % period == first]
    rest = [i for i in range(len(images)) if i % period != first]
    logger.info("%d of %d images are held out", len(held), len(images))
    return images.subset(rest), images.subset(held)


def _same(some, others):
    if isinstance(some, np.ndarray) or isinstance(others, np.ndarray):
        return some is others
    return list(some) == list(others)


def _model(preset, names, r, image_size):
    size = {} if image_size is None else {"image_size": image_size}
    model = ViT.from_preset(
        preset,
        num_classes=0,
        stochastic_depth_rate=r.stochastic_depth_rate,
        **size,
    )
    # By way of no head: one of as many classes would be kept.
    return model.with_num_classes(len(names), names)


def _optimizer(model, r, steps, accumulate):
    rate = scaled_rate(r.rate, r.batch_size, r.reference)
    logger.info("learning rate %g for batches of %d", rate, r.batch_size)
    schedule = WarmUp(rate, steps, int(r.warmup * steps))
    options = {
        "global_clipnorm": 1.0,
        "use_ema": bool(r.average),
        "ema_momentum": _momentum(r.average, steps),
        "weight_decay": r.weight_decay or None,
        "gradient_accumulation_steps": accumulate if accumulate > 1 else None,
    }
    if r.optimizer == "sgd":
        optimizer = keras.optimizers.SGD(schedule, momentum=0.9, **options)
    else:
        optimizer = keras.optimizers.AdamW(
            schedule, beta_1=0.9, beta_2=0.999, epsilon=1e-8, **options
        )
    return layer_decay(optimizer, model, r.layer_decay)


def _momentum(average, steps):
    # An average of 10,000 steps would be the first weights in a short run.
    return min(average, steps / (steps + 10)) if average else 0.99


def _batches(model, images, r, options):
    mix = None
    if r.mixup or r.cutmix:
        mix = Mix(
            len(images.names),
            r.mixup,
            r.cutmix,
            label_smoothing=r.label_smoothing,
        )
    return Batches(
        images,
        r.batch_size,
        model.config.image_size,
        augment=options["augment"],
        mix=mix,
        seed=options["seed"],
        on_error=options["on_error"],
        pixels=model.config.pixels,
    )


def _result(model, test, steps, directory, writer):
    result = {**accuracy(model, test), "steps": steps}
    if writer:
        model.save_to_preset(directory / "model")
        text = json.dumps(result, indent=2) + "\n"
        (directory / "result.json").write_text(text, "utf-8")
    return result
