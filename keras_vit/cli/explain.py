"""The command `explain`: one page on one image."""

import os
import pathlib


def explain(args):
    """Writes a page that shows what a model sees in an image."""
    out = pathlib.Path(args.out)
    # Before the model is loaded, which may take minutes.
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise ValueError(
            f"Cannot write the page there. Expected: --out names a file in a "
            f"folder that exists. Received: {str(out)!r}."
        )
    import keras_vit
    from keras_vit.analysis.report import report_page

    model = keras_vit.ViT.from_preset(args.preset)
    pixels = keras_vit.load_images(args.image, model)[0]
    title = f"What {args.preset} sees in {os.path.basename(args.image)}"
    page = report_page(model, pixels, title, [("preset", args.preset)])
    part = out.with_name(out.name + ".part")
    part.write_text(page, "utf-8")
    part.replace(out)
    print(f"{out}: {len(page) / 1e6:.2f} MB, opens in any browser")
    return 0
