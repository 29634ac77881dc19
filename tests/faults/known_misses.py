"""What the doctor does not name, or calls by a wrong name, and why: read by the tests, told in docs/validation.md."""

MISSED = {
    "reporting-too_many_epochs-grpo-2": "one phase of eight passes kills the policy: that is seen, and not why",
    "reporting-rewards_shortness-reinforce-2": "answers get worse long before they get short",
    "reporting-too_little_data-reward_model-2": "held-out pairs do no worse than at their best",
    "reporting-rate_a_thousandth-sft-2": "the embedded model has learned these rows before, so its loss is flat anyway",
    "reporting-nothing_masked-dpo-2": "without effect: a prompt's log-probs cancel between chosen and rejected",
}
MISSED_SPARSE: dict[str, str] = {}
