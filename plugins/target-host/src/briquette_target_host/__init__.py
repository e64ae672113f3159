"""CPU target of briquette: C++ compiled at run time."""
