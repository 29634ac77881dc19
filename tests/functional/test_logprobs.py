import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from lit_rlhf.functional import scatter_scores, score_hidden, select_predictors, token_logps

TEMPERATURE = 0.6
NUM_TOKENS, HIDDEN, VOCABULARY = 13, 8, 11


@pytest.fixture
def head():
    generator = torch.Generator().manual_seed(0)
    tensors = {
        "hidden": torch.randn(NUM_TOKENS, HIDDEN, generator=generator),
        "weight": torch.randn(VOCABULARY, HIDDEN, generator=generator),
        "bias": torch.randn(VOCABULARY, generator=generator),
    }
    targets = torch.randint(VOCABULARY, (NUM_TOKENS,), generator=generator)
    return {name: tensor.requires_grad_() for name, tensor in tensors.items()}, targets


def plain_scores(tensors):
    log_probs = ((tensors["hidden"] @ tensors["weight"].T + tensors["bias"]) / TEMPERATURE).log_softmax(-1)
    return log_probs, -(log_probs.exp() * log_probs).sum(-1)


def test_token_logps_score_the_next_token():
    logits = torch.randn(2, 4, 5)
    input_ids = torch.tensor([[1, 4, 0, 2], [3, 3, 1, 0]])
    logps = token_logps(logits, input_ids)
    assert (logps[:, 0] == 0).all()
    for row in range(2):
        for position in range(1, 4):
            expected = logits[row, position - 1].log_softmax(-1)[input_ids[row, position]]
            torch.testing.assert_close(logps[row, position], expected)


def test_token_logps_are_fp32_for_bf16_logits():
    logits = torch.randn(1, 3, 50).bfloat16() * 10
    logps = token_logps(logits, torch.tensor([[0, 1, 2]]))
    assert logps.dtype == torch.float32
    torch.testing.assert_close(logps[0, 1], logits[0, 0].double().log_softmax(-1)[1].float())


def test_token_logps_refuse_other_shapes():
    with pytest.raises(ValueError, match="must agree"):
        token_logps(torch.zeros(1, 3, 5), torch.zeros(1, 4, dtype=torch.long))


def test_select_score_scatter_equal_full_logits():
    """The memory-lean path gives the numbers of the plain one, at the same places."""
    hidden, weight = torch.randn(2, 5, HIDDEN), torch.randn(VOCABULARY, HIDDEN)
    input_ids = torch.randint(VOCABULARY, (2, 5))
    score_mask = torch.tensor([[False, False, True, True, False], [False, True, False, True, True]])
    scores = score_hidden(select_predictors(hidden, score_mask), weight, input_ids[score_mask])
    expected = token_logps(hidden @ weight.T, input_ids) * score_mask
    torch.testing.assert_close(scatter_scores(scores.logps, score_mask), expected)


def test_scatter_is_differentiable():
    values = torch.ones(2, requires_grad=True)
    placed = scatter_scores(values, torch.tensor([[False, True, True]]))
    (placed * torch.tensor([[5.0, 6.0, 7.0]])).sum().backward()
    assert values.grad.tolist() == [6, 7]


def test_first_token_cannot_be_scored():
    with pytest.raises(ValueError, match="column 0"):
        select_predictors(torch.zeros(1, 2, 3), torch.tensor([[True, True]]))


@pytest.mark.parametrize("num_values", [1, 3])
def test_scatter_refuses_a_wrong_number_of_values(num_values):
    with pytest.raises(ValueError, match="2 True entries"):
        scatter_scores(torch.zeros(num_values), torch.tensor([[False, True, True]]))


@pytest.mark.parametrize("chunk_rows", [1, 4, NUM_TOKENS])
def test_score_hidden_equals_log_softmax(head, chunk_rows):
    tensors, targets = head
    log_probs, entropy = plain_scores(tensors)
    coefficients = torch.linspace(-1, 2, NUM_TOKENS)
    expected_logps = log_probs[torch.arange(NUM_TOKENS), targets]
    expected_grads = torch.autograd.grad((coefficients * expected_logps).sum(), list(tensors.values()))

    scores = score_hidden(
        tensors["hidden"],
        tensors["weight"],
        targets,
        temperature=TEMPERATURE,
        bias=tensors["bias"],
        max_logits=chunk_rows * VOCABULARY,
    )
    grads = torch.autograd.grad((coefficients * scores.logps).sum(), list(tensors.values()))
    torch.testing.assert_close(scores.logps, expected_logps)
    torch.testing.assert_close(scores.entropy, entropy.detach())
    torch.testing.assert_close(grads, expected_grads)
    assert not scores.entropy.requires_grad


@pytest.mark.parametrize("chunk_rows", [4, NUM_TOKENS])
def test_entropy_gradient_equals_log_softmax(head, chunk_rows):
    tensors, targets = head
    _, entropy = plain_scores(tensors)
    expected = torch.autograd.grad(entropy.square().sum(), list(tensors.values()))
    scores = score_hidden(
        tensors["hidden"],
        tensors["weight"],
        targets,
        temperature=TEMPERATURE,
        bias=tensors["bias"],
        entropy_grad=True,
        max_logits=chunk_rows * VOCABULARY,
    )
    torch.testing.assert_close(torch.autograd.grad(scores.entropy.square().sum(), list(tensors.values())), expected)


@pytest.mark.parametrize("entropy_grad", [False, True])
def test_chunks_keep_no_logits_for_backward(head, entropy_grad):
    tensors, targets = head
    largest = 0

    def note_size(tensor):
        nonlocal largest
        largest = max(largest, tensor.numel())
        return tensor

    def largest_saved(max_logits):
        nonlocal largest
        largest = 0
        with saved_tensors_hooks(note_size, lambda tensor: tensor):
            score_hidden(
                tensors["hidden"], tensors["weight"], targets, entropy_grad=entropy_grad, max_logits=max_logits
            )
        return largest

    assert largest_saved(10**6) == NUM_TOKENS * VOCABULARY
    assert largest_saved(2 * VOCABULARY) <= VOCABULARY * HIDDEN  # the weight itself, which exists anyway


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_chunks_work_where_no_gradient_is_kept(head, mode):
    tensors, targets = head
    with mode():
        chunked = score_hidden(tensors["hidden"], tensors["weight"], targets, entropy_grad=True, max_logits=2)
        whole = score_hidden(tensors["hidden"], tensors["weight"], targets)
    torch.testing.assert_close(chunked, whole)
    assert not chunked.entropy.requires_grad


def test_no_tokens_to_score_still_reaches_the_head(head):
    """A rank without completion tokens must touch the same parameters as the others, or DDP waits for ever."""
    tensors, targets = head
    scores = score_hidden(tensors["hidden"][:0], tensors["weight"], targets[:0])
    assert scores.logps.shape == scores.entropy.shape == (0,)
    scores.logps.sum().backward()
    assert (tensors["weight"].grad == 0).all()


def test_scores_are_fp32_under_autocast(head):
    tensors, targets = head
    with torch.autocast("cpu", torch.bfloat16):
        logits = torch.nn.functional.linear(tensors["hidden"], tensors["weight"])
        scores = score_hidden(tensors["hidden"], tensors["weight"], targets, max_logits=4 * VOCABULARY)
    assert logits.dtype == torch.bfloat16  # as the model's own head gives them
    assert scores.logps.dtype == scores.entropy.dtype == torch.float32
    expected = logits.double().log_softmax(-1)[torch.arange(NUM_TOKENS), targets]
    torch.testing.assert_close(scores.logps, expected.float())


def test_entropy_is_exact_when_it_is_nearly_gone():
    """What entropy collapse looks like: log-normaliser minus mean logit would have rounded this to 0."""
    scores = score_hidden(torch.eye(1), torch.tensor([[30.0], [0.0]]), torch.tensor([0]))
    assert scores.entropy.item() == pytest.approx(31 * 9.3576e-14, rel=1e-3)


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_temperature_must_be_positive(temperature):
    with pytest.raises(ValueError, match="temperature must be above 0"):
        score_hidden(torch.zeros(1, 2), torch.zeros(3, 2), torch.tensor([0]), temperature=temperature)
