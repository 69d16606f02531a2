"""What `anna_attention` accepts, said in errors that quote what came."""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from anna_attn.lsh import HashTables

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def check_tensors(
    query: Tensor, key: Tensor, value: Tensor, tables: HashTables, enable_gqa: bool
) -> None:
    """Refuse inputs whose shapes, types or devices do not fit each other or the tables.

    Raises: TypeError for what is not a float tensor (or no HashTables) and for types that differ
        outside autocast; ValueError for shapes.
    """
    named = {"query": query, "key": key, "value": value}
    for name, tensor in named.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
        if tensor.dim() != 4:
            raise ValueError(f"{name} must be (B, H, T, D), got shape {tuple(tensor.shape)}")
        if tensor.dtype not in FLOATS:
            names = ", ".join(str(dtype) for dtype in FLOATS)
            raise TypeError(f"{name} must be one of {names}, got {tensor.dtype}")
        if tensor.device != query.device:
            raise ValueError(
                f"query, key and value must be on one device, got query on {query.device} "
                f"and {name} on {tensor.device}"
            )
    if not isinstance(tables, HashTables):
        raise TypeError(f"tables must be HashTables, got {type(tables).__name__}")
    dtypes = [tensor.dtype for tensor in named.values()]
    if len(set(dtypes)) > 1 and not torch.is_autocast_enabled(query.device.type):
        raise TypeError(
            "query, key and value must have one dtype outside autocast, "
            f"got {dtypes[0]}, {dtypes[1]} and {dtypes[2]}"
        )
    _check_shapes(query, key, value, tables)
    _check_heads(query.shape[1], key.shape[1], tables, enable_gqa)


def _check_shapes(query: Tensor, key: Tensor, value: Tensor, tables: HashTables) -> None:
    shapes = f"{tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}"
    if not query.shape[0] == key.shape[0] == value.shape[0]:
        raise ValueError(f"query, key and value must have one batch size, got {shapes}")
    if query.shape[3] != key.shape[3]:
        raise ValueError(
            f"query and key must have one head_dim, got {query.shape[3]} and {key.shape[3]}"
        )
    if key.shape[1:3] != value.shape[1:3]:
        raise ValueError(
            "key (B, Hkv, Tk, D) and value (B, Hkv, Tk, Dv) must agree in Hkv and Tk, "
            f"got {tuple(key.shape)} and {tuple(value.shape)}"
        )
    if key.shape[3] != tables.family.dim:
        raise ValueError(
            f"tables hash rows of head_dim {tables.family.dim}, got query and key of {key.shape[3]}"
        )


def _check_heads(num_heads: int, num_kv_heads: int, tables: HashTables, enable_gqa: bool) -> None:
    if num_kv_heads != tables.num_heads:
        raise ValueError(
            f"tables were built for num_heads={tables.num_heads}, got key with "
            f"{num_kv_heads} heads; tables have the heads of key and value"
        )
    if num_heads == num_kv_heads:
        return
    if not enable_gqa:
        raise ValueError(
            f"query has {num_heads} heads and key {num_kv_heads}; "
            "enable_gqa=True accepts a multiple, otherwise they must agree"
        )
    if num_heads == 0 or num_heads % num_kv_heads:
        raise ValueError(
            f"enable_gqa=True needs query heads that are a multiple of key heads, "
            f"got {num_heads} and {num_kv_heads}"
        )


def check_agreement(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> None:
    """Refuse rows whose ranks, shapes or heads do not fit each other.

    Raises: ValueError; TypeError for an enable_gqa that is no bool.
    """
    check_flag("enable_gqa", enable_gqa)
    shapes = f"{tuple(query.shape)}, {tuple(key.shape)}, {tuple(value.shape)}"
    if not query.dim() == key.dim() == value.dim() == 4:
        raise ValueError(f"query, key and value must be (B, H, T, D), got {shapes}")
    if (
        query.shape[0] != key.shape[0]
        or query.shape[3] != key.shape[3]
        or key.shape[:3] != value.shape[:3]
    ):
        raise ValueError(
            "query (B, Hq, Tq, D), key (B, Hkv, Tk, D) and value (B, Hkv, Tk, Dv) must agree, "
            f"got {shapes}"
        )
    heads, kv_heads = query.shape[1], key.shape[1]
    if heads != kv_heads and not (enable_gqa and kv_heads and heads % kv_heads == 0):
        raise ValueError(
            f"query has {heads} heads and key has {kv_heads}, enable_gqa={enable_gqa}; accepted: "
            "equal heads, or with enable_gqa=True a multiple of the heads of key"
        )


def check_one_dtype(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Refuse rows of different dtypes.

    Raises: TypeError.
    """
    if not query.dtype == key.dtype == value.dtype:
        raise TypeError(
            "query, key and value must share a dtype, got "
            f"{query.dtype}, {key.dtype}, {value.dtype}"
        )


def check_choice(name: str, choice: str, accepted: Sequence[str]) -> None:
    """Refuse a name that is not among those accepted."""
    if choice not in accepted:
        raise ValueError(f"{name} must be one of {', '.join(accepted)}, got {choice!r}")


def check_flag(name: str, flag: bool) -> None:
    """Refuse what is not a bool: a string would count as true.

    Raises: TypeError.
    """
    if not isinstance(flag, bool):
        raise TypeError(f"{name} must be a bool, got {flag!r} of type {type(flag).__name__}")


def checked_mask(key_mask: Tensor | None, query: Tensor, key: Tensor) -> Tensor | None:
    """The mask as (B, Tk) bool.

    Raises: TypeError, ValueError for anything but a bool (B, Tk) or (B, 1, 1, Tk).
    """
    if key_mask is None:
        return None
    accepted = (
        "accepted: bool (B, Tk), or (B, 1, 1, Tk) as scaled_dot_product_attention broadcasts it, "
        "True = may be attended"
    )
    if not isinstance(key_mask, Tensor):
        raise TypeError(f"key_mask must be a tensor, got {type(key_mask).__name__}; {accepted}")
    if key_mask.dtype != torch.bool:
        raise TypeError(f"key_mask must be bool, got {key_mask.dtype}; {accepted}")
    batch, num_keys = key.shape[0], key.shape[2]
    shape = tuple(key_mask.shape)
    if key_mask.dim() == 4 and shape[1:3] == (1, 1) and shape[0] in (1, batch):
        key_mask = key_mask[:, 0, 0].expand(batch, -1)
    if tuple(key_mask.shape) == (batch, num_keys) and key_mask.dim() == 2:
        return key_mask
    pairs = (query.shape[2], num_keys)
    reason = ""
    if shape[-2:] == pairs:
        reason = (
            "; a mask of pairs (Tq, Tk) is not supported, because ANNA's tables are shared by all "
            "queries: use key_mask for padding, is_causal for the past, cu_seqlens for packing"
        )
    raise ValueError(
        f"key_mask has shape {shape}; {accepted} with B={batch}, Tk={num_keys}{reason}"
    )


def checked_offsets(cu_seqlens: Tensor | None, query: Tensor, key: Tensor) -> list[int] | None:
    """Offsets of packed sequences as numbers.

    Raises: TypeError for what is not an int32 or int64 tensor; ValueError for offsets that do not
        start at 0, descend, or pass the end, and where B is not 1 or Tq is not Tk.
    """
    if cu_seqlens is None:
        return None
    if not isinstance(cu_seqlens, Tensor):
        raise TypeError(f"cu_seqlens must be a tensor, got {type(cu_seqlens).__name__}")
    if cu_seqlens.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"cu_seqlens must be int32 or int64, got {cu_seqlens.dtype}")
    if cu_seqlens.dim() != 1 or cu_seqlens.numel() == 0:
        raise ValueError(f"cu_seqlens must be (S + 1,), got shape {tuple(cu_seqlens.shape)}")
    if query.shape[0] != 1 or query.shape[2] != key.shape[2]:
        raise ValueError(
            "cu_seqlens needs B=1 and Tq=Tk, "
            f"got B={query.shape[0]}, Tq={query.shape[2]}, Tk={key.shape[2]}"
        )
    offsets = [int(offset) for offset in cu_seqlens.tolist()]
    if offsets[0] != 0:
        raise ValueError(f"cu_seqlens must start at 0, got {offsets[0]}")
    for before, after in itertools.pairwise(offsets):
        if after < before:
            raise ValueError(f"cu_seqlens must not descend, got {before} followed by {after}")
    if offsets[-1] > key.shape[2]:
        raise ValueError(f"cu_seqlens must end within T={key.shape[2]}, got {offsets[-1]}")
    return offsets


def check_decay(decay: Tensor | None, query: Tensor, is_causal: bool) -> None:
    """Refuse decay that is not one rate >= 0 for every query head, or without is_causal.

    Raises: TypeError, ValueError.
    """
    if decay is None:
        return
    if not isinstance(decay, Tensor) or decay.dtype not in FLOATS:
        came = decay.dtype if isinstance(decay, Tensor) else type(decay).__name__
        raise TypeError(f"decay must be a float tensor, got {came}")
    if not is_causal:
        raise ValueError("decay needs is_causal=True, got False: it weighs the past by its age")
    if tuple(decay.shape) != (query.shape[1],):
        raise ValueError(f"decay must be (Hq,) = ({query.shape[1]},), got {tuple(decay.shape)}")
    if bool(((decay < 0) | ~torch.isfinite(decay)).any()):
        raise ValueError(f"decay must be finite and >= 0, got {decay.detach().tolist()}")


def refuse_non_finite(name: str, tensor: Tensor) -> None:
    """Raise where a live row holds NaN or infinity, naming the first.

    Raises: ValueError. Cost: one sum; a search only where the sum is not finite.
    """
    dtype = torch.float64 if tensor.dtype == torch.float64 else torch.float32
    if bool(torch.isfinite(tensor.detach().sum(dtype=dtype))):
        return
    bad = ~torch.isfinite(tensor.detach())
    if not bool(bad.any()):
        return
    index = tuple(int(i) for i in bad.nonzero()[0])
    raise ValueError(
        f"{name} holds {float(tensor[index].detach())} at {index}; it would be hashed to an "
        "arbitrary bucket. Mask such rows, or pass check_finite=False to hash them as they are"
    )
