"""Independent oracles: upstream's reference code, unmodified, read as text from pinned distributions. Imports nothing of ours.

`available()` says what can run here; a missing oracle raises `OracleMissing`, a changed one `OracleChanged`. What an oracle
shows is agreement with upstream's reference functions, not with its kernels.
"""

from hybridseq.oracles.references import ORACLES, Oracle, Status, available, find
from hybridseq.oracles.sources import Excerpt, OracleChanged, OracleMissing

__all__ = ["ORACLES", "Excerpt", "Oracle", "OracleChanged", "OracleMissing", "Status", "available", "find"]
