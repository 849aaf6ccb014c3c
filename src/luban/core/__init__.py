"""What every layer stands on: dtypes, symbolic dimensions, types, places, errors, settings."""
