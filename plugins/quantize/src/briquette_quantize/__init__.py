"""Quantizer stages of briquette."""
