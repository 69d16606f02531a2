"""Locality-sensitive hash families as frozen specifications.

A family says how one hash is drawn and evaluated and how likely two rows are to collide. It holds
no random state: `HashTables` draws and owns it.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Literal, Protocol, TypeVar, overload, runtime_checkable

import torch
from torch import Tensor

from . import collision, rotations

Rotation = Literal["hadamard", "gaussian"]
Measure = Literal["angle", "distance", "equality"]
Number = TypeVar("Number", float, Tensor)


@runtime_checkable
class Family(Protocol):
    """What `HashTables` and the parameter formulas need of a hash family.

    Attributes: dim = width of the rows hashed; measure = what collision probability depends on.
    """

    @property
    def dim(self) -> int:
        """Width D of the rows this family hashes."""
        ...

    @property
    def measure(self) -> Measure:
        """The argument of `collision_probability`: an angle, a distance, or equality (0 or not)."""
        ...

    @property
    def num_values(self) -> int | None:
        """How many values one hash can take; None if unbounded."""
        ...

    @overload
    def collision_probability(self, separation: float, num_hashes: int = 1) -> float: ...
    @overload
    def collision_probability(self, separation: Tensor, num_hashes: int = 1) -> Tensor: ...
    def collision_probability(self, separation, num_hashes=1):
        """P(all `num_hashes` hashes of one table agree) for two rows at this separation."""
        raise NotImplementedError

    def probability_at_distance(self, distance: float) -> float:
        """P(one hash agrees) at Euclidean distance `distance` (on the sphere for angles)."""
        ...

    def rho(self, radius: float, approx_factor: float) -> float:
        """Quality rho = log(1/p1) / log(1/p2), p1 at `radius` and p2 at approx_factor * radius."""
        ...


def check_dim(dim: int) -> None:
    """Refuse a row width that is not a positive int."""
    if not isinstance(dim, int) or isinstance(dim, bool) or dim < 1:
        raise ValueError(f"dim must be a positive int, got {dim!r}")


def check_rotation(rotation: str) -> None:
    """Refuse an unknown rotation name."""
    if rotation not in ("hadamard", "gaussian"):
        raise ValueError(f"rotation must be 'hadamard' or 'gaussian', got {rotation!r}")


def _as_tensor(value: float | Tensor) -> Tensor:
    if isinstance(value, Tensor):
        return value
    return torch.tensor(float(value), dtype=torch.float64)


def _like(value: Tensor, given: float | Tensor):
    return value if isinstance(given, Tensor) else float(value)


def _chord_to_angle(distance: float) -> float:
    if not 0.0 <= distance <= 2.0:
        raise ValueError(f"distance between unit vectors must lie in [0, 2], got {distance!r}")
    return 2.0 * math.asin(distance / 2.0)


def _rho(family: Family, radius: float, approx_factor: float) -> float:
    if radius <= 0.0:
        raise ValueError(f"radius must be positive, got {radius!r} (at radius 0 use Exact)")
    if approx_factor <= 1.0:
        raise ValueError(f"approx_factor must exceed 1, got {approx_factor!r}")
    near = family.probability_at_distance(radius)
    far = family.probability_at_distance(approx_factor * radius)
    if near <= 0.0:
        raise ValueError(f"radius={radius!r} is too far: rows there never share a hash of {family}")
    if far >= near:
        raise ValueError(f"radius={radius!r} is too small for the precision of {family}")
    if far <= 0.0:
        return 0.0
    return math.log(near) / math.log(far)


@dataclass(frozen=True)
class Hyperplane:
    """Sign of one random projection: h(x) = 1[<a, x> >= 0], one bit per hash.

    P(h(x) = h(y)) = 1 - angle(x, y) / pi. With `rotation="gaussian"` the bits of a table are
    independent. With "hadamard" they come from orthogonal rows of one pseudo-random rotation,
    which a fast transform evaluates in O(n log n); they collide slightly less often together, by
    the second-order term of `collision.orthogonal_correction`, with n = padded dim.

    Scale invariant; the zero row has code 2^Z - 1 (every projection is >= 0).
    Source: Charikar 2002; rotations as in Andoni et al. 2015.
    """

    dim: int
    rotation: Rotation = "hadamard"

    def __post_init__(self):
        check_dim(self.dim)
        check_rotation(self.rotation)

    @property
    def measure(self) -> Measure:
        """Collisions depend on the angle between two rows (radians)."""
        return "angle"

    @property
    def num_values(self) -> int:
        """Two: a sign."""
        return 2

    @overload
    def collision_probability(self, separation: float, num_hashes: int = 1) -> float: ...
    @overload
    def collision_probability(self, separation: Tensor, num_hashes: int = 1) -> Tensor: ...
    def collision_probability(self, separation, num_hashes=1):
        """P(all `num_hashes` bits of one table agree) at an angle in radians; differentiable."""
        angle = _as_tensor(separation)
        agree = 1.0 - angle / math.pi
        joint = agree**num_hashes
        if self.rotation == "gaussian" or num_hashes == 1:
            return _like(joint, separation)
        size = rotations.padded_dim(self.dim)
        whole, rest = divmod(num_hashes, size)
        result = torch.ones_like(angle)
        for count in [size] * whole + ([rest] if rest else []):
            curvature = count * (count - 1) / math.pi**2 * agree ** max(count - 2, 0)
            result = result * collision.orthogonal_correction(agree**count, curvature, angle, size)
        return _like(result, separation)

    def probability_at_distance(self, distance: float) -> float:
        """P(one bit agrees) for unit vectors at Euclidean distance `distance` in [0, 2]."""
        return self.collision_probability(_chord_to_angle(distance))

    def rho(self, radius: float, approx_factor: float) -> float:
        """Quality rho on the unit sphere; radius is a Euclidean (chord) distance."""
        return _rho(self, radius, approx_factor)


@dataclass(frozen=True)
class CrossPolytope:
    """Nearest signed axis after a random rotation: h(x) = argmax_a |(R x)_a| with its sign.

    Takes 2 n values, n = dim for Gaussian maps and the padded dim for Hadamard rotations. The
    collision probability is computed by quadrature for Gaussian maps and corrected to second order
    for rotations (see collision.py), to about 4e-3 for n = 16 and 1e-3 for n = 64. Rotations share
    two of their three rounds, so the Z hashes of one table agree together a little more often than
    independent ones would: by 2e-3 for n = 16, Z = 2, which that accuracy covers.

    Scale invariant; ties and the zero row take the lowest axis, positive.
    Source: Andoni et al. 2015 (arXiv:1509.02897), the "angular LSH" of the paper's experiments.
    """

    dim: int
    rotation: Rotation = "hadamard"

    def __post_init__(self):
        check_dim(self.dim)
        check_rotation(self.rotation)

    @property
    def measure(self) -> Measure:
        """Collisions depend on the angle between two rows (radians)."""
        return "angle"

    @property
    def num_axes(self) -> int:
        """Coordinates after the rotation."""
        return rotations.padded_dim(self.dim) if self.rotation == "hadamard" else self.dim

    @property
    def num_values(self) -> int:
        """Two signs per axis."""
        return 2 * self.num_axes

    @overload
    def collision_probability(self, separation: float, num_hashes: int = 1) -> float: ...
    @overload
    def collision_probability(self, separation: Tensor, num_hashes: int = 1) -> Tensor: ...
    def collision_probability(self, separation, num_hashes=1):
        """P(all `num_hashes` vertices of a table agree) at an angle in radians; differentiable."""
        if self.rotation == "gaussian":
            curve = collision.gaussian_cross_polytope_curve(self.num_axes)
        else:
            curve = collision.rotation_cross_polytope_curve(self.num_axes)
        single = collision.interpolate(_as_tensor(separation), curve)
        return _like(single if num_hashes == 1 else single**num_hashes, separation)

    def probability_at_distance(self, distance: float) -> float:
        """P(one vertex agrees) for unit vectors at Euclidean distance `distance` in [0, 2]."""
        return self.collision_probability(_chord_to_angle(distance))

    def rho(self, radius: float, approx_factor: float) -> float:
        """Quality rho on the unit sphere; radius is a Euclidean (chord) distance."""
        return _rho(self, radius, approx_factor)


@dataclass(frozen=True)
class Euclidean:
    """p-stable hash of the Euclidean distance: h(x) = floor((<a, x> + b) / width), a normal.

    At distance u, with c = width / u:
    P = erf(c / sqrt 2) - sqrt(2 / pi) / c (1 - exp(-c^2 / 2)).

    Codes are unbounded; positions beyond +-2^52 cells are clamped. The hashes of one table are
    combined by a 64-bit mix, so distinct cells share a code with probability about 2^-64.
    Source: Datar et al. 2004.
    """

    dim: int
    width: float

    def __post_init__(self):
        check_dim(self.dim)
        if not (math.isfinite(self.width) and self.width > 0):
            raise ValueError(f"width must be positive and finite, got {self.width!r}")

    @property
    def measure(self) -> Measure:
        """Collisions depend on the Euclidean distance between two rows."""
        return "distance"

    @property
    def num_values(self) -> None:
        """Unbounded."""
        return None

    @overload
    def collision_probability(self, separation: float, num_hashes: int = 1) -> float: ...
    @overload
    def collision_probability(self, separation: Tensor, num_hashes: int = 1) -> Tensor: ...
    def collision_probability(self, separation, num_hashes=1):
        """P(all `num_hashes` cells of one table agree) at a distance >= 0; differentiable."""
        distance = _as_tensor(separation)
        ratio = self.width / distance.clamp(min=self.width * 1e-6)
        tail = math.sqrt(2 / math.pi) / ratio * (1 - torch.exp(-(ratio**2) / 2))
        return _like((torch.erf(ratio / math.sqrt(2)) - tail) ** num_hashes, separation)

    def probability_at_distance(self, distance: float) -> float:
        """P(one cell agrees) at Euclidean distance `distance`."""
        return self.collision_probability(distance)

    def rho(self, radius: float, approx_factor: float) -> float:
        """Quality rho of the p-stable family at this width; above 1/c^2 for finite widths."""
        return _rho(self, radius, approx_factor)


@dataclass(frozen=True)
class Exact:
    """Equality of whole rows: the exact-match limit r = 0, c -> infinity of the paper.

    Codes are a 64-bit mix of the row's bits: injective at dim 1; otherwise two different rows share
    a code with probability about 2^-64 over the seed. -0.0 equals 0.0. Values are compared after
    conversion to float64, so equal numbers match across dtypes.
    Source: exact-match attention, Liu et al. 2025, proof of Theorem 4.1.
    """

    dim: int

    def __post_init__(self):
        check_dim(self.dim)

    @property
    def measure(self) -> Measure:
        """Collisions depend on equality alone."""
        return "equality"

    @property
    def num_values(self) -> None:
        """Unbounded."""
        return None

    @overload
    def collision_probability(self, separation: float, num_hashes: int = 1) -> float: ...
    @overload
    def collision_probability(self, separation: Tensor, num_hashes: int = 1) -> Tensor: ...
    def collision_probability(self, separation, num_hashes=1):
        """1 where the distance is exactly 0, else 0 (the 2^-64 of the mix is left out)."""
        distance = _as_tensor(separation)
        return _like((distance == 0).to(distance.dtype), separation)

    def probability_at_distance(self, distance: float) -> float:
        """1 at distance 0, else 0."""
        return self.collision_probability(distance)

    def rho(self, radius: float, approx_factor: float) -> float:
        """0 at radius 0; any other radius is refused: equal rows are all this family finds."""
        if radius != 0.0:
            raise ValueError(f"Exact serves radius 0 only, got radius={radius!r}")
        return 0.0


_FAMILIES = {
    "hyperplane": Hyperplane,
    "cross_polytope": CrossPolytope,
    "euclidean": Euclidean,
    "exact": Exact,
}


def family_to_dict(family: Family) -> dict[str, object]:
    """Describe a family as JSON-able fields, to be rebuilt by `family_from_dict`."""
    for name, kind in _FAMILIES.items():
        if isinstance(family, kind):
            return {"name": name, **asdict(family)}  # pyright: ignore[reportArgumentType]
    raise TypeError(f"family must be one of {sorted(_FAMILIES)}, got {type(family).__name__}")


def family_from_dict(fields: dict[str, object]) -> Family:
    """Rebuild a family from `family_to_dict`; refuses unknown names and fields."""
    rest = dict(fields)
    name = rest.pop("name", None)
    if name not in _FAMILIES:
        raise ValueError(f"family name must be one of {sorted(_FAMILIES)}, got {name!r}")
    try:
        return _FAMILIES[str(name)](**rest)  # pyright: ignore[reportArgumentType]
    except TypeError as error:
        raise ValueError(f"family {name!r} does not take the fields {sorted(rest)}") from error
