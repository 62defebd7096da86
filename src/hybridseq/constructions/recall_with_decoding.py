"""A three-layer hybrid for associative recall with decoding (paper B, Theorem 4.6 and Section D.4), right at every position.

The residual stream has eight named parts; code(v, k) are the k binary digits of v as +-1, least significant first:

    T  p   code(token id, p)                p = w(W + 2), w(c) = max(1, ceil(log2 c))
    I  1   1 if the token is a bit, else 0
    K  1   constant 1
    P  r   code(i - 1, r)                   the position i = 1, 2, ..., r = w(L)
    Q  r   code(i - 2, r), zeros at i = 1   the position before
    C  b   0; layer 1 writes the last b bits, newest first, which is the code of the word they spell
    R  p   0; layer 2 writes the code of the previous token
    O  p   0; layer 3 writes the code of the answer

    layer 1   h_i = (I - Delta_i W_A) h_{i-1} + Delta_i W_B x_i, y_i = x_i + W_C h_i, W_A = I - shift, Delta_i = I
    layer 2   window 2: query beta2 Q, key P, value T
    layer 3   window K3: query (beta3 C, -beta3, 1), key (R, kappa sum_k 2^(k-1) P_k), value T

A key matches when the token before it is the queried word: its score is (b + 1) beta3, plus kappa for every position. The sum of
signed digits is linear in the position, so the preference for the latest match costs one coordinate. The -beta3 stands for the
top digit, which tells bit tokens from words.

With register="base3" the shift register is replaced by one channel of a standard selective scan, h <- h / 3 +- 1 on bits, and
keys are quadratic: -beta3 (h - tau)^2 up to a term that is equal for all keys, tau being the value that a word leaves behind.

Deviates: W = 2^b words, and the last b bits count; the softmax has finite temperature and a margin; the paper's second head of
layer 2, which copies the current token, is the residual connection here. The text at hand lost the displays of Section D.4,
so layout and matrices are ours; so is the base-3 register.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from math import ceil, comb, inf, log, log2

import numpy as np

from hybridseq.arithmetic import Float
from hybridseq.codes.binary import binary_words, width_for
from hybridseq.constructions.euler_layer import euler_layer
from hybridseq.constructions.named_weights import NamedWeights, Removal, remove_each
from hybridseq.evidence import Check
from hybridseq.mixers import Attention, Head, Layer, SelectiveScan
from hybridseq.models import Block, Model, SumEmbedding
from hybridseq.residual import Affine, Stream
from hybridseq.rng import Generator
from hybridseq.tasks.exhaustive import every_sequence
from hybridseq.tasks.recall_with_decoding import MASKED, RecallWithDecoding

REGISTERS = {
    "shift": "paper B's form: a shift register of b signs",
    "base3": "one channel of the standard selective scan: h <- h / 3 +- 1",
}
RECENCY = log(5)
"""kappa: what one position later adds to a score, so that older matches weigh at most 1/5 + 1/25 + ... = 1/4 of the latest."""

GAIN = 64.0
"""c: pre-activation +-c of the step size of the base-3 register; softplus(64) = 64 and 64 / 64 = 1 in float32 and float64."""

BIT_VALUE = 3
"""tau of a bit token: further from every register value than a wrong word can be."""

SLACK = {"float64": 1e-9, "float32": 1e-4}
"""What rounding may take off a proved weight or margin."""

UNIT = {"float64": 2.0**-53, "float32": 2.0**-24}
"""Unit roundoff u."""


# formulas -------------------------------------------------------------------------------------------------------------


def dimension(num_words: int, seq_len: int) -> int:
    """d = 3 p + b + 2 r + 2 (Theorem 4.6: O(max(log |V|, log L))).

    >>> dimension(32, 100), dimension(256, 2362)
    (39, 61)
    """
    b = RecallWithDecoding(num_words).num_bits
    return 3 * width_for(num_words + 2) + b + 2 * width_for(seq_len) + 2


def nonzero_weights(num_words: int, seq_len: int) -> int:
    """4 b + 5 p + 3 r + 3 numbers that are not zero in the three layers with the shift register, W_A among them.

    >>> nonzero_weights(4, 8), RecallHybrid(4, 8).nonzeros
    (35, 35)
    """
    b = RecallWithDecoding(num_words).num_bits
    return 4 * b + 5 * width_for(num_words + 2) + 3 * width_for(seq_len) + 3


def match_gain(window: int, recency: float = RECENCY) -> float:
    """beta3 = (kappa (K3 - 1) + ln(4 K3)) / 2: half of what a mismatch must lose to weigh at most 1 / (4 K3).

    >>> round(match_gain(7), 4)
    6.4944
    """
    return (recency * (window - 1) + log(4 * window)) / 2


def proved_weight(window: int) -> float:
    """1 / (5/4 + 5/(16 K3)): a lower bound on the target's weight, above 2/3 for K3 >= 2.

    Older matches weigh at most 1/5 + 1/25 + ... = 1/4 of the target. A mismatch e positions later weighs at most
    5^e exp(-2 beta3), and keys stand at different positions, so all mismatches together weigh at most
    5^(K3-1) (5/4) exp(-2 beta3) = 5 / (16 K3).

    >>> round(proved_weight(7), 4), round(proved_weight(100), 4)
    (0.7724, 0.798)
    """
    return 1 / (5 / 4 + 5 / (16 * window))


def enough_predecessor_gain(num_words: int, window: int, recency: float = RECENCY) -> float:
    """beta2 = ln(8 p beta3 / kappa) / 2: a leak of the predecessor copy that layer 3 can bear.

    >>> round(enough_predecessor_gain(2, 7), 4), round(enough_predecessor_gain(4, 6), 4)
    (2.0838, 2.2136)
    """
    return log(8 * width_for(num_words + 2) * match_gain(window, recency) / recency) / 2


def leak_weight(num_words: int) -> float:
    """A lower bound on the target's weight at `enough_predecessor_gain`: 1 / (1 + (5^(1/4) + 5^(1/4 + 1/(4p))) / 4).

    A leak eta <= kappa / (8 p beta3) takes at most 2 p eta beta3 <= kappa / 4 off the score of the latest match; it lifts a
    mismatch by at most 2 eta beta3 <= kappa / (4 p), and no match above the full score.

    >>> round(leak_weight(2), 3)
    0.546
    """
    p = width_for(num_words + 2)
    return 1 / (1 + (5**0.25 + 5 ** (0.25 + 0.25 / p)) / 4)


def window_probability(num_words: int, places: int) -> Fraction:
    """1 - (1 - 1/W)^K: a given word stands among K uniform words.

    >>> window_probability(2, 7), window_probability(4, 17)
    (Fraction(127, 128), Fraction(17050729021, 17179869184))
    """
    return 1 - (1 - Fraction(1, num_words)) ** places


def coverage_probability(num_words: int, places: int) -> Fraction:
    """sum_j (-1)^j C(W, j) (1 - j/W)^K: every one of the W words stands among K uniform words (inclusion and exclusion).

    >>> coverage_probability(2, 2)
    Fraction(1, 2)
    """
    total = sum((-1) ** j * comb(num_words, j) * (num_words - j) ** places for j in range(num_words + 1))
    return Fraction(total, num_words**places)


def _first(probability, num_words: int, goal: Fraction) -> int:
    """The least K with probability(W, K) >= goal, by bisection; the probability grows with K."""
    if not 0 < goal < 1:
        raise ValueError(f"goal={goal!r}: must be a probability between 0 and 1")
    high = 1
    while probability(num_words, high) < goal:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if probability(num_words, middle) >= goal else (middle, high)
    return high


def window_words(num_words: int, goal: Fraction = Fraction(99, 100)) -> int:
    """K(W): the least number of uniform words among which a given word stands with probability at least `goal`.

    >>> [window_words(2**b) for b in range(1, 9)]
    [7, 17, 35, 72, 146, 293, 588, 1177]
    """
    return _first(window_probability, num_words, goal)


def window_bound(num_words: int) -> int:
    """ceil(W ln 100), because (1 - 1/W)^K <= exp(-K / W): an upper bound of `window_words`.

    >>> window_bound(2), window_bound(256)
    (10, 1179)
    """
    return ceil(num_words * log(100))


def coverage_words(num_words: int, goal: Fraction = Fraction(99, 100)) -> int:
    """The least number of uniform words among which all W words stand with probability at least `goal`.

    >>> [coverage_words(2**b) for b in range(1, 6)]
    [8, 21, 51, 115, 255]
    """
    return _first(coverage_probability, num_words, goal)


def window_tokens(num_words: int, bits: str = "after", goal: Fraction = Fraction(99, 100)) -> int:
    """K3 in tokens: K + b - 1 with the b bits after the words, K with the bits before them; K + b is enough for any places.

    A window of K3 tokens reaches words up to K3 back, because a key carries the token before it. The bits themselves, all
    but the current one, use up b - 1 of these places when they stand at the end.

    >>> window_tokens(4), window_tokens(4, "before"), window_tokens(4, "anywhere")
    (18, 17, 19)
    """
    b = RecallWithDecoding(num_words).num_bits
    extra = {"after": b - 1, "before": 0, "anywhere": b}
    if bits not in extra:
        raise ValueError(f"bits={bits!r}: must be one of {', '.join(map(repr, extra))}")
    return window_words(num_words, goal) + extra[bits]


def memory(num_words: int, seq_len: int, window: int) -> dict[str, float]:
    """Bits that depend on the input: 2 W - 1 register states, codes in both windows, beside what pure models need.

    Layer 3 keeps codes of its tokens and of their predecessors, K3 + 1 different ones; they contain those of layer 2. A pure
    recurrence needs (W/2) log2(W/2) bits of state for exact answers (chapter 10); pure attention keeps L - b tokens.

    >>> {name: round(bits, 2) for name, bits in memory(32, 100, 100).items()}
    {'register': 5.98, 'window': 606, 'hybrid': 611.98, 'pure recurrence': 64.0, 'pure attention': 570}
    """
    task = RecallWithDecoding(num_words)
    p, half = width_for(task.vocab_size), num_words // 2
    register, kept = log2(2 * num_words - 1), p * (window + 1)
    return {
        "register": register,
        "window": kept,
        "hybrid": register + kept,
        "pure recurrence": half * log2(half),
        "pure attention": p * (seq_len - task.num_bits),
    }


# the base-3 register --------------------------------------------------------------------------------------------------


def register_values(num_words: int) -> np.ndarray:
    """tau(w) = sum_k +-3^(-k) over the digits of w, least significant first: what b bits leave behind, (W,) float64.

    The sum is formed in integers over 3^(b-1), so that only the division rounds.

    >>> register_values(4).round(3).tolist()
    [-1.333, 0.667, -0.667, 1.333]
    """
    b = RecallWithDecoding(num_words).num_bits
    signs = binary_words(np.arange(num_words), b, bit_order="lsb", one=+1).astype(np.int64)
    return (signs @ 3 ** np.arange(b - 1, -1, -1)) / 3 ** (b - 1)


def register_gap(num_words: int) -> float:
    """2 * 9^(1-b): how much closer, in squares, the register is to the right word's tau than to any other.

    Older bits move it by at most (1/2) 3^(1-b); the others' tau are 2 * 3^(1-b) away or more, and 9/4 - 1/4 = 2.
    """
    return 2.0 * 9.0 ** (1 - RecallWithDecoding(num_words).num_bits)


def rounding_error(num_words: int, seq_len: int, window: int, dtype: str) -> float:
    """A bound on the rounding error of a score of layer 3 with the base-3 register, c beta u + (2 r + 5) kappa L u.

    u is the unit roundoff, beta the gain of the quadratic keys; c = 62 for the keys of words. The register is off by at most 7u
    (a step adds at most 4.6u and divides the rest by 3), the query's first coordinate by 10 beta u and its second by beta u.
    The key 2 tau is off by 2u and -tau^2 by 5u (tau is rounded once). So the two products are off by 37.5 beta u and 9.5 beta u,
    and two sums of terms that stay below 6.75 beta by 13.5 beta u. The keys of bits are larger: c = 123, which counts for
    W = 2 alone, where all keys are exact; for b >= 2 their gap is larger than that of words by far more.
    """
    u, r = UNIT[dtype], width_for(seq_len)
    c = 123 if num_words == 2 else 62
    beta = 2 * match_gain(window) / register_gap(num_words)
    return c * beta * u + (2 * r + 5) * RECENCY * seq_len * u


def float_is_enough(num_words: int, seq_len: int, window: int, dtype: str) -> bool:
    """Whether rounding provably leaves the base-3 model right: twice `rounding_error` is at most kappa / 4.

    Then the target weighs at least 1 / (1 + 5^(1/4) / 2) > 0.57.

    >>> [float_is_enough(w, 2 * window_words(w), window_tokens(w), "float32") for w in (4, 16, 32)]
    [True, True, False]
    """
    return 2 * rounding_error(num_words, seq_len, window, dtype) <= RECENCY / 4


# the construction -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecallHybrid(NamedWeights):
    """The hybrid of Theorem 4.6 for W words and at most L tokens; it answers at every position.

    Args:
        num_words, seq_len: W = 2^b >= 2 and L >= 1.
        window: K3 of layer 3, counting the current token; None takes L.
        register: see `REGISTERS`.
        predecessor_gain: beta2; from 20 on the copy of the previous token is exact in float64.
        dtype: float type in which everything is computed.
        changes: weights that differ, as (map, target, source, weight); see `with_weight`.

    Raises:
        ValueError: W no power of two, L < 1, window < 1 or > L, unknown register or dtype, a gain that is not positive and
        finite, an unknown map in changes (once the maps are asked for).

    Example:
        >>> model = RecallHybrid(4, 8)
        >>> tokens = [2, 0, 5, 4, 3, 2, 1, 5]
        >>> model.task.text(tokens), model.labels(tokens).tolist()
        ('c a 1 0 d c b 1', [-1, -1, -1, 0, 0, 0, 1, 5])
    """

    num_words: int
    seq_len: int
    window: int | None = None
    register: str = "shift"
    predecessor_gain: float = 20.0
    dtype: str = "float64"
    changes: tuple[tuple[str, str, str, object], ...] = ()

    def __post_init__(self):
        self.task  # noqa: B018  raises for a bad W
        for name in ("seq_len", "window"):
            value = getattr(self, name)
            if name == "window" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise ValueError(f"{name} must be an integer >= 1, got {value!r}")
        if self.window is not None and self.window > self.seq_len:
            raise ValueError(f"window={self.window}: a window beyond seq_len = {self.seq_len} sees nothing more; use None")
        if self.register not in REGISTERS:
            raise ValueError(f"register={self.register!r}: must be one of {', '.join(map(repr, REGISTERS))}")
        if not 0 < self.predecessor_gain < inf:
            raise ValueError(f"predecessor_gain={self.predecessor_gain!r}: must be positive and finite")
        if self.dtype not in SLACK:
            raise ValueError(f"dtype={self.dtype!r}: must be one of {', '.join(SLACK)}")

    @property
    def task(self) -> RecallWithDecoding:
        """The task."""
        return RecallWithDecoding(self.num_words)

    @property
    def ar(self) -> Float:
        """Floats of the chosen type."""
        return Float(dtype=self.dtype)

    @property
    def b(self) -> int:
        """Digits of a word."""
        return self.task.num_bits

    @property
    def p(self) -> int:
        """Digits of a token id."""
        return width_for(self.num_words + 2)

    @property
    def r(self) -> int:
        """Digits of a position."""
        return width_for(self.seq_len)

    @property
    def reach(self) -> int:
        """K3: the window of layer 3 in tokens."""
        return self.seq_len if self.window is None else self.window

    @cached_property
    def stream(self) -> Stream:
        """T, I, K, P, Q, C, R, O; the base-3 register needs one coordinate for C, U and R of two: a key for words."""
        if self.register == "shift":
            return Stream({"T": self.p, "I": 1, "K": 1, "P": self.r, "Q": self.r, "C": self.b, "R": self.p, "O": self.p})
        return Stream({"T": self.p, "I": 1, "K": 1, "U": 2, "P": self.r, "Q": self.r, "C": 1, "R": 2, "O": self.p})

    @cached_property
    def token_codes(self) -> np.ndarray:
        """psi(id) for every id, (|V|, p) int8."""
        return binary_words(np.arange(self.num_words + 2), self.p, bit_order="lsb", one=+1)

    @cached_property
    def embedding(self) -> SumEmbedding:
        """T, I and K by token (U too for the base-3 register), P and Q by position."""
        stream, shift = self.stream, self.register == "shift"
        token = np.zeros((self.num_words + 2, stream.dim), np.int8 if shift else np.float64)
        token[:, stream.slice("T")] = self.token_codes
        token[self.num_words :, stream.slice("I")] = 1
        token[:, stream.slice("K")] = 1
        if not shift:
            tau = np.concatenate([register_values(self.num_words), [BIT_VALUE, BIT_VALUE]])
            token[:, stream.slice("U")] = np.stack([2 * tau, -(tau**2)], axis=1)
        position = np.zeros((self.seq_len, stream.dim), np.int8)
        places = binary_words(np.arange(self.seq_len), self.r, bit_order="lsb", one=+1)
        position[:, stream.slice("P")] = places
        position[1:, stream.slice("Q")] = places[:-1]
        return SumEmbedding(stream, token, position)

    # ------------------------------------------------------------------------------------------------- the weights

    @property
    def score_gain(self) -> float:
        """beta3 of the shift register; with quadratic keys 2 beta3 over the gap of the register."""
        gain = match_gain(self.reach)
        return gain if self.register == "shift" else 2 * gain / register_gap(self.num_words)

    def _maps(self) -> dict[str, Affine]:
        return self._register_maps() | self._predecessor_maps() | self._recall_maps()

    def _from_stream(self, name: str, dim: int, rows: Mapping) -> Affine:
        return Affine.from_rows(self.stream, Stream({name: dim}), rows)

    def _to_stream(self, name: str, dim: int, rows: Mapping) -> Affine:
        return Affine.from_rows(Stream({name: dim}), self.stream, rows)

    def _register_maps(self) -> dict[str, Affine]:
        """L1: a bit token's lowest digit is the bit, so T[0] is what is pushed."""
        b = self.b
        if self.register == "shift":
            h = Stream({"h": b})
            keep = np.eye(b, dtype=int) - np.eye(b, k=-1, dtype=int)
            return {
                "L1.W_A": Affine.from_rows(h, h, {"h": {"h": keep.tolist()}}),
                "L1.W_B": self._from_stream("h", b, {"h[0]": {"T[0]": 1}}),
                "L1.W_C": self._to_stream("h", b, {"C": {"h": 1}}),
                "L1.Delta": self._from_stream("delta", 1, {"delta": {"I": 1}}),
            }
        rows = {"x": {"T[0]": 1}, "delta": {"I": 2 * GAIN, "K": -GAIN}, "b": {"K": 1 / GAIN}, "c": {"K": 1}}
        maps = {f"L1.{name}": self._from_stream(name, 1, {name: row}) for name, row in rows.items()}
        return maps | {"L1.out": self._to_stream("h", 1, {"C": {"h": 1}})}

    def _predecessor_maps(self) -> dict[str, Affine]:
        """L2: look at the position before and copy what the token there is known by."""
        name, size = ("T", self.p) if self.register == "shift" else ("U", 2)
        return {
            "L2.q": self._from_stream("q", self.r, {"q": {"Q": self.predecessor_gain}}),
            "L2.k": self._from_stream("k", self.r, {"k": {"P": 1}}),
            "L2.v": self._from_stream("v", size, {"v": {name: 1}}),
            "L2.out": self._to_stream("v", size, {"R": {"v": 1}}),
        }

    def _recall_maps(self) -> dict[str, Affine]:
        """L3: match the register with the token before, prefer late positions, copy the token; then the logits."""
        n, gain = self.b if self.register == "shift" else 1, self.score_gain
        known = {f"q[{i}]": {f"C[{i}]" if n > 1 else "C": gain} for i in range(n)}
        sign = -1 if self.register == "shift" else 1
        position = {f"P[{k}]" if self.r > 1 else "P": RECENCY * 2.0 ** (k - 1) for k in range(self.r)}
        tokens = Stream({"token": len(self.token_codes)})
        return {
            "L3.q": self._from_stream("q", n + 2, known | {f"q[{n}]": {"K": sign * gain}, f"q[{n + 1}]": {"K": 1}}),
            "L3.k": self._from_stream("k", n + 2, {f"k[:{n + 1}]": {"R": 1}, f"k[{n + 1}]": position}),
            "L3.v": self._from_stream("v", self.p, {"v": {"T": 1}}),
            "L3.out": self._to_stream("v", self.p, {"O": {"v": 1}}),
            "logits": Affine.from_rows(self.stream, tokens, {"token": {"O": self.token_codes.tolist()}}),
        }

    def _register_layer(self) -> Layer:
        ar, maps = self.ar, self.maps
        if self.register == "shift":
            return euler_layer(ar, maps["L1.W_A"], maps["L1.W_B"], maps["L1.W_C"], maps["L1.Delta"])
        core = SelectiveScan(1, 1, ar.full((1, 1), -log(3) / GAIN))
        return Layer((Head(core, {name: maps[f"L1.{name}"] for name in ("x", "delta", "b", "c")}),), maps["L1.out"])

    def _attention_layer(self, name: str, window: int) -> Layer:
        q, k, v, out = (self.maps[f"{name}.{part}"] for part in ("q", "k", "v", "out"))
        core = Attention(q.target.dim, v.target.dim, scale="raw", window=window)
        return Layer((Head(core, {"q": q, "k": k, "v": v}),), out)

    @cached_property
    def model(self) -> Model:
        """All layers on the stream, and the logits."""
        blocks = (
            Block(self._register_layer(), name="L1"),
            Block(self._attention_layer("L2", 2), name="L2"),
            Block(self._attention_layer("L3", self.reach), name="L3"),
        )
        return Model(self.stream, self.task.vocabulary, self.embedding, blocks, self.maps["logits"])

    @property
    def nonzeros(self) -> int:
        """Numbers that are not zero in the three layers, the logits' token table apart."""
        return sum(len(m.weights) + len(m.bias) for name, m in self.maps.items() if name != "logits")

    # --------------------------------------------------------------------------------------------------- answers

    def outputs(self, tokens) -> np.ndarray:
        """The token with the largest logit at every position, (..., seq_len); meaningless where no label is defined."""
        return np.argmax(self.ar.values(self.model.forward(self.ar, self.task.check(tokens))), axis=-1)

    def labels(self, tokens) -> np.ndarray:
        """`outputs` where the task defines a label, -1 elsewhere: (..., seq_len)."""
        return np.where(self.task.sources(tokens) >= 0, self.outputs(tokens), MASKED)

    def last_outputs(self, tokens) -> np.ndarray:
        """The token with the largest logit at the last position, (...,): layer 3 runs there alone."""
        return np.argmax(self.ar.values(self.model.last_only(self.ar, self.task.check(tokens))), axis=-1)

    def trace(self, tokens) -> Trace:
        """Everything that the margins are about, for tokens (..., seq_len)."""
        ar, read = self.ar, self.stream.read
        steps = dict(self.model.trace(ar, self.task.check(tokens)))
        head = self.model.blocks[2].layer.heads[0]
        weights = head.core.weights(ar, head.inputs(ar, steps["L2"]))
        logits = self.maps["logits"].apply(ar, steps["L3"])
        named = {"embedding": "embedding", "L1": "register", "L2": "predecessor", "L3": "recall"}
        streams = {named[name]: ar.values(x) for name, x in steps.items()}
        parts = (read(steps["L1"], "C"), read(steps["L2"], "R"), weights, logits)
        return Trace(streams, *(ar.values(part) for part in parts))

    def describe(self) -> str:
        """W, L, K3, and what is not as in the theorem."""
        words = f"W = {self.num_words}, L = {self.seq_len}, window {self.reach}"
        words += "" if self.register == "shift" else f", {self.register} register in {self.dtype}"
        words += "" if self.predecessor_gain == 20 else f", beta2 = {self.predecessor_gain:.4g}"
        return self._with_changes(words)


@dataclass(frozen=True)
class Trace:
    """At every position: the stream (..., seq_len, d) after embedding, register, predecessor, recall; C after layer 1; R
    after layer 2; the attention matrix (..., seq_len, seq_len) of layer 3; logits (..., seq_len, |V|); all float64."""

    streams: Mapping[str, np.ndarray]
    register: np.ndarray
    predecessor: np.ndarray
    weights: np.ndarray
    logits: np.ndarray


# checks ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tally:
    """A run over many sequences: labels defined whose token lies in the window, how many the model gets right, the smallest
    weight on the target, the smallest lead of its logit, register states seen, and the first label that goes wrong."""

    defined: int
    right: int
    weight: float
    margin: float
    states: int
    example: dict | None


def tally(model: RecallHybrid, batches: Iterable[np.ndarray]) -> Tally:
    """Run the model at every position. Labels whose token x_{t+1} lies outside the window are not counted.

    The word x_t itself may stand one place before the window, since layer 2 has handed it on.

    Raises ValueError if no label is defined in any of the sequences.
    """
    defined = right = 0
    weight, margin, example, states = 1.0, np.inf, None, set()
    for tokens in batches:
        source, seen = model.task.sources(tokens), model.trace(tokens)
        reached = (source >= 0) & (source > np.arange(tokens.shape[-1]) - model.reach)
        states |= set(map(tuple, np.unique(seen.register.reshape(-1, seen.register.shape[-1]), axis=0).tolist()))
        row, place = np.nonzero(reached)
        if not len(row):
            continue
        target = source[row, place]
        label, logits = tokens[row, target], seen.logits[row, place]
        rivals = logits.copy()
        rivals[np.arange(len(row)), label] = -np.inf
        lead = logits[np.arange(len(row)), label] - rivals.max(axis=-1)
        weight, margin = min(weight, float(seen.weights[row, place, target].min())), min(margin, float(lead.min()))
        defined, right = defined + len(row), right + int((lead > 0).sum())
        if (lead <= 0).any() and example is None:
            at = int(np.argmin(lead > 0))
            names = model.task.vocabulary.names([label[at], int(np.argmax(logits[at]))])
            text = model.task.text(tokens[row[at], : place[at] + 1][-40:])
            example = {"sequence": text, "position": int(place[at]) + 1, "expected": names[0], "got": names[1]}
    if not defined:
        raise ValueError("batches: no position has a label whose token lies in the window, so there is nothing to check")
    return Tally(defined, right, weight, margin, len(states), example)


def check_labels(
    model: RecallHybrid,
    batches: Iterable[np.ndarray] | None = None,
    scope: str = "",
    weight: float | None = None,
    cases: int | None = None,
) -> Check:
    """Theorem 4.6 at every position: all sequences of V^L, or given ones.

    Every label whose token lies in the window is right, it has weight at least `weight` = p (None takes
    `proved_weight`), and its logit leads by at least 2 (2 p - 1), less `SLACK`. cases: the labels that must be counted.
    """
    found = tally(model, model.task.every(model.seq_len, block=4096) if batches is None else batches)
    low = (proved_weight(model.reach) if weight is None else weight) - SLACK[model.dtype]
    passed = found.right == found.defined and found.weight >= low and found.margin >= 2 * (2 * low - 1)
    counted = cases is None or found.defined == cases
    numbers = {"weight": found.weight, "margin": found.margin, "labels counted": found.defined, "labels expected": cases}
    return Check.true(
        f"every label whose token is in the window is right ({model.describe()})",
        passed and counted,
        scope or f"all {model.task.count(model.seq_len):,} sequences, every position",
        cases=found.defined,
        counterexample=found.example or numbers,
        value={"defined": found.defined, "right": found.right, "weight": found.weight, "margin": found.margin},
    )


def check_register(model: RecallHybrid) -> Check:
    """Layer 1 alone, on all sequences: once b bits are there C is the code of the query, and C takes 2 W - 1 values in all."""
    codes, states, wrong, cases, example = model.token_codes[: model.num_words, : model.b], set(), 0, 0, None
    for tokens in model.task.every(model.seq_len, block=4096):
        register, query = model.trace(tokens).register, model.task.queries(tokens)
        states |= set(map(tuple, np.unique(register.reshape(-1, model.b), axis=0).tolist()))
        bad = ((register != codes[np.maximum(query, 0)]).any(axis=-1)) & (query >= 0)
        wrong, cases = wrong + int(bad.sum()), cases + int((query >= 0).sum())
        if bad.any() and example is None:
            example = {"sequence": model.task.text(tokens[int(np.argwhere(bad)[0, 0])])}
    full = model.seq_len >= model.b
    return Check.true(
        f"the register spells the query and has 2 W - 1 states ({model.describe()})",
        wrong == 0 and (len(states) == 2 * model.num_words - 1 or not full),
        f"all {model.task.count(model.seq_len):,} sequences, every position with b bits",
        cases=max(cases, 1),
        counterexample=example or {"states": len(states)},
        value={"states": len(states), "wrong": wrong},
    )


def check_predecessors(model: RecallHybrid) -> Check:
    """Layer 2 alone, on all sequences: R is the code of the token before, exactly, and at the first position its own."""
    got, expected = [], []
    for tokens in model.task.every(model.seq_len, block=4096):
        before = np.concatenate([tokens[:, :1], tokens[:, :-1]], axis=1)
        got.append(model.trace(tokens).predecessor)
        expected.append(model.token_codes[before])
    scope = f"all {model.task.count(model.seq_len):,} sequences, every position"
    return Check.equal(
        f"R is the code of the previous token ({model.describe()})", np.concatenate(got), np.concatenate(expected), scope
    )


def check_uniform_words(num_words: int, places: int, expected: int) -> Check:
    """All W^K contexts and all W queries, bits after the words, window K + b - 1: how many inputs are answered.

    `expected` is W (W^K - (W - 1)^K): an input is answered exactly when its word occurs, and is a failure otherwise.
    """
    task = RecallWithDecoding(num_words)
    b = task.num_bits
    model = RecallHybrid(num_words, places + b, window=places + b - 1)
    digits = num_words ** np.arange(places - 1, -1, -1)
    words = np.arange(num_words**places)[:, None] // digits % num_words
    answered = total = 0
    for query in range(num_words):
        for start in range(0, len(words), 4096):
            block = words[start : start + 4096]
            tokens = task.join(block, np.broadcast_to(task.spell(query), (len(block), b)))
            answers = task.answers(tokens)
            answered += int(((model.last_outputs(tokens) == answers) & (answers != MASKED)).sum())
            total += len(block)
    return Check.true(
        f"inputs answered when {places} uniform words precede the bits (W = {num_words})",
        answered == expected,
        f"all {total:,} inputs of {places} words and {b} bits, window {model.reach}",
        cases=total,
        counterexample={"answered": answered, "expected": expected},
        value={"answered": answered, "inputs": total, "share": Fraction(answered, total)},
    )


def check_bits_anywhere(num_words: int, extra: int = 1) -> Check:
    """Part 2 of the theorem by enumeration: for every place of the b bits, all words and all queries, the last position.

    L = K(W) + b + extra tokens, window K(W) + b; for each place the share of inputs answered must be at least 0.99. Meant for
    W = 2. Raises ValueError beyond 2^24 inputs of one place.
    """
    task = RecallWithDecoding(num_words)
    b, reach = task.num_bits, window_tokens(num_words, "anywhere")
    model = RecallHybrid(num_words, reach + extra, window=reach)
    total, shares = 0, {}
    for places in combinations(range(model.seq_len), b):
        answered = inputs = 0
        for words in every_sequence(num_words, model.seq_len - b):
            for query in range(num_words):
                tokens = np.insert(words, [p - i for i, p in enumerate(places)], task.spell(query), axis=1)
                answers = task.answers(tokens)
                answered += int(((model.last_outputs(tokens) == answers) & (answers != MASKED)).sum())
                inputs += len(tokens)
        shares[places], total = Fraction(answered, inputs), total + inputs
    least = min(shares, key=shares.get)
    return Check.true(
        f"wherever the bits stand, 99 inputs in 100 are answered (W = {num_words}, L = {model.seq_len}, window {reach})",
        shares[least] >= Fraction(99, 100),
        f"all {total:,} inputs, every place of {b} bits",
        cases=total,
        counterexample={"bits at": [p + 1 for p in least], "share": shares[least]},
        value={"inputs": total, "least share": shares[least]},
    )


@dataclass(frozen=True)
class Sampled:
    """Random inputs at the last position: how many, in how many the wanted token lies in the window, and right ones of these."""

    num: int
    reached: int
    right: int
    example: dict | None


def run_random(model: RecallHybrid, num: int, bits: str = "after", seed: int = 0, block: int = 16) -> Sampled:
    """`num` inputs of L - b uniform words and the bits of a uniform query; layer 3 runs at the last position."""
    generator = Generator(seed).at(model.num_words, model.seq_len)
    reached = right = 0
    example = None
    for start in range(0, num, block):
        size = min(block, num - start)
        tokens = model.task.sample_query(size, model.seq_len - model.b, generator.at(start), bits)
        source = model.task.sources(tokens)[:, -1]
        inside = (source >= 0) & (source >= model.seq_len - model.reach)
        good = model.last_outputs(tokens) == tokens[np.arange(size), source]
        reached, right = reached + int(inside.sum()), right + int((inside & good).sum())
        if (inside & ~good).any() and example is None:
            row = int(np.argmax(inside & ~good))
            example = {"input": row + start, "expected": int(tokens[row, source[row]])}
    return Sampled(num, reached, right, example)


def check_random(model: RecallHybrid, num: int, bits: str = "after", seed: int = 0) -> Check:
    """Every random input whose wanted token lies in the window is answered rightly; the share of those inputs is reported."""
    found = run_random(model, num, bits, seed)
    return Check.true(
        f"random inputs with the wanted token in the window are right, bits {bits} the words ({model.describe()})",
        0 < found.reached == found.right,
        f"{num} inputs of {model.seq_len - model.b} uniform words, last position",
        cases=max(found.reached, 1),
        counterexample=found.example,
        value={"inputs": num, "in the window": found.reached, "right": found.right},
    )


def check_windows(expected: Mapping[int, int]) -> Check:
    """K(W) is the listed window, one word fewer is not enough, and ceil(W ln 100) is an upper bound; exact ratios."""
    goal = Fraction(99, 100)
    got = [
        (
            window_words(w),
            window_probability(w, window_words(w)) >= goal > window_probability(w, window_words(w) - 1),
            window_words(w) <= window_bound(w),
        )
        for w in expected
    ]
    wanted = [(k, True, True) for k in expected.values()]
    name = "K(W) words are enough for 99 %, K(W) - 1 are not, and K(W) <= ceil(W ln 100)"
    return Check.equal(name, got, wanted, f"W in {tuple(expected)}, exact ratios", inputs=list(expected), value=dict(expected))


def check_dimensions(expected: Mapping[tuple[int, int], int]) -> Check:
    """Formula and built stream both have the expected width, and as many weights as `nonzero_weights` says; keys are (W, L)."""
    settings = list(expected)
    got = [[dimension(*key), RecallHybrid(*key).stream.dim, RecallHybrid(*key).nonzeros] for key in settings]
    wanted = [[expected[key], expected[key], nonzero_weights(*key)] for key in settings]
    name = "d = 3 p + b + 2 r + 2 and 4 b + 5 p + 3 r + 3 weights, by formula and as built"
    return Check.equal(name, got, wanted, f"(W, L) in {settings}", inputs=settings)


def removals(model: RecallHybrid) -> list[Removal]:
    """Set every weight of the three layers to zero in turn and run all sequences each time; meant for small W and L.

    A removal is noticed if some label goes wrong or the proved margin is lost.
    """
    return remove_each(model, lambda changed: not check_labels(changed).passed, apart=("logits",))


# the figure -----------------------------------------------------------------------------------------------------------


def figure_sequence() -> np.ndarray:
    """The sequence of Figure 10 here (L = 100, W = 32): words 5 i^2 + i mod 32, bits 1, 0, 1, 1, 0 at 20, 35, 50, 65, 80."""
    i = np.arange(1, 101)
    tokens = (5 * i * i + i) % 32
    tokens[[19, 34, 49, 64, 79]] = 33, 32, 33, 33, 32
    return tokens


def batches_of(tokens, block: int = 64) -> Iterator[np.ndarray]:
    """Sequences (num, seq_len) in blocks of rows, so that attention matrices stay small."""
    for start in range(0, len(tokens), block):
        yield tokens[start : start + block]
