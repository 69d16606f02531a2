"""The figures of the paper, and ours: one file each, `run` measures, `plot` draws."""
