"""The paper's figures 6 and 7 of any preset, on any photographs.

    python recipes/figures.py [--preset NAME] [--images FILE ...] [--out DIR]

Under a minute on a CPU for the model inside the package, which is the default;
its ten sample images, and 256 test images of Fashion-MNIST for CKA where Debian
has them. `docs/figures` of this repository is what it writes.
"""

import argparse
import pathlib

import numpy as np

import keras_vit
from keras_vit.analysis import plots
from keras_vit.analysis.distance import even_distance

TEST_IMAGES = pathlib.Path(
    "/usr/share/datasets/fashion-mnist/t10k-images-idx3-ubyte.gz"
)


def main():
    """Writes one PNG for each figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="vit_nano_fashion_mnist")
    parser.add_argument("--images", nargs="*", help="image files or folders")
    parser.add_argument("--out", default="figures", help="folder of the PNGs")
    args = parser.parse_args()
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)

    model = keras_vit.ViT.from_preset(args.preset)
    paths = args.images or keras_vit.sample_images()
    images = keras_vit.load_images(paths, model)
    for name, figure in figures(model, images, args.preset).items():
        figure.savefig(out / f"{name}.png")
        print(f"written: {out / name}.png")


def figures(model, images, preset):
    """Name to figure."""
    logits = model.predict(images, verbose=0)
    best = np.argsort(-logits, axis=1)[:, 0]
    names = [row[0][0] for row in keras_vit.top_labels(logits, model, k=1)]
    shown = slice(9)
    filters, variance = keras_vit.patch_filters(model, with_variance=True)
    even = even_distance(model.config.grid, model.config.stride)
    return {
        "rollout": plots.attention_figure(
            images[shown],
            keras_vit.attention_rollout(model, images[shown]),
            names[shown],
        ),
        "relevance": plots.attention_figure(
            images[shown],
            keras_vit.class_relevance(model, images[shown], best[shown]),
            names[shown],
        ),
        "filters": plots.filters_figure(filters, variance),
        "positions": plots.similarity_figure(
            keras_vit.position_similarity(model)
        ),
        "distance": plots.heads_figure(
            keras_vit.attention_distance(model, images), most=even
        ),
        "cka": plots.cka_figure(
            keras_vit.layer_cka(model, many(model, images)), preset
        ),
    }


def many(model, images):
    """256 test images of Fashion-MNIST if they fit, or those at hand."""
    gray = images.shape[1:3] == (28, 28)
    if not (gray and TEST_IMAGES.is_file()):
        return images
    import gzip

    with gzip.open(TEST_IMAGES) as file:
        pixels = np.frombuffer(file.read(), "uint8", offset=16)
    pixels = pixels.reshape(-1, 28, 28, 1)[:256]
    return np.repeat(pixels, 3, axis=-1)


if __name__ == "__main__":
    main()
