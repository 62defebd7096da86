"""A small circuit as a picture: inputs at the bottom, one row a level, each gate drawn over the wires that it reads."""

from __future__ import annotations

from collections.abc import Mapping

from hybridseq.bounds.circuits.circuit import Circuit
from hybridseq.figures import COLOURS

MAX_GATES = 60
SYMBOLS = {"NOT": "¬", "AND": "∧", "OR": "∨"}
FILLS = {"NOT": "#FFFFFF", "AND": "#CFE6F5", "OR": "#FBE3B5", "input": "#E8E8E8"}


def draw(ax, circuit: Circuit, labels: Mapping[int, str] | None = None) -> None:
    """Draw a circuit of at most 60 gates into the axes; wires that carry a negated input are thin and grey.

    labels: text under the symbol of a wire number. Raises ValueError for larger circuits.
    """
    if circuit.size > MAX_GATES:
        raise ValueError(f"circuit has {circuit.size} gates; at most {MAX_GATES} can be read in a picture")
    place, first = _layout(circuit), len(circuit.inputs)
    for number, (kind, wires) in enumerate(circuit.gates, start=first):
        x, y = place[number]
        for w in wires:
            negated = kind != "NOT" and w >= first and circuit.gates[w - first][0] == "NOT"
            look = {"color": "#BDBDBD", "lw": 0.6, "zorder": 1} if negated else {"color": COLOURS["blue"], "lw": 1.4, "zorder": 2}
            ax.plot([place[w][0], x], [place[w][1], y], **look)
    for number, at in place.items():
        _symbol(ax, circuit, number, at)
    for number, text in (labels or {}).items():
        x, y = place[number]
        ax.text(x, y - 0.36, text, ha="center", va="center", fontsize=10, zorder=5,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5})  # fmt: skip
    for name, w in circuit.outputs:
        x, y = place[w]
        side = -1 if x < 0.5 else 1
        ax.annotate(
            name, (x, y), (x + 0.055 * side, y + 0.42), ha="right" if side < 0 else "left", va="center", fontsize=11.5,
            fontweight="bold", zorder=2, arrowprops={"arrowstyle": "<-", "color": "#404040", "shrinkB": 9},
        )  # fmt: skip
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.5, 1.3 * max(circuit.levels()) + 0.75))
    ax.set_axis_off()


def term_labels(circuit: Circuit) -> dict[int, str]:
    """For each AND gate that reads inputs or their negations, the numbers of the inputs that it wants to be 1."""
    first = len(circuit.inputs)
    found = {}
    for number, (kind, wires) in enumerate(circuit.gates, start=first):
        if kind == "AND" and any(w < first for w in wires):
            found[number] = "".join(circuit.inputs[w].removeprefix("x") for w in wires if w < first)
    return found


def _symbol(ax, circuit: Circuit, number: int, at: tuple[float, float]) -> None:
    first = len(circuit.inputs)
    kind = "input" if number < first else circuit.gates[number - first][0]
    text = f"${circuit.inputs[number][0]}_{{{circuit.inputs[number][1:]}}}$" if kind == "input" else SYMBOLS[kind]
    ax.text(*at, text, ha="center", va="center", fontsize=11, zorder=4,
            bbox={"boxstyle": "circle,pad=0.25", "facecolor": FILLS[kind], "edgecolor": "#404040", "linewidth": 0.9})  # fmt: skip


def _layout(circuit: Circuit) -> dict[int, tuple[float, float]]:
    """(x, y) by wire: y is the level, x spreads each level evenly; terms stand by the number of inputs that they want."""
    level = circuit.levels()
    first, place = len(circuit.inputs), {}

    def order(w):
        wires = circuit.gates[w - first][1] if w >= first else ()
        wanted = [v for v in wires if v < first]
        return (len(wanted), wanted, w) if len(wires) > 1 else (0, wires, w)

    for y in range(max(level) + 1):
        here = sorted((w for w, at in enumerate(level) if at == y), key=order)
        for slot, w in enumerate(here):
            place[w] = ((slot + 0.5) / len(here), 1.3 * y)
    return place
