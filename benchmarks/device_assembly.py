"""Kernels of a GPU against the rate of its own copies: assembly of rows, sums over neighbour lists, softmax.

    python benchmarks/device_assembly.py [--widths 100,128,256,768] [--dtypes float32,float16,int8]
    python benchmarks/device_assembly.py --quick --widths 100,128 --tiles 512x4,1024x4,2048x4,1024x8,2048x8

Claim: assembly of rows on the device at 80 % or more of the rate at which the device copies a large tensor, bytes read
and written, measured in the same run. Rows in pinned memory are compared with copies from there in one piece. Beside
each kernel: torch alone (index_select, scatter) and the functions of PyG's layers. Every edge's row counts as read from
memory; the device may have it in its cache. --tiles compares sizes of assembly's programs, and times nothing else; the
least share of each is printed last. --device cpu runs the code without a GPU, and measures nothing of interest.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import torch
from torch import Tensor
from torch_geometric import utils

from devices import NO_GPU, Times, add_device_options, copy_rate, host_copy_rate, is_there, name_of, time_calls
from diskhop.nn.kernels.assembly import assemble, assembly_reference
from diskhop.nn.kernels.choice import runs_kernels
from diskhop.nn.kernels.leveled_rows import SCALE_BYTES, LeveledRows
from diskhop.nn.kernels.lists import NeighborLists, starts_of
from diskhop.nn.kernels.softmax import list_softmax, softmax_reference
from diskhop.nn.kernels.sums import neighbor_sums, sums_reference
from diskhop.policies.device_rows import DEVICE, HOST, LEVEL_SHIFT

LEAST_SHARE = 0.8
ON_DEVICE = "assembly, rows on device"
WIDTHS, DTYPES = "100,128,256,768", "float32,float16,int8"
# Of lists: those of a mini-batch's inner layers. Of softmax: as many heads.
EDGES_PER_LIST, HEADS = 10, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A row of the table.

    name: the work. dtype, width: of rows.
    num_bytes: that our kernel has to read and write.
    rate: bytes per second that it is compared with.
    ours, torch, pyg: None where there is none.
    is_claimed: whether a share of the rate is claimed.
    tile: pieces and warps of our kernel's programs, where some are compared.
    """

    name: str
    dtype: str
    width: int
    num_bytes: int
    rate: float
    ours: Times
    torch: Times
    pyg: Times | None = None
    is_claimed: bool = False
    tile: str = ""

    @property
    def share(self) -> float:
        """Our part of the rate."""
        return self.ours.rate(self.num_bytes) / self.rate

    @property
    def is_met(self) -> bool:
        """Whether the claim holds."""
        return not self.is_claimed or self.share >= LEAST_SHARE

    def __str__(self) -> str:
        spread = f"({1000 * self.ours.least:.3f}..{1000 * self.ours.most:.3f})"
        pyg = "" if self.pyg is None else f"{self.pyg.median / self.ours.median:.2f}"
        verdict = "" if not self.is_claimed else "met" if self.is_met else "MISSED"
        return (
            f"{self.name:26}{self.dtype:>9}{self.width:>6}{1000 * self.ours.median:>9.3f} {spread:18}"
            f"{self.ours.rate(self.num_bytes) / 1e9:>9.1f}{self.share:>9.0%}"
            f"{self.torch.median / self.ours.median:>9.2f}{pyg:>8}  {verdict} {self.tile}".rstrip()
        )


class Bench:
    """Times kernels on one device. num_bytes: of the results of assembly. num_edges: of lists."""

    def __init__(self, device: torch.device, num_bytes: int, num_edges: int, repeats: int) -> None:
        self._device = device
        self._num_bytes, self._num_edges, self._repeats = num_bytes, num_edges, repeats
        self._draws = torch.Generator(device).manual_seed(0)
        self.copy_rate = copy_rate(device, 2 * num_bytes, repeats)
        self.host_rate = host_copy_rate(device, num_bytes // 4, repeats)

    def assembly(self, dtype: torch.dtype, width: int, level: int, tiles: Sequence[str] = ()) -> list[Line]:
        """Time assembly of random rows of one memory, four times as many as a batch has. tiles: by each; see Line."""
        is_scaled = dtype == torch.int8
        columns = width + SCALE_BYTES * is_scaled
        row_bytes, out_bytes = columns * dtype.itemsize, width * (4 if is_scaled else dtype.itemsize)
        is_pinned = level == HOST
        num_nodes = max(4, self._num_bytes // (4 if is_pinned else 1) // out_bytes)
        rows = self._rows(4 * num_nodes, columns, dtype)
        empty = rows[:0]
        if is_pinned:
            rows = rows.cpu()
            rows = rows.pin_memory() if self._device.type == "cuda" else rows
        leveled = LeveledRows(empty if is_pinned else rows, rows if is_pinned else empty, empty)
        indices = self._integers(len(rows), num_nodes)
        addresses = (level << LEVEL_SHIFT) | indices
        if is_scaled or is_pinned:
            by_torch = self._time(lambda: assembly_reference(leveled, addresses))
        else:
            by_torch = self._time(lambda: rows.index_select(0, indices))
        line = partial(
            Line,
            name="assembly, pinned rows" if is_pinned else ON_DEVICE,
            dtype=str(dtype).removeprefix("torch."),
            width=width,
            num_bytes=num_nodes * (row_bytes if is_pinned else row_bytes + out_bytes + 8),
            rate=self.host_rate if is_pinned else self.copy_rate,
            torch=by_torch,
            is_claimed=not is_pinned and not tiles and self._device.type == "cuda",
        )
        if not tiles:
            return [line(ours=self._time(lambda: assemble(leveled, addresses)))]
        return [line(ours=self._time(partial(_by_tile, leveled, addresses, tile)), tile=tile) for tile in tiles]

    def sums(self, dtype: torch.dtype, width: int) -> list[Line]:
        """Time sums of lists, forward and backward."""
        lists = self._lists()
        num_rows = len(lists.sources)
        x = self._rows(num_rows, width, dtype).requires_grad_()
        sources, targets = lists.sources.long(), lists.list_of_edge()

        def by_torch() -> Tensor:
            return sums_reference(x.detach(), lists, dtype)

        def by_pyg() -> Tensor:
            out: Tensor = utils.scatter(x[sources], targets, dim_size=lists.num_lists, reduce="sum")
            return out

        def own() -> Tensor:
            return neighbor_sums(x, lists, dtype)

        row_bytes = width * dtype.itemsize
        forward_bytes = (num_rows + lists.num_lists) * row_bytes + 4 * (num_rows + lists.num_lists)
        grad = self._rows(lists.num_lists, width, dtype)

        def with_gradient(out: Callable[[], Tensor]) -> Callable[[], Tensor]:
            return lambda: torch.autograd.grad(out(), [x], [grad])[0]

        def added() -> Tensor:
            rows = x.index_select(0, sources)
            return torch.zeros(lists.num_lists, width, dtype=dtype, device=x.device).index_add(0, targets, rows)

        with torch.no_grad():
            forward = self._line("sums", dtype, width, forward_bytes, own, by_torch, by_pyg)
        # The gradient reads each edge's row of the sums' gradient, and writes every row of x.
        both = forward_bytes + 2 * num_rows * row_bytes + 8 * num_rows
        return [
            forward,
            self._line(
                "sums and gradient", dtype, width, both, with_gradient(own), with_gradient(added), with_gradient(by_pyg)
            ),
        ]

    def softmax(self) -> list[Line]:
        """Time the softmax of lists, forward and backward."""
        lists = self._lists()
        targets = lists.list_of_edge()
        scores = self._rows(len(targets), HEADS, torch.float32).requires_grad_()
        grad = self._rows(len(targets), HEADS, torch.float32)

        def own() -> Tensor:
            return list_softmax(scores, lists)

        def by_torch() -> Tensor:
            return softmax_reference(scores, lists)

        def by_pyg() -> Tensor:
            out: Tensor = utils.softmax(scores, targets, num_nodes=lists.num_lists)
            return out

        def with_gradient(out: Callable[[], Tensor]) -> Callable[[], Tensor]:
            return lambda: torch.autograd.grad(out(), [scores], [grad])[0]

        num_bytes = 2 * scores.numel() * 4 + 4 * lists.num_lists
        with torch.no_grad():
            forward = self._line("softmax", torch.float32, HEADS, num_bytes, own, by_torch, by_pyg)
        both = num_bytes + 3 * scores.numel() * 4
        ways = with_gradient(own), with_gradient(by_torch), with_gradient(by_pyg)
        return [forward, self._line("softmax and gradient", torch.float32, HEADS, both, *ways)]

    def _line(
        self,
        name: str,
        dtype: torch.dtype,
        width: int,
        num_bytes: int,
        own: Callable[[], Tensor],
        by_torch: Callable[[], Tensor],
        by_pyg: Callable[[], Tensor],
    ) -> Line:
        return Line(
            name=name,
            dtype=str(dtype).removeprefix("torch."),
            width=width,
            num_bytes=num_bytes,
            rate=self.copy_rate,
            ours=self._time(own),
            torch=self._time(by_torch),
            pyg=self._time(by_pyg),
        )

    def _time(self, call: Callable[[], object]) -> Times:
        return time_calls(call, self._device, self._repeats)

    def _rows(self, num_rows: int, columns: int, dtype: torch.dtype) -> Tensor:
        if dtype == torch.int8:
            rows = torch.randint(-127, 128, (num_rows, columns), device=self._device, generator=self._draws)
            rows = rows.to(torch.int8)
            rows[:, -SCALE_BYTES:] = torch.ones(1, device=self._device).view(torch.int8)
            return rows
        return torch.randn(num_rows, columns, device=self._device, generator=self._draws, dtype=dtype)

    def _integers(self, high: int, size: int) -> Tensor:
        return torch.randint(0, high, (size,), device=self._device, generator=self._draws)

    def _lists(self) -> NeighborLists:
        """Return lists of 0 to 2 * EDGES_PER_LIST random rows, of as many rows as there are edges."""
        lengths = self._integers(2 * EDGES_PER_LIST + 1, max(1, self._num_edges // EDGES_PER_LIST))
        num_edges = int(lengths.sum())
        return NeighborLists(starts_of(lengths), self._integers(max(1, num_edges), num_edges).int())


def _by_tile(rows: LeveledRows, addresses: Tensor, tile: str) -> Tensor:
    from diskhop.nn.kernels.triton_assembly import Tile, assemble_by_triton

    return assemble_by_triton(rows, addresses, Tile(*map(int, tile.split("x"))))


def _tiles(text: str) -> list[str]:
    if not re.fullmatch(r"\d+x\d+(,\d+x\d+)*", text):
        raise argparse.ArgumentTypeError(f"pieces and warps of programs, such as 1024x4,2048x8, got {text!r}")
    return text.split(",")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_device_options(parser)
    parser.add_argument("--widths", default=WIDTHS, help="columns of rows, by commas")
    parser.add_argument("--dtypes", default=DTYPES, help="of assembled rows, by commas")
    parser.add_argument("--tiles", type=_tiles, default=[], help="PIECESxWARPS of assembly's programs, by commas")
    parser.add_argument("--bytes", type=int, help="of assembled rows; default: 512 MiB; quick: 128 MiB")
    parser.add_argument("--edges", type=int, help="of lists; default: 2000000; quick: 500000")
    parser.add_argument("--repeats", type=int, help="default: 20; quick: 5")
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    if not is_there(device):
        print(NO_GPU)
        return 0
    sizes = (128 << 20, 500_000, 5) if options.quick else (512 << 20, 2_000_000, 20)
    given = options.bytes, options.edges, options.repeats
    num_bytes, num_edges, repeats = (value or size for value, size in zip(given, sizes, strict=True))
    bench = Bench(device, num_bytes, num_edges, repeats)

    def out(line: str) -> None:
        print(line, file=sys.stderr if options.json else sys.stdout, flush=True)

    by = "Triton" if runs_kernels(torch.empty(0, device=device)) else "torch alone"
    out(
        f"on {name_of(device)}, kernels by {by}; the device copies {bench.copy_rate / 1e9:.1f} GB/s, read and written, "
        f"and {bench.host_rate / 1e9:.1f} GB/s from pinned memory"
    )
    out(
        f"{'':26}{'dtype':>9}{'width':>6}{'ms':>9} {'(min..max)':18}{'GB/s':>9}{'of copy':>9}{'torch x':>9}{'PyG x':>8}"
    )
    lines: list[Line] = []

    def show(found: Sequence[Line]) -> None:
        for line in found:
            out(str(line))
        lines.extend(found)

    widths = [int(width) for width in options.widths.split(",")]
    dtypes = [getattr(torch, name) for name in options.dtypes.split(",")]
    for level in (DEVICE, HOST):
        for dtype in dtypes:
            for width in widths:
                show(bench.assembly(dtype, width, level, options.tiles))
    for tile in options.tiles:
        least = min(
            (line for line in lines if line.tile == tile and line.name == ON_DEVICE), key=lambda each: each.share
        )
        out(f"{tile}: at least {least.share:.0%} of the copy rate ({least.dtype}, {least.width} columns)")
    if not options.tiles:
        for dtype in (torch.float32, torch.bfloat16):
            for width in widths:
                show(bench.sums(dtype, width))
        show(bench.softmax())
    met = all(line.is_met for line in lines)
    if claimed := [line.share for line in lines if line.is_claimed]:
        out(
            f"assembly of rows on the device at {min(claimed):.0%} of the copy rate at least, claimed "
            f"{LEAST_SHARE:.0%}: {'met' if met else 'MISSED'}"
        )
    if options.json:
        document = {"benchmark": "device_assembly", "card": name_of(device), "kernels": by}
        rates = {"copy_rate": bench.copy_rate, "host_rate": bench.host_rate}
        print(json.dumps({**document, **rates, "lines": [asdict(line) for line in lines]}, indent=1))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
