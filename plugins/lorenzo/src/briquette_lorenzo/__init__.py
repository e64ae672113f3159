"""Lorenzo predictor stages of briquette."""
