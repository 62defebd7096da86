"""Atomic writes, certificates that notice a change, manifests, and the two profiles."""

import json
import os

import numpy as np
import pytest

from hybridseq.evidence import Certificate, Manifest, Profile, write_atomically
from hybridseq.evidence.provenance import canonical_json, content_hash

DATA = {"prompts": [[0, 1], [1, 1]], "state": np.array([1, 0]), "s": 2}


def test_write_then_replace(tmp_path):
    path = tmp_path / "deep" / "file.json"
    assert write_atomically(path, "old").read_text() == "old"
    assert write_atomically(path, "new é").read_text(encoding="utf-8") == "new é"
    assert [p.name for p in path.parent.iterdir()] == ["file.json"]


@pytest.mark.parametrize("step", ["fsync", "replace", "chmod"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch, step, error):
    path = write_atomically(tmp_path / "file.json", "old")

    def fail(*arguments):
        raise error

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(type(error)):
        write_atomically(path, "half of the new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file.json"]


def test_a_text_that_cannot_be_encoded_leaves_the_old_file(tmp_path):
    path = write_atomically(tmp_path / "file.json", "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "\ud800")
    assert path.read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def test_certificates_survive_the_journey():
    certificate = Certificate("state-collision", DATA)
    again = Certificate.from_json(certificate.to_json())
    assert again.kind == "state-collision" and again.hash == certificate.hash
    assert again.data["state"] == [1, 0]


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["data"].update(s=3),
        lambda c: c["data"]["prompts"][1].append(0),
        lambda c: c["data"].update(extra=None),
        lambda c: c["data"].pop("state"),
        lambda c: c.update(kind="window"),
        lambda c: c.update(hash=c["hash"][::-1]),
    ],
)
def test_a_changed_certificate_is_noticed(change):
    stored = json.loads(Certificate("state-collision", DATA).to_json())
    change(stored)
    with pytest.raises(ValueError, match="hash disagree"):
        Certificate.from_json(json.dumps(stored))


@pytest.mark.parametrize("text", ["{}", '{"kind": "a", "data": {}}', "[1]", "not json"])
def test_what_is_no_certificate(text):
    with pytest.raises(ValueError):
        Certificate.from_json(text)


def test_equal_data_have_equal_hashes():
    assert canonical_json({"b": 1, "a": (1, 2)}) == canonical_json({"a": [1, 2], "b": 1}) == '{"a":[1,2],"b":1}'
    assert content_hash({"a": np.int64(1)}) == content_hash({"a": 1}) != content_hash({"a": 1.5})


def test_manifest():
    manifest = Manifest("hybridseq sweep x", {"lr": 0.1}, seeds={"reported": [0, 1]}, selection="last step")
    data = manifest.as_dict()
    assert data["config_hash"] == content_hash({"lr": 0.1}) and data["seeds"] == {"reported": [0, 1]}
    assert data["versions"]["numpy"] == np.__version__ and data["machine"]["cores"] == os.cpu_count()
    json.dumps(data)


def test_profiles():
    assert Profile("quick").pick(quick=8, full=12) == 8
    assert Profile("full").pick(quick=8, full=12) == 12
    assert str(Profile("full")) == "full"
    for name in ("Quick", "", "fast", None):
        with pytest.raises(ValueError, match="quick, full"):
            Profile(name)
    with pytest.raises(TypeError):
        Profile("quick").pick(8, 12)
