"""Experiments: tasks, figures, benchmarks, and the report that shows what was run here."""
