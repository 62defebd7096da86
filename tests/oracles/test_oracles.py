"""Upstream's reference code against our mixers, and the loud failures of the loader."""

import dataclasses
import sys

import numpy as np
import pytest

from hybridseq.arithmetic import Float
from hybridseq.mixers.catalogue import catalogue, companions
from hybridseq.mixers.mamba_block import RandomMambaBlock
from hybridseq.mixers.qwen3_next import blocks
from hybridseq.oracles import ORACLES, Excerpt, OracleChanged, OracleMissing, available, find, sources
from hybridseq.oracles.sources import excerpts, fingerprint

OURS = {entry.name: entry for entry in [*catalogue(), *companions(), *blocks(), RandomMambaBlock()]}


def runnable(oracle):
    status = oracle.status()
    if status.status == "not run here":
        pytest.skip(f"oracle not run here: {status.fix}")
    return oracle


@pytest.mark.oracle
@pytest.mark.parametrize("oracle", ORACLES, ids=lambda o: o.name)
@pytest.mark.parametrize("seq_len", [1, 37, 65])
def test_agreement(oracle, seq_len):
    runnable(oracle)
    entry = OURS[oracle.mixer]
    arrays = entry.arrays(np.random.default_rng(seq_len), seq_len, (3,))
    ours, theirs = entry.run(Float(), arrays), oracle(**arrays)
    assert theirs.shape == ours.shape
    difference = np.abs(ours - theirs).max() / np.abs(theirs).max()
    assert difference <= oracle.tolerance, difference


@pytest.mark.oracle
@pytest.mark.parametrize("oracle", ORACLES, ids=lambda o: o.name)
def test_an_oracle_notices_a_wrong_mixer(oracle):
    """Change one input of ours by a hundredth: the comparison must see it."""
    runnable(oracle)
    entry = OURS[oracle.mixer]
    arrays = entry.arrays(np.random.default_rng(0), 20, (2,))
    name = "x" if "x" in arrays else "v"
    spoiled = arrays | {name: np.array(arrays[name])}
    spoiled[name][0, 3, 0] += 0.01
    difference = np.abs(entry.run(Float(), spoiled) - oracle(**arrays)).max()
    assert difference > 10 * oracle.tolerance


def test_every_mixer_of_the_table_has_an_oracle():
    assert {e.name for e in catalogue()} <= {o.mixer for o in ORACLES}


@pytest.mark.oracle
def test_nothing_of_the_packages_is_imported():
    before = {name.split(".")[0] for name in sys.modules}
    for oracle in ORACLES:
        runnable(oracle).excerpt.load()
    after = {name.split(".")[0] for name in sys.modules}
    assert not {"mamba_ssm", "fla", "transformers", "triton"} & (after - before)


def test_the_table_of_oracles():
    rows = available()
    assert len(rows) == len(ORACLES) and {r.status for r in rows} <= {"ready", "not run here"}
    for row in rows:
        assert (row.fix == "") == (row.status == "ready")


MISSING = Excerpt("no-such-distribution-anywhere", "1.0", "x.py", ("f",), "0")


def test_a_missing_package_is_said_and_raises():
    oracle = dataclasses.replace(ORACLES[0], excerpt=MISSING)
    row = oracle.status()
    assert row.status == "not run here" and row.installed is None and "make oracle" in row.fix
    with pytest.raises(OracleMissing, match="not installed"):
        oracle(q=np.zeros((1, 2, 3)))


def test_another_version_is_not_used():
    excerpt = Excerpt("numpy", "0.0.1", "numpy/__init__.py", ("f",), "0")
    with pytest.raises(OracleMissing, match=r"pinned text is that of 0\.0\.1"):
        excerpt.load()


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """An excerpt of a file of our own, as if it were installed."""
    source = "import nothing_like_this\n\n@decorator\ndef double(x):\n    return 2 * x\n"
    (tmp_path / "planted.py").write_text(source)
    digest = fingerprint(excerpts(source, ("double",)).values())
    excerpt = Excerpt("planted", "1.0", "planted.py", ("double",), digest)
    monkeypatch.setattr(Excerpt, "file", lambda self: tmp_path / self.path)
    yield excerpt, tmp_path / "planted.py"
    sources._load.cache_clear()


def test_only_the_named_text_runs(planted):
    excerpt, _ = planted
    assert excerpt.load()["double"](21) == 42


@pytest.mark.parametrize(
    "edit, message",
    [
        (("2 * x", "3 * x"), "sha256"),
        (("def double", "def twice"), "not defined any more"),
    ],
)
def test_a_changed_text_is_refused(planted, edit, message):
    excerpt, path = planted
    path.write_text(path.read_text().replace(*edit))
    with pytest.raises(OracleChanged, match=message):
        excerpt.load()
    row = dataclasses.replace(ORACLES[0], excerpt=excerpt).status()
    assert row.status == "changed"


def test_unknown_names_are_listed():
    with pytest.raises(ValueError, match="selective_scan_ref"):
        find("selective_scan_cuda")
