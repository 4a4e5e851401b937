"""The memory budget: bytes of graph data in memory, reserved by name.

One `Budget` is created per run and passed down. A *reservation* is a named claim on it that is released when its
context ends. All code reserves memory for graph data before it allocates it.

A budget is of a whole machine. Where several processes share it, each has a `Budget` of the same size and reserves what
it takes itself: that counts once per process, except for *shared* data, of which there is one copy.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Mapping
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
        raise ConfigError(
            f"size '{text}' is not a number with one of the units B, KB, MB, GB, KiB, MiB, GiB; for example 2GB"
        ) from None
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

    def __init__(self, budget: Budget, name: str, num_bytes: int, *, is_shared: bool) -> None:
        self._budget: Budget | None = budget
        self.name = name
        self.num_bytes = num_bytes
        self.is_shared = is_shared

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
    """The bytes of graph data that diskhop may keep in memory on this machine. Thread-safe.

    total_bytes: of all processes together.
    num_processes: processes that share the budget.
    """

    def __init__(self, total_bytes: int, num_processes: int = 1) -> None:
        if total_bytes <= 0:
            raise ConfigError(f"--memory must be more than 0 bytes, got {total_bytes}")
        self.total_bytes = total_bytes
        self.num_processes = num_processes
        self._lock = threading.Lock()
        # Bytes by name, of this process's own data and of shared data.
        self._reserved: dict[bool, dict[str, int]] = {False: {}, True: {}}
        self._peak: dict[str, int] = {}
        self._peak_bytes = 0

    def divide_among(self, num_processes: int) -> None:
        """Share the budget with more processes. Raises ConfigError if memory is reserved for another number of them."""
        with self._lock:
            is_free = not any(sum(names.values()) for names in self._reserved.values())
            if num_processes != self.num_processes and not is_free:
                raise ConfigError(
                    f"this Budget is in use for {self.num_processes} processes, got {num_processes}; "
                    "close the loaders that use it first, or make a new Budget"
                )
            self.num_processes = num_processes

    def reserve(self, name: str, num_bytes: int, *, is_shared: bool = False) -> Reservation:
        """Reserve bytes under a name; equal names add up. Raises BudgetError with the smallest budget that works.

        is_shared: all processes have these bytes in one copy, and each of them reserves it.
        """
        if num_bytes < 0:
            raise ConfigError(f"reservation '{name}' must be >= 0 bytes, got {num_bytes}")
        with self._lock:
            wanted = {name: num_bytes}
            if self._counted_with(wanted, wanted if is_shared else ()) > self.total_bytes:
                raise self._refusal(wanted, wanted if is_shared else ())
            names = self._reserved[is_shared]
            names[name] = names.get(name, 0) + num_bytes
            of_name = sum(names.get(name, 0) for names in self._reserved.values())
            self._peak[name] = max(self._peak.get(name, 0), of_name)
            self._peak_bytes = max(self._peak_bytes, sum(sum(names.values()) for names in self._reserved.values()))
        return Reservation(self, name, num_bytes, is_shared=is_shared)

    def require(self, wanted: Mapping[str, int], shared: Collection[str] = ()) -> None:
        """Raise BudgetError now, before any work, if these reservations would not fit together. shared: their names."""
        with self._lock:
            if self._counted_with(wanted, shared) > self.total_bytes:
                raise self._refusal(wanted, shared)

    def left_after(self, wanted: Mapping[str, int], shared: Collection[str] = ()) -> int:
        """Return the bytes of all processes that these reservations would leave. shared: their names."""
        with self._lock:
            return self.total_bytes - self._counted_with(wanted, shared)

    def needed_by(self, wanted: Mapping[str, int], shared: Collection[str] = ()) -> int:
        """Return the bytes that these reservations take of all processes. shared: their names."""
        return self.left_after({}) - self.left_after(wanted, shared)

    @property
    def available_bytes(self) -> int:
        """Bytes that this process can still reserve for itself, if the others reserve as much."""
        return self.left_after({}) // self.num_processes

    @property
    def peak_bytes(self) -> int:
        """Most bytes that were reserved at the same time by this process, those of shared data included."""
        return self._peak_bytes

    def table(self) -> dict[str, int]:
        """Return the peak reservation of each name in bytes, in the order of first reservation."""
        with self._lock:
            return dict(self._peak)

    def _counted_with(self, wanted: Mapping[str, int], shared: Collection[str]) -> int:
        """Return the bytes of all processes if these were reserved, too."""
        once = sum(self._reserved[True].values()) + sum(wanted[name] for name in wanted if name in shared)
        each = sum(self._reserved[False].values()) + sum(wanted[name] for name in wanted if name not in shared)
        return once + self.num_processes * each

    def _refusal(self, wanted: Mapping[str, int], shared: Collection[str]) -> BudgetError:
        smallest_bytes = self._counted_with(wanted, shared)
        common = Counter(self._reserved[True]) + Counter({name: wanted[name] for name in wanted if name in shared})
        own = Counter(self._reserved[False]) + Counter({name: wanted[name] for name in wanted if name not in shared})
        if self.num_processes == 1:
            parts, of_processes = _listed(own + common), ""
        else:
            parts = f"shared {_listed(common) or 'nothing'}; for each process {_listed(own)}"
            of_processes = f" for {self.num_processes} processes on one machine"
        return BudgetError(
            f"--memory {format_bytes(self.total_bytes)} is too small{of_processes}: it needs {parts}; "
            f"the smallest that works is --memory {-(-smallest_bytes // 1_000_000)}MB",
            smallest_bytes,
        )

    def _release(self, reservation: Reservation) -> None:
        with self._lock:
            self._reserved[reservation.is_shared][reservation.name] -= reservation.num_bytes


def _listed(names: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {format_bytes(num_bytes)}" for name, num_bytes in names.items())
