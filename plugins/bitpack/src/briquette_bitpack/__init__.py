"""Segment coder stages of briquette, and the presets that end in them."""
