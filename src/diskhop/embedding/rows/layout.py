"""How learned rows lie in a file: with their Adagrad state, and whole in pages that direct I/O reads and writes."""

from __future__ import annotations

from dataclasses import dataclass

PAGE_BYTES = 4096
_FLOAT_BYTES = 4
# Of a page: where it is cached. Of a cached page: its number, when it was last used, and whether it has changed.
_BYTES_PER_PAGE, _BYTES_PER_SLOT = 4, 17


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLayout:
    """The file of one node type.

    num_rows: rows of the type.
    dim: values of a row.
    """

    num_rows: int
    dim: int

    @property
    def record_floats(self) -> int:
        """Values of a row, and its mean of squared gradients."""
        return self.dim + 1

    @property
    def page_bytes(self) -> int:
        """Bytes of a page: the smallest multiple of 4096 that has room for a row."""
        return -(-_FLOAT_BYTES * self.record_floats // PAGE_BYTES) * PAGE_BYTES

    @property
    def rows_per_page(self) -> int:
        """Rows of a page; the rest of it is unused."""
        return self.page_bytes // (_FLOAT_BYTES * self.record_floats)

    @property
    def num_pages(self) -> int:
        """Pages of the file."""
        return -(-self.num_rows // self.rows_per_page)

    @property
    def file_bytes(self) -> int:
        """Bytes of the file."""
        return self.num_pages * self.page_bytes

    def cache_bytes(self, num_cached: int) -> int:
        """Memory of a cache of this number of pages."""
        return num_cached * (self.page_bytes + _BYTES_PER_SLOT) + self.num_pages * _BYTES_PER_PAGE

    def pages_in(self, num_bytes: int) -> int:
        """Pages that fit a cache of num_bytes, at least 1 and at most all."""
        left_bytes = num_bytes - self.num_pages * _BYTES_PER_PAGE
        return max(1, min(self.num_pages, left_bytes // (self.page_bytes + _BYTES_PER_SLOT)))
