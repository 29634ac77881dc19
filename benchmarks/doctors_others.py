"""Other run doctors as they are driven by their own integrations, at their default thresholds.

Versions: rldoctor 0.2.0, rlprobe 0.1.0, rlwatch 0.5.1, for which internal names are used. All three are written for
GRPO and PPO with TRL's metric names.
"""

import tempfile
from collections.abc import Iterable, Mapping
from types import SimpleNamespace

from lit_rlhf_callbacks.run_log import RunLog

Words = Iterable[tuple[frozenset[str], int, str]]  # what a warning may stand for, its step, its own name
NUM_WAIT, NUM_BETWEEN = 30, 25  # rlprobe's command looks every 25 steps, from 30 rows on

# what a detector of the others may stand for: our kinds, in the common words
RLDOCTOR = {
    "advantage_collapse": "zero_std adv_collapse reward_dead reward_std_death",
    "entropy_collapse": "entropy_collapse",
    "reward_hacking": "reward_hack_eval",
    "length_pathology": "truncation length_hack empty_completions",
    "clip_saturation": "clip_saturation",
    "kl_drift": "kl_explosion kl_pinned",
    "gradient_pathology": "nan grad_zero grad_vanish grad_spike no_update",
    "reward_composition": "reward_terms",
    "plateau": "plateau",
}
RLPROBE = {
    "KL_BLOWUP": "kl_explosion",
    "ENTROPY_COLLAPSE": "entropy_collapse",
    "REWARD_HACK_LENGTH": "length_hack reward_hack_eval",
    "FORMAT_GAMING": "reward_terms",
    "CLIP_SATURATION": "clip_saturation",
    "DEGENERATE_GROUPS": "zero_std adv_collapse reward_dead",
    "ADV_COLLAPSE": "adv_collapse zero_std",
    "GRAD_PATHOLOGY": "nan grad_spike",
    "TRUNCATION_STARVE": "truncation",
    "REPETITION_SPIRAL": "repetition",
    "REWARD_STD_DEATH": "reward_std_death zero_std reward_dead",
    "REF_POLICY_DRIFT_ASYMMETRY": "template_mismatch",
    "THROUGHPUT_ROT": "throughput",
}
RLWATCH = {
    "entropy_collapse": "entropy_collapse",
    "kl_explosion": "kl_explosion",
    "reward_hacking": "reward_variance reward_hack_eval",
    "advantage_variance": "adv_spike",
    "loss_nan": "nan",
    "gradient_norm_spike": "grad_spike",
    "reward_mean_drift": "reward_drift",
}


def rldoctor(log: RunLog) -> Words:
    """Run rldoctor's live monitor."""
    from rl_doctor.live import LiveMonitor

    monitor = LiveMonitor(config={"algorithm": "grpo"}, on_finding=lambda finding: None)
    for step, row in log.rows:
        for finding in monitor.log(row, step=step):
            yield _words(RLDOCTOR, finding.detector), step, finding.detector


def rlprobe(log: RunLog) -> Words:
    """Run rlprobe's detectors on its own mapping of TRL's names."""
    from rlprobe.doctor.engine import diagnose_view
    from rlprobe.doctor.runview import RunView
    from rlprobe.integrations.trl import _map_logs
    from rlprobe.schemas import RunManifest, StepRecord

    about = RunManifest(run_id="run", created_at="2026-01-01T00:00:00Z", algorithm="grpo", trainer_config={})
    records = [StepRecord(step=step, **_map_logs(dict(row))) for step, row in log.rows]
    for num, record in enumerate(records, start=1):
        if num >= NUM_WAIT and record.step % NUM_BETWEEN == 0:
            for finding in diagnose_view(RunView(about, records[:num])):
                if finding.severity != "info":
                    yield _words(RLPROBE, finding.signature_id), record.step, finding.signature_id


def rlwatch(log: RunLog) -> Words:
    """Run rlwatch's callback for TRL."""
    from rlwatch.config import RLWatchConfig
    from rlwatch.core import RLWatch, _build_trl_callback

    with tempfile.TemporaryDirectory() as folder:
        config = RLWatchConfig()
        config.storage.log_dir, config.run_id, config.framework = folder, "run", "manual"
        monitor = RLWatch(config)
        callback = _build_trl_callback(monitor)()
        for step, row in log.rows:
            callback.on_log(None, SimpleNamespace(global_step=step), None, logs=dict(row))
        alerts = monitor.store.get_alerts()
    return [(_words(RLWATCH, alert["detector"]), alert["step"], alert["detector"]) for alert in alerts]


def _words(table: Mapping[str, str], name: str) -> frozenset[str]:
    return frozenset(table.get(name, name).split())
