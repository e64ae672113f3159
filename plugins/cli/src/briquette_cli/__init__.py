"""Command line of briquette."""
