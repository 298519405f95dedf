"""One page on one image: what a model answers, and what it looks at."""

import base64
import html
import importlib.resources
import io
import json
import math
import re

import keras
import numpy as np

from keras_vit.analysis.attention import class_attention
from keras_vit.analysis.distance import attention_distance
from keras_vit.analysis.distance import even_distance
from keras_vit.analysis.embeddings import patch_filters
from keras_vit.analysis.embeddings import position_similarity
from keras_vit.analysis.relevance import class_relevance
from keras_vit.analysis.rollout import attention_rollout
from keras_vit.analysis.token_layout import as_images
from keras_vit.analysis.token_layout import check_vit
from keras_vit.analysis.token_layout import grid_of
from keras_vit.costs import count_macs
from keras_vit.costs import count_params
from keras_vit.labels import top_labels
from keras_vit.version import __version__

TOP = 5
RELEVANT = 3  # labels whose relevance is drawn
FILTERS = 28
TILES = 14  # of position similarity, along each side
READS = {
    "token": "the class token",
    "gap": "the mean of all patches",
    "token_gap": "the class token and the mean of all patches",
    "map": "one attention layer over all patches",
}


def report_page(model, image, title="", facts=()):
    """Returns an HTML page that shows what a model sees in an image.

    One file that needs no network: the image, the best labels, rollout and
    heads of each block, relevance of the best labels, distances, positions,
    filters and facts of the model.

    Args:
        model: A `ViT`.
        image: `(height, width, 3)`, 0..255, as `load_images` gives it.
        title: Heading of the page; the name of the model by default.
        facts: More `(name, text)` pairs for the table of the model.

    Returns:
        The page, a string.

    Raises:
        TypeError: The model is not a `ViT`.
        ValueError: The image is not one for this model.
    """
    check_vit(model)
    pixels = np.asarray(image)
    images = pixels[None]
    if model.config.data_format == "channels_first":
        images = np.moveaxis(images, -1, 1)
    images = as_images(images, model)
    data = {
        **_answer(model, images),
        **_attention(model, images),
        **_weights(model),
        "num_classes": model.config.num_classes,
        "facts": [*facts, *_facts(model)],
    }
    height, width = pixels.shape[:2]
    return _fill(
        title=title or model.name,
        subtitle=f"The image as the model takes it: {height} x {width} pixels.",
        image=_png(pixels),
        version=__version__,
        data=data,
    )


def _fill(data, **texts):
    folder = importlib.resources.files("keras_vit") / "assets"
    page = (folder / "report.html").read_text("utf-8")
    parts = {name: html.escape(text) for name, text in texts.items()}
    # Nothing in a JSON string may end the script that it is in.
    parts["data"] = json.dumps(data).replace("<", "\\u003c")
    # All at once: what is filled in may itself look like a place to fill.
    return re.sub(r"{{(\w+)}}", lambda place: parts[place[1]], page)


def _answer(model, images):
    if not model.config.num_classes:
        return {"labels": [], "relevance": []}
    logits = model.predict_on_batch(images)
    count = min(TOP, model.config.num_classes)
    labels = [
        {"name": str(name), "probability": float(probability)}
        for name, probability in top_labels(logits, model, k=count)[0]
    ]
    best = np.argsort(-logits[0], kind="stable")[: min(RELEVANT, count)]
    same = np.repeat(images, len(best), axis=0)
    maps = class_relevance(model, same, best)
    return {"labels": labels, "relevance": list(map(_stretched, maps))}


def _attention(model, images):
    config = model.config
    grid = grid_of(model, images)
    rolled = attention_rollout(model, images, per_block=True)[:, 0]
    heads = class_attention(model, images)[:, 0]
    by_token = config.head.pooling in ("token", "token_gap")
    reader = "the class token reads" if by_token else "all patches read"
    return {
        "grid": grid,
        "depth": config.depth,
        "num_heads": config.num_heads,
        "rollout": list(map(_stretched, rolled)),
        "heads": [list(map(_stretched, block)) for block in heads],
        "heads_text": f"What {reader} in it, head by head. Below each: how "
        f"many pixels its patches look away, on average.",
        "distances": attention_distance(model, images).tolist(),
        "even_distance": even_distance(grid, config.stride),
    }


def _weights(model):
    config = model.config
    similarity, step = None, math.ceil(max(config.grid) / TILES)
    if config.tokens.position in ("learned", "learned_2d", "sincos_2d"):
        values = position_similarity(model)
        # All tiles of a large grid would be megabytes, too small to be seen.
        similarity = _base64(127.5 + 127.5 * values[::step, ::step])
    size = _kernel_size(config)
    most = min(3 * size[0] * size[1], _filter_count(config) - 1)
    filters, variance = patch_filters(
        model, min(FILTERS, most), with_variance=True
    )
    peaks = np.abs(filters).max(axis=(1, 2, 3), keepdims=True)
    return {
        "stored_grid": config.grid,
        "tile_step": step,
        "similarity": similarity,
        "filter_size": size,
        "filters": [_base64(127.5 + 127.5 * f) for f in filters / peaks],
        "variance": variance.tolist(),
    }


def _kernel_size(config):
    return config.stem.patch_size if config.trunk.stages is None else (7, 7)


def _filter_count(config):
    hybrid = config.trunk.stages is not None
    return config.trunk.trunk_width if hybrid else config.width


def _facts(model):
    config = model.config
    (rows, columns), (height, width) = config.grid, config.image_size
    sides = " x ".join(map(str, config.stride))
    return [
        ("name", model.name),
        ("weights", f"{count_params(config):,}"),
        ("cost", f"{2 * count_macs(config) / 1e9:.3g} GFLOPs per image"),
        ("image", f"{height} x {width} pixels"),
        ("patches", f"{rows} x {columns} of {sides} pixels"),
        ("tokens", _tokens(config)),
        (
            "encoder",
            f"{config.depth} blocks of width {config.width}, "
            f"{config.num_heads} heads, MLP {config.mlp_dim}",
        ),
        ("answer from", READS[config.head.pooling]),
        ("backend", f"{keras.config.backend()}, Keras {keras.__version__}"),
    ]


def _tokens(config):
    named = {
        "class": config.tokens.class_token,
        "distillation": config.tokens.distillation_token,
        "register": config.tokens.num_registers,
    }
    more = [f"{int(n)} {name}" for name, n in named.items() if n]
    patches = config.num_tokens - config.num_prefix
    kinds = ", ".join([f"{patches} patches", *more])
    return f"{config.num_tokens}: {kinds}" if more else kinds


def _stretched(values):
    """A map of its own range in bytes, as text."""
    low, high = values.min(), values.max()
    return _base64(255 * (values - low) / max(high - low, 1e-12))


def _base64(values):
    values = np.clip(np.round(values), 0, 255).astype("uint8")
    return base64.b64encode(values.tobytes()).decode("ascii")


def _png(pixels):
    from PIL import Image

    stream = io.BytesIO()
    pixels = np.clip(np.asarray(pixels, "float32"), 0, 255).astype("uint8")
    Image.fromarray(pixels).save(stream, "png")
    text = base64.b64encode(stream.getvalue()).decode("ascii")
    return f"data:image/png;base64,{text}"
