"""T2: masks come from lengths, so a tokenizer may pad with its end token, and the end token is trained."""

import json
import shutil

import pytest
from short_runs import deviation

import lit_rlhf.algorithms as algorithms
from lit_rlhf import builtin


@pytest.fixture(scope="session")
def pad_is_eos(tmp_path_factory):
    """The embedded model, whose answers end by themselves, with a tokenizer that pads with its end token."""
    folder = tmp_path_factory.mktemp("tiny") / "pad-is-eos"
    shutil.copytree(builtin.model_folder("tiny"), folder)
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    file.write_text(json.dumps({**settings, "pad_token": settings["eos_token"]}))
    return str(folder)


@pytest.fixture(scope="session")
def words(tmp_path_factory):
    rows = [{"prompt": [{"role": "user", "content": f"reverse {w}"}]} for w in ("abc", "dolimar", "kesufo", "ban")]
    path = tmp_path_factory.mktemp("words") / "words.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"prompts": str(path)}


def test_padding_with_the_end_token_changes_nothing(algorithm, run, pad_is_eos, words):
    settings = {"data": words, "beta": 0.1, "entropy_coef": 0.01, "windows_per_phase": 2, "updates": 2}
    ordinary = run(algorithm, model="builtin:tiny", **settings)
    padded_with_eos = run(algorithm, model=pad_is_eos, **settings)
    assert ordinary.tokens[0]["input_ids"].eq(0).any()
    assert padded_with_eos.tokens[0]["input_ids"].ne(0).all()
    assert deviation(ordinary, padded_with_eos) < 1e-6
    assert padded_with_eos.metrics == [pytest.approx(metrics, abs=1e-6) for metrics in ordinary.metrics]


def test_the_end_token_is_trained(algorithm, run, pad_is_eos, words):
    at_end, elsewhere, batches = [], [], []

    class Watched(getattr(algorithms, algorithm)):
        def window_share(self, batch, slot):
            batches.append(batch)
            return super().window_share(batch, slot)

        def policy_loss(self, logps, old_logps, advantages, mask):
            logps.register_hook(lambda gradient: watch(gradient, batches[-1]))
            return super().policy_loss(logps, old_logps, advantages, mask)

    def watch(gradient, batch):
        for row in range(len(batch)):
            last = int(batch.lengths[row]) - 1
            ended = not batch.truncated_mask[row]
            teaches = batch.advantages[row, last] != 0
            assert (int(batch.input_ids[row, last]) == 2) == ended
            if ended and teaches:
                at_end.append(float(gradient[row, last]))
            elsewhere.append(float(gradient[row, last + 1 :].abs().sum()))

    run(algorithm, model=pad_is_eos, data=words, kind=Watched)
    assert len(at_end) > 4
    assert all(at_end)
    assert not any(elsewhere)
