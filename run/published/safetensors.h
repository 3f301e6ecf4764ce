// The safetensors format: 8 bytes of header length (little-endian), a JSON header with tensors and
// text metadata, and the tensors' bytes without gaps. The functions here parse or make the part
// before the tensors' bytes. They do not read these bytes.
//
// Pure, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace longhaul::published {

using SafetensorsMetadata = std::map<std::string, std::string>;

struct TensorEntry {
  std::string name;
  std::string type;  // the format's name: "F32", "BF16", "F16", "I64", ...
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // offsets in the file
};

struct SafetensorsTable {
  SafetensorsMetadata metadata;
  std::vector<TensorEntry> tensors;  // in the order of their bytes
};

// Bytes of one number of this type; 0: unknown, or smaller than a byte.
uint32_t BytesOfType(std::string_view type);

// Returns how many bytes from the file's beginning ParseSafetensorsTable needs. `start`: at least
// the file's first 8 bytes. `file_bytes`: the file's size. kInvalidArgument: the file is not a
// safetensors file, or `start` is too short.
StatusOr<uint64_t> SafetensorsHeaderBytes(std::span<const std::byte> start, uint64_t file_bytes);

// Parses the table of tensors. `start`: the file's first bytes, at least SafetensorsHeaderBytes.
// Every number is checked, because the file may be hostile. kInvalidArgument names the fault.
StatusOr<SafetensorsTable> ParseSafetensorsTable(std::span<const std::byte> start,
                                                 uint64_t file_bytes);

// Returns the bytes of a file that stand before the tensors' bytes. Computes the offsets from types
// and shapes; ignores `begin` and `end` of `tensors`. BytesOfType must know the types.
std::string SafetensorsHeader(const std::vector<TensorEntry>& tensors,
                              const SafetensorsMetadata& metadata);

}  // namespace longhaul::published
