#include "codec/cuda/cuda_tagc.h"

#include "codec/cuda/device_checks.h"
#include "codec/cuda/kernel_table.h"
#include "codec/tagc/select.h"

namespace longhaul::codec::cuda {
namespace {

constexpr size_t kScratchAlignment = 16;
constexpr uint64_t kMostValues = uint64_t{1} << 31;

Status CheckTagcMemory(const void* memory, size_t alignment, std::string_view what) {
  return CheckAligned("tagc", what, memory, alignment);
}
Status CheckTagcScratch(DeviceSpan scratch, size_t needed) {
  LH_RETURN_IF_ERROR(CheckTagcMemory(scratch.data_dev, kScratchAlignment, "scratch memory"));
  if (scratch.bytes >= needed) return absl::OkStatus();
  return InvalidArgument("tagc: expected {} bytes of scratch memory, got {}", needed,
                         scratch.bytes);
}

}  // namespace

size_t TagcSelectScratchBytes(uint64_t count) {
  return TagcSelectScratch(count).end;
}

Status TagcSelect(const float* values_dev, uint64_t count, uint64_t keep, uint64_t* bitmap_dev,
                  DeviceSpan scratch, const longhaul::cuda::Stream& stream) {
  if (count == 0 || count > kMostValues || keep == 0 || keep > count) {
    return InvalidArgument("tagc: cannot keep {} of {} values", keep, count);
  }
  LH_RETURN_IF_ERROR(CheckTagcMemory(values_dev, alignof(float), "values"));
  LH_RETURN_IF_ERROR(CheckTagcMemory(bitmap_dev, alignof(uint64_t), "a bitmap"));
  LH_RETURN_IF_ERROR(CheckTagcScratch(scratch, TagcSelectScratchBytes(count)));
  static_assert(sizeof(uint64_t) == sizeof(unsigned long long));
  const TagcSelectArgs args{.values_dev = values_dev,
                            .count = count,
                            .keep = keep,
                            .bitmap_dev = reinterpret_cast<unsigned long long*>(bitmap_dev),
                            .scratch_dev = static_cast<unsigned char*>(scratch.data_dev)};
  const longhaul::cuda::Device& device = stream.device();
  return device.Check(
      device.table().codec_kernels->tagc_select(device.index(), &args, stream.handle()),
      "queueing the selection of tagc");
}

}  // namespace longhaul::codec::cuda
