"""Products of rows in bands are those of the joined rows, whatever part of them is multiplied together."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from diskhop.nn.matmul.products import PRECISIONS, Products
from diskhop.predicting.streamed.row_products import Operand, RowProduct
from diskhop.predicting.streamed.split_columns import SplitColumns

NUM_ROWS, WIDTHS, OWN_WIDTH, OUT_DIM = 70, (24, 8), 5, 33


def some_rows(width: int) -> Tensor:
    return torch.randn(NUM_ROWS, width, generator=torch.Generator().manual_seed(width))


def columns_of(*rows: Tensor) -> SplitColumns:
    return SplitColumns([each.numpy() for each in rows], threads=1)


def product_of(precision: str) -> RowProduct:
    return RowProduct(Products("blas", precision), some_rows(37)[:OUT_DIM], some_rows(OUT_DIM)[0])


SUMS, OWN, DIVISORS = [some_rows(width) for width in WIDTHS], some_rows(OWN_WIDTH), torch.arange(1.0, NUM_ROWS + 1)


def operands(which: slice = slice(None)) -> list[Operand]:
    return [Operand(columns_of(*SUMS).of(which), DIVISORS[which, None]), Operand(columns_of(OWN).of(which))]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("rectifies", [False, True])
def test_a_product_is_that_of_the_joined_rows(precision: str, rectifies: bool) -> None:
    joined = torch.cat([torch.cat(SUMS, dim=1) / DIVISORS[:, None], OWN], dim=1).double()
    expected = joined @ some_rows(37)[:OUT_DIM].double().T + some_rows(OUT_DIM)[0].double()
    expected = expected.relu() if rectifies else expected
    product, tolerance = product_of(precision), 1e-5 if precision == "float32" else 5e-2
    found = product.of(*operands(), rectifies=rectifies)
    assert found.dtype == PRECISIONS[precision]
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)
    bands = [np.full((NUM_ROWS, 30), np.nan, np.float32), np.full((NUM_ROWS, 3), np.nan, np.float32)]
    assert product.put(SplitColumns(bands, threads=1), *operands(), rectifies=rectifies)
    np.testing.assert_array_equal(np.concatenate(bands, axis=1), found.float().numpy())


def test_bits_do_not_depend_on_the_rows_that_are_multiplied_together() -> None:
    product = product_of("float32")
    whole = product.of(*operands())
    for start in (0, 1, 12, 69):
        torch.testing.assert_close(product.of(*operands(slice(start, None))), whole[start:], rtol=0, atol=0)
    rows = some_rows(37)
    torch.testing.assert_close(product.of_rows(rows)[5:], product.of_rows(rows[5:]), rtol=0, atol=0)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_values_that_are_not_finite_are_reported(precision: str) -> None:
    bad = OWN.clone()
    bad[69, 4] = float("inf")
    out = columns_of(torch.empty(NUM_ROWS, OUT_DIM))
    given = [operands()[0], Operand(columns_of(bad))]
    assert not product_of(precision).put(out, *given)
