"""What takes a process of its own: fresh readers, machines without a compiler, damaged archives."""
