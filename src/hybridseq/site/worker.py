"""Execute one chapter in a process of its own, so that its time and memory are its own: `python -m hybridseq.site.worker`.

Reads one line of JSON on standard input (notebook, output, parameters, cwd, timeout), writes one JSON object a line on
standard output: {"cell": i, "of": n} as cells begin, last {"ok": true} or {"error": {...}} with the failing cell. When its
standard input closes, whoever started it is gone: it ends its kernel and itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import threading
import time
import warnings
from typing import Any


def execute(spec: dict[str, Any]) -> dict[str, Any]:
    """Run the notebook of `spec` through papermill; returns {"ok": ...} with time and memory, or {"error": ...}.

    `cpu_s` and `peak_mb` are those of the kernel process (getrusage of waited-for children), not of papermill.
    """
    import papermill
    from papermill.exceptions import PapermillExecutionError

    _register_reporting_engine()
    started = time.perf_counter()
    try:
        papermill.execute_notebook(
            spec["notebook"],
            spec["output"],
            parameters=spec["parameters"],
            engine_name="hybridseq",
            kernel_name="python3",
            cwd=spec["cwd"],
            progress_bar=False,
            request_save_on_cell_execute=False,
            execution_timeout=spec["timeout"],
            start_timeout=120,
        )
    except PapermillExecutionError as error:
        return {"error": {"cell": error.cell_index, "name": error.ename, "value": error.evalue,
                          "traceback": [str(line) for line in error.traceback]}}
    except Exception as error:
        return {"error": {"cell": _Progress.cell, "name": type(error).__name__, "value": str(error), "traceback": []}}
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    unit = 1 if sys.platform == "darwin" else 1024
    return {
        "ok": True,
        "wall_s": time.perf_counter() - started,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_mb": usage.ru_maxrss * unit / 1e6,
    }


class _Progress:
    cell: int | None = None


def _register_reporting_engine() -> None:
    from papermill.engines import NBClientEngine, papermill_engines

    class ReportingEngine(NBClientEngine):
        """papermill's own engine, saying which cell begins."""

        @classmethod
        def execute_managed_notebook(cls, nb_man, kernel_name, **options):
            begin = nb_man.cell_start

            def cell_start(cell, cell_index=None, **more):
                _Progress.cell = cell_index
                _say({"cell": cell_index, "of": len(nb_man.nb.cells)})
                return begin(cell, cell_index, **more)

            nb_man.cell_start = cell_start
            return super().execute_managed_notebook(nb_man, kernel_name, **options)

    papermill_engines.register("hybridseq", ReportingEngine)


def _end_with_parent() -> None:
    import psutil

    sys.stdin.read()
    for kernel in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            kernel.kill()
    os._exit(1)


def _say(message: dict[str, Any]) -> None:
    print(json.dumps(message), file=_channel, flush=True)


_channel = sys.stdout

if __name__ == "__main__":
    # Whatever a library prints must not mix with the messages.
    sys.stdout = sys.stderr
    warnings.simplefilter("ignore")
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _say(execute(order))
    _channel.flush()
    os._exit(0)  # the listening thread would hold the interpreter's own way out
