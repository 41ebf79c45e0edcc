"""The tuner: from an application and contracts to a decision."""
