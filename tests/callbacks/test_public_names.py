import ast
import subprocess
import sys
from pathlib import Path

import pytest
from lightning.pytorch.cli import LightningCLI
from lightning.pytorch.demos.boring_classes import BoringModel

import lit_rlhf_callbacks


def test_importing_the_package_loads_nothing() -> None:
    code = "import lit_rlhf_callbacks, lit_rlhf_callbacks.windows, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"


def imported_by(path: Path) -> set[str]:
    """Names of the packages that a file imports, at any level."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module.split(".")[0])
    return found


def test_only_lightning_torch_and_rich_are_imported() -> None:
    files = list(Path(lit_rlhf_callbacks.__file__).parent.rglob("*.py"))
    packages = set().union(*(imported_by(file) for file in files)) - set(sys.stdlib_module_names)

    assert packages == {
        "lightning",
        "torch",
        "rich",
        "numpy",
        "lit_rlhf_callbacks",
    }  # numpy: where it is loaded already


def test_a_wrong_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="SamplePannel"):
        lit_rlhf_callbacks.SamplePannel  # noqa: B018


@pytest.mark.parametrize(
    "name",
    [
        "ExactResume",
        "LengthBucketing",
        "MemoryReport",
        "PolicyMonitor",
        "RunFiles",
        "RunRecord",
        "SamplePanel",
        "SentinelEval",
    ],
)
def test_configs_save_the_name_at_the_package_top(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Short names work on the command line, and long ones are what is kept."""
    getattr(lit_rlhf_callbacks, name)
    with pytest.raises(SystemExit):
        LightningCLI(BoringModel, run=False, args=[f"--trainer.callbacks={name}", "--print_config"])
    assert f"class_path: lit_rlhf_callbacks.{name}" in capsys.readouterr().out

    cli = LightningCLI(
        BoringModel,
        run=False,
        args=[
            f"--trainer.callbacks=lit_rlhf_callbacks.{name}",
            "--trainer.logger=false",
            "--trainer.accelerator=cpu",
            f"--trainer.default_root_dir={tmp_path}",
        ],
    )
    assert any(type(callback) is getattr(lit_rlhf_callbacks, name) for callback in cli.trainer.callbacks)


def test_arguments_of_callbacks_reach_them_from_a_config(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "trainer:\n  logger: false\n  accelerator: cpu\n  callbacks:\n"
        "    - class_path: lit_rlhf_callbacks.SamplePanel\n"
        "      init_args:\n        strategy: random\n"
        "        prompts: [hello, [{role: user, content: hi}], {prompt: x, prompt_id: 9}]\n"
    )
    cli = LightningCLI(BoringModel, run=False, args=["--config", str(config)])

    (panel,) = [c for c in cli.trainer.callbacks if isinstance(c, lit_rlhf_callbacks.SamplePanel)]
    assert [prompt["prompt_id"] for prompt in panel.pool] == [0, 1, 9]
    assert panel.strategy == "random"
