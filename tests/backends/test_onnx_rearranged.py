"""Tiny graphs whose tokens are cut into windows or moved between the product and the softmax."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.onnx_tiny import CONSTANTS, HEADS, PLAIN, attend, projections, softmax
from viewer.errors import LayoutError

SPLIT = """
  q5 = Reshape (q, by_row)
  k5 = Reshape (k, by_row)
  v5 = Reshape (v, by_row)
"""
WINDOWED = {
    "windows behind heads": (
        f"""
        {SPLIT}
        kr = Transpose <perm = [0, 1, 2, 4, 3]> (k5)
        s = MatMul (q5, kr)
        z = Add (s, row_bias)
        p = Softmax <axis = -1> (z)
        c5 = MatMul (p, v5)
        context = Reshape (c5, whole)
        """,
        "row_bias",
    ),
    "windows ahead of heads": (
        f"""
        {SPLIT}
        qt = Transpose <perm = [0, 2, 1, 3, 4]> (q5)
        kr = Transpose <perm = [0, 2, 1, 4, 3]> (k5)
        vt = Transpose <perm = [0, 2, 1, 3, 4]> (v5)
        s = MatMul (qt, kr)
        p = Softmax <axis = -1> (s)
        ct = MatMul (p, vt)
        c5 = Transpose <perm = [0, 2, 1, 3, 4]> (ct)
        context = Reshape (c5, whole)
        """,
        None,
    ),
    "stacked, with logits unstacked for a bias": (
        """
        qf = Reshape (q, flat_rows)
        kf = Reshape (k, flat_rows)
        kr = Transpose <perm = [0, 2, 1]> (kf)
        v5 = Reshape (v, by_row)
        vt = Transpose <perm = [0, 2, 1, 3, 4]> (v5)
        s = MatMul (qf, kr)
        u = Reshape (s, row_logits)
        b = Add (u, row_bias)
        t = Transpose <perm = [0, 2, 1, 3, 4]> (b)
        p = Softmax <axis = -1> (t)
        ct = MatMul (p, vt)
        c5 = Transpose <perm = [0, 2, 1, 3, 4]> (ct)
        context = Reshape (c5, whole)
        """,
        "row_bias",
    ),
}


@pytest.mark.parametrize("name", WINDOWED)
def test_windows_are_groups(name, tmp_path):
    body, bias = WINDOWED[name]
    record = attend(body, tmp_path)
    (layer,) = record.layers
    assert layer.verdict.verified, layer.verdict.reason
    assert (layer.heads, layer.scores.groups, layer.scores.how) == (HEADS, 2, "query-key")
    assert layer.key_layout.grid == (2, 3)
    queries, keys = projections()
    for row in range(2):
        mine = slice(3 * row, 3 * row + 3)
        logits = queries[:, mine] @ keys[:, mine].swapaxes(-1, -2)
        truth = softmax(logits + (CONSTANTS[bias][row] if bias else 0))
        for column in range(3):
            found = layer.weights((row, column))
            np.testing.assert_allclose(found[:, mine], truth[:, column], atol=1e-6)
            assert np.isnan(np.delete(found, np.arange(6)[mine], axis=1)).all()


REARRANGED = {
    "rows of heads": f"""
        {PLAIN}
        a = Reshape (s, rows)
        z = Reshape (a, square)
        p = Softmax <axis = -1> (z)
        context = MatMul (p, v)
    """,
    "queries and keys exchanged": f"""
        {PLAIN}
        z = Transpose <perm = [0, 1, 3, 2]> (s)
        p = Softmax <axis = -1> (z)
        context = MatMul (p, v)
    """,
}


@pytest.mark.parametrize("name", REARRANGED)
def test_logits_whose_tokens_move_are_refused(name, tmp_path):
    with pytest.raises(LayoutError, match="its logits are rearranged on their way to the softmax"):
        attend(REARRANGED[name], tmp_path)


def test_operator_that_no_rule_covers_stops_with_its_name(tmp_path):
    body = """
      shuffled = DepthToSpace <blocksize = 2> (grid)
      back = SpaceToDepth <blocksize = 2> (shuffled)
      again = Reshape (back, flat_shape)
      turned = Transpose <perm = [0, 2, 1]> (again)
      q9 = MatMul (turned, query_weight)
      qs = Reshape (q9, split)
      qq = Transpose <perm = [0, 2, 1, 3]> (qs)
      s = MatMul (qq, kt)
      p = Softmax <axis = -1> (s)
      context = MatMul (p, v)
    """
    with pytest.raises(LayoutError, match=r"the operator 'back' is a SpaceToDepth, which no rule covers\.$"):
        attend(body, tmp_path)
