"""What every other layer stands on: dtypes, symbolic dimensions, types, locations, errors, settings."""
