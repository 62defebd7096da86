"""`python -m hybridseq` is the command line `hybridseq`."""

from hybridseq.site.cli import main

if __name__ == "__main__":
    main(prog_name="hybridseq")
