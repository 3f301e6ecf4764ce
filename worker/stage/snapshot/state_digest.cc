#include "worker/stage/snapshot/state_digest.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/hash.h"

namespace longhaul::worker {
namespace {

constexpr size_t kHostChunkBytes = 1 << 18;
// A GPU needs 16 bytes of working memory for each element of a chunk.
constexpr int64_t kDeviceChunkElements = 1 << 22;

uint64_t DigestOnHost(const std::vector<at::Tensor>& tensors) {
  std::vector<std::span<const std::byte>> chunks;
  for (const at::Tensor& tensor : tensors) {
    std::span<const std::byte> rest(static_cast<const std::byte*>(tensor.const_data_ptr()),
                                    tensor.nbytes());
    while (!rest.empty()) {
      chunks.push_back(rest.first(std::min(rest.size(), kHostChunkBytes)));
      rest = rest.subspan(chunks.back().size());
    }
  }
  std::vector<uint64_t> digests(chunks.size());
  at::parallel_for(0, static_cast<int64_t>(chunks.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      digests[i] = Checksum64(chunks[i]);
    }
  });
  return Checksum64(std::as_bytes(std::span(digests)));
}

// Each chunk's digest is the sum of its elements' bits, each times an odd number of its own, modulo
// 2^64. So one changed element always changes the sum.
uint64_t DigestOnGpu(const std::vector<at::Tensor>& tensors) {
  const at::Device device = tensors.front().device();
  at::Tensor weights;
  std::vector<at::Tensor> sums;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor bits =
        tensor.reshape({-1}).view(tensor.element_size() == 2 ? at::kShort : at::kInt);
    for (int64_t first = 0; first < bits.numel(); first += kDeviceChunkElements) {
      const int64_t count = std::min(kDeviceChunkElements, bits.numel() - first);
      if (!weights.defined()) {
        constexpr int64_t kOdd = 0x1E3779B97F4A7C15;
        weights = at::arange(kDeviceChunkElements, at::TensorOptions(at::kLong).device(device))
                      .mul_(kOdd)
                      .bitwise_or_(1);
      }
      sums.push_back(bits.narrow(0, first, count).mul(weights.narrow(0, 0, count)).sum());
    }
  }
  if (sums.empty()) return Checksum64({});
  const at::Tensor on_host = at::stack(sums).cpu();
  return Checksum64(std::as_bytes(
      std::span(on_host.const_data_ptr<int64_t>(), static_cast<size_t>(on_host.numel()))));
}

}  // namespace

uint64_t DigestOfTensors(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> dense;
  dense.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) dense.push_back(tensor.detach().contiguous());
  return dense.empty() || dense.front().is_cpu() ? DigestOnHost(dense) : DigestOnGpu(dense);
}

}  // namespace longhaul::worker
