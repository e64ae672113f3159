"""What kernels do beside their results: races, overruns, what compilers for GPUs make of them, speed."""
