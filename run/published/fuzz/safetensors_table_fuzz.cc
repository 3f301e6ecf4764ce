// Any bytes as a safetensors file: its table is read or refused. Tensors lie in the file, one after
// the other, and the table can be written again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "base/fuzz/target.h"
#include "run/published/safetensors.h"

LH_FUZZ_TARGET(safetensors_table) {
  using namespace longhaul::published;  // NOLINT(google-build-using-namespace)
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto header_bytes = SafetensorsHeaderBytes(bytes, size);
  const auto table = ParseSafetensorsTable(bytes, size);
  if (!table.ok()) return false;
  if (!header_bytes.ok()) std::abort();
  uint64_t covered = *header_bytes;
  for (const TensorEntry& entry : table->tensors) {
    if (entry.begin != covered || entry.end < covered) std::abort();
    covered = entry.end;
  }
  if (covered != size) std::abort();
  const std::string header = SafetensorsHeader(table->tensors, table->metadata);
  const auto again = ParseSafetensorsTable(std::as_bytes(std::span(header)),
                                           header.size() + (size - *header_bytes));
  if (!again.ok() || again->metadata != table->metadata ||
      again->tensors.size() != table->tensors.size()) {
    std::abort();
  }
  return true;
}
