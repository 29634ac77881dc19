import ast
import os
import pkgutil
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import lit_rlhf
import lit_rlhf_callbacks

ROOT = Path(__file__).parents[1]
PACKAGES = {"lit_rlhf": ROOT / "lit_rlhf", "lit_rlhf_callbacks": ROOT / "callbacks" / "lit_rlhf_callbacks"}
# Lower layers first; a module imports from its own layer and from those before it.
LAYERS = [
    ["builtin"],
    ["functional"],
    ["backbone"],
    ["rewards", "data"],
    ["rollout"],
    ["algorithms"],
    ["cli"],
    ["report"],
    ["commands"],
]


def run_python(code, **kwargs):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, **kwargs)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_package_takes_no_time_and_no_torch():
    code = (
        "import sys, time; start = time.perf_counter(); import lit_rlhf;"
        "print(time.perf_counter() - start, 'torch' in sys.modules)"
    )
    seconds, has_torch = zip(*(run_python(code).split() for _ in range(3)), strict=True)
    assert min(map(float, seconds)) < 0.3
    assert set(has_torch) == {"False"}


@pytest.mark.parametrize("package", [lit_rlhf, lit_rlhf_callbacks])
def test_every_public_name_is_there(package):
    for name in package.__all__:
        assert getattr(package, name) is not None
    assert set(package.__all__) <= set(dir(package))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="GRPOO"):
        lit_rlhf.GRPOO  # noqa: B018


def modules():
    for package in (lit_rlhf, lit_rlhf_callbacks):
        yield package.__name__
        yield from (info.name for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."))


def test_no_module_imports_what_a_run_may_not_need():
    optional = ["wandb", "datasets", "reasoning_gym", "math_verify", "vllm", "gguf"]
    imports = "; ".join(f"import {name}" for name in modules())
    found = run_python(f"import sys; {imports}; print([name for name in {optional} if name in sys.modules])")
    assert found.strip() == "[]"


def imported_names(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.parametrize("number", range(len(LAYERS)), ids=["+".join(layer) for layer in LAYERS])
def test_a_layer_imports_nothing_from_above(number):
    above = {f"lit_rlhf.{name}" for layer in LAYERS[number + 1 :] for name in layer}
    for name in LAYERS[number]:
        for path in (ROOT / "lit_rlhf" / name).rglob("*.py"):
            wrong = {module for module in imported_names(path) if ".".join(module.split(".")[:2]) in above}
            assert not wrong, f"{path} imports {wrong}"


def test_the_callbacks_know_nothing_of_the_algorithms():
    for path in PACKAGES["lit_rlhf_callbacks"].rglob("*.py"):
        roots = {module.partition(".")[0] for module in imported_names(path)}
        assert not roots & {"lit_rlhf", "transformers", "peft", "datasets"}, path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel built from the source distribution, so that both are complete."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("lit_rlhf", "callbacks", "configs"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    run_python("import setuptools.build_meta as build; build.build_sdist('dist')", cwd=source)
    unpacked = tmp_path_factory.mktemp("unpacked")
    shutil.unpack_archive(next((source / "dist").glob("*.tar.gz")), unpacked)
    run_python("import setuptools.build_meta as build; build.build_wheel('dist')", cwd=next(unpacked.iterdir()))
    return next(unpacked.glob("*/dist/*.whl"))


def test_the_wheel_holds_every_file_of_both_packages(wheel):
    with zipfile.ZipFile(wheel) as archive:
        shipped = set(archive.namelist())
    for package, folder in PACKAGES.items():
        for directory, _, files in os.walk(folder, followlinks=True):
            if "__pycache__" in directory:
                continue
            names = {(Path(package) / Path(directory, file).relative_to(folder)).as_posix() for file in files}
            assert names <= shipped, names - shipped
    assert "lit_rlhf/configs/grpo.yaml" in shipped


def test_an_installed_wheel_trains_in_an_empty_folder(wheel, tmp_path):
    site = tmp_path / "site"
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site), str(wheel)]
    subprocess.run([sys.executable, *install], check=True)
    empty = tmp_path / "empty"
    empty.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(site)}
    assert str(site) in run_python("import lit_rlhf; print(lit_rlhf.__file__)", cwd=empty, env=environment)
    small = "--trainer.max_steps 1 --data.num_eval 4 --data.prompts_per_phase 2 --data.limit 16 --name first"
    command = [sys.executable, "-m", "lit_rlhf", "fit", "--config", "configs/grpo.yaml", *small.split()]
    done = subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {"config.yaml", "metrics.csv", "model"} <= {path.name for path in (empty / "runs" / "first").iterdir()}
