"""Tree-sitter walkers: from source files to observations."""
