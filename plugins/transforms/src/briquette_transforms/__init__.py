"""Code-to-code transform stages of briquette."""
