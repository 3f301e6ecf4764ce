#include "codec/cuda/cuda_sdp4bit.h"

#include <algorithm>

#include "codec/cuda/device_checks.h"
#include "codec/cuda/kernel_table.h"
#include "codec/sdp4bit/format.h"

namespace longhaul::codec::cuda {
namespace {

constexpr size_t kSectionAlignment = 16;

Status CheckSdp4bitMemory(const void* memory, size_t alignment, std::string_view what) {
  return CheckAligned("sdp4bit", what, memory, alignment);
}
Status CheckSdp4bitGroup(uint32_t group) {
  if (group == sdp4bit::kGradientGroup || group == sdp4bit::kDifferenceGroup) {
    return absl::OkStatus();
  }
  return InvalidArgument("sdp4bit: on a GPU a group has 128 or 2048 numbers, not {}", group);
}

}  // namespace

Status Sdp4bitEncode(const float* values_dev, uint64_t count, uint32_t group,
                     const RoundingNoise* noise, uint64_t first, void* section_dev,
                     const longhaul::cuda::Stream& stream) {
  if (count == 0) return absl::OkStatus();
  LH_RETURN_IF_ERROR(CheckSdp4bitGroup(group));
  LH_RETURN_IF_ERROR(CheckSdp4bitMemory(values_dev, alignof(float), "an input"));
  LH_RETURN_IF_ERROR(CheckSdp4bitMemory(section_dev, kSectionAlignment, "a section"));
  // The encoder only reads the values.
  Sdp4bitArgs args{.values_dev = const_cast<float*>(values_dev),
                   .count = count,
                   .group = group,
                   .stochastic = noise != nullptr ? 1u : 0u,
                   .first = first,
                   .section_dev = static_cast<unsigned char*>(section_dev)};
  if (noise != nullptr) std::ranges::copy(noise->block(), args.noise);
  const longhaul::cuda::Device& device = stream.device();
  return device.Check(
      device.table().codec_kernels->sdp4bit_encode(device.index(), &args, stream.handle()),
      "queueing the encoder of sdp4bit");
}

Status Sdp4bitDecode(const void* section_dev, uint32_t group, float* out_dev, uint64_t count,
                     const longhaul::cuda::Stream& stream) {
  if (count == 0) return absl::OkStatus();
  LH_RETURN_IF_ERROR(CheckSdp4bitGroup(group));
  LH_RETURN_IF_ERROR(CheckSdp4bitMemory(out_dev, alignof(float), "an output"));
  LH_RETURN_IF_ERROR(CheckSdp4bitMemory(section_dev, kSectionAlignment, "a section"));
  // The decoder only reads the section.
  const Sdp4bitArgs args{
      .values_dev = out_dev,
      .count = count,
      .group = group,
      .section_dev = const_cast<unsigned char*>(static_cast<const unsigned char*>(section_dev))};
  const longhaul::cuda::Device& device = stream.device();
  return device.Check(
      device.table().codec_kernels->sdp4bit_decode(device.index(), &args, stream.handle()),
      "queueing the decoder of sdp4bit");
}

Status Sdp4bitTransform(float* values_dev, uint64_t count, bool back,
                        const longhaul::cuda::Stream& stream) {
  if (count == 0) return absl::OkStatus();
  LH_RETURN_IF_ERROR(CheckSdp4bitMemory(values_dev, alignof(float), "values"));
  if (count % sdp4bit::kHadamard != 0) {
    return InvalidArgument("sdp4bit: transforms are of multiples of 32 numbers, not of {}", count);
  }
  const longhaul::cuda::Device& device = stream.device();
  return device.Check(device.table().codec_kernels->sdp4bit_transform(device.index(), values_dev,
                                                                      count, back, stream.handle()),
                      "queueing the transform of sdp4bit");
}

Status Sdp4bitMean(std::span<const void* const> parts, uint32_t own, uint64_t count, float* out_dev,
                   const longhaul::cuda::Stream& stream) {
  if (count == 0) return absl::OkStatus();
  if (parts.empty() || parts.size() > kSdp4bitMostParts || own >= parts.size()) {
    return InvalidArgument(
        "sdp4bit: a mean is of 1 to {} parts, one of them this replica's, not {} and {}",
        kSdp4bitMostParts, parts.size(), own);
  }
  LH_RETURN_IF_ERROR(CheckSdp4bitMemory(out_dev, alignof(float), "an output"));
  Sdp4bitSumArgs args{};
  for (uint32_t part = 0; part < parts.size(); ++part) {
    LH_RETURN_IF_ERROR(CheckSdp4bitMemory(
        parts[part], part == own ? alignof(float) : kSectionAlignment, "a part of a mean"));
    args.parts_dev[part] = parts[part];
  }
  args.parts = static_cast<uint32_t>(parts.size());
  args.own = own;
  args.count = count;
  args.out_dev = out_dev;
  const longhaul::cuda::Device& device = stream.device();
  return device.Check(
      device.table().codec_kernels->sdp4bit_mean(device.index(), &args, stream.handle()),
      "queueing the mean of sdp4bit");
}

}  // namespace longhaul::codec::cuda
