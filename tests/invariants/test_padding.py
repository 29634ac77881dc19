"""T9: neither padding nor batch mates change what a row's tokens are given, with rotary and with learned positions."""

import pytest
import torch
from short_runs import deviation, rows_by_content, write_model

import lit_rlhf.algorithms as algorithms

SETTINGS = {"beta": 0.1, "entropy_coef": 0.01, "windows_per_phase": 2, "updates": 1}
PER_TOKEN = ("logps", "old_logps", "ref_logps", "entropy", "sampler_logps")


@pytest.fixture(scope="session", params=["gpt2", "llama"])
def any_model(request, tmp_path_factory):
    return write_model(tmp_path_factory.mktemp(request.param), request.param)


def padded_more(algorithm, num):
    """The algorithm, with each micro-batch padded by ``num`` more tokens that are real ones, and hence no pad's id."""

    class PaddedMore(getattr(algorithms, algorithm)):
        def window_share(self, batch, slot):
            state = batch.state_dict()
            for name, value in state.items():
                if value.dim() == 2:
                    state[name] = torch.nn.functional.pad(value, (0, num), value=97 if name == "input_ids" else 0)
            return super().window_share(type(batch)(**state), slot)

    return PaddedMore


def assert_same_rows(seen, other):
    mine, its = rows_by_content(seen), rows_by_content(other)
    assert mine.keys() == its.keys()
    for key in mine:
        for name in PER_TOKEN:
            assert torch.allclose(mine[key][0][name], its[key][0][name], atol=1e-5), name


def test_batch_mates(algorithm, run, any_model):
    together, alone = (
        run(algorithm, model=any_model, **SETTINGS),
        run(algorithm, model=any_model, accumulate=8, **SETTINGS),
    )
    assert [len(tokens["input_ids"]) for tokens in alone.tokens] == [1] * 8
    assert_same_rows(together, alone)
    assert deviation(together, alone) < 1e-5


def test_amount_of_padding(algorithm, run, any_model):
    settings = {"model": any_model, **SETTINGS}
    seen, padded = run(algorithm, **settings), run(algorithm, kind=padded_more(algorithm, 9), **settings)
    assert padded.tokens[0]["input_ids"].shape[1] == seen.tokens[0]["input_ids"].shape[1] + 9
    assert_same_rows(seen, padded)
    assert deviation(seen, padded) < 1e-5
