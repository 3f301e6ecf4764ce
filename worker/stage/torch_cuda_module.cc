// liblonghaul_torch_cuda.so: nothing of its own. It needs LibTorch's CUDA part, so that opening it
// opens that.
