// A digest of tensors' bits. On the CPU by several threads, on a GPU by LibTorch's integer sums, so
// little is copied. Digests of the two kinds of devices differ.
//
// Internal to worker/stage (it shows LibTorch). Threads: any. Errors: LibTorch's exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace longhaul::worker {

// `tensors`: fp32 or bf16, all on one device. Waits for the device.
uint64_t DigestOfTensors(const std::vector<at::Tensor>& tensors);

}  // namespace longhaul::worker
