import torch

from lit_rlhf.rollout import uniforms


def draw(seed=0, purpose="train", phase=1, round=0, prompt_id=5, sample=2, num=16):
    return uniforms(seed, purpose, phase, round, prompt_id, sample, num)


def test_noise_is_a_function_of_its_key():
    assert torch.equal(draw(), draw())
    torch.manual_seed(1)
    state = torch.get_rng_state()
    assert torch.equal(draw(), draw())
    assert torch.equal(torch.get_rng_state(), state)


def test_every_part_of_the_key_matters():
    others = [
        draw(seed=1),
        draw(seed=2**32),  # a Mersenne twister would not see this one
        draw(purpose="eval"),
        draw(phase=2),
        draw(round=1),
        draw(prompt_id=6),
        draw(sample=3),
        draw(phase=15, prompt_id=5),
        draw(phase=1, prompt_id=55),
    ]
    everything = torch.stack([draw(), *others])
    assert len(everything.unique(dim=0)) == len(everything)


def test_longer_noise_begins_with_the_shorter():
    assert torch.equal(draw(num=40)[:16], draw(num=16))
    assert draw(num=0).shape == (0,)


def test_noise_is_uniform():
    values = torch.cat([draw(prompt_id=i, num=1000) for i in range(50)])
    assert values.dtype == torch.float64
    assert values.min() >= 0
    assert values.max() < 1
    counts = torch.histc(values.float(), bins=20, min=0, max=1)
    chi_square = ((counts - 2500) ** 2 / 2500).sum()
    assert chi_square < 43.8  # 0.1 % of uniform samples lie above, with 19 degrees of freedom
    assert abs(torch.corrcoef(torch.stack([values[:-1], values[1:]]))[0, 1]) < 0.02
