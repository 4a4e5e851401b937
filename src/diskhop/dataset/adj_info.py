"""The sparse matrix `adj_t` that a source has the edges of a type as: what gives it back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from diskhop.dataset.fields import Fields

# SparseTensor is that of torch-sparse; the others are layouts of PyTorch.
SPARSE_TENSOR = "SparseTensor"
LAYOUTS = (SPARSE_TENSOR, "sparse_coo", "sparse_csr", "sparse_csc")
# What an edge's value can be called.
VALUES = ("edge_weight", "edge_attr")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdjInfo:
    """A sparse matrix with destinations as rows.

    layout: one of LAYOUTS.
    values: attribute that its values are, one of VALUES; "" if it has none.
    """

    layout: str
    values: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON document of the manifest."""
        return {"layout": self.layout, **({"values": self.values} if self.values else {})}


def parse_adj_t(fields: Fields) -> AdjInfo | None:
    """Parse the matrix of an edge type; None: it has none. Raises FormatError."""
    if not fields.has("adj_t"):
        return None
    child = fields.child("adj_t")
    values = child.choice("values", VALUES) if child.has("values") else ""
    info = AdjInfo(layout=child.choice("layout", LAYOUTS), values=values)
    child.refuse_unread()
    return info
