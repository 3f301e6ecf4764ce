#include "worker/checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

namespace longhaul::worker {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::string_view kMetadataKey = "__metadata__";
constexpr uint64_t kHeaderLimit = 100'000'000;  // bytes; the limit of the format's own library
constexpr size_t kAlignment = 8;

Status Wrong(std::string problem) {
  return absl::InvalidArgumentError("not a safetensors file of fp32: " + std::move(problem));
}

struct Entry {
  std::string name;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // of the data
};

std::optional<uint64_t> AsUnsigned(const Json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  return value.get<uint64_t>();
}

// Bytes of an fp32 array of this shape, if it can be one.
std::optional<uint64_t> BytesOf(const std::vector<int64_t>& shape) {
  uint64_t bytes = sizeof(float);
  for (const int64_t extent : shape) {
    if (extent != 0 && bytes > std::numeric_limits<uint64_t>::max() / extent) return std::nullopt;
    bytes *= static_cast<uint64_t>(extent);
  }
  return bytes;
}

StatusOr<Entry> ParseEntry(const std::string& name, const Json& json) {
  Entry entry{.name = name};
  if (!json.is_object() || !json.contains("dtype") || !json.contains("shape") ||
      !json.contains("data_offsets")) {
    return Wrong(fmt::format("'{}' lacks dtype, shape or data_offsets", name));
  }
  if (json["dtype"] != "F32") {
    return Wrong(fmt::format("'{}' has another dtype than F32", name));
  }
  const Json& shape = json["shape"];
  const Json& offsets = json["data_offsets"];
  if (!shape.is_array() || !offsets.is_array() || offsets.size() != 2) {
    return Wrong(fmt::format("'{}' has a shape or data_offsets that are no lists", name));
  }
  for (const Json& extent : shape) {
    const auto value = AsUnsigned(extent);
    if (!value || *value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Wrong(fmt::format("'{}' has an impossible shape", name));
    }
    entry.shape.push_back(static_cast<int64_t>(*value));
  }
  const auto begin = AsUnsigned(offsets[0]), end = AsUnsigned(offsets[1]);
  const auto bytes = BytesOf(entry.shape);
  if (!begin || !end || !bytes || *begin > *end || *end - *begin != *bytes) {
    return Wrong(fmt::format("'{}' has data_offsets that do not fit its shape", name));
  }
  entry.begin = *begin;
  entry.end = *end;
  return entry;
}

Status ParseMetadata(const Json& json, SafetensorsMetadata* metadata) {
  if (!json.is_object()) return Wrong("its metadata are no object");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) return Wrong(fmt::format("its metadata '{}' is no text", key));
    (*metadata)[key] = value.get<std::string>();
  }
  return absl::OkStatus();
}

// The entries in the order of their bytes, which must cover the data without gap or overlap.
StatusOr<std::vector<Entry>> ParseHeader(std::string_view header, uint64_t data_bytes,
                                         SafetensorsMetadata* metadata) {
  const Json json = Json::parse(header, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Wrong("its header is no JSON object");
  std::vector<Entry> entries;
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadataKey) {
      LH_RETURN_IF_ERROR(ParseMetadata(value, metadata));
      continue;
    }
    LH_ASSIGN_OR_RETURN(Entry entry, ParseEntry(name, value));
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t covered = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != covered) {
      return Wrong(
          fmt::format("'{}' begins at byte {} instead of {}", entry.name, entry.begin, covered));
    }
    covered = entry.end;
  }
  if (covered != data_bytes) {
    return Wrong(fmt::format("its tensors have {} bytes, but {} follow the header; it was cut",
                             covered, data_bytes));
  }
  return entries;
}

}  // namespace

std::string SafetensorsHeader(const std::vector<NamedArray>& arrays,
                              const SafetensorsMetadata& metadata) {
  Json json;
  json[kMetadataKey] = metadata;
  uint64_t offset = 0;
  for (const NamedArray& array : arrays) {
    const uint64_t end = offset + array.values.size() * sizeof(float);
    json[array.name] = {{"dtype", "F32"}, {"shape", array.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = json.dump();
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  const uint64_t size = text.size();
  std::string header(sizeof(size), '\0');
  std::memcpy(header.data(), &size, sizeof(size));
  return header + text;
}

StatusOr<Safetensors> ParseSafetensors(std::span<const std::byte> bytes) {
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof(header_bytes)) {
    return Wrong(fmt::format("it has {} bytes", bytes.size()));
  }
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  if (header_bytes > kHeaderLimit || header_bytes > bytes.size() - sizeof(header_bytes)) {
    return Wrong(fmt::format("it promises a header of {} bytes and has {} in all", header_bytes,
                             bytes.size()));
  }
  const std::string_view header(reinterpret_cast<const char*>(bytes.data() + sizeof(header_bytes)),
                                header_bytes);
  const std::span<const std::byte> data = bytes.subspan(sizeof(header_bytes) + header_bytes);
  Safetensors result;
  LH_ASSIGN_OR_RETURN(std::vector<Entry> entries,
                      ParseHeader(header, data.size(), &result.metadata));
  for (Entry& entry : entries) {
    NamedArray array{std::move(entry.name), std::move(entry.shape), {}};
    array.values.resize((entry.end - entry.begin) / sizeof(float));
    if (!array.values.empty()) {
      std::memcpy(array.values.data(), data.data() + entry.begin, entry.end - entry.begin);
    }
    result.arrays.push_back(std::move(array));
  }
  return result;
}

}  // namespace longhaul::worker
