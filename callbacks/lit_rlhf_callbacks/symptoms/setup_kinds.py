"""What exact checks find about data, rewards, ranks and machines: kinds without a rule, since no log shows them."""

from lit_rlhf_callbacks.symptoms.catalogue import Cause, Kind, Sign
from lit_rlhf_callbacks.symptoms.causes import ALL_MASKED, LABELS_SWAPPED, likely
from lit_rlhf_callbacks.symptoms.finding import Rule
from lit_rlhf_callbacks.symptoms.readings import above, fact_above, fact_is

_INSPECT = "python -m lit_rlhf inspect --config CONFIG"


def _cause(id: str, text: str, prior: float, next_check: str, *signs: Sign) -> Cause:
    return Cause(id, text, prior, next_check, signs)


_REWARD = "call the function on"
KINDS = (
    Kind(
        "labels_masked",
        "A",
        "The wrong tokens are learned from",
        (
            likely(ALL_MASKED, 2),
            _cause("none_masked", "prompts are learned like answers", 1, f"{_INSPECT}: the first sequence shows it"),
            _cause("off_by_one", "labels or mask are shifted by a token", 1, f"{_INSPECT}: the end must count"),
        ),
    ),
    Kind(
        "stop_token_untrained",
        "E",
        "No stop token is learned",
        (
            _cause(
                "eos_not_in_labels",
                "the stop token does not count in the loss, as when pads share its id",
                3,
                f"{_INSPECT}: the last token of the answer must count",
            ),
            _cause(
                "stop_id_not_in_generation_config",
                "the token that ends answers is not one that generation stops at",
                1,
                "compare stop_ids in run.json with the last token of an answer",
            ),
        ),
    ),
    Kind(
        "template_mismatch",
        "A",
        "Rendered text is not what the policy knows",
        (
            _cause("double_bos", "the template adds one BOS and the tokenizer another", 2, f"{_INSPECT}: count them"),
            _cause(
                "prompt_not_prefix",
                "a prompt rendered alone is not how the whole conversation begins",
                1,
                f"{_INSPECT}: the prompt must end where the answer begins",
            ),
            _cause(
                "wrong_template",
                "the chat template is another model's",
                1,
                "compare tokenizer.chat_template with that of the model's own repository",
            ),
        ),
    ),
    Kind(
        "packing_leak",
        "A",
        "Sequences that share a row see each other",
        (
            _cause(
                "documents_attend_each_other",
                "attention does not stop at the end of a sequence",
                1,
                "score one sequence alone and within a packed row: different log-probs if this is it",
                Sign("packing is on", fact_is("model.packing", True), 5.0, 0.1),
            ),
        ),
    ),
    Kind(
        "reward_function_broken",
        "F",
        "A reward function scores known answers wrongly",
        (
            _cause("reward_constant", "it gives every answer the same", 2, f"{_REWARD} a right and a wrong answer"),
            _cause(
                "reward_none",
                "it returns nothing, or NaN",
                2,
                f"{_REWARD} one answer and print what comes back",
                Sign("completions were dropped for want of a reward", above("rewards/num_dropped", 0.5), 5.0),
            ),
            _cause("rejects_right_answer", "it rejects a right answer", 2, f"{_REWARD} a right answer"),
            _cause("accepts_wrong_answer", "it accepts a wrong answer", 2, f"{_REWARD} a wrong answer"),
            _cause("accepts_empty_answer", "it rewards an empty answer", 1, f"{_REWARD} an empty answer"),
            _cause("grader_crashes", "it raises an error on a known answer", 1, f"{_REWARD} an empty answer"),
            _cause(
                "reward_random", "it scores the same answer differently each time", 0.5, f"{_REWARD} one answer twice"
            ),
            _cause(
                "truncated_scored_as_wrong",
                "an answer that was cut off counts as wrong, so length is punished",
                1,
                f"{_REWARD} a cut-off answer; leave such completions out instead",
            ),
        ),
    ),
    Kind(
        "reward_model_order",
        "§8",
        "The reward model prefers worse answers",
        (
            likely(LABELS_SWAPPED, 2),
            _cause(
                "depends_on_place",
                "a score depends on the row's place in its batch, or on its pads",
                1,
                "score a batch, then its rows in reverse: the scores must only change places",
            ),
        ),
    ),
    Kind(
        "reward_model_length_only",
        "D",
        "The reward model only measures length",
        (
            _cause(
                "length_bias",
                "longer answers were chosen more often, and that is all it learned",
                1,
                "correlate score and length on answers of equal quality; train on pairs of similar length",
            ),
        ),
    ),
    Kind(
        "eval_contamination",
        "§5",
        "Held-out rows are among the training rows",
        (
            _cause(
                "train_rows_in_eval",
                "the same rows stand in both sets, or the held-out set was drawn from the training set",
                1,
                "count held-out prompts that also occur in training; remove them",
            ),
        ),
    ),
    Kind(
        "kernel_mismatch",
        "J",
        "This build of torch has no kernels for this GPU",
        (
            _cause(
                "wheel_without_architecture",
                "the installed wheel was not built for this GPU's architecture",
                1,
                "compare torch.cuda.get_device_capability() with torch.cuda.get_arch_list(); install the wheel for it",
            ),
        ),
    ),
    Kind(
        "ranks_disagree",
        "§2",
        "Ranks have drifted apart",
        (
            _cause(
                "duplicate_data",
                "ranks train on the same rows",
                2,
                "compare the first rows of two ranks",
                Sign("there is more than one rank", fact_above("trainer.world_size", 1), 1.0, 0.1),
            ),
            _cause("ranks_desynchronised", "ranks hold different weights", 1, "compare the weights' hash across ranks"),
        ),
    ),
)
RULES: tuple[Rule, ...] = ()
