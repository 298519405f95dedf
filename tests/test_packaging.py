"""What a user gets from the index: light, complete, and clear when it fails.

Each test runs Python anew, since what is imported cannot be taken back.
"""

import importlib.metadata
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap
import tomllib
import zipfile

import keras
import pytest

import keras_vit

ROOT = pathlib.Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
BACKENDS = {"jax", "tensorflow", "torch"}
OTHERS = sorted(BACKENDS - {keras.config.backend()})
HEAVY = ["scipy", "pandas", "matplotlib", "PIL", "huggingface_hub"]
HEAVY += ["safetensors", "sklearn", "tensorflow_datasets", "onnx"]
EXTRAS = ["matplotlib", "onnx", "onnxruntime", "onnxscript", "skimage"]
EXTRAS += ["pandas", "sklearn", "tensorflow_datasets", "keras_cv"]
IMPORT_SHARE = 0.15

# Takes modules away as if they were not installed: both `import` and
# `find_spec` answer as they would on a machine that lacks them.
HIDE = """
import importlib.machinery
import sys
def hide(*names):
    class Finder(importlib.machinery.PathFinder):
        @classmethod
        def find_spec(cls, name, path=None, target=None):
            if name.split(".")[0] in names:
                return None
            return super().find_spec(name, path, target)
    place = sys.meta_path.index(importlib.machinery.PathFinder)
    sys.meta_path[place] = Finder
"""
TINY = """
import numpy as np
config = keras_vit.vit_config("nano/4", image_size=28, depth=1, num_classes=3)
model = keras_vit.ViT(config)
logits = model.predict(np.zeros((2, 28, 28, 3), "uint8"), verbose=0)
assert logits.shape == (2, 3), logits.shape
"""


def python(code, tmp_path, **environment):
    """Runs code in a fresh Python, away from the checkout and from home."""
    settings = {
        **os.environ,
        "KERAS_BACKEND": keras.config.backend(),
        "KERAS_HOME": str(tmp_path / "keras_home"),
        "PYTHONPATH": str(ROOT),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        **environment,
    }
    settings = {k: v for k, v in settings.items() if v is not None}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=settings,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def answer(result):
    """The last line of what a run printed."""
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def added(tmp_path_factory):
    """What `import keras_vit` adds to `import keras`: modules, CPU time."""
    code = """
        import json, sys, time
        begin = time.process_time()
        import keras
        before, start = set(sys.modules), time.process_time()
        import keras_vit
        share = (time.process_time() - start) / (start - begin)
        added = sorted({m.split(".")[0] for m in set(sys.modules) - before})
        print(json.dumps({"modules": added, "share": share}))
    """
    return answer(python(code, tmp_path_factory.mktemp("added")))


def test_import_loads_no_other_backend(added):
    """H09, K01: Keras itself may probe for more; we add none."""
    assert not set(added["modules"]) & set(OTHERS)


def test_import_loads_nothing_heavy(added):
    """K08: what few calls need is imported by those calls."""
    assert not set(added["modules"]) & set(HEAVY)


def test_import_is_quick(added):
    """A ratio in one process, which a busy machine leaves alone.

    0.18 s of CPU time against 2 s and more for Keras and a backend.
    """
    assert added["share"] < IMPORT_SHARE


def test_works_with_one_backend_and_no_extra(tmp_path):
    """K01, K04, K08: a model is built and run after a bare installation."""
    code = f"{HIDE}\nhide(*{OTHERS + EXTRAS})\nimport keras_vit\n{TINY}"
    code += f"\nassert not set({OTHERS + EXTRAS}) & set(sys.modules)"
    result = python(code, tmp_path)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("legacy", [None, "1"])
def test_old_keras_is_refused(legacy, tmp_path):
    """C13: one line says what to run."""
    (tmp_path / "keras").mkdir()
    (tmp_path / "keras" / "__init__.py").write_text('__version__ = "2.15.0"\n')
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    result = python(
        "import keras_vit",
        tmp_path,
        PYTHONPATH=path,
        TF_USE_LEGACY_KERAS=legacy,
    )
    last = result.stderr.splitlines()[-1]
    assert last.startswith("ImportError: "), result.stderr
    assert "2.15.0" in last
    assert ">= 3.12" in last
    assert "pip install -U keras" in last
    assert "TF_USE_LEGACY_KERAS" in last


BACKEND = """
hide({hidden})
import keras_vit
import keras
import json
print(json.dumps(keras.config.backend()))
"""


def hidden_but(backend):
    if not importlib.util.find_spec(backend):
        pytest.skip(f"{backend} is not installed")
    return ", ".join(map(repr, sorted(BACKENDS - {backend})))


def test_installed_backend_is_taken(tmp_path):
    """K01: nobody chose, one backend is installed, twice in a row.

    At its first import Keras writes a keras.json that says TensorFlow,
    whatever is installed; that is nobody's choice.
    """
    backend = keras.config.backend()
    code = HIDE + BACKEND.format(hidden=hidden_but(backend))
    for _ in range(2):
        run = python(code, tmp_path, KERAS_BACKEND=None)
        assert answer(run) == backend


def test_keras_json_decides(tmp_path):
    """H09: a backend in keras.json that is installed is respected."""
    backend = keras.config.backend()
    (tmp_path / "keras_home").mkdir()
    settings = json.dumps({"backend": backend, "floatx": "float32"})
    (tmp_path / "keras_home" / "keras.json").write_text(settings)
    code = "hide = print\n" + BACKEND.format(hidden="")
    assert answer(python(code, tmp_path, KERAS_BACKEND=None)) == backend


def test_dependencies_have_lower_bounds_only():
    """K02: a cap or a pin breaks the next installation."""
    project = PYPROJECT["project"]
    lists = [project["dependencies"]]
    lists += project["optional-dependencies"].values()
    for requirement in sum(lists, []):
        assert not set("<!~") & set(requirement), requirement
        assert "==" not in requirement
    assert project["requires-python"] == ">=3.11"


def test_supported_keras_is_one_number():
    """K03: said, required, checked, and what `make oldest` installs."""
    required = PYPROJECT["project"]["dependencies"]
    (oldest,) = (r[7:] for r in required if r.startswith("keras>="))
    readme = (ROOT / "README.md").read_text("utf-8")
    assert f"Keras {oldest} or newer" in readme
    checked = tuple(map(int, oldest.split(".")))
    source = (ROOT / "keras_vit" / "__init__.py").read_text("utf-8")
    assert f"< {checked}:" in source
    if shutil.which("make"):
        plan = subprocess.run(
            ["make", "-n", "oldest", f"PYTHON={sys.executable}"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert f"keras=={oldest}.0" in plan.stdout


def test_export_extra_is_what_the_tests_ran():
    """C15: bounds in the extra, and no writer installed that is older."""
    extra = PYPROJECT["project"]["optional-dependencies"]["export"]
    bounds = dict(requirement.split(">=") for requirement in extra)
    assert {"onnx", "onnxruntime", "onnxscript", "tf2onnx"} <= set(bounds)
    for name, bound in bounds.items():
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # test_export.py skips what it writes
        numbers = [
            tuple(map(int, text.split(".")[:2])) for text in (found, bound)
        ]
        assert numbers[0] >= numbers[1], name


def test_no_backend_is_a_dependency():
    """K01: each is an extra of its own."""
    text = " ".join(PYPROJECT["project"]["dependencies"])
    assert not [name for name in BACKENDS if name in text]
    assert set(PYPROJECT["project"]["optional-dependencies"]) >= BACKENDS


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The built wheel, as an open archive."""
    place = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, place)
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "keras_vit", place / "keras_vit", ignore=ignore)
    code = "import setuptools.build_meta as b; b.build_wheel('dist')"
    result = python(f"import os; os.mkdir('dist'); {code}", place)
    assert result.returncode == 0, result.stderr
    with zipfile.ZipFile(next((place / "dist").glob("*.whl"))) as archive:
        yield archive


def test_wheel_holds_every_file(wheel):
    """K04, K06: modules and assets; no platform, no Python version."""
    files = [p for p in (ROOT / "keras_vit").rglob("*") if p.is_file()]
    wanted = {p.relative_to(ROOT).as_posix() for p in files}
    wanted = {name for name in wanted if "__pycache__" not in name}
    assert wanted <= set(wheel.namelist())
    assert wheel.filename.endswith("-py3-none-any.whl")


def test_wheel_says_what_it_is(wheel):
    names = wheel.namelist()
    folder = f"keras_vit_garden-{keras_vit.__version__}.dist-info"
    assert f"{folder}/licenses/LICENSE" in names
    scripts = wheel.read(f"{folder}/entry_points.txt").decode()
    assert "keras-vit = keras_vit.cli:main" in scripts
