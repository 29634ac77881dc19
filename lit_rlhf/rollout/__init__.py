"""From prompts to experience: samplers, and what is kept of what they made."""

from lit_rlhf.rollout.native import NativeSampler
from lit_rlhf.rollout.noise import uniforms
from lit_rlhf.rollout.protocol import Completion, NoiseKey, Prompt, Sampler
from lit_rlhf.rollout.sampling import Sampling

__all__ = ["Completion", "NativeSampler", "NoiseKey", "Prompt", "Sampler", "Sampling", "uniforms"]
