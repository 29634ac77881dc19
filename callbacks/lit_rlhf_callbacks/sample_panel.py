"""A few prompts, generated again and again, so that somebody reads what the model says."""

from collections.abc import Callable
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from lit_rlhf_callbacks.append_only import JsonLines
from lit_rlhf_callbacks.foreign_models import RowGenerator, find_language_model, find_tokenizer
from lit_rlhf_callbacks.model_hash import trained_weights_hash
from lit_rlhf_callbacks.observing import observing
from lit_rlhf_callbacks.prompt_pool import Strategy, as_prompts, choose
from lit_rlhf_callbacks.protocol import offered
from lit_rlhf_callbacks.run_dir import run_dir
from lit_rlhf_callbacks.sample_table import Sample, console_table, logger_table

Generate = Callable[..., list[Sample]]
_POOL_PANELS = 8  # a pool asked from the module lasts for so many panels before it repeats


class SamplePanel(Callback):
    """Generate from a pool of prompts before the first update and every few updates.

    Every completion is appended to ``samples.jsonl`` in the run directory, shown in the console with special tokens
    visible, and sent to loggers that have ``log_table``. Noise depends on ``seed`` and the prompt only, so panels of
    update 100 and 650 differ by what was learned. Weights, random states and modes are left as they were.

    It uses, in this order: the function given here; the module's ``generate(prompts, sampling, event)``
    (``callbacks/README.md``); a Hugging Face model and tokenizer among the module's attributes.

    Args:
        prompts: Strings, lists of chat messages, or mappings with ``prompt``. None asks the module's
            ``panel_prompts(num)``.
        every_n_updates: How often; an update is one step of ``global_step``.
        num_prompts: Prompts per panel.
        strategy: Which of the pool: always the first ones (``fixed``), the next ones (``round_robin``), or any.
        max_new_tokens: Limit on each completion.
        temperature: 0 takes the most likely token.
        top_k: Sample among so many tokens; 0 for all.
        top_p: Sample among the most likely tokens of this total probability.
        seed: Of the noise.
        generate: A function ``f(pl_module, prompts, sampling, event)`` for modules that offer nothing.

    Example::

        Trainer(callbacks=[SamplePanel(prompts=["The capital of France is"], every_n_updates=100)])
    """

    __module__ = "lit_rlhf_callbacks"  # saved configs name the class by this path

    def __init__(
        self,
        prompts: list[Any] | None = None,
        every_n_updates: int = 20,
        num_prompts: int = 3,
        strategy: Strategy = "fixed",
        max_new_tokens: int = 128,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        generate: Callable[..., Any] | None = None,
    ) -> None:
        self.pool = as_prompts(prompts) if prompts is not None else None
        self.every_n_updates = every_n_updates
        self.num_prompts = num_prompts
        self.strategy: Strategy = strategy
        self.sampling = {
            "max_new_tokens": max_new_tokens,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "seed": seed,
        }
        self.generate = generate
        self.file: JsonLines | None = None
        self._event = 0
        self._last_step = -1
        self._has_complained = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Find the run directory, which all ranks have to agree on."""
        if stage == "fit":
            self.file = JsonLines(run_dir(trainer) / "samples.jsonl")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the start, or go on after a resume."""
        if trainer.is_global_zero and self.file is not None:
            self.file.discard_after(trainer.global_step)
        if trainer.global_step == 0:
            self._show(trainer, pl_module)
        self._last_step = trainer.global_step

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Show a panel after every n-th update, once."""
        if trainer.global_step % self.every_n_updates == 0 and trainer.global_step > self._last_step:
            self._show(trainer, pl_module)

    def state_dict(self) -> dict[str, Any]:
        """Return how many panels there have been, and when the last one was."""
        return {"event": self._event, "last_step": self._last_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on counting."""
        self._event, self._last_step = state_dict["event"], state_dict["last_step"]

    def _show(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Generate on every rank, since sharded weights need all of them, and write on the first."""
        self._last_step = trainer.global_step
        generate = self._generator(trainer, pl_module)
        pool = self._prompts(pl_module)
        if generate is None or not pool:
            self._complain(generate is None)
            return
        prompts = choose(pool, self.num_prompts, self.strategy, self._event)
        with observing(trainer, pl_module):
            made = generate(prompts=prompts, sampling=self.sampling, event=self._event)
            model_hash = trained_weights_hash(pl_module)
        marks = {"step": trainer.global_step, "event": self._event}
        samples = [
            {**marks, "rewards": {}, **sample, "sampling": self.sampling, "model_hash": model_hash} for sample in made
        ]
        if trainer.is_global_zero:
            self._publish(trainer, samples)
        self._event += 1

    def _publish(self, trainer: Trainer, samples: list[Sample]) -> None:
        assert self.file is not None
        for sample in samples:
            self.file.append(sample)
        table = console_table(samples, title=f"update {trainer.global_step}")
        if trainer.progress_bar_callback is not None:
            trainer.progress_bar_callback.print(table)
        else:
            print(table)
        for logger in trainer.loggers:
            if hasattr(logger, "log_table"):
                columns, rows = logger_table(samples)
                logger.log_table(key="samples", columns=columns, data=rows, step=trainer.global_step)

    def _generator(self, trainer: Trainer, pl_module: LightningModule) -> Generate | None:
        if self.generate is not None:
            function = self.generate
            return lambda **inputs: function(pl_module, **inputs)
        method = offered(pl_module, "generate", "prompts", "sampling", "event")
        if method is not None:
            return method
        model, tokenizer = find_language_model(pl_module), find_tokenizer(trainer, pl_module)
        if model is None or tokenizer is None:
            return None
        return RowGenerator(model, tokenizer, pl_module.device)

    def _prompts(self, pl_module: LightningModule) -> list[dict[str, Any]]:
        if self.pool is None:
            panel_prompts = offered(pl_module, "panel_prompts", "num")
            num = self.num_prompts * (1 if self.strategy == "fixed" else _POOL_PANELS)
            self.pool = as_prompts(panel_prompts(num)) if panel_prompts is not None else []
        return self.pool

    def _complain(self, has_no_generator: bool) -> None:
        if not self._has_complained:
            self._has_complained = True
            missing = (
                "the module has no generate(prompts, sampling, event), and no Hugging Face model with a tokenizer"
                if has_no_generator
                else "no prompts are given, and the module has no panel_prompts(num)"
            )
            rank_zero_warn(f"SamplePanel could not be checked: {missing}; see callbacks/README.md.")
