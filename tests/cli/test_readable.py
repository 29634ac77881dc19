import pytest

from lit_rlhf.cli import main
from lit_rlhf.cli.readable import readable
from lit_rlhf_callbacks.errors import UserError

COMMAND_LINE = [
    ("--model.group_sise 3", "model.init_args.group_sise: no such setting of GRPO; did you mean group_size?"),
    ("--model.group_size four", "model.init_args.group_size: expected int, got four"),
    ("--model.clip_dual x", "model.init_args.clip_dual: expected float, got x"),
    (
        "--model.advantage_scale grp",
        "model.init_args.advantage_scale: expected one of ['group', 'batch', 'none'], got grp",
    ),
    ("--model.sampling.temperature hot", "model.init_args.sampling.temperature: expected float, got hot"),
    ("--model.sampling.temperature=-1", "sampling: temperature is -1.0; give 0 (greedy) or a positive number"),
    ("--model.rewards 3", "model.init_args.rewards: expected list, got 3"),
    ("--model.lora.rr 3", "model.init_args.lora.init_args.rr: no such setting of LoRA; did you mean r?"),
    ("--model.optimizer.lrr 3", "model.init_args.optimizer.init_args.lrr: no such setting of AdamW; did you mean lr?"),
    ("--model.optimizer.lr abc", "model.init_args.optimizer.init_args.lr: expected float, got abc"),
    ("--model.optimizer AdamWW", "model.init_args.optimizer: no class AdamWW; did you mean AdamW?"),
    ("--model GPRO", "model: no class GPRO; did you mean GRPO?"),
    ("--model torch.nn.Linear", "model: Import path does not correspond to a subclass of Algorithm"),
    ("--model no.such.Thing", "model: No module named 'no'"),
    ("--data.promts x", "data.init_args.promts: no such setting of PromptData; did you mean prompts?"),
    ("--trainer.max_stepz 4", "trainer.max_stepz: no such setting; did you mean trainer.max_steps?"),
    ("--trainer.callbacks+=SamplePanell", "trainer.callbacks: no class SamplePanell; did you mean SamplePanel?"),
    ("--seed_everything x", "seed_everything: expected bool or int, got x"),
]
FILES = [
    ("group_size:", "group_sise:", "model.init_args.group_sise: no such setting of GRPO; did you mean group_size?"),
    (
        *("temperature:", "temperatur:"),
        "model.init_args.sampling.temperatur: no such setting; did you mean temperature?",
    ),
    (
        *("save_top_k:", "save_topk:"),
        "trainer.callbacks.init_args.save_topk: no such setting of ModelCheckpoint; did you mean save_top_k?",
    ),
    ("ModelCheckpoint", "ModelChekpoint", "trainer.callbacks: no class ModelChekpoint; did you mean ModelCheckpoint?"),
    ("PromptData", "PromptDat", "data: no class PromptDat; did you mean PromptData?"),
    ("max_steps:", "max_stepz:", "trainer.max_stepz: no such setting; did you mean trainer.max_steps?"),
    ("seed_everything:", "sead_everything:", "sead_everything: no such setting; did you mean seed_everything?"),
]
CONFIG = """
seed_everything: 1
model:
  class_path: GRPO
  init_args: {group_size: 2, sampling: {temperature: 1.0}}
data: {class_path: PromptData}
trainer:
  max_steps: 1
  callbacks:
    - class_path: RunFiles
    - class_path: ModelCheckpoint
      init_args: {save_top_k: 1}
"""


def complaint(args):
    with pytest.raises(UserError) as caught:
        main(["fit", *args])
    return str(caught.value)


@pytest.mark.parametrize(("flags", "line"), COMMAND_LINE)
def test_a_mistake_on_the_command_line(in_tmp_dir, flags, line):
    assert complaint(["--config", "grpo", *flags.split()]) == line


@pytest.mark.parametrize(("meant", "typo", "line"), FILES)
def test_a_mistake_in_a_config(in_tmp_dir, meant, typo, line):
    (in_tmp_dir / "typo.yaml").write_text(CONFIG.replace(meant, typo))
    assert complaint(["--config", "typo.yaml"]) == line


def test_what_is_not_given(in_tmp_dir):
    assert complaint([]) == "data and model: not given; use a config, such as --config grpo, or --data"
    assert complaint(["--model", "GRPO"]) == "data: not given; use a config, such as --config grpo, or --data"


def test_the_whole_account_is_kept_as_the_cause(in_tmp_dir):
    with pytest.raises(UserError) as caught:
        main(["fit", "--config", "grpo", "--model.group_size", "four"])
    assert "Does not validate against any of the Union subtypes" in str(caught.value.__cause__)


def test_a_message_of_an_unknown_form_is_kept_whole_on_one_line():
    assert readable("Something new\n  happened", []) == "Something new happened"
