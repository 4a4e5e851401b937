"""The memory budget: bytes of graph data in memory, reserved by name.

One `Budget` is created per run and passed down. A *reservation* is a named claim on it that is released when its
context ends. All code reserves memory for graph data before it allocates it.
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
    """Parse a size such as '2GB', '512 MiB' or '1.5e9' into bytes (MB = 10^6, MiB = 2^20)."""
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
    """Parse the sizes that are given (bytes or text) into options in bytes: memory='2GB' -> memory_bytes."""
    return {
        f"{name}_bytes": parse_bytes(size) if isinstance(size, str) else size
        for name, size in sizes.items()
        if size is not None
    }


def format_bytes(num_bytes: int) -> str:
    """Format bytes for people, in decimal units: 1_500_000 -> '1.5 MB'."""
    quantity = float(num_bytes)
    for unit in ("B", "KB", "MB", "GB"):
        if abs(quantity) < 999.5:
            return f"{quantity:.0f} {unit}" if unit == "B" else f"{quantity:.3g} {unit}"
        quantity /= 1000
    return f"{quantity:.4g} TB"


class Reservation:
    """A named claim on a budget; it ends with its context or with `release()`."""

    def __init__(self, budget: Budget, name: str, num_bytes: int) -> None:
        self._budget: Budget | None = budget
        self.name = name
        self.num_bytes = num_bytes

    def release(self) -> None:
        """Return the bytes to the budget; a second call does nothing."""
        budget, self._budget = self._budget, None
        if budget is not None:
            budget._release(self)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Budget:
    """The bytes of graph data that diskhop may keep in memory. Thread-safe."""

    def __init__(self, total_bytes: int) -> None:
        if total_bytes <= 0:
            raise ConfigError(f"--memory must be more than 0 bytes, got {total_bytes}")
        self.total_bytes = total_bytes
        self._lock = threading.Lock()
        self._reserved: dict[str, int] = {}
        self._peak: dict[str, int] = {}
        self._peak_bytes = 0

    def reserve(self, name: str, num_bytes: int) -> Reservation:
        """Reserve bytes under a name; equal names add up. Raises BudgetError with the smallest budget that works."""
        if num_bytes < 0:
            raise ConfigError(f"reservation '{name}' must be >= 0 bytes, got {num_bytes}")
        with self._lock:
            reserved_bytes = sum(self._reserved.values())
            if reserved_bytes + num_bytes > self.total_bytes:
                raise self._refusal({name: num_bytes}, reserved_bytes)
            self._reserved[name] = self._reserved.get(name, 0) + num_bytes
            self._peak[name] = max(self._peak.get(name, 0), self._reserved[name])
            self._peak_bytes = max(self._peak_bytes, reserved_bytes + num_bytes)
        return Reservation(self, name, num_bytes)

    def require(self, wanted: Mapping[str, int]) -> None:
        """Raise BudgetError now, before any work, if these reservations would not fit together."""
        with self._lock:
            reserved_bytes = sum(self._reserved.values())
            if reserved_bytes + sum(wanted.values()) > self.total_bytes:
                raise self._refusal(wanted, reserved_bytes)

    @property
    def available_bytes(self) -> int:
        """Bytes that are not reserved now."""
        with self._lock:
            return self.total_bytes - sum(self._reserved.values())

    @property
    def peak_bytes(self) -> int:
        """Most bytes that were reserved at the same time."""
        return self._peak_bytes

    def table(self) -> dict[str, int]:
        """Return the peak reservation of each name in bytes, in the order of first reservation."""
        with self._lock:
            return dict(self._peak)

    def _refusal(self, wanted: Mapping[str, int], reserved_bytes: int) -> BudgetError:
        smallest_bytes = reserved_bytes + sum(wanted.values())
        together = {name: self._reserved.get(name, 0) + wanted.get(name, 0) for name in {**self._reserved, **wanted}}
        parts = ", ".join(f"{name} {format_bytes(num_bytes)}" for name, num_bytes in together.items() if num_bytes > 0)
        return BudgetError(
            f"--memory {format_bytes(self.total_bytes)} is too small: it needs {parts}; "
            f"the smallest that works is --memory {-(-smallest_bytes // 1_000_000)}MB",
            smallest_bytes,
        )

    def _release(self, reservation: Reservation) -> None:
        with self._lock:
            self._reserved[reservation.name] -= reservation.num_bytes
