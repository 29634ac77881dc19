"""Whether the policy ends its completions by itself: what a wrong mask or a wrong template breaks first."""

from collections.abc import Sequence
from itertools import islice

from lit_rlhf.data.samples import Example
from lit_rlhf.rollout import NativeSampler, NoiseKey, Sampling
from lit_rlhf.rollout.protocol import Prompt


def count_stops(
    sampler: NativeSampler, examples: Sequence[Example], num_prompts: int, max_new_tokens: int, place: tuple[int, int]
) -> tuple[int, int]:
    """Complete the first held-out prompts, always by the most probable token, and count those that end by themselves.

    Args:
        sampler: Of the policy. Every rank must call this together.
        examples: Held-out ones; those without a prompt are left out.
        num_prompts: How many to complete, over all ranks.
        max_new_tokens: Tokens a completion may have.
        place: This process's rank, and how many share the prompts.

    Returns:
        How many completions ended by a stop token, and how many there are, on this rank.
    """
    with_prompt = (example for example in examples if example.samples[0].num_prompt)
    rank, num_ranks = place
    prompts = [
        Prompt(example.row, [int(token) for token in example.samples[0].ids[: example.samples[0].num_prompt]])
        for example in islice(with_prompt, rank, num_prompts, num_ranks)
    ]
    greedy = Sampling(temperature=0, max_new_tokens=max_new_tokens)
    completions = sampler.generate(prompts, 1, greedy, NoiseKey(0, "eval", phase=0))
    return sum(completion.finish == "stop" for completion in completions), len(completions)
