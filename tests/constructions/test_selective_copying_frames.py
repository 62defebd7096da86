"""The frames of the page's stepper are those that the package computes."""

import json
import re

from hybridseq.constructions.selective_copying import RotaryCopyHybrid, frames


def test_the_script_holds_the_frames_of_the_package(project_root):
    text = (project_root / "book/_static/selective-copy.js").read_text(encoding="utf-8")
    stored = json.loads(re.search(r"const FRAMES = (\[.*?\n\]);", text, re.DOTALL)[1])
    model = RotaryCopyHybrid(4, 3)
    tokens = [model.task.vocabulary.index(frame["token"]) for frame in stored]
    assert frames(model, tokens) == stored
    assert all(frame["copied"] == frame["label"] for frame in stored)
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
