"""The command line: LightningCLI over ``lit_rlhf.algorithms``, with the traps of Lightning 2.6 taken out.

Importing this package registers the strategy name ``fsdp2`` and makes the short class names of our algorithms, data
modules and callbacks known (``--model GRPO``).
"""

from lit_rlhf.cli.fsdp2 import FSDP2Strategy
from lit_rlhf.cli.lightning_cli import LitRLHFCLI, main

__all__ = ["FSDP2Strategy", "LitRLHFCLI", "main"]
