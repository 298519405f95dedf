"""Between images and their patches: the targets of masked pre-training."""

from keras import ops


def to_patches(images, stride):
    """Cuts images into patches, each a vector of (row, column, channel).

    Args:
        images: `(batch, height, width, channels)`.
        stride: `(down, across)`, pixels of a patch.

    Returns:
        `(batch, patches, down * across * channels)`, row by row.
    """
    (p, q), (_, height, width, channels) = stride, images.shape
    rows, columns = height // p, width // q
    x = ops.reshape(images, (-1, rows, p, columns, q, channels))
    x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
    return ops.reshape(x, (-1, rows * columns, p * q * channels))


def to_images(patches, grid, stride):
    """The inverse of `to_patches`: `(batch, height, width, channels)`."""
    (p, q), (rows, columns) = stride, grid
    x = ops.reshape(
        patches, (-1, rows, columns, p, q, patches.shape[-1] // (p * q))
    )
    x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
    return ops.reshape(x, (-1, rows * p, columns * q, x.shape[-1]))


def check_encoder(encoder, name):
    """Raises unless a ViT can be pre-trained with patches left out."""
    config = encoder.config
    wrong = {
        "num_classes": config.num_classes,
        "pooling": config.head.pooling if config.head.pooling == "map" else 0,
        "position": config.tokens.position == "relative" and "relative",
        "stages": config.trunk.stages or 0,
    }
    if config.any_image_size:
        wrong["image_size"] = "None"
    found = [f"{key}={value!r}" for key, value in wrong.items() if value]
    if found:
        raise ValueError(
            f"{name} trains the blocks of a plain ViT. Expected: "
            f"num_classes=0, pooling='token' or 'gap', one position per patch "
            f"and a fixed image size, no ResNet in front. Received: "
            f"{', '.join(found)}. `with_config` changes a model."
        )
