"""Documentation is tested: it is there, it is complete, and its code runs.

A block marked `python` in a document or in a public docstring is executed
here, in an empty directory. The blocks of a document run in order and share
their names; each block of a docstring starts with `keras`, `keras_vit` and
`np`. A block that cannot run (it downloads, say) opens with `python no-run:
<reason>` and is counted in `NOT_RUN`.
"""

import importlib
import inspect
import pathlib
import re

import keras
import numpy as np
import pytest

import keras_vit

ROOT = pathlib.Path(__file__).parent.parent
README = ROOT / "README.md"
GUIDES = sorted((ROOT / "docs").glob("*.md"))
DOCUMENTS = [README, ROOT / "CONTRIBUTING.md", *GUIDES]
NOT_RUN = 0
FENCE = re.compile(r"^ *```python([^\n]*)\n(.*?)^ *```", re.M | re.S)


def public_objects():
    """Name and value of what `__all__` lists, in every public module."""
    for path in sorted((ROOT / "keras_vit").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        dotted = ".".join(parts).removesuffix(".__init__")
        module = importlib.import_module(dotted)
        yield module.__name__, module
        for name in getattr(module, "__all__", []):
            yield f"{module.__name__}.{name}", getattr(module, name)


def own_members(cls):
    """Public methods and properties that a class adds to its framework's."""
    bases = (keras.Model, keras.layers.Layer, object)
    for name, value in vars(cls).items():
        known = any(hasattr(base, name) for base in bases)
        method = callable(value) or isinstance(value, (property, classmethod))
        if method and not name.startswith("_") and not known:
            yield f"{cls.__module__}.{cls.__name__}.{name}", value


def documented_objects():
    """Public objects and the members of public classes, each once."""
    found = {}
    for name, value in public_objects():
        if inspect.ismodule(value):
            found[value.__name__] = value
        elif inspect.isclass(value):
            found[f"{value.__module__}.{value.__name__}"] = value
            found.update(own_members(value))
        elif callable(value):
            found[f"{value.__module__}.{value.__name__}"] = value
        else:
            assert isinstance(value, (dict, str, tuple)), name
    return found


def test_public_names_have_docstrings():
    bare = [
        name
        for name, value in documented_objects().items()
        if not (value.__doc__ or "").strip()
    ]
    assert not bare


def api_of(readme):
    """Names that a README documents under its heading with "API".

    Names in backticks in the first cell of a table row (`| `a`, `b` | what |`)
    and the first ones of list items (`- `a(x)`: what`).
    """
    section = re.search(r"^#+ [^\n]*\bAPI\b.*?(?=^#+ |\Z)", readme, re.M | re.S)
    if not section:
        return set()
    cells = re.findall(r"^\|([^|]*)\|", section[0], re.M)
    cells += re.findall(r"^[-*] +(`[^`]*`)", section[0], re.M)
    return set(re.findall(r"`(?:keras_vit\.)?([A-Za-z_]\w*)", " ".join(cells)))


def test_readme_lists_the_api():
    if not README.exists():
        pytest.skip("no README.md")
    assert api_of(README.read_text("utf-8")) == set(keras_vit.__all__)


def blocks_of(text):
    """`(line, flag, code)` of every python block of a text."""
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start(2))
        yield line, match[1].strip(), inspect.cleandoc("\n" + match[2])


def documents():
    """Text of every document and docstring that has a python block."""
    texts = {d.name: d.read_text("utf-8") for d in DOCUMENTS if d.exists()}
    for name, value in documented_objects().items():
        texts[name] = inspect.getdoc(value) or ""
    return {name: text for name, text in texts.items() if FENCE.search(text)}


TEXTS = documents()


@pytest.mark.parametrize("name", TEXTS)
def test_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for line, flag, code in blocks_of(TEXTS[name]):
        if flag:
            continue
        if not name.endswith(".md"):
            names = {"keras": keras, "keras_vit": keras_vit, "np": np}
        exec(compile("\n" * line + code, name, "exec"), names)


def test_examples_that_do_not_run_say_why():
    flags = [f for t in TEXTS.values() for _, f, _ in blocks_of(t) if f]
    for flag in flags:
        assert re.fullmatch(r"no-run: \S.{10,}", flag), flag
    assert len(flags) == NOT_RUN, flags
