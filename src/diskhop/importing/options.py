"""Options of an import; None everywhere: as the source looks, or the default."""

from __future__ import annotations

from dataclasses import dataclass, fields
from string import ascii_letters
from typing import Literal

from diskhop.config.options import option, option_fields, validate
from diskhop.config.parse import parse_names
from diskhop.config.rules import SEED, Rule, at_least, between, one_of
from diskhop.dataset.encoding import FEATURE_DTYPES
from diskhop.dataset.manifest import LABEL_KINDS, MOST_CLASSES, MOST_COLUMNS
from diskhop.errors import ConfigError

IdKind = Literal["integer", "string"]
Keep = Literal["keep", "drop"]
Predicates = Literal["types", "relations"]
Order = Literal["input", "hot"]
EdgeIds = Literal["auto", "keep", "drop"]

# Options that a kind of source takes, by what it has.
OF_EDGES = (
    *("undirected", "self_loops", "duplicates", "order", "edge_ids", "random_features"),
    *("random_labels", "train_fraction", "seed"),
)
OF_FEATURES = ("dtype",)
OF_LABELS = ("label_kind",)
OF_CSV = ("delimiter", "header", "comments", "skip_lines")
OF_TEXT = (*OF_CSV, "columns", "ids", "nodes")
OF_TABLES = (
    *("edge_columns", "id", "features", "label", *OF_LABELS, "split", "weight", "time", "ids"),
    *("node_attributes", "edge_attributes"),
    *OF_CSV,
)

_DELIMITER_NAMES = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " "}


def _is_delimiter(text: str) -> bool:
    return len(text) == 1 and text.isascii() and not text.isalnum() and text not in '\r\n"#+-.\0'


_DELIMITER = Rule(
    holds=lambda text: _is_delimiter(_DELIMITER_NAMES.get(text, text)),
    text="one character that is in no id, or tab, comma, semicolon or space",
    example="tab",
)
_COMMENTS = Rule(
    holds=lambda text: text == "none" or (text.isascii() and set(text) <= {*"#%!*/@$&;:~^>", *ascii_letters}),
    text="the marks that comments begin with, such as # or %#, or none",
    example="#",
)
_TRAIN_FRACTION = Rule(holds=lambda share: 0 < share <= 1, text="more than 0, at most 1", example=0.1)
_ENDS_COLUMNS = Rule(
    holds=lambda names: len(set(names)) == len(names) and len(names) in (2, 3),
    text="two columns, source and destination, or of triples three, head, relation and tail",
    example=["1", "2"],
)
_TWO_NAMES = Rule(
    holds=lambda names: len(names) == 2, text="two columns, source and destination", example=["src", "dst"]
)
_EACH_ONCE = Rule(
    holds=lambda names: len(set(names)) == len(names), text="names of columns, each once", example=["a", "b"]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Options of an import, as the command line has them; checked when made."""

    dtype: str | None = option(
        None,
        help="Number type to store features in.",
        rule=one_of(tuple(FEATURE_DTYPES)),
        panel="Features",
        shown="as in the source",
    )
    random_features: int | None = option(
        None,
        help="Generate DIM normally distributed features per node, for a graph without features.",
        rule=between(1, MOST_COLUMNS, 128),
        panel="Features",
        metavar="DIM",
    )
    random_labels: int | None = option(
        None,
        help="Draw one of K classes for each node, for a graph without labels, and training nodes if it has no split.",
        rule=between(2, MOST_CLASSES - 1, 16),
        panel="Features",
        metavar="K",
    )
    train_fraction: float | None = option(
        None,
        help="Share of nodes to train on (--random-labels).",
        rule=_TRAIN_FRACTION,
        panel="Features",
        shown="0.1",
    )
    seed: int | None = option(
        None,
        help="Random seed of --random-labels and --random-features; the same seed gives the same bytes.",
        rule=SEED,
        panel="Features",
        metavar="N",
        shown="0",
    )
    undirected: bool | None = option(
        None,
        help="Store each edge in both directions.",
        flag="--undirected/--directed",
        panel="Graph",
        shown="as in the source, else directed",
    )
    self_loops: Keep | None = option(
        None, help="Keep or drop edges from a node to itself.", panel="Graph", shown="keep"
    )
    duplicates: Keep | None = option(None, help="Keep or drop repeated edges.", panel="Graph", shown="keep")
    order: Order | None = option(
        None,
        help="Order of nodes on disk: as in the source, or the most often read first.",
        panel="Graph",
        shown="input",
    )
    edge_ids: EdgeIds | None = option(
        None,
        help="Keep or drop each edge's number in the source (e_id of batches). auto keeps those of edges with weights "
        "or times, and of up to 100 million others.",
        panel="Graph",
        shown="auto",
    )
    delimiter: str | None = option(
        None,
        help="Separator of columns in text: one character, or tab, comma, semicolon or space.",
        rule=_DELIMITER,
        panel="Edge lists",
        shown="detected",
    )
    header: bool | None = option(
        None, help="Whether an edge list or CSV table begins with a header.", panel="Edge lists", shown="detected"
    )
    comments: str | None = option(
        None,
        help="Marks that lines of comments begin with, or none.",
        rule=_COMMENTS,
        panel="Edge lists",
        metavar="MARKS",
        shown="#, and % if the first line begins with it",
    )
    skip_lines: int | None = option(
        None,
        help="Number of lines to skip at the start of each file.",
        rule=at_least(0),
        panel="Edge lists",
        metavar="N",
        shown="0",
    )
    columns: tuple[str, ...] | None = option(
        None,
        help="Columns of source and destination, or of head, relation and tail, by number from 1 or by header.",
        rule=_ENDS_COLUMNS,
        parse=parse_names,
        panel="Edge lists",
        metavar="A,B",
        shown="1,2",
    )
    ids: IdKind | None = option(None, help="Kind of node ids in text.", panel="Edge lists", shown="as in the first row")
    nodes: int | None = option(
        None,
        help="Number of nodes: ids are 0 to N - 1, and ids without edges are isolated nodes.",
        rule=at_least(1),
        panel="Edge lists",
        metavar="N",
    )
    split: str | None = option(
        None, help="Node column with train, valid and test (tables), or name of the split (OGB).", panel="Tables"
    )
    label: tuple[str, ...] | None = option(
        None,
        help="Node column with labels (text names classes), or several columns of tasks or values (tables); "
        "name of the label (typed folders).",
        rule=_EACH_ONCE,
        parse=parse_names,
        panel="Tables",
        metavar="A,B,...",
        shown="by name",
    )
    label_kind: str | None = option(
        None,
        help="Kind of labels: classes, tasks (columns of 0 and 1) or values (numbers to predict).",
        rule=one_of(LABEL_KINDS),
        panel="Graph",
        shown="as the labels are",
    )
    edge_columns: tuple[str, ...] | None = option(
        None,
        help="Source and destination columns of an edge table.",
        rule=_TWO_NAMES,
        parse=parse_names,
        panel="Tables",
        metavar="A,B",
        shown="detected",
    )
    id: str | None = option(None, help="Node column with ids (tables).", panel="Tables", shown="detected")
    features: tuple[str, ...] | None = option(
        None,
        help="Node columns with features (tables).",
        rule=_EACH_ONCE,
        parse=parse_names,
        panel="Tables",
        metavar="A,B,...",
        shown="all numeric columns",
    )
    node_attributes: tuple[str, ...] | None = option(
        None,
        help="Node columns that batches have by name, as they are (tables). They are no features.",
        rule=_EACH_ONCE,
        parse=parse_names,
        panel="Tables",
        metavar="A,B,...",
        shown="none",
    )
    edge_attributes: tuple[str, ...] | None = option(
        None,
        help="Edge columns that batches have by name, as they are (tables).",
        rule=_EACH_ONCE,
        parse=parse_names,
        panel="Tables",
        metavar="A,B,...",
        shown="none",
    )
    predicates: Predicates | None = option(
        None,
        help="What predicates of N-Triples become: a type of edges each, or relations of triples.",
        panel="Graph",
        shown="types",
    )
    node_types: bool | None = option(
        None,
        help="Whether the rdf:type of N-Triples is the type of a node.",
        panel="Graph",
        shown="one type",
    )
    weight: str | None = option(None, help="Edge column with weights (tables).", panel="Tables")
    time: str | None = option(None, help="Edge column with times (tables).", panel="Tables")

    def __post_init__(self) -> None:
        validate(self)
        if self.delimiter is not None:
            object.__setattr__(self, "delimiter", _DELIMITER_NAMES.get(self.delimiter, self.delimiter))

    def check(self) -> None:
        """Check what options mean together."""
        if self.nodes is not None and self.ids == "string":
            raise ConfigError("--nodes is for ids that are numbers, and --ids string for names; leave one of them out")
        if self.train_fraction is not None and self.random_labels is None:
            raise ConfigError("--train-fraction has no effect without --random-labels; add --random-labels 16")
        if self.seed is not None and self.random_labels is None and self.random_features is None:
            raise ConfigError("--seed has no effect without random labels or features; add --random-labels 16")

    def given(self) -> list[str]:
        """Names of the options that are not None."""
        return [field.name for field in fields(self) if getattr(self, field.name) is not None]


def as_option(name: str) -> str:
    """Spell a field as the command line does."""
    return option_fields(ImportOptions)[name].main_flag
