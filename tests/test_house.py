"""The rules of the house, read from the source: levels, imports, sizes."""

import ast
import os
import pathlib
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parent.parent


# A module imports from its own level or from one above it in this list.
LEVELS = [
    "checks version config config_parts nested_config resnet_config variants"
    " resampling costs image_files pixels labels",
    "layers presets preset_files image_checks transfer fetching imagenet",
    "architecture weights",
    "adaptable vit resnet checkpoints published",
    "analysis training pretraining evaluation saving data devices",
    "runs benchmark",
    "cli",
]
# What must differ from backend to backend, one module per concern.
BACKEND_MODULES = {
    "keras_vit/analysis/gradients.py",
    "keras_vit/benchmark/contestants.py",
    "keras_vit/benchmark/floor.py",
    "keras_vit/devices/beside.py",
    "keras_vit/devices/on_jax.py",
    "keras_vit/devices/on_tensorflow.py",
    "keras_vit/devices/on_torch.py",
    "keras_vit/layers/attention_kernels.py",
    "keras_vit/layers/initializers.py",
    "keras_vit/layers/linear_kernels.py",
    "keras_vit/layers/normalization.py",
    "keras_vit/layers/rematerialization.py",
    "keras_vit/runs/generators.py",
    "keras_vit/training/adamw.py",
    "keras_vit/training/mixing.py",  # tf.data on every backend
    "keras_vit/weights/fill.py",
}
BACKENDS = {"jax", "jaxlib", "tensorflow", "torch"}
# Everything else that is not Python's own is imported where it is used.
LIGHT = {"keras", "keras_vit", "numpy"}

MAX_LINES = 300
MAX_FUNCTION_LINES = 40  # without the docstring
MAX_NESTING = 3
LONG_TABLES = set()  # files that are one literal table
JUNK_DRAWERS = {"utils", "helpers", "common", "misc"}

# Paths and registries of one particular machine.
LOCAL = re.compile(
    r"(?<![\w.-])/(?:work|root)/"
    r"|/opt/(?:wheels|pypi)"
    r"|(?:find-links|extra-index)[-=_ ]"
    r"|localhost[:\d]*/simple"
)


def python_files(*folders):
    """Files below the folders, as paths relative to the root."""
    paths = (p for f in folders for p in (ROOT / f).rglob("*.py"))
    return sorted(p.relative_to(ROOT).as_posix() for p in paths)


LIBRARY = python_files("keras_vit")
SOURCES = python_files("keras_vit", "recipes", "tests")


def tree_of(file):
    return ast.parse((ROOT / file).read_text("utf-8"), file)


def imports_of(node):
    """Dotted names imported anywhere below a node."""
    for child in ast.walk(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            dots = "." * child.level
            names = (alias.name for alias in child.names)
            yield from (f"{dots}{child.module or ''}.{n}" for n in names)


def top_level_imports(tree):
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    for node in tree.body:
        inner = [n for n in ast.walk(node) if isinstance(n, functions)]
        deferred = [name for function in inner for name in imports_of(function)]
        for name in imports_of(node):
            if name in deferred:
                deferred.remove(name)
            else:
                yield name


def level_of(module):
    """Place in `LEVELS` of the first part of a name below `keras_vit`."""
    found = [i for i, row in enumerate(LEVELS) if module in row.split()]
    assert found, f"{module} has no level: add it to LEVELS in {__file__}"
    return found[0]


@pytest.mark.parametrize("file", LIBRARY)
def test_imports_point_down(file):
    parts = pathlib.PurePath(file).with_suffix("").parts
    if parts == ("keras_vit", "__init__"):
        return  # the public names, from every level
    here = level_of(parts[1])
    for name in imports_of(tree_of(file)):
        assert not name.startswith("."), f"{file}: relative import {name}"
        first, *rest = name.split(".")
        if first == "keras_vit" and rest:
            above = level_of(rest[0]) > here
            assert not above, f"{file} imports {name}, which stands above it"


@pytest.mark.parametrize("file", LIBRARY)
def test_backends_stay_in_their_modules(file):
    roots = {name.split(".")[0] for name in imports_of(tree_of(file))}
    if file not in BACKEND_MODULES:
        assert not roots & BACKENDS


@pytest.mark.parametrize("file", LIBRARY)
def test_modules_import_only_what_is_light(file):
    """K08: what is heavy is imported inside the function that needs it."""
    roots = {name.split(".")[0] for name in top_level_imports(tree_of(file))}
    assert roots <= LIGHT | set(sys.stdlib_module_names)


@pytest.mark.parametrize("file", SOURCES)
def test_no_private_keras(file):
    names = list(imports_of(tree_of(file)))
    assert not [n for n in names if n.startswith("keras.src")]
    assert not re.search(r"\bkeras\.src\.\w", (ROOT / file).read_text("utf-8"))


@pytest.mark.parametrize("file", LIBRARY)
def test_library_raises_instead_of_asserting(file):
    asserts = [
        n.lineno for n in ast.walk(tree_of(file)) if isinstance(n, ast.Assert)
    ]
    assert not asserts, f"{file}: assert in lines {asserts}"


@pytest.mark.parametrize("file", SOURCES)
def test_files_are_short_and_named_for_what_they_know(file):
    assert pathlib.PurePath(file).stem not in JUNK_DRAWERS
    lines = (ROOT / file).read_text("utf-8").count("\n")
    assert lines <= MAX_LINES or file in LONG_TABLES, f"{lines} lines"


def functions_of(tree):
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [n for n in ast.walk(tree) if isinstance(n, kinds)]


def nesting(node, depth=0):
    """Deepest block below a function; `elif` is no deeper than its `if`."""
    blocks = (ast.If, ast.For, ast.While, ast.With, ast.Try)
    deepest = depth
    for child in ast.iter_child_nodes(node):
        chained = isinstance(node, ast.If) and node.orelse == [child]
        inner = isinstance(child, blocks) and not chained
        if not isinstance(child, (ast.FunctionDef, ast.Lambda)):
            deepest = max(deepest, nesting(child, depth + inner))
    return deepest


@pytest.mark.parametrize("file", python_files("keras_vit", "recipes"))
def test_functions_are_short_and_flat(file):
    for function in functions_of(tree_of(file)):
        body = function.body
        if ast.get_docstring(function) and len(body) > 1:
            body = body[1:]
        where = f"{file}:{function.lineno} {function.name}"
        lines = body[-1].end_lineno - body[0].lineno + 1
        assert lines <= MAX_FUNCTION_LINES, f"{where}: {lines} lines"
        assert nesting(function) <= MAX_NESTING, f"{where}: nested too deep"


def tracked_files():
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        out = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    names = os.fsdecode(out.stdout).splitlines()
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def test_no_file_names_one_machine():
    for path in tracked_files():
        text = path.read_bytes().decode("utf-8", "replace")
        found = LOCAL.search(text)
        assert not found, f"{path}: {found[0]!r}"
