"""Protocols on generated or given input, checked against sequential answers."""
