"""Infinities and NaN among the values reach the queries that attend them, and no others."""

from collections.abc import Callable

import torch
from torch import Tensor


def split_poison(value: Tensor) -> tuple[Tensor, Tensor | None]:
    """Values without their infinities and NaN, and these; 0 times infinity is NaN in a product,
    and would reach queries that do not attend it."""
    if bool(torch.isfinite(value.detach().sum())):
        return value, None
    finite = torch.isfinite(value.detach())
    if bool(finite.all()):
        return value, None
    return value.masked_fill(~finite, 0.0), value.detach().masked_fill(finite, 0.0)


def add_poison(result: Tensor, poison: Tensor, total: Callable[[Tensor], Tensor]) -> Tensor:
    """Give the queries that attend an infinity or NaN what their sum would be.

    Args:
        result: of the values without poison.
        poison: what was taken out of them.
        total: of values of 0 and 1, something above 0 in the rows that attend a 1.
    """
    infinity = float("inf")
    signs = [poison == infinity, poison == -infinity, poison.isnan()]
    with torch.no_grad():
        hits = [total(sign.to(result.dtype)) > 0 for sign in signs]
    added = torch.zeros_like(result)
    for hit, number in zip(hits, (infinity, -infinity, float("nan")), strict=True):
        added = torch.where(hit, added + number, added)
    return torch.where(hits[0] | hits[1] | hits[2], added, result)
