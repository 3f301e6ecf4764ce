#include "worker/checkpoint/safetensors.h"

#include <cstring>
#include <utility>

namespace longhaul::worker {
namespace {

constexpr std::string_view kFp32 = "F32", kBf16 = "BF16";

}  // namespace

std::string SafetensorsHeader(const std::vector<NamedArray>& arrays,
                              const SafetensorsMetadata& metadata) {
  std::vector<published::TensorEntry> tensors;
  for (const NamedArray& array : arrays) {
    tensors.push_back({.name = array.name,
                       .type = std::string(array.halves.empty() ? kFp32 : kBf16),
                       .shape = array.shape});
  }
  return published::SafetensorsHeader(tensors, metadata);
}

StatusOr<Safetensors> ParseSafetensors(std::span<const std::byte> bytes) {
  LH_ASSIGN_OR_RETURN(published::SafetensorsTable table,
                      published::ParseSafetensorsTable(bytes, bytes.size()));
  Safetensors result{.metadata = std::move(table.metadata), .arrays = {}};
  for (published::TensorEntry& entry : table.tensors) {
    if (entry.type != kFp32 && entry.type != kBf16) {
      return InvalidArgument("not a checkpoint's shard: expected '{}' as F32 or BF16, got {}",
                             entry.name, entry.type);
    }
    NamedArray array{std::move(entry.name), std::move(entry.shape), {}};
    const auto copy_to = [&](auto& numbers) {
      numbers.resize((entry.end - entry.begin) / sizeof numbers[0]);
      if (!numbers.empty()) {
        std::memcpy(numbers.data(), bytes.data() + entry.begin, entry.end - entry.begin);
      }
    };
    entry.type == kFp32 ? copy_to(array.values) : copy_to(array.halves);
    result.arrays.push_back(std::move(array));
  }
  return result;
}

}  // namespace longhaul::worker
