"""Pages that are written by what they are about; mkdocs runs this as a hook.

`generated()` gives them as text, with nothing of mkdocs, so that a test can
check links and names without building the site.
"""

import contextlib
import io
import json
import pathlib
import re

ROOT = pathlib.Path(__file__).parent.parent


def generated():
    """Returns the text of every generated page by its path below `docs/`."""
    pages = {
        "api.md": api_page(),
        "catalogue.md": catalogue_page(),
        "changelog.md": (ROOT / "CHANGELOG.md").read_text("utf-8"),
        "cli.md": cli_page(),
    }
    for path in sorted((ROOT / "colab").glob("*.ipynb")):
        pages[f"notebooks/{path.stem}.md"] = notebook_page(path)
    return pages


def catalogue_page():
    """One row for each published checkpoint, by family."""
    import keras_vit

    families = {}
    for name, preset in keras_vit.list_presets().items():
        families.setdefault(re.match("[a-z]+", name)[0], []).append(preset)
    parts = [
        "# The catalogue\n",
        f"{len(keras_vit.list_presets())} published checkpoints; any of these "
        "names goes into `ViT.from_preset` (`ResNetV2.from_preset` for `bit_`),"
        " and so do the names that other libraries use. Accuracy is top-1 on "
        "ImageNet-1k as published with the file, where it was. Weights in "
        "millions, GFLOPs per image at the size in the row, one multiply-add "
        "counted as two. `nc` marks what is not for commercial use.\n",
    ]
    for family, presets in sorted(families.items()):
        parts.append(f"## {family}\n")
        parts.append(
            "| name | variant | pixels | classes | top-1 | weights "
            "| GFLOPs | licence |"
        )
        parts.append("|---|---|---|---|---|---|---|---|")
        parts += [_row(preset) for preset in presets]
        parts.append("")
    return "\n".join(parts)


def _row(preset):
    import keras_vit

    config = preset.config
    imagenet = preset.top_1 and preset.dataset == "ImageNet-1k"
    cells = (
        f"`{preset.name}`",
        preset.variant,
        preset.image_size,
        preset.num_classes or "none",
        f"{preset.top_1:.1f}" if imagenet else "",
        f"{keras_vit.count_params(config) / 1e6:.1f}",
        f"{2 * keras_vit.count_macs(config) / 1e9:.1f}",
        preset.license + ("" if preset.commercial else " (nc)"),
    )
    return f"| {' | '.join(map(str, cells))} |"


def api_page():
    """Every public name, in the order and under the words of the README."""
    readme = (ROOT / "README.md").read_text("utf-8")
    table = re.search(r"^#+ [^\n]*\bAPI\b.*?(?=^#+ |\Z)", readme, re.M | re.S)
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", table[0], re.M)
    parts = ["# The API\n", "Every example on this page is run by the tests.\n"]
    for names, what in rows:
        names = re.findall(r"`(\w+)`", names)
        parts.append(f"## {', '.join(names)}\n\n{what}\n")
        parts += [f"::: keras_vit.{n}\n" for n in names if n != "__version__"]
    return "\n".join(parts)


def cli_page():
    """What `keras-vit COMMAND --help` says, for every command."""
    parts = ["# The command line\n", _help()]
    for name in re.findall(r"^    ([a-z][\w-]*) ", _help(), re.M):
        parts += [f"## keras-vit {name}\n", _help(name)]
    return "\n".join(parts)


def _help(*command):
    from keras_vit.cli import main

    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main([*command, "--help"])
    return f"```text\n{out.getvalue()}```\n"


def notebook_page(path):
    """A notebook as a page: its words, and its code in fences."""
    parts = []
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            source = f"```py\n{source}\n```"
        # As seen from `notebooks/`, where `docs/` is not part of the address.
        parts.append(source.replace("](../docs/", "](../"))
    parts.insert(
        1,
        f"*This page is `colab/{path.name}`, which runs in Colab "
        "and in any Jupyter.*",
    )
    return "\n\n".join(parts) + "\n"


def on_files(files, config):
    """Adds the generated pages to what mkdocs has found."""
    from mkdocs.structure.files import File

    for path, text in generated().items():
        files.append(File.generated(config, path, content=text))
    return files
