"""Fits a sharded backbone through Lightning, resumes from its checkpoint, and leaves both. Run by test_sharding.

Lightning starts the second rank itself, by running this script again.
"""

import json
import sys

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.utils.data import DataLoader

from lit_rlhf.backbone import Backbone, LoRA


class Finetune(LightningModule):
    def __init__(self, folder: str, reference: str, lora: dict | None) -> None:
        super().__init__()
        self.backbone = Backbone(folder, reference=reference, lora=LoRA(**lora) if lora else None)
        self.scores = []

    def configure_model(self):
        self.backbone.load()
        self.backbone.shard(self.device_mesh)
        # From a single file Lightning restores a sharded module weight by weight, past every state-dict hook.
        self.strict_loading = self.trainer.strategy._save_distributed_checkpoint

    def configure_optimizers(self):
        return torch.optim.AdamW([weight for weight in self.parameters() if weight.requires_grad], lr=1e-2)

    def training_step(self, batch, batch_idx):
        logps = self.backbone.score_tokens(*batch).logps
        reference = self.backbone.score_tokens(*batch, reference=True).logps
        self.scores.append((logps.detach().clone(), reference.clone()))
        return -logps.sum()


def fit(case: dict, rows, out: str, distributed: bool, ckpt_path: str | None = None):
    torch.manual_seed(0)
    module = Finetune(case["folder"], case["reference"], case["lora"])
    trainer = Trainer(
        accelerator="cpu",
        devices=2,
        strategy=ModelParallelStrategy(
            data_parallel_size=2, tensor_parallel_size=1, save_distributed_checkpoint=distributed
        ),
        max_steps=3,
        gradient_clip_val=1.0,
        logger=False,
        callbacks=[ModelCheckpoint(out, "{step}", save_top_k=-1, every_n_train_steps=1)],
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    trainer.fit(module, DataLoader([rows] * 10, batch_size=None), ckpt_path=ckpt_path)
    module.backbone.save_model(f"{out}/model")
    return module.scores


def main(cases: list[dict], out: str) -> None:
    torch.set_num_threads(1)
    rows = torch.load(f"{out}/rows.pt")
    seen = []
    for i, case in enumerate(cases):
        distributed = case["distributed_checkpoint"]
        straight = fit(case, rows, f"{out}/straight{i}", distributed)
        resumed = fit(case, rows, f"{out}/resumed{i}", distributed, f"{out}/straight{i}/step=1.ckpt")
        seen.append({"straight": straight, "resumed": resumed})
    if not torch.distributed.get_rank():
        torch.save(seen, f"{out}/seen.pt")


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
