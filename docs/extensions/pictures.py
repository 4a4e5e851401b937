"""Pictures of ideas, drawn as SVG: `python docs/extensions/pictures.py` writes them to docs/pictures.

A picture is a list of shapes on a white sheet, so that it reads the same in a dark theme.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "pictures"
INK, GREY, BLUE, ORANGE, GREEN, PALE = "#222222", "#666666", "#0072B2", "#D55E00", "#009E73", "#E8EDF2"


def text(x: float, y: float, words: str, colour: str = INK, anchor: str = "middle") -> str:
    """Words at a point; y is the baseline."""
    return f"<text x='{x:g}' y='{y:g}' fill='{colour}' text-anchor='{anchor}'>{escape(words)}</text>"


def box(x: float, y: float, width: float, words: str = "", fill: str = PALE, height: float = 28) -> str:
    """A rectangle with words in its middle, in white where it is dark."""
    shape = f"<rect x='{x:g}' y='{y:g}' width='{width:g}' height='{height:g}' rx='3' fill='{fill}' stroke='{GREY}'/>"
    return shape + text(x + width / 2, y + height / 2 + 4.5, words, INK if fill == PALE else "white")


def arrow(x1: float, y1: float, x2: float, y2: float, dashed: bool = False) -> str:
    """A line that ends with an arrow's head."""
    dashes = " stroke-dasharray='4 3'" if dashed else ""
    return f"<path d='M{x1:g} {y1:g} L{x2:g} {y2:g}' stroke='{GREY}' fill='none'{dashes} marker-end='url(#head)'/>"


def row(x: float, y: float, words: Sequence[str], fills: Sequence[str], width: float = 40) -> list[str]:
    """Boxes side by side."""
    return [
        box(x + i * width, y, width - 4, word, fill) for i, (word, fill) in enumerate(zip(words, fills, strict=True))
    ]


def sheet(title: str, width: int, height: int, shapes: Sequence[str]) -> str:
    """The whole picture as SVG. title: what a screen reader says."""
    head = "<marker id='head' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='8' markerHeight='8' orient='auto'>"
    return "\n".join(
        [
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' role='img' "
            "font-family='system-ui, sans-serif' font-size='13'>",
            f"<title>{escape(title)}</title>",
            f"<defs>{head}<path d='M0 0 L8 4 L0 8 z' fill='{GREY}'/></marker></defs>",
            "<rect width='100%' height='100%' fill='white'/>",
            *shapes,
            "</svg>\n",
        ]
    )


def draw_batch() -> str:
    """The way of a batch through the packages."""
    steps = ("seed nodes", "sample", "submit", "collect", "decode", "model")
    shapes = [box(10 + i * 118, 70, 96, step, BLUE if step == "model" else PALE) for i, step in enumerate(steps)]
    shapes += [arrow(106 + i * 118, 84, 126 + i * 118, 84) for i in range(len(steps) - 1)]
    shapes += [box(128, 130, 96, "topology"), box(246, 130, 96, "feature table"), box(187, 10, 96, "look ahead")]
    shapes += [arrow(176, 130, 176, 100), arrow(294, 130, 294, 100)]
    shapes += [
        arrow(190, 70, 215, 40),
        arrow(255, 40, 280, 70),
        text(300, 28, "a trace of the next batches", GREY, "start"),
    ]
    return sheet("A batch from seed nodes to the model", 730, 170, shapes)


def draw_ginex() -> str:
    """Belady's rule on a short trace with two slots."""
    shapes = [text(10, 24, "The next batches are sampled first, so that what they will read is known:", anchor="start")]
    shapes += [text(10, 64, "rows read", GREY, "start")]
    shapes += row(150, 45, ["a", "b", "c", "a", "b", "a", "c"], [PALE] * 7)
    shapes += [text(10, 114, "cache, 2 rows", GREY, "start"), *row(150, 95, ["a", "b"], [GREEN, ORANGE])]
    shapes += [text(10, 154, "next use", GREY, "start"), text(168, 154, "1 step"), text(208, 154, "2")]
    shapes += [
        arrow(248, 75, 248, 92),
        text(262, 106, "c is read. Its next use is the last of the three,", anchor="start"),
    ]
    shapes += [text(262, 126, "so that it is not kept, and a and b stay.", anchor="start")]
    return sheet("Ginex: with the future known, the row whose next use is farthest leaves the cache", 590, 170, shapes)


def draw_gnndrive() -> str:
    """Batches in flight that share the slots of one buffer."""
    shapes = [text(10, 24, "Several batches are fetched at the same time, into one buffer:", anchor="start")]
    batches = (("batch 1", 45, BLUE), ("batch 2", 85, GREEN), ("batch 3", 125, ORANGE))
    shapes += [box(10, y, 90, name, fill) for name, y, fill in batches]
    shapes += row(230, 85, ["a", "b", "c", "d", "e", "f"], [BLUE, BLUE, GREEN, GREEN, ORANGE, PALE], 44)
    shapes += [arrow(100, 59, 248, 83), arrow(100, 99, 226, 99, dashed=True), arrow(100, 139, 426, 117)]
    shapes += [
        text(230, 70, "read for 1", GREY, "start"),
        text(320, 70, "for 2", GREY, "start"),
        text(404, 70, "for 3", GREY, "start"),
    ]
    shapes += [text(230, 145, "Batch 2 needs a as well: it uses the row of batch 1 (dashed).", anchor="start")]
    shapes += [text(230, 165, "No batch uses f any more: it stays until its slot is needed.", anchor="start")]
    return sheet("GNNDrive: batches in flight share the rows of one buffer", 630, 180, shapes)


def draw_diskgnn() -> str:
    """Rows of each batch that lie next to each other on disk."""
    shapes = [text(10, 24, "Rows as the graph has them: five reads for batch 1", anchor="start")]
    mine = {1, 4, 6, 9, 12}
    shapes += row(10, 35, [""] * 14, [BLUE if i in mine else PALE for i in range(14)], 34)
    shapes += [arrow(248, 66, 248, 92), text(262, 84, "sampled and packed before training", GREY, "start")]
    shapes += row(10, 97, [""] * 13, [ORANGE] * 3 + [BLUE] * 4 + [GREEN] * 6, 34)
    shapes += [
        text(61, 145, "in memory", anchor="middle"),
        text(180, 145, "batch 1: one read"),
        text(350, 145, "batch 2: one read"),
    ]
    shapes += [text(10, 168, "Rows that many batches need (orange) are not packed again.", anchor="start")]
    return sheet("DiskGNN: the rows of a batch are packed next to each other", 500, 180, shapes)


def draw_legend() -> str:
    """Buckets of edges between partitions, and the next partition read ahead."""
    shapes = [text(10, 24, "Edges by the partitions of their ends", anchor="start")]
    ready = {(i, j) for i in range(3) for j in range(3)}
    for i in range(5):
        shapes += [text(56 + i * 34, 48, str(i), GREY), text(26, 74 + i * 34, str(i), GREY)]
        for j in range(5):
            shapes.append(box(40 + j * 34, 55 + i * 34, 30, "", BLUE if (i, j) in ready else PALE))
    shapes += [text(260, 70, "memory", GREY, "start"), *row(260, 80, ["0", "1", "2"], [BLUE] * 3, 44)]
    shapes += [text(260, 225, "disk", GREY, "start"), *row(260, 180, ["3", "4"], [PALE] * 2, 44)]
    shapes += [arrow(280, 178, 280, 112), text(300, 140, "3 is read while edges that do not", anchor="start")]
    shapes += [text(300, 158, "need partition 0 are trained", anchor="start")]
    return sheet("Legend: the next partition is read while the resident ones are trained", 520, 230, shapes)


def draw_ppgnn() -> str:
    """Hop tables made once, and rows of them in every batch."""
    shapes = [text(10, 24, "Once: a table per hop, by streaming the graph", anchor="start")]
    for hop, name in enumerate(("X", "B X", "B B X")):
        shapes += [box(20 + hop * 150, 40 + i * 24, 90, "", BLUE if i == 2 else PALE, 20) for i in range(5)]
        shapes.append(text(65 + hop * 150, 178, name))
    shapes += [arrow(115, 100, 165, 100), text(140, 90, "B", GREY), arrow(265, 100, 315, 100), text(290, 90, "B", GREY)]
    shapes += [box(500, 86, 110, "dense layers", GREEN), arrow(412, 100, 496, 100)]
    shapes += [
        text(
            10,
            205,
            "In every epoch: a node's row of each table (blue). No sampling, no neighbours.",
            anchor="start",
        )
    ]
    return sheet("PP-GNN: neighbours are summed once, before training", 640, 220, shapes)


PICTURES: dict[str, Callable[[], str]] = {
    "batch": draw_batch,
    "ginex": draw_ginex,
    "gnndrive": draw_gnndrive,
    "diskgnn": draw_diskgnn,
    "legend": draw_legend,
    "pp-gnn": draw_ppgnn,
}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw())
