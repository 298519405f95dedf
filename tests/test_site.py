"""The documentation site: whole, true, and in need of nothing from elsewhere.

Links, names and figures are checked in the text, without mkdocs; where that is
installed (it is part of `[test]`) the site is built, too.
"""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

import keras_vit
from keras_vit.presets import catalogue
from keras_vit.presets import find_preset

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parent.parent
DOCS = ROOT / "docs"
CONFIG = (ROOT / "mkdocs.yml").read_text("utf-8")
FENCE = re.compile(r"^ *(```+).*?^ *\1", re.M | re.S)


def load_hook():
    spec = importlib.util.spec_from_file_location("pages", DOCS / "pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


WRITTEN = {p.name: p.read_text("utf-8") for p in sorted(DOCS.glob("*.md"))}
GENERATED = load_hook().generated()
PAGES = WRITTEN | GENERATED


def prose(page):
    """The text of a page without its code."""
    return FENCE.sub("", PAGES[page])


def anchors_of(page):
    """Names of the headings of a page, as mkdocs makes them."""
    for heading in re.findall(r"^#+ (.*)$", prose(page), re.M):
        plain = re.sub(r"[^\w\s-]", "", heading).strip().lower()
        yield re.sub(r"[-\s]+", "-", plain)


def links_of(page):
    return re.findall(r"\]\(([^)\s]+)\)", prose(page))


def test_nav_has_every_page_once():
    nav = re.findall(r"^ +- .*: (\S+\.md)$", CONFIG, re.M)
    assert sorted(nav) == sorted(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for link in links_of(page):
        if re.match(r"https?://", link):
            continue
        target, _, anchor = link.partition("#")
        path = os.path.normpath(pathlib.PurePosixPath(page).parent / target)
        found = page if not target else path
        whole = found in PAGES or (DOCS / found).is_file()
        assert whole, f"{page}: {link}"
        assert not anchor or anchor in anchors_of(found), f"{page}: {link}"


@pytest.mark.parametrize("path", ["README.md", "CONTRIBUTING.md"])
def test_links_of_the_repository(path):
    text = FENCE.sub("", (ROOT / path).read_text("utf-8"))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"https?://|#", link):
            assert (ROOT / link).exists(), f"{path}: {link}"


def test_the_api_page_has_every_public_name():
    named = re.findall(r"^::: keras_vit\.(\S+)$", GENERATED["api.md"], re.M)
    assert len(named) == len(set(named))
    assert set(named) == set(keras_vit.__all__) - {"__version__"}


def test_the_catalogue_page_has_every_row():
    names = re.findall(r"^\| `(\w+)` \|", GENERATED["catalogue.md"], re.M)
    assert sorted(names) == sorted(catalogue())
    row = "| `vit_b16` | b/16 | 224 | 1000 | 84.5 | 86.6 | 35.1 | Apache-2.0 |"
    assert row in GENERATED["catalogue.md"]
    assert GENERATED["catalogue.md"].count("CC-BY-NC-4.0 (nc)") > 5


def test_the_command_line_page_has_every_command():
    text = GENERATED["cli.md"]
    for name in ("predict", "list", "info", "convert", "explain"):
        assert (
            f"## keras-vit {name}\n\n```text\nusage: keras-vit {name}" in text
        )


def test_there_is_a_page_on_the_class_token():
    """L03: reached from both first pages; `test_docs.py` runs its code."""
    page = WRITTEN["class_token.md"]
    for word in ("PrefixTokens", "TokenPooling", "attention_maps", "model.fit"):
        assert word in page
    assert len(re.findall(r"^```python$", page, re.M)) >= 5
    assert "class_token.md" in links_of("index.md")
    assert "docs/class_token.md" in (ROOT / "README.md").read_text("utf-8")


def test_there_is_a_page_for_tfvit_and_flaxvit():
    """L08: each class of theirs has a line of ours, each file a way in."""
    page = WRITTEN["migration.md"]
    section = page[page.index("## Hugging Face") :].split("\n## ")[0]
    for name in (
        "TFViTForImageClassification",
        "FlaxViTForImageClassification",
        "TFViTModel",
        "FlaxViTModel",
        "ViTImageProcessor",
        "tf_model.h5",
        "flax_model.msgpack",
        "from_tf=True",
        "from_flax=True",
    ):
        assert f"{name}" in section, name
    assert "migration.md" in links_of("index.md")


FAMILIES = "|".join(sorted({name.split("_")[0] for name in catalogue()}))
PRESET = re.compile(rf"`((?:{FAMILIES})_[a-z]+\d\w*)`")


@pytest.mark.parametrize("page", WRITTEN)
def test_presets_in_guides_are_there(page):
    for name in PRESET.findall(prose(page)):
        find_preset(name)


def test_figures_in_guides_are_those_of_the_catalogue():
    rows = re.findall(
        r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \|$",
        WRITTEN["checkpoints.md"],
        re.M,
    )
    assert len(rows) > 10
    for name, top_1, gflops in rows:
        preset = catalogue()[name]
        macs = keras_vit.count_macs(preset.config)
        assert f"{preset.top_1:.1f}" == top_1, name
        assert f"{2 * macs / 1e9:.1f}" == gflops, name


def test_keyword_arguments_in_tables_are_fields():
    """Of the tables of what replaces what: our side has no invented names."""
    known = vars(keras_vit.vit_config("b/16")).keys()
    config = keras_vit.vit_config("b/16")
    parts = (config.stem, config.tokens, config.block, config.head)
    known = {*known, *(name for part in parts for name in vars(part))}
    ours = re.compile(r"(?:ViT|vit_config|from_preset)\([^)]*?, ([^)]*)\)")
    for page in ("migration.md", "paper.md"):
        for row in re.findall(r"^\|.*\|$", prose(page), re.M):
            right = row.strip("|").split("|")[-1]
            for call in ours.findall(right):
                names = set(re.findall(r"(\w+)=", call))
                assert names <= known, row


@pytest.mark.skipif(
    importlib.util.find_spec("mkdocstrings") is None,
    reason="needs mkdocs: pip install 'keras-vit-garden[docs]'",
)
def test_the_site_builds(tmp_path):
    """Strictly: a warning is an error. No script, style or font is fetched."""
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q"]
    result = subprocess.run(
        [*build, "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) >= len(PAGES)
    fetched = re.compile(r"<(?:script|img)[^>]* src=\"(?:https?:)?//[^\"]*")
    styles = re.compile(r"<link[^>]* href=\"(?:https?:)?//[^\"]*")
    for page in pages:
        html = page.read_text("utf-8")
        outside = fetched.findall(html) + styles.findall(html)
        assert not outside, f"{page.name}: {outside}"
    api = (tmp_path / "site" / "api.html").read_text("utf-8")
    layers = [f"layers.{name}" for name in keras_vit.layers.__all__]
    for name in ("ViT.from_preset", "load_checkpoint", *layers):
        assert api.count(f'id="keras_vit.{name}"') == 1, name
