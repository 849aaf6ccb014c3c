"""From graph to tile: one fusion node becomes one tile program with its grid."""
