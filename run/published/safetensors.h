// The safetensors format: 8 bytes header length (little-endian), a JSON header of tensors and text
// metadata, the tensors' bytes without gaps. Here is the table of a file's tensors; the numbers are
// read where they are needed.
//
// Pure, thread-safe.
#ifndef LONGHAUL_RUN_PUBLISHED_SAFETENSORS_H_
#define LONGHAUL_RUN_PUBLISHED_SAFETENSORS_H_

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
  std::string type;  // as the format calls it: "F32", "BF16", "F16", "I64", ...
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes of the file
};

struct SafetensorsTable {
  SafetensorsMetadata metadata;
  std::vector<TensorEntry> tensors;  // in the order of their bytes
};

// Bytes of a number of this type; 0: an unknown type, for example one of less than a byte.
uint32_t BytesOfType(std::string_view type);

// How many bytes of a file's beginning ParseSafetensorsTable needs. `start`: 8 bytes of it, or
// more.
StatusOr<uint64_t> SafetensorsHeaderBytes(std::span<const std::byte> start, uint64_t file_bytes);

// `start`: that many bytes, or more; it may be hostile. kInvalidArgument says what is wrong with
// it.
StatusOr<SafetensorsTable> ParseSafetensorsTable(std::span<const std::byte> start,
                                                 uint64_t file_bytes);

// What precedes the tensors' bytes in a file. `tensors`: without `begin` and `end`, which follow
// from types and shapes.
std::string SafetensorsHeader(const std::vector<TensorEntry>& tensors,
                              const SafetensorsMetadata& metadata);

}  // namespace longhaul::published

#endif  // LONGHAUL_RUN_PUBLISHED_SAFETENSORS_H_
