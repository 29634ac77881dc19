import json
import subprocess
import sys
from pathlib import Path

MODULE = """
from lit_rlhf.algorithms import GRPO

class Breaks(GRPO):
    def publish(self, metrics):
        is_over = "loss" in metrics and self.global_step >= 1
        return super().publish({**metrics, "loss": float("nan")} if is_over else metrics)
"""


def test_a_run_that_the_doctor_stops_ends_with_status_3(in_tmp_dir: Path, small_config: str) -> None:
    (in_tmp_dir / "mine.py").write_text(MODULE)
    text = Path(small_config).read_text().replace("class_path: GRPO", "class_path: mine.Breaks")
    text = text.replace("max_steps: 1", "max_steps: 6")
    text += "    - class_path: RunDoctor\n      init_args: {on_finding: stop}\n"
    Path("stop.yaml").write_text(text)
    command = [sys.executable, "-m", "lit_rlhf", "fit", "--config", "stop.yaml", "--name", "a"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 3, done.stderr[-3000:]
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("lit_rlhf: stopped by RunDoctor at update")
    assert "checkpoints/step=1.ckpt" in last  # from before the second update, which broke
    assert json.loads(Path("runs/a/run.json").read_text())["status"].startswith("stopped by RunDoctor")
    assert "CRITICAL" in done.stdout
