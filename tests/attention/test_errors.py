"""Errors quote the argument, what came, and what is accepted."""

import re

import pytest
import torch

from anna_attn.attention import anna_attention
from anna_attn.attention import function as function_module
from anna_attn.lsh import HashTables, Hyperplane

TABLES = HashTables(Hyperplane(8), 2, 3, num_heads=2)


def tensors(**changed):
    shapes = {"query": (2, 2, 5, 8), "key": (2, 2, 6, 8), "value": (2, 2, 6, 4)} | changed
    return [torch.ones(shapes[name]) for name in ("query", "key", "value")]


def says(*parts: str) -> str:
    return ".*".join(re.escape(part) for part in parts)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"query": (2, 5, 8)}, says("query", "(B, H, T, D)", "(2, 5, 8)")),
        ({"value": (6, 4)}, says("value", "(B, H, T, D)", "(6, 4)")),
        ({"key": (2, 2, 6, 4)}, says("head_dim", "8 and 4")),
        ({"query": (2, 2, 5, 4), "key": (2, 2, 6, 4)}, says("tables", "head_dim 8", "4")),
        ({"key": (1, 2, 6, 8)}, says("batch size", "(1, 2, 6, 8)")),
        ({"value": (2, 2, 7, 4)}, says("Hkv and Tk", "(2, 2, 7, 4)")),
        ({"query": (2, 4, 5, 8)}, says("4 heads and key 2", "enable_gqa=True")),
        (
            {"key": (2, 1, 6, 8), "value": (2, 1, 6, 4)},
            says("tables were built for num_heads=2", "1 heads"),
        ),
    ],
)
def test_shapes(changed, message):
    with pytest.raises(ValueError, match=message):
        anna_attention(*tensors(**changed), TABLES)


def test_heads_that_are_no_multiple():
    with pytest.raises(ValueError, match=says("multiple", "3 and 2")):
        anna_attention(*tensors(query=(2, 3, 5, 8)), TABLES, enable_gqa=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "cuda"}, says("backend", "auto, torch, torch_one_table, reference", "'cuda'")),
        ({"empty": "nan"}, says("empty", "zero, mean", "'nan'")),
        (
            {"key_mask": torch.ones(5, 6, dtype=torch.bool)},
            says("(5, 6)", "(B, Tk)", "not supported", "is_causal"),
        ),
        (
            {"key_mask": torch.ones(2, 1, 5, 6, dtype=torch.bool)},
            says("(2, 1, 5, 6)", "(B, 1, 1, Tk)", "not supported"),
        ),
        ({"key_mask": torch.ones(2, 7, dtype=torch.bool)}, says("(2, 7)", "B=2, Tk=6")),
        ({"cu_seqlens": torch.tensor([0, 5])}, says("B=1 and Tq=Tk", "B=2, Tq=5, Tk=6")),
        ({"decay": torch.ones(2)}, says("decay", "is_causal=True", "False")),
        ({"decay": torch.ones(3), "is_causal": True}, says("decay", "(2,)", "(3,)")),
        ({"decay": -torch.ones(2), "is_causal": True}, says("decay", ">= 0", "-1.0")),
    ],
)
def test_options(options, message):
    with pytest.raises(ValueError, match=message):
        anna_attention(*tensors(), TABLES, **options)


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([1, 5], "start at 0, got 1"),
        ([0, 4, 3], "not descend, got 4 followed by 3"),
        ([0, -1], "not descend, got 0 followed by -1"),
        ([0, 7], "end within T=6, got 7"),
        ([[0, 6]], r"\(S \+ 1,\), got shape \(1, 2\)"),
        ([], r"\(S \+ 1,\), got shape \(0,\)"),
    ],
)
def test_offsets(offsets, message):
    packed = [torch.ones(1, 2, 6, 8)] * 3
    with pytest.raises(ValueError, match=message):
        anna_attention(*packed, TABLES, cu_seqlens=torch.tensor(offsets, dtype=torch.int64))


def test_types():
    query, key, value = tensors()
    with pytest.raises(TypeError, match="query must be a tensor, got list"):
        anna_attention([query], key, value, TABLES)
    with pytest.raises(TypeError, match=r"value must be one of .*got torch.int64"):
        anna_attention(query, key, value.long(), TABLES)
    with pytest.raises(TypeError, match=r"one dtype.*float32, torch.float64"):
        anna_attention(query, key.double(), value, TABLES)
    with pytest.raises(TypeError, match="tables must be HashTables, got int"):
        anna_attention(query, key, value, 3)
    with pytest.raises(TypeError, match=r"key_mask must be bool, got torch.float32"):
        anna_attention(query, key, value, TABLES, key_mask=torch.ones(2, 6))
    with pytest.raises(TypeError, match=r"cu_seqlens must be int32 or int64, got torch.float32"):
        anna_attention(query, key, value, TABLES, cu_seqlens=torch.ones(2))
    with pytest.raises(TypeError, match="is_causal must be a bool, got 'no' of type str"):
        anna_attention(query, key, value, TABLES, is_causal="no")
    with pytest.raises(TypeError, match="enable_gqa must be a bool, got 1 of type int"):
        anna_attention(query, key, value, TABLES, enable_gqa=1)
    with pytest.raises(TypeError, match="decay must be a float tensor, got float"):
        anna_attention(query, key, value, TABLES, decay=0.5, is_causal=True)


def test_one_warning_a_process_for_queries_that_need_a_gradient():
    query, key, value = tensors()
    query.requires_grad_()
    function_module._warn_of_missing_gradient.cache_clear()
    with pytest.warns(UserWarning, match="Expected or StraightThrough"):
        anna_attention(query, key, value, TABLES)
    second = anna_attention(query, key, value, TABLES)  # a warning would be an error here
    with torch.no_grad():
        function_module._warn_of_missing_gradient.cache_clear()
        silent = anna_attention(query, key, value, TABLES)
    assert torch.equal(second, silent)
    assert not second.requires_grad
