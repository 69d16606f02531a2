"""Check the shapes that internal tensor functions declare, in tests only."""

from jaxtyping import install_import_hook

_CHECKED = ("buckets", "full", "causal", "dense", "pairs", "decay", "torch_ops")

install_import_hook([f"anna_attn.attention.{name}" for name in _CHECKED], "beartype.beartype")
