"""Settings of the drawn tests."""

from hypothesis import settings

# The time of one drawn case says nothing on a machine that does other things as well.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
