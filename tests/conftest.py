"""Settings for all tests."""

from hypothesis import settings

# Machines differ and are shared: how long an example takes is no property of the code.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
