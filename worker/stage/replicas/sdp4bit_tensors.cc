#include "worker/stage/replicas/sdp4bit_tensors.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "codec/cuda/cuda_sdp4bit.h"
#include "codec/sdp4bit/cpu/kernels.h"
#include "codec/sdp4bit/format.h"
#include "worker/stage/device/torch_scope.h"

namespace longhaul::worker {
namespace {

namespace cpu = codec::sdp4bit::cpu;
using codec::sdp4bit::kGradientGroup;
using codec::sdp4bit::Transformed;

std::span<float> SpanOf(const at::Tensor& values) {
  return {values.data_ptr<float>(), static_cast<size_t>(values.numel())};
}
std::byte* BytesOf(const at::Tensor& section) {
  return reinterpret_cast<std::byte*>(section.data_ptr<uint8_t>());
}

// On which this thread computes.
cuda::Stream StreamOf(const cuda::Device& gpu, const at::Tensor& tensor) {
  const c10::impl::VirtualGuardImpl guard(tensor.device().type());
  return cuda::Stream::Borrow(gpu, guard.getStream(tensor.device()).native_handle());
}

}  // namespace

void Sdp4bitTensors::Encode(const at::Tensor& values, uint32_t group,
                            const codec::RoundingNoise* noise, uint64_t number,
                            const at::Tensor& section) const {
  if (!gpu_) return cpu::Encode(SpanOf(values), group, noise, number, BytesOf(section));
  ThrowIfError(codec::cuda::Sdp4bitEncode(values.const_data_ptr<float>(), SpanOf(values).size(),
                                          group, noise, number, BytesOf(section),
                                          StreamOf(*gpu_, values)));
}

void Sdp4bitTensors::Decode(const at::Tensor& section, uint32_t group,
                            const at::Tensor& out) const {
  if (!gpu_) return cpu::Decode(BytesOf(section), group, SpanOf(out));
  ThrowIfError(codec::cuda::Sdp4bitDecode(BytesOf(section), group, out.data_ptr<float>(),
                                          SpanOf(out).size(), StreamOf(*gpu_, out)));
}

void Sdp4bitTensors::Transform(const at::Tensor& values, bool back) const {
  if (!gpu_) return back ? cpu::TransformBack(SpanOf(values)) : cpu::Transform(SpanOf(values));
  ThrowIfError(codec::cuda::Sdp4bitTransform(values.data_ptr<float>(), SpanOf(values).size(), back,
                                             StreamOf(*gpu_, values)));
}

void Sdp4bitTensors::Mean(std::span<const at::Tensor> parts, size_t own,
                          const at::Tensor& out) const {
  const auto count = static_cast<uint64_t>(out.numel());
  if (gpu_) {
    std::vector<const void*> pointers;
    for (const at::Tensor& part : parts) pointers.push_back(part.const_data_ptr());
    return ThrowIfError(codec::cuda::Sdp4bitMean(pointers, static_cast<uint32_t>(own), count,
                                                 out.data_ptr<float>(), StreamOf(*gpu_, out)));
  }
  std::vector<float> sum(Transformed(count)), part(sum.size());
  for (size_t k = 0; k < parts.size(); ++k) {
    std::ranges::fill(part, 0.0f);
    if (k == own) {
      std::ranges::copy(SpanOf(parts[k]), part.begin());
      cpu::Transform(part);
    } else {
      cpu::Decode(BytesOf(parts[k]), kGradientGroup, part);
    }
    for (size_t i = 0; i < sum.size(); ++i) sum[i] = k == 0 ? part[i] : sum[i] + part[i];
  }
  cpu::TransformBack(sum);
  for (uint64_t i = 0; i < count; ++i) {
    SpanOf(out)[i] = sum[i] / static_cast<float>(parts.size());
  }
}

}  // namespace longhaul::worker
