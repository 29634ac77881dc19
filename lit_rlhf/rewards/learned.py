"""A trained reward model as a reward function."""

from dataclasses import dataclass
from typing import Any

import torch

from lit_rlhf.backbone import Backbone
from lit_rlhf.backbone.heads import is_reward_model, last_real
from lit_rlhf.data.batches import collate
from lit_rlhf.data.masks import Dialogue, encode_dialogues, encode_texts, start_of_last_turn
from lit_rlhf.data.rendering import Renderer
from lit_rlhf.data.samples import Example, Sample
from lit_rlhf.data.truncation import truncate
from lit_rlhf.rewards.text import Completion
from lit_rlhf_callbacks.errors import UserError
from lit_rlhf_callbacks.windows import split_by_budget

MAX_TOKENS = 16_384  # padded tokens per forward


@dataclass(kw_only=True)
class LearnedReward:
    """The score of a reward model that `BradleyTerry`, or any of its relatives, has trained.

    It reads prompt and completion as it did in training: through its own tokenizer and chat template, and with the
    token that ends a turn, also after a completion that was cut off. Every rank holds the whole model; its weights
    are read at the first call.
    """

    model: str
    """The reward model: a run directory, a local folder or a hub id."""
    probability: bool = False
    """Give σ of the score, in [0, 1]: what the score means if labels were right and wrong (`OutcomeReward`)."""
    max_length: int = 1024
    """Tokens of prompt and completion; a longer prompt is cut from the left."""

    def __post_init__(self) -> None:
        """Find the model, so that a wrong name fails at once."""
        self.backbone = Backbone(self.model, head="score", gradient_checkpointing=False)
        if not is_reward_model(self.backbone.config):
            raise UserError(
                f"reward model '{self.model}' has no score head: train one with BradleyTerry, or name another"
            )
        self.renderer = Renderer(self.backbone.tokenizer)

    def __call__(self, prompts: list[Any], completions: list[Completion]) -> list[float | None]:
        """Score each completion.

        Args:
            prompts: Text, or messages.
            completions: What the model wrote, in the form of its prompt.

        Returns:
            One score per row.

        Raises:
            ValueError: The chat template refuses a conversation.
        """
        self._load()
        samples = self._encode(prompts, completions)
        scores = torch.zeros(len(samples), dtype=torch.float32)
        device = next(self.backbone.parameters()).device
        lengths = [len(sample) for sample in samples]
        by_length = sorted(range(len(samples)), key=lengths.__getitem__)
        for part in split_by_budget([lengths[row] for row in by_length], MAX_TOKENS):
            rows = [by_length[place] for place in part]
            batch = collate([Example(row, [samples[row]]) for row in rows], self.backbone.pad_id)
            attention_mask = batch["attention_mask"].to(device)
            with torch.no_grad():
                values = self.backbone.score_head(batch["input_ids"].to(device), attention_mask)
            scores[rows] = last_real(values, attention_mask).cpu()
        return (scores.sigmoid() if self.probability else scores).tolist()

    def _load(self) -> None:
        if self.backbone.is_loaded:
            return
        self.backbone.load()
        self.backbone.eval().requires_grad_(False)
        if torch.cuda.is_available():
            self.backbone.to(torch.device("cuda", torch.cuda.current_device()))

    def _encode(self, prompts: list[Any], completions: list[Completion]) -> list[Sample]:
        """Render and cut as `PreferenceData` does."""
        max_length = min(self.max_length, self.backbone.context_length)
        plain = [row for row, prompt in enumerate(prompts) if isinstance(prompt, str)]
        chats = [row for row, prompt in enumerate(prompts) if not isinstance(prompt, str)]
        texts, _ = encode_texts(self.renderer, [prompts[n] for n in plain], [str(completions[n]) for n in plain])
        dialogues = [Dialogue([*prompts[n], *completions[n]], len(prompts[n])) for n in chats]
        rendered = encode_dialogues(self.renderer, dialogues).samples if dialogues else []
        encoded = dict(zip([*plain, *chats], [*texts, *rendered], strict=True))
        samples = []
        for row in range(len(prompts)):
            sample = encoded[row]
            if not isinstance(sample, Sample):
                raise ValueError(f"the conversation {sample}")
            samples += truncate([sample], [start_of_last_turn(sample.mask)], max_length, self.renderer.bos_id).samples
        return samples
