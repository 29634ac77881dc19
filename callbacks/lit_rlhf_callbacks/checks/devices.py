"""Whether this build of torch has kernels for this GPU: asked before hours of queueing end in one CUDA error."""

import re
from collections.abc import Sequence

import torch

from lit_rlhf_callbacks.checks.result import failed, passed
from lit_rlhf_callbacks.symptoms.finding import CheckResult

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
OLDEST_IN_NEW_WHEELS = (7, 5)  # wheels for CUDA 12.8 and newer begin with Turing
FIRST_OF_12_8 = (10, 0)  # Blackwell needs CUDA 12.8


def check_architecture(capability: tuple[int, int], arch_list: Sequence[str], *, step: int = 0) -> CheckResult:
    """Check that one of the architectures a wheel was built for runs on a device.

    A kernel for ``sm_XY`` runs on devices of the same X and at least Y, one with a letter (``sm_90a``) on exactly that
    device; ``compute_XY`` is compiled at load time for any device from X.Y on (CUDA C++ programming guide, binary and
    PTX compatibility).

    Args:
        capability: Of ``torch.cuda.get_device_capability()``.
        arch_list: Of ``torch.cuda.get_arch_list()``.
        step: Updates made.
    """
    name = "gpu_architecture"
    own = f"sm_{capability[0]}{capability[1]}"
    if any(_runs_on(architecture, capability) for architecture in arch_list):
        return passed(name, step, f"this torch has kernels for {own}")
    text = f"this torch has no kernels for {own} (it has {', '.join(arch_list) or 'none'}): {_advice(capability)}"
    return failed(name, step, "kernel_mismatch", "wheel_without_architecture", text)


def check_kernels(device: torch.device, dtypes: Sequence[torch.dtype] = DTYPES, *, step: int = 0) -> CheckResult:
    """Multiply two small matrices of each type on a device.

    Args:
        device: Where.
        dtypes: Types that the run may use.
        step: Updates made.
    """
    name, broken = "gpu_kernels", {}
    for dtype in dtypes:
        ones = torch.ones(8, 8, dtype=dtype)
        try:
            product = (ones.to(device) @ ones.to(device)).float().cpu()
            if not bool((product == 8).all()):
                broken[dtype] = "gives wrong numbers"
        except RuntimeError as error:  # CUDA's ways to say that there is no kernel
            broken[dtype] = str(error).splitlines()[0]
    if broken:
        text = "; ".join(f"a product of {str(dtype).removeprefix('torch.')} {why}" for dtype, why in broken.items())
        return failed(name, step, "kernel_mismatch", "wheel_without_architecture", f"on {device}: {text}")
    return passed(name, step, f"products of {len(dtypes)} types come out right on {device}")


def _runs_on(architecture: str, capability: tuple[int, int]) -> bool:
    match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", architecture)
    if match is None:
        return False
    major, minor = int(match[2]), int(match[3])
    if match[1] == "compute":
        return (major, minor) <= capability
    if match[4] == "a":
        return (major, minor) == capability
    return major == capability[0] and minor <= capability[1]


def _advice(capability: tuple[int, int]) -> str:
    if capability < OLDEST_IN_NEW_WHEELS:
        return "install a wheel for CUDA 12.6, the last with kernels for GPUs this old"
    if capability >= FIRST_OF_12_8:
        return "install a wheel for CUDA 12.8 or newer"
    return "install a wheel for CUDA 12.6 or 12.8 from pytorch.org"
