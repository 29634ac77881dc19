"""A foreign project whose rows differ in length, and memory that runs out where a test wants it to."""

import weakref
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from torchmetrics import SumMetric

VOCABULARY = 23


class Texts(Dataset):
    """Rows of random tokens; the first third of each is a prompt, without labels."""

    def __init__(self, lengths: list[int]) -> None:
        noise = torch.Generator().manual_seed(3)
        self.ids = [torch.randint(1, VOCABULARY, (length,), generator=noise) for length in lengths]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        ids = self.ids[row]
        labels = ids.clone()
        labels[: len(ids) // 3] = -100
        return {"input_ids": ids, "labels": labels, "row": torch.tensor(row)}


def collate(rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    ids, labels = [row["input_ids"] for row in rows], [row["labels"] for row in rows]
    return {
        "input_ids": pad_sequence(ids, batch_first=True),
        "attention_mask": pad_sequence([torch.ones_like(row) for row in ids], batch_first=True),
        "labels": pad_sequence(labels, batch_first=True, padding_value=-100),
        "row": torch.stack([row["row"] for row in rows]),
    }


class FailingBackward(torch.autograd.Function):
    """Passes values and gradients on, unless there is no memory for that many."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, memory: "Memory") -> Tensor:
        ctx.memory, ctx.tokens = memory, values.shape[0] * values.shape[1]
        return values.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        ctx.memory.take(ctx.tokens, "backward")
        return gradient, None


class Memory:
    """Raises torch's own error when a forward or a backward is asked to hold more tokens than there is room for."""

    def __init__(self, forward: float = float("inf"), backward: float = float("inf")) -> None:
        self.room = {"forward": forward, "backward": backward}
        self.failures: list[tuple[str, int]] = []
        self.activations: list[weakref.ref[Tensor]] = []

    def take(self, tokens: int, place: str) -> None:
        if tokens > self.room[place]:
            self.failures.append((place, tokens))
            raise torch.OutOfMemoryError(f"{tokens} tokens in the {place}")


class Later(Memory):
    """Memory that becomes scarce after some forwards, so that the dry run knows nothing of it."""

    def __init__(self, after: int, **room: float) -> None:
        super().__init__()
        self.after, self.later, self.num = after, room, 0

    def take(self, tokens: int, place: str) -> None:
        self.num += place == "forward"
        if self.num > self.after:
            self.room |= self.later
        super().take(tokens, place)


class Project(LightningModule):
    """A small language model in plain torch; the loss is the mean over a batch's supervised tokens."""

    def __init__(self, lengths: list[int], memory: Memory, batch_size: int = 4, dropout: float = 0.0) -> None:
        super().__init__()
        self.texts, self.memory, self.batch_size = Texts(lengths), memory, batch_size
        self.embedding = nn.Embedding(VOCABULARY, 16)
        self.mixer = nn.GRU(16, 16, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(16, VOCABULARY)
        self.register_buffer("num_forwards", torch.zeros(()))
        self.num_rows = SumMetric()
        self.calls = 0
        self.seen: list[list[int]] = []
        self.gradients: list[dict[str, Tensor]] = []

    def loss(self, batch: dict[str, Tensor]) -> Tensor:
        self.num_forwards += 1
        self.num_rows.update(len(batch["row"]))
        hidden = self.embedding(batch["input_ids"])
        self.memory.activations.append(weakref.ref(hidden))
        hidden = self.dropout(self.mixer(hidden)[0])
        hidden = FailingBackward.apply(hidden, self.memory)  # the head has its gradient by then, the rest has none
        self.memory.take(batch["input_ids"].numel(), "forward")
        logits = self.head(hidden)[:, :-1]
        return nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"][:, 1:].flatten())

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> dict[str, Any]:
        self.calls += 1
        loss = self.loss(batch)
        self.log("train_loss", loss)
        return {"loss": loss}

    def on_train_batch_start(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        self.seen.append(batch["row"].tolist())

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        self.gradients.append({name: p.grad.clone() for name, p in self.named_parameters()})

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.texts, batch_size=self.batch_size, shuffle=True, collate_fn=collate)


def lengths(num: int, seed: int = 0, longest: int = 40) -> list[int]:
    return torch.randint(3, longest + 1, (num,), generator=torch.Generator().manual_seed(seed)).tolist()
