"""Coders and transforms of the LC family as stages of briquette, and the presets that end in them."""
