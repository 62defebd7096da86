"""The command line `hybridseq`: run chapters, build the site, show the claims, train sweeps, look at the machine.

Exit codes: 0 all well; 1 a chapter, a claim or the site failed; 2 wrong input; 130 interrupted.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import yaml

from hybridseq.site.book import PROFILES, Book, check_profile
from hybridseq.site.errors import BadInput, BookFailed

_CONTEXT = {"help_option_names": ["-h", "--help"]}


class _Commands(click.Group):
    """Turns the two failures of the book into messages on standard error and exit codes."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BadInput as error:
            click.echo(f"hybridseq: {error}", err=True)
            ctx.exit(2)
        except BookFailed as failure:
            click.echo(f"\nhybridseq: {_count(len(failure.problems), 'problem')}", err=True)
            for problem in failure.problems:
                click.echo(f"* {problem}", err=True)
            ctx.exit(1)
        except KeyboardInterrupt:
            click.echo("\nhybridseq: interrupted; earlier executions and the site are as they were", err=True)
            ctx.exit(130)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


@click.group(cls=_Commands, context_settings=_CONTEXT)
@click.version_option(package_name="hybridseq", prog_name="hybridseq")
@click.option("--root", type=click.Path(path_type=Path), default=None,
              help="The folder of the book. [default: the one that holds the working folder]")
@click.pass_context
def main(ctx: click.Context, root: Path | None) -> None:
    """Hybrid sequence models, executed: run the chapters, check their claims, build the book."""
    ctx.obj = root


_profile = click.option("--profile", default="quick", show_default=True, metavar="|".join(PROFILES),
                        help="quick: at most a minute a chapter. full: larger exhaustive scopes.")
_jobs = click.option("--jobs", type=int, default=2, show_default=True, help="Chapters that run at the same time.")
_force = click.option("--force", is_flag=True, help="Run chapters again although nothing changed.")


@main.command()
@click.argument("chapters", nargs=-1, metavar="[CHAPTER]...")
@_profile
@_jobs
@_force
@click.option("-p", "--parameter", "parameters", multiple=True, metavar="NAME=VALUE",
              help="Set a name of the chapters' parameters cell. Such runs never count for claims or site.")
@click.pass_obj
def run(root: Path | None, chapters: tuple[str, ...], profile: str, jobs: int, force: bool, parameters: tuple[str, ...]) -> None:
    """Execute chapters (all of them by default) and check their claims.

    CHAPTER is a number (4) or a name (04_a_parity_bit). A chapter whose text, package, data and settings are those of its
    last run is not run again.
    """
    from hybridseq.site.build import check_executions
    from hybridseq.site.execute import run_chapters
    from hybridseq.site.progress import ChapterProgress

    book = Book.find(root)
    chosen = book.select(chapters)
    settings = parse_parameters(parameters)
    _announce(book, chosen, check_profile(profile))
    with ChapterProgress() as progress:
        executions = run_chapters(book, chosen, profile, settings, jobs, force, progress)
    if settings:
        for execution in executions:
            click.echo(f"{execution.chapter.label}: {execution.notebook_path}")
        return
    check_executions(book, executions)
    decided = sum(len(execution.claims) for execution in executions)
    counts = f"{_count(len(executions), 'chapter')} executed, {_count(decided, 'claim')} decided as expected"
    click.echo(f"{counts} ({profile} profile).")


@main.command()
@_profile
@_jobs
@_force
@click.pass_obj
def build(root: Path | None, profile: str, jobs: int, force: bool) -> None:
    """Build the site, executing what changed.

    The pages are exactly the executed chapters. Any failing cell, unexpected verdict, picture without texts or broken
    reference stops the build and leaves the previous site in place.
    """
    from hybridseq.site.build import build_site
    from hybridseq.site.progress import ChapterProgress

    book = Book.find(root)
    _announce(book, book.chapters, check_profile(profile))
    with ChapterProgress() as progress:
        site = build_site(book, profile, jobs, force, progress, lambda: progress.say("  rendering the site"))
    click.echo("The site is built." if site.rebuilt else "The site is up to date.")
    click.echo(f"Open {site.index.as_uri()}")


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print the whole ledger as a JSON list.")
@_profile
@click.pass_obj
def claims(root: Path | None, as_json: bool, profile: str) -> None:
    """Show every claim with its verdict.

    The verdict is that of the chapter's current run. A claim whose chapter has not been run, or has changed since, is
    "not built".
    """
    from hybridseq.site.ledger import ledger_as_json, merge, summary

    merged = merge(Book.find(root), check_profile(profile))
    if as_json:
        click.echo(ledger_as_json(merged))
        return
    for claim in merged:
        behind = "; ".join(filter(None, (", ".join(claim.evidence), claim.scope or claim.note)))
        click.echo(f"{claim.entry.id:<18} {claim.entry.chapter:>2}  {claim.verdict:<18} {behind}".rstrip())
    click.echo(", ".join(f"{count} {verdict}" for verdict, count in summary(merged).items()))


@main.command()
@click.pass_obj
def doctor(root: Path | None) -> None:
    """Say whether `make book` and `make test` work here.

    Each line is ok, note (something would not be run here, with the fix) or fail. Exit code 1 if anything fails.
    """
    from hybridseq.site.doctor import examine

    findings = examine(Book.find(root))
    for finding in findings:
        click.echo(f"{finding.state:<5} {finding.what}" + (f"\n      fix: {finding.fix}" if finding.fix else ""))
    if any(finding.state == "fail" for finding in findings):
        sys.exit(1)


@main.command()
@click.argument("name", required=False)
@click.option("--list", "as_list", is_flag=True, help="List the sweeps: runs done, core-minutes left.")
@click.option("--jobs", type=int, default=None, help="Runs trained at the same time. [default: the cores of this machine]")
@click.option("--cluster", metavar="tcp://HOST:PORT|local", default=None, help="Train on a Dask cluster.")
@click.option("--points", "pattern", metavar="FILTER", default=None,
              help="Only these points or architectures: SSM-TF-16, or 'TF-TF,SSM-*'.")
@click.option("--phase", type=click.Choice(("select", "report")), default=None,
              help="Only the runs that choose learning rates, or only those that are reported.")
@click.option("--limit", type=float, metavar="MINUTES", default=None, help="Begin no further run after this time.")
@click.option("--backend", default="auto", show_default=True, metavar="auto|native|ensemble|plain", help="What trains.")
@click.option("--results", type=click.Path(path_type=Path, file_okay=False), default=None,
              help="The folder of all results. [default: book/results]")
@click.option("--fresh", is_flag=True, help="Put stale runs aside (nothing is deleted) and train them again.")
@click.option("--renew", type=int, metavar="N", default=None,
              help="Train N stale runs again; if they come out digit for digit, keep all of them.")
@click.option("--dry-run", is_flag=True, help="Only show what would be trained, its cost, and what is stale.")
@click.pass_obj
def sweep(root: Path | None, name: str | None, as_list: bool, results: Path | None, **options: Any) -> None:
    """Train the runs behind a learned figure, or those that are missing.

    A finished run is kept at once: stop and start again as you like. Exit codes: 0 done, or stopped by --limit; 1 a run failed,
    or another sweep writes the folder; 2 wrong input; 130 interrupted.
    """
    from hybridseq.learning import catalogue
    from hybridseq.site.sweeps import finish_command, list_lines, plain_errors, run_sweep

    with plain_errors():
        folder = results or Book.find(root).root / "book" / "results"
        if as_list:
            click.echo("\n".join(list_lines(folder)))
            return
        if name is None:
            raise BadInput(f"sweep: name one of {', '.join(catalogue.SWEEPS)}, or say --list")
        # The command that goes on must not put aside, or examine, once more.
        typed = {"--points": options["pattern"], "--phase": options["phase"], "--jobs": options["jobs"],
                 "--cluster": options["cluster"], "--limit": options["limit"],
                 "--backend": None if options["backend"] == "auto" else options["backend"], "--results": results}
        code = run_sweep(catalogue.find(name), results=folder, command=finish_command(name, typed), **options)
    sys.exit(code)


def parse_parameters(pairs: tuple[str, ...]) -> dict[str, Any]:
    """Values are read as YAML: numbers, booleans, lists and words.

    >>> parse_parameters(("seed=3", "sizes=[4, 8]"))
    {'seed': 3, 'sizes': [4, 8]}
    """
    parsed = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise BadInput(f"--parameter: {pair!r} is not of the form NAME=VALUE, for example seed=1")
        parsed[name] = yaml.safe_load(value)
    return parsed


def _announce(book: Book, chapters: tuple, profile: str) -> None:
    """The full profile says first how long it takes."""
    if profile != "full":
        return
    known = [book.expected_minutes[c.number] for c in chapters if c.number in book.expected_minutes]
    unknown = [str(c.number) for c in chapters if c.number not in book.expected_minutes]
    text = f"full profile: about {sum(known):g} minutes of one core for {len(known)} chapters"
    click.echo(text + (f"; not measured: chapters {', '.join(unknown)}" if unknown else ""), err=True)
