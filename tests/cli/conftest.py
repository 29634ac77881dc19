import pytest

SMALL = """
seed_everything: 1
model:
  class_path: GRPO
  init_args:
    group_size: 2
    sampling: {max_new_tokens: 4}
    eval_sampling: {max_new_tokens: 4}
data:
  class_path: PromptData
  init_args: {prompts_per_phase: 2, num_eval: 2, limit: 16}
trainer:
  accelerator: cpu
  devices: 1
  max_steps: 1
  enable_progress_bar: false
  callbacks:
    - class_path: RunFiles
    - class_path: RunRecord
    - class_path: ModelCheckpoint
      init_args: {every_n_train_steps: 1, save_top_k: -1, filename: "{step}"}
"""


@pytest.fixture
def small_config(in_tmp_dir):
    """A run of one small update, in the current folder."""
    (in_tmp_dir / "small.yaml").write_text(SMALL)
    return "small.yaml"
