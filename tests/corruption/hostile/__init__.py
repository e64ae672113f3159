"""Hostile archives: sound ones to start from, ways to damage them, and campaigns that feed the results to the readers."""
