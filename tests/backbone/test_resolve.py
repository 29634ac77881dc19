"""Whatever a user writes as a model: found, or one line that says what to do."""

import huggingface_hub.constants
import pytest

from lit_rlhf import builtin
from lit_rlhf.backbone import resolve_model
from lit_rlhf_callbacks.errors import UserError


def refusal(name: str) -> str:
    with pytest.raises(UserError) as error:
        resolve_model(name)
    message = str(error.value)
    assert "\n" not in message
    assert name in message
    return message


def test_the_embedded_model_is_found():
    assert resolve_model("builtin:tiny") == (str(builtin.model_folder("tiny")), "builtin")
    assert "did you mean 'tiny'" in refusal("builtin:tyny")


def test_a_folder_is_found(make_folder):
    folder = make_folder()
    assert resolve_model(folder) == (folder, "folder")


def test_a_run_directory_stands_for_its_model(make_folder, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text("{}")
    assert "run directory without model/" in refusal(str(run))
    (run / "model").mkdir()
    assert "no config.json" in refusal(str(run))
    (run / "model" / "config.json").write_text("{}")
    assert resolve_model(str(run)) == (str(run / "model"), "run")
    (run / "run.json").rename(run / "config.yaml")  # an older or crashed run
    assert resolve_model(str(run)).kind == "run"


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "~/nowhere", "a/b/c"])
def test_a_missing_folder_is_refused(name):
    assert "no such folder" in refusal(name)


def test_an_empty_folder_and_a_file_are_refused(tmp_path):
    assert "no config.json" in refusal(str(tmp_path))
    file = tmp_path / "model.safetensors"
    file.write_text("")
    assert "is a file" in refusal(str(file))


@pytest.mark.parametrize("name", ["no-such-org/no-such-model", "tiny"])
def test_a_hub_id_that_cannot_be_reached_is_refused(monkeypatch, tmp_path, name):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    assert "no folder of that name here" in refusal(name)
