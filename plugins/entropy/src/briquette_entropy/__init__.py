"""Entropy coding of whole streams as stages of briquette."""
