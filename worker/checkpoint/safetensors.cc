#include "worker/checkpoint/safetensors.h"

#include <cstring>
#include <utility>

namespace longhaul::worker {
namespace {

constexpr std::string_view kFp32 = "F32";

}  // namespace

std::string SafetensorsHeader(const std::vector<NamedArray>& arrays,
                              const SafetensorsMetadata& metadata) {
  std::vector<published::TensorEntry> tensors;
  for (const NamedArray& array : arrays) {
    tensors.push_back({.name = array.name, .type = std::string(kFp32), .shape = array.shape});
  }
  return published::SafetensorsHeader(tensors, metadata);
}

StatusOr<Safetensors> ParseSafetensors(std::span<const std::byte> bytes) {
  LH_ASSIGN_OR_RETURN(published::SafetensorsTable table,
                      published::ParseSafetensorsTable(bytes, bytes.size()));
  Safetensors result{.metadata = std::move(table.metadata), .arrays = {}};
  for (published::TensorEntry& entry : table.tensors) {
    if (entry.type != kFp32) {
      return InvalidArgument("not a checkpoint's shard: expected '{}' as F32, got {}", entry.name,
                             entry.type);
    }
    NamedArray array{std::move(entry.name), std::move(entry.shape), {}};
    array.values.resize((entry.end - entry.begin) / sizeof(float));
    if (!array.values.empty()) {
      std::memcpy(array.values.data(), bytes.data() + entry.begin, entry.end - entry.begin);
    }
    result.arrays.push_back(std::move(array));
  }
  return result;
}

}  // namespace longhaul::worker
