"""LPCL, the language of Library Performance Contracts: pure, deterministic, imports lark and pydantic only."""
