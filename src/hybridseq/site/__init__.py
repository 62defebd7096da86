"""Running the chapters, keeping the ledger of claims, building the site, and the command line.

One execution of a chapter makes both the test and the page: `execute` runs it once per content key, `ledger` reads the
verdicts that the run recorded, `stage` and `build` render exactly the executed notebook.
"""
