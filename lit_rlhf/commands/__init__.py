"""The extra commands of `python -m lit_rlhf`, one file each."""
