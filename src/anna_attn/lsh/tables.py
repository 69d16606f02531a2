"""HashTables: num_tables x hashes_per_table drawn hash functions, from rows to bucket ids."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from . import codes
from .drawing import draw_buffers, multiply_out
from .families import CrossPolytope, Exact, Family, Hyperplane
from .rotations import GAUSSIAN_SCALE

CHUNK_ELEMENTS = 1 << 18
"""Projections formed at a time: 2 MiB of float64 stay near a core."""

MIN_CHUNK_ROWS = 32
"""But rows enough that reading the projection matrix is shared, however large it is."""


class HashTables(nn.Module):
    """L independent hash tables per head, each keyed by Z hashes of one family.

    code_t(x) = (h_{t,1}(x), ..., h_{t,Z}(x)) as one integer, t = 1..L, with functions of its own
    for every head. Codes are a function of the row and the seed alone: not of the batch shape,
    the dtype the module was cast to, autocast, train or eval, or the number of threads.

    Args:
        family: what is hashed and how; its `dim` is the width D of the rows.
        num_tables: L, the paper's l.
        hashes_per_table: Z, the paper's z.
        num_heads: H, heads with hash functions of their own.
        seed: non-negative; heads draw from separate streams of it. Layers need seeds of their own.
        learnable: make the projections a float parameter `projection` (started from the drawn
            ones) instead of integer buffers. Codes stay hard; gradients come from `projections`.

    Attributes:
        seed: of the functions in use; None after loading functions that are not those of this seed.
        num_buckets: codes lie in [0, num_buckets); None where they are arbitrary int64 values.

    Tables that share a Hadamard panel (up to padded dim / Z of them) rotate by the same matrix;
    their collisions are close to independent, not exactly so. Gaussian tables are independent.

    Raises: TypeError, ValueError for counts below 1, a negative seed, or learnable Exact tables.
    Cost: O(H (L Z D)) memory; hashing N rows takes O(N L Z D) multiply-adds per head.
    Source: Liu et al. 2025, section 3.2 (the family G) and Algorithm 1.
    """

    seed: int | None
    num_buckets: int | None
    projection: Tensor
    signs: Tensor

    def __init__(
        self,
        family: Family,
        num_tables: int,
        hashes_per_table: int,
        num_heads: int = 1,
        seed: int = 0,
        learnable: bool = False,
    ):
        super().__init__()
        if not isinstance(family, Family):
            raise TypeError(f"family must be a hash family, got {type(family).__name__}")
        counts = {
            "num_tables": num_tables,
            "hashes_per_table": hashes_per_table,
            "num_heads": num_heads,
        }
        for name, count in counts.items():
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                raise ValueError(f"{name} must be a positive int, got {count!r}")
        if learnable and isinstance(family, Exact):
            raise ValueError("learnable=True needs projections to learn; Exact has none")
        self.family = family
        self.num_tables = num_tables
        self.hashes_per_table = hashes_per_table
        self.num_heads = num_heads
        self.learnable = learnable
        self.num_buckets = codes.num_buckets(family, hashes_per_table)
        for name, buffer in self._draw(seed).items():
            if learnable and name == "projection":
                self.projection = nn.Parameter(buffer.to(torch.float32) / GAUSSIAN_SCALE)
            elif not (learnable and name == "signs"):
                derived = name == "projection" and self._rotates
                self.register_buffer(name, buffer, persistent=not derived)
        self.register_load_state_dict_post_hook(_after_load)

    @property
    def _rotates(self) -> bool:
        return isinstance(self.family, (Hyperplane, CrossPolytope)) and (
            self.family.rotation == "hadamard"
        )

    def _draw(self, seed: int) -> dict[str, Tensor]:
        if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
            raise ValueError(f"seed must be a non-negative int, got {seed!r}")
        self.seed = seed
        drawn = draw_buffers(
            self.family, self.num_tables, self.hashes_per_table, self.num_heads, seed
        )
        if self._rotates:
            drawn["projection"] = self._multiply_out(drawn["signs"])
            if self.learnable:
                # Integer rows have entries of about n; a parameter starts at entries of about 1.
                unit = GAUSSIAN_SCALE / drawn["signs"].shape[-1]
                drawn["projection"] = drawn["projection"] * unit
        return drawn

    def _multiply_out(self, signs: Tensor) -> Tensor:
        assert isinstance(self.family, (Hyperplane, CrossPolytope))
        return multiply_out(self.family, signs, self.num_tables, self.hashes_per_table)

    @torch.no_grad()
    def redraw(self, seed: int) -> None:
        """Replace the hash functions in place by those of `seed`, as a new module would have them.

        Raises: ValueError if learnable (learned projections would be lost) or on a bad seed.
        """
        if self.learnable:
            raise ValueError("redraw would discard learned projections; build new HashTables")
        for name, buffer in self._draw(seed).items():
            getattr(self, name).copy_(buffer)

    def forward(self, x: Tensor) -> Tensor:
        """Hash rows to codes; not differentiable.

        Args: x (B, H, T, D) of any float dtype, any strides.
        Returns: (B, H, L, T) int64.
        Raises: TypeError, ValueError where rank, heads, width or dtype do not fit these tables.
        """
        self._check(x)
        batch, heads, length, dim = x.shape
        result = x.new_empty(batch, heads, self.num_tables, length, dtype=torch.int64)
        if result.numel() == 0:
            return result
        with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
            rows = x.transpose(0, 1).reshape(heads, batch * length, dim)
            flat = result.permute(1, 2, 0, 3)
            state = self._state()
            chunk_rows = max(MIN_CHUNK_ROWS, CHUNK_ELEMENTS // self._rows_per_head())
            if batch * length * heads <= chunk_rows:
                flat.copy_(self._codes(rows, state).unflatten(2, (batch, length)))
                return result
            for h in range(heads):
                own = {name: buffer[h : h + 1] for name, buffer in state.items()}
                if "projection" in own:
                    own["projection"] = own["projection"].to(torch.float64)
                chunks = rows[h : h + 1].split(chunk_rows, dim=1)
                parts = [self._codes(chunk, own)[0] for chunk in chunks]
                flat[h].copy_(torch.cat(parts, 1).unflatten(1, (batch, length)))
        return result

    def projections(self, x: Tensor) -> Tensor:
        """Real projections behind the codes, differentiable in x and in learned projections.

        Returns: (B, H, T, L, Z), or (B, H, T, L, Z, axes) for cross-polytopes, in x's dtype, scaled
        so that a unit row projects to about unit variance.
        Raises: ValueError for Exact, which projects nothing.
        """
        self._check(x)
        if isinstance(self.family, Exact):
            raise ValueError("Exact tables compare bits and have no projections")
        weight = self.projection.to(x.dtype)
        if not self.learnable:
            weight = weight / (self.signs.shape[-1] if self._rotates else GAUSSIAN_SCALE)
        flat = x @ weight.transpose(-1, -2)
        sizes = [self.num_tables, self.hashes_per_table]
        if isinstance(self.family, CrossPolytope):
            sizes.append(self.family.num_axes)
        return flat.unflatten(-1, sizes)

    def _state(self) -> dict[str, Tensor]:
        names = ("projection", "offset", "mixers")
        state = {name: getattr(self, name).detach() for name in names if hasattr(self, name)}
        if self.learnable:
            # Codes expect the units of the integer buffers; a power of two changes no digit.
            state["projection"] = state["projection"].to(torch.float64) * GAUSSIAN_SCALE
        return state

    def _rows_per_head(self) -> int:
        if isinstance(self.family, Exact):
            return self.num_tables
        return self.projection.shape[1]

    def _codes(self, rows: Tensor, state: dict[str, Tensor]) -> Tensor:
        return codes.code_rows(self.family, rows, state, self.num_tables, self.hashes_per_table)

    def _check(self, x: Tensor) -> None:
        if not isinstance(x, Tensor):
            raise TypeError(f"x must be a tensor, got {type(x).__name__}")
        if not x.is_floating_point():
            raise TypeError(f"x must be of a float dtype, got {x.dtype}")
        expected = (self.num_heads, self.family.dim)
        if x.dim() != 4 or (x.shape[1], x.shape[3]) != expected:
            raise ValueError(
                f"x must be (B, {self.num_heads}, T, {self.family.dim}) for these tables, "
                f"got {tuple(x.shape)}"
            )

    def extra_repr(self) -> str:
        """Show what was drawn."""
        return (
            f"{self.family}, num_tables={self.num_tables}, "
            f"hashes_per_table={self.hashes_per_table}, num_heads={self.num_heads}, "
            f"seed={self.seed}, learnable={self.learnable}"
        )


def _after_load(module: nn.Module, _incompatible: object) -> None:
    """Derived projections follow the loaded signs; they are not stored twice. So does the seed."""
    assert isinstance(module, HashTables)
    if module.learnable:
        module.seed = None
        return
    if module._rotates:
        module.projection.copy_(module._multiply_out(module.signs))
    if module.seed is None:
        return
    drawn = module._draw(module.seed)
    if not all(torch.equal(getattr(module, name).cpu(), own) for name, own in drawn.items()):
        module.seed = None
