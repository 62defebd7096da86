"""How checks and verdicts look in a notebook and on the page."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hybridseq.evidence.checks import Check
    from hybridseq.evidence.verdicts import Verdict


def _slug(text: str) -> str:
    return text.replace(" ", "-")


def _number(value) -> str:
    if isinstance(value, float) and not value.is_integer():
        return f"{value:.4g}"
    return str(value)


def _check_item(check: Check) -> str:
    from hybridseq.evidence.checks import plain

    mark = "✓" if check.passed else "✗"
    plural = "s" if check.cases != 1 else ""
    text = f"{mark} {escape(check.name)}: {escape(check.scope)} ({check.cases:,} case{plural})"
    if check.passed:
        return f'<li class="check-pass">{text}</li>'
    return f'<li class="check-fail">{text}<br><code>counter-example: {escape(str(plain(check.counterexample)))}</code></li>'


def check_html(check: Check) -> str:
    """One check as a box of its own."""
    return f'<div class="hybridseq-check"><ul>{_check_item(check)}</ul></div>'


def verdict_html(decided: Verdict) -> str:
    """The box of a decided claim; its id is what the claims page links to."""
    from hybridseq.evidence.verdicts import anchor

    values = " · ".join(f"{escape(str(k))} = {escape(_number(v))}" for k, v in decided.value.items())
    parts = [
        f'<div class="hybridseq-claim" id="{anchor(decided.claim)}" role="group" aria-label="Claim {escape(decided.claim)}">',
        f'<p class="claim-head"><span class="claim-id">{escape(decided.claim)}</span> ',
        f'<span class="verdict verdict-{_slug(decided.verdict)}">{escape(decided.verdict)}</span> ',
        f'<span class="claim-evidence">{escape(", ".join(decided.evidence))}</span></p>',
        f'<p class="claim-scope">Scope: {escape(decided.scope)}</p>',
        f"<ul>{''.join(_check_item(check) for check in decided.checks)}</ul>",
    ]
    if values:
        parts.append(f'<p class="claim-value">{values}</p>')
    if decided.note:
        parts.append(f'<p class="claim-note">{escape(decided.note)}</p>')
    return "".join([*parts, "</div>"])
