"""GPU target of briquette: CUDA kernels compiled at run time by NVRTC."""
