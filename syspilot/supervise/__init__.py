"""Parts of the supervisor process: standard library only, started under `python -I -S`."""
