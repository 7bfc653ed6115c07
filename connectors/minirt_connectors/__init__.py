"""Outside systems that minirt jobs read from, write to and are checked by: one folder each."""
