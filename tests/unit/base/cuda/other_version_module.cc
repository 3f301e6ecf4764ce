// A CUDA module of another version than the programs.
#include "base/cuda/table.h"

extern "C" const longhaul::cuda::DeviceTable* longhaul_cuda_device_table() {
  static const longhaul::cuda::DeviceTable table{.version = longhaul::cuda::kTableVersion + 1};
  return &table;
}
