"""Dialects: published formats of edges as text, recognised by their own first lines.

A *dialect* says where the rows begin, which columns have the ids, and what else the file states. Options of the user
come first. Rows are then parsed like those of any text.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from diskhop.errors import SourceError
from diskhop.importing.evidence.decisions import Decision
from diskhop.importing.evidence.folder import import_alone
from diskhop.importing.evidence.rows import is_integer
from diskhop.importing.options import ImportOptions
from diskhop.importing.source_file import source_errors
from diskhop.importing.text.packing import DamageError, packing_of
from diskhop.importing.text.streams import BOM, MOST_LINE_BYTES, at_line, damage_errors, open_text, read_text

# Lines in which a file must begin its rows, and say what it is.
_MOST_LINES = 10_000
_MOST_BYTES = 1 << 22
_READ_BYTES = 1 << 20
_SECTION = re.compile(rb"^\*([A-Za-z]+)", re.M)
# Commands that print the content of compressed files.
_PRINT = {"gzip": "zcat", "bz2": "bzcat", "xz": "xzcat", "zip": "unzip -p", "zstd": "zstdcat"}
# Prints the edges of all sections of a Pajek file.
_PAJEK_PROGRAM = (
    '/^[*]/ {s = tolower($1); next} s == "*arcs" {print $1, $2} '
    's == "*edges" {print $1, $2; if ($1 != $2) print $2, $1} '
    's == "*arcslist" {for (i = 2; i <= NF; i++) print $1, $i} '
    's == "*edgeslist" {for (i = 2; i <= NF; i++) {print $1, $i; if ($1 != $i) print $i, $1}}'
)
# DIMACS: problems whose files have arcs with a length or a capacity, and those with edges.
_OF_ARCS = ("sp", "max", "min", "asn")
_OF_EDGES = ("edge", "edges", "col")
_UNDIRECTED = "stored once, as listed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Facts of a file in a published format.

    name: the format.
    why: the evidence, for people.
    head_lines: lines before the first row, comments after them excepted.
    comments: marks of comments among the rows.
    columns: numbers of source and destination, from 1.
    num_rows: number of rows that the file states.
    is_mirrored: whether each edge also stands for the opposite one, by the format's definition.
    values: what rows have next to the ids, and the options that import it.
    notes: what else people should know.
    """

    name: str
    why: str
    head_lines: int
    comments: str
    columns: tuple[str, str] = ("1", "2")
    num_rows: int | None = None
    is_mirrored: bool = False
    values: tuple[str, str] | None = None
    notes: tuple[Decision, ...] = ()

    def applied(self, options: ImportOptions) -> ImportOptions:
        """Return the options with the dialect's in place of those that the user did not give."""
        return replace(
            options,
            header=bool(options.header),
            skip_lines=self.head_lines if options.skip_lines is None else options.skip_lines,
            columns=options.columns or self.columns,
        )

    def applied_to_table(self, options: ImportOptions) -> ImportOptions:
        """Return the options like applied(), for a table of edges."""
        applied = self.applied(replace(options, columns=options.edge_columns))
        comments = self.comments if options.comments is None else options.comments
        return replace(applied, columns=None, edge_columns=applied.columns, comments=comments)

    def restated(self, decisions: Sequence[Decision], options: ImportOptions) -> list[Decision]:
        """Return decisions with the format as the reason where applied() filled in an option of the user."""
        given = {
            "--columns": options.columns,
            "--edge-columns": options.edge_columns,
            "--comments": options.comments,
            "--no-header": options.header,
        }
        filled = {flag for flag, value in given.items() if value is None}
        return [each._replace(why=f"as in {self.name}") if each.why in filled else each for each in decisions]

    def require_rows(self, path: Path, num_rows: int) -> None:
        """Raise SourceError if a file has more or fewer rows than it states."""
        if self.num_rows is not None and num_rows != self.num_rows:
            raise SourceError(
                f"{path}: has {num_rows} rows, but states {self.num_rows}; download it again, or import what is there "
                f"with: --skip-lines {self.head_lines}"
            )

    def mirrors(self, options: ImportOptions) -> bool:
        """Check whether each edge is stored in both directions, though no option says so."""
        return self.is_mirrored and options.undirected is None

    def decisions(self, options: ImportOptions) -> list[Decision]:
        """Describe the dialect for people."""
        found = [Decision("format", self.name, self.why)]
        if self.mirrors(options):
            why = "each stands for both; --directed stores it once"
            found.append(Decision("edges", "stored in both directions", why))
        takes_values = options.weight is not None or options.time is not None
        if self.values is not None and not takes_values:
            found.append(Decision(self.values[0], "not imported", self.values[1]))
        return [*found, *self.notes]


def find_dialect(paths: Sequence[Path], options: ImportOptions) -> Dialect | None:
    """Find the dialect of a text, by its first file; None: it is plain. Raises SourceError for what is not imported."""
    lines = _first_lines(paths[0])
    found = next((each for find in _FINDERS if (each := find(paths[0], lines, options)) is not None), None)
    if found is not None and len(paths) > 1:
        raise SourceError(f"{paths[0]}: is a whole graph in {found.name}, with other files; {import_alone(paths)}")
    return found


def _first_lines(path: Path) -> list[str]:
    """Read the first lines, until one begins like a row."""
    lines: list[str] = []
    num_bytes = 0
    with source_errors(str(path)):
        try:
            with open_text(path) as text:
                while len(lines) < _MOST_LINES and num_bytes < _MOST_BYTES and (line := text.readline(MOST_LINE_BYTES)):
                    num_bytes += len(line)
                    lines.append(line.removeprefix(BOM if not lines else b"").decode(errors="replace").strip())
                    if lines[-1][:1] not in ("%", "c", "*", "") and len(lines) > 1:
                        break
        except DamageError:
            if not lines:
                with damage_errors(path):
                    raise
    return lines


def _matrix_market(path: Path, lines: Sequence[str], options: ImportOptions) -> Dialect | None:
    if not lines or not lines[0].lower().startswith("%%matrixmarket"):
        return None
    _, *words = lines[0].lower().split()
    if words[:2] != ["matrix", "coordinate"] or len(words) != 4:
        raise SourceError(
            f"{at_line(path, 1)}: only sparse matrices are graphs (matrix coordinate ...), got '{lines[0][:60]}'; "
            "save it with scipy.io.mmwrite(path, scipy.sparse.coo_matrix(matrix))"
        )
    sizes = lines[-1].split()
    if len(sizes) != 3 or not all(map(is_integer, sizes)):
        raise SourceError(
            f"{at_line(path, len(lines))}: must be the numbers of rows, columns and entries, got '{lines[-1][:60]}'; "
            "download the file again"
        )
    num_rows, num_columns, num_entries = map(int, sizes)
    if num_rows != num_columns and options.columns is None:
        raise _two_kinds(path, len(lines), f"has {num_rows} rows and {num_columns} columns", f"NR>{len(lines)}")
    has_others = words[3] in ("skew-symmetric", "hermitian")  # opposite entries differ in their sign
    if has_others and options.weight is not None and options.undirected is None:
        raise SourceError(
            f"{at_line(path, 1)}: the opposite of an entry has another value ({words[3]}); store each entry once with "
            "--directed, or leave out --weight"
        )
    values = ("values of entries", "--weight 3 takes them as weights; entries of 0 are edges too")
    return Dialect(
        name="MatrixMarket",
        why="banner in line 1",
        head_lines=len(lines),
        comments="%",
        num_rows=num_entries,
        is_mirrored=words[3] != "general",
        values=None if words[2] == "pattern" else values,
        notes=(Decision("ids", f"rows and columns, 1 to {num_rows}", "entry i j is the edge from i to j"),),
    )


def _konect(path: Path, lines: Sequence[str], options: ImportOptions) -> Dialect | None:
    found = re.match(r"%\s*(sym|asym|bip)\b", lines[0]) if lines else None
    if found is None:
        return None
    if found[1] == "bip" and options.columns is None:
        raise _two_kinds(path, 1, "says that the graph is bipartite", "!/^%/")
    notes = []
    if found[1] == "sym":
        notes.append(Decision("edges", _UNDIRECTED, "undirected by line 1; --undirected stores both directions"))
    num_columns = 0 if lines[-1].startswith("%") else len(lines[-1].split())
    values = ("weights", "--weight 3 takes them") if num_columns == 3 else None
    if num_columns > 3:
        values = ("weights and times", "--weight 3 and --time 4 take them")
    why = f"line 1 is '{lines[0][:40]}'"
    return Dialect(name="KONECT", why=why, head_lines=0, comments="%", values=values, notes=tuple(notes))


def _dimacs(path: Path, lines: Sequence[str], options: ImportOptions) -> Dialect | None:
    problem = next((line.split() for line in lines if line.startswith("p ")), [])
    others = [line for line in lines if line[:2].strip() not in ("", "c", "p", "a", "e", "n")]
    if len(problem) != 4 or problem[1] not in (*_OF_ARCS, *_OF_EDGES) or others or not is_integer(problem[3]):
        return None
    has_arcs = problem[1] in _OF_ARCS
    once = Decision("edges", _UNDIRECTED, "undirected; --undirected stores both directions")
    return Dialect(
        name="DIMACS",
        why=f"line '{' '.join(problem)}'",
        head_lines=0,
        comments="cpn",
        columns=("2", "3"),
        # Files of colouring problems often state twice the number.
        num_rows=int(problem[3]) if has_arcs else None,
        values=("lengths, capacities and costs", "--weight 4 takes the first as weights") if has_arcs else None,
        notes=() if has_arcs else (once,),
    )


def _pajek(path: Path, lines: Sequence[str], options: ImportOptions) -> Dialect | None:
    first = next((line for line in lines if line and not line.startswith("%")), "").lower()
    if not first.startswith(("*vertices", "*network")):
        return None
    sections = _sections(path)
    of_edges = [(number, name) for number, name in sections if name in ("arcs", "edges")]
    if len(of_edges) != 1 or {name for _, name in sections} - {"arcs", "edges", "vertices", "network"}:
        listed = ", ".join(f"*{each}" for _, each in sections)
        command = f"{_contents(path)} | awk '{_PAJEK_PROGRAM}' > edges.txt"
        raise SourceError(
            f"{path}: must have one list of edges, *Arcs or *Edges, got {listed}; write each direction of "
            f"them to one file with: {command}; then import edges.txt"
        )
    number, name = of_edges[0]
    notes = [Decision("names and places of vertices", "not imported", "ids are the numbers of the vertices, from 1")]
    if name == "edges":
        notes.append(Decision("edges", _UNDIRECTED, "undirected (*Edges); --undirected stores both directions"))
    why = f"sections *Vertices and *{name.capitalize()}"
    return Dialect(name="Pajek", why=why, head_lines=number, comments="%*", notes=tuple(notes))


def _sections(path: Path) -> list[tuple[int, str]]:
    """Find the lines of a Pajek file that begin a section: their numbers, and their names in lower case."""
    found: list[tuple[int, str]] = []
    num_lines = 0
    rest = b""
    with source_errors(str(path)), open_text(path) as text:
        while block := read_text(text, _READ_BYTES, path, num_lines):
            content = rest + block
            end = content.rfind(b"\n") + 1
            for each in _SECTION.finditer(content, 0, end):
                number = num_lines + content.count(b"\n", 0, each.start()) + 1
                found.append((number, each[1].decode(errors="replace").lower()))
            num_lines += content.count(b"\n", 0, end)
            rest = content[end:]
    return found


def _two_kinds(path: Path, number: int, what: str, rows: str) -> SourceError:
    """Return the error for edges between nodes of two kinds. rows: the pattern of awk for rows."""
    packing = packing_of(path)
    shown = shlex.quote(str(path))
    program = f'awk \'{rows} {{print "u" $1, "v" $2}}\''
    command = f"{program} {shown}" if packing is None else f"{_PRINT[packing]} {shown} | {program}"
    return SourceError(
        f"{at_line(path, number)}: {what}, so that equal ids in both columns are different nodes; name them apart "
        f"with: {command} > named.txt; or take equal ids for one node with: --columns 1,2"
    )


def _contents(path: Path) -> str:
    """Return the command that prints the content of a file."""
    packing = packing_of(path)
    return f"{'cat' if packing is None else _PRINT[packing]} {shlex.quote(str(path))}"


_FINDERS: tuple[Callable[[Path, Sequence[str], ImportOptions], Dialect | None], ...] = (
    _matrix_market,
    _konect,
    _dimacs,
    _pajek,
)
