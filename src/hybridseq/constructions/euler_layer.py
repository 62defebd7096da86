"""Paper B's Mamba layer on a residual stream, from its maps: h <- (I - Delta W_A) h + Delta W_B x, and W_C h is added to x."""

from __future__ import annotations

from hybridseq.mixers import EulerScan, Head, Layer
from hybridseq.residual import Affine

__all__ = ["euler_layer"]


def euler_layer(ar, w_a: Affine, w_b: Affine, w_c: Affine, delta: Affine) -> Layer:
    """One `EulerScan` head. w_b, delta: from the stream; w_a: from the state to itself; w_c: from the state to the stream.

    The core outputs x + W_C h and the model adds x again, so only the rows that W_C fills go back to the stream: W_C must fill
    rows that hold 0 before.

    >>> from hybridseq.arithmetic import Float
    >>> from hybridseq.residual import Stream
    >>> x, h = Stream({"I": 1, "C": 1}), Stream({"h": 1})
    >>> w_a, w_b, w_c = ({"h": {"h": 1}}, {"h": {"I": 3}}, {"C": {"h": 1}})
    >>> maps = Affine.from_rows(h, h, w_a), Affine.from_rows(x, h, w_b), Affine.from_rows(h, x, w_c)
    >>> ar, delta = Float(), Affine.from_rows(x, Stream({"delta": 1}), {"delta": {"I": 1}})
    >>> euler_layer(ar, *maps, delta).forward(ar, ar.array([[1.0, 0.0], [0.0, 0.0]])).tolist()
    [[0.0, 3.0], [0.0, 3.0]]
    """
    stream = w_c.target
    core = EulerScan(*(ar.array(affine.dense()[0].astype(float)) for affine in (w_a, w_b, w_c)))
    same = Affine.from_rows(stream, stream, {name: {name: 1} for name in stream.names})
    filled = {stream.label(row): {stream.label(row): 1} for row in sorted(w_c.writes)}
    return Layer((Head(core, {"x": same, "delta": delta}),), Affine.from_rows(stream, stream, filled))
