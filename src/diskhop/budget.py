"""The memory budget: who holds how many bytes of graph data, by name.

One `Budget` is made at the edge and passed down. A *reservation* is a named claim on it that is given back
when its context ends. What is not reserved is not held: every holder of graph data reserves first.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType

from diskhop.errors import BudgetError, ConfigError

_UNITS = {"": 1, "B": 1}
_UNITS |= {f"{prefix}B": 1000**power for power, prefix in enumerate("KMGT", start=1)}
_UNITS |= {f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", start=1)}


def parse_bytes(text: str) -> int:
    """Turn a size such as '2GB', '512 MiB' or '1.5e9' into bytes (MB = 10^6, MiB = 2^20)."""
    number = text.strip().rstrip("BKMGTi ")
    unit = text.strip()[len(number) :].strip()
    try:
        num_bytes = float(number) * _UNITS[unit]
    except (KeyError, ValueError):
        raise ConfigError(f"size '{text}' is not a number with one of the units B, KB, MB, GB, KiB, MiB, GiB") from None
    if not 0 <= num_bytes < 2**63:
        raise ConfigError(f"size '{text}' must be at least 0 and less than 2^63 bytes")
    return int(num_bytes)


def parse_sizes(**sizes: int | str | None) -> dict[str, int]:
    """Sizes that were given, as bytes or text, by the names of options in bytes: memory='2GB' -> memory_bytes."""
    return {
        f"{name}_bytes": parse_bytes(size) if isinstance(size, str) else size
        for name, size in sizes.items()
        if size is not None
    }


def format_bytes(num_bytes: int) -> str:
    """Write bytes for people, in decimal units: 1_500_000 -> '1.5 MB'."""
    quantity = float(num_bytes)
    for unit in ("B", "KB", "MB", "GB"):
        if abs(quantity) < 999.5:
            return f"{quantity:.0f} {unit}" if unit == "B" else f"{quantity:.3g} {unit}"
        quantity /= 1000
    return f"{quantity:.4g} TB"


class Reservation:
    """A named claim on a budget; leaving its context, or `release()`, gives the bytes back."""

    def __init__(self, budget: Budget, name: str, num_bytes: int) -> None:
        self._budget: Budget | None = budget
        self.name = name
        self.num_bytes = num_bytes

    def release(self) -> None:
        """Give the bytes back; a second call does nothing."""
        budget, self._budget = self._budget, None
        if budget is not None:
            budget._give_back(self)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Budget:
    """The bytes of graph data that diskhop may hold on this machine. Safe to use from any thread."""

    def __init__(self, total_bytes: int) -> None:
        if total_bytes <= 0:
            raise ConfigError(f"--memory must be more than 0 bytes, got {total_bytes}")
        self.total_bytes = total_bytes
        self._lock = threading.Lock()
        self._held: dict[str, int] = {}
        self._peak: dict[str, int] = {}
        self._peak_bytes = 0

    def reserve(self, name: str, num_bytes: int) -> Reservation:
        """Claim bytes under a name; names add up. Raises BudgetError with the smallest budget that would do."""
        if num_bytes < 0:
            raise ConfigError(f"reservation '{name}' must be >= 0 bytes, got {num_bytes}")
        with self._lock:
            held_bytes = sum(self._held.values())
            if held_bytes + num_bytes > self.total_bytes:
                raise self._refusal({name: num_bytes}, held_bytes)
            self._held[name] = self._held.get(name, 0) + num_bytes
            self._peak[name] = max(self._peak.get(name, 0), self._held[name])
            self._peak_bytes = max(self._peak_bytes, held_bytes + num_bytes)
        return Reservation(self, name, num_bytes)

    def require(self, wanted: Mapping[str, int]) -> None:
        """Refuse up front, before any work, if these reservations together would not fit."""
        with self._lock:
            held_bytes = sum(self._held.values())
            if held_bytes + sum(wanted.values()) > self.total_bytes:
                raise self._refusal(wanted, held_bytes)

    @property
    def available_bytes(self) -> int:
        """Bytes that nobody holds now."""
        with self._lock:
            return self.total_bytes - sum(self._held.values())

    @property
    def peak_bytes(self) -> int:
        """The most that was reserved at one moment."""
        return self._peak_bytes

    def table(self) -> dict[str, int]:
        """The most that each name held, in bytes, in the order of first reservation."""
        with self._lock:
            return dict(self._peak)

    def _refusal(self, wanted: Mapping[str, int], held_bytes: int) -> BudgetError:
        smallest_bytes = held_bytes + sum(wanted.values())
        together = {name: self._held.get(name, 0) + wanted.get(name, 0) for name in {**self._held, **wanted}}
        parts = ", ".join(f"{name} {format_bytes(num_bytes)}" for name, num_bytes in together.items() if num_bytes > 0)
        return BudgetError(
            f"--memory {format_bytes(self.total_bytes)} is too small: it must hold {parts}; "
            f"the smallest that works is {-(-smallest_bytes // 1_000_000)}MB",
            smallest_bytes,
        )

    def _give_back(self, reservation: Reservation) -> None:
        with self._lock:
            self._held[reservation.name] -= reservation.num_bytes
