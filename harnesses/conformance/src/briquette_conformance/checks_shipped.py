"""What a pack ships: headers in its wheel, archives of earlier releases."""
