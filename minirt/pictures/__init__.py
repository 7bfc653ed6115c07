"""Pictures of checkpoints: from what was noted of one to lanes, the critical path, SVG and a page."""
