"""Words over F and R: reading, printing, counting."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridseq.mixers.hybrid_word import HybridWord


@given(st.text("FR", min_size=1, max_size=40))
def test_a_word_survives_reading_and_printing(text):
    word = HybridWord.parse(text)
    assert word.letters == text
    assert HybridWord.parse(str(word)) == word
    assert HybridWord.from_gaps(word.gaps) == word
    assert (word.full, word.recurrent) == (text.count("F"), text.count("R"))
    assert word.state_numbers(cache=8, state=16, seq_len=10) == 80 * word.full + 16 * word.recurrent


@pytest.mark.parametrize(
    "text, printed, gaps",
    [
        ("FF", "F^2", (0, 0, 0)),
        ("RFF", "R F^2", (1, 0, 0)),
        ("R^3 F R R F", "R^3 F R^2 F", (3, 2, 0)),
        ("RR", "R^2", (2,)),
    ],
)
def test_known_words(text, printed, gaps):
    word = HybridWord.parse(text)
    assert str(word) == printed and word.gaps == gaps


def test_the_hybrid_of_the_lower_bound_is_not_written_out():
    """(L-1, 2^(3L^2), ..., 2^(3L^2)) for L = 3: two full layers, 3 * 2^27 recurrent ones."""
    word = HybridWord.from_gaps([2**27] * 3)
    assert (word.full, word.recurrent) == (2, 3 * 2**27)
    assert str(word) == "R^134217728 F R^134217728 F R^134217728"


@pytest.mark.parametrize("text", ["", "FRX", "R^", "^3", "f"])
def test_bad_words(text):
    with pytest.raises(ValueError, match="word"):
        HybridWord.parse(text)


def test_bad_runs():
    with pytest.raises(ValueError, match="count"):
        HybridWord((("F", 0),))
    with pytest.raises(ValueError, match="letter"):
        HybridWord((("G", 1),))
    with pytest.raises(ValueError, match="count"):
        HybridWord.parse("R^0")
