#include "run/published/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "run/published/wrong_file.h"

namespace longhaul::published {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::string_view kMetadataKey = "__metadata__";
constexpr uint64_t kHeaderLimit = 100'000'000;  // bytes; the limit of the format's own library
constexpr size_t kAlignment = 8;

Status Wrong(const std::string& problem) {
  return absl::InvalidArgumentError("not a safetensors file: " + problem);
}

std::optional<uint64_t> AsUnsigned(const Json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  return value.get<uint64_t>();
}

// Bytes of a tensor of this shape, if it can be one.
std::optional<uint64_t> BytesOf(std::string_view type, const std::vector<int64_t>& shape) {
  uint64_t bytes = BytesOfType(type);
  for (const int64_t extent : shape) {
    if (extent != 0 && bytes > std::numeric_limits<uint64_t>::max() / extent) return std::nullopt;
    bytes *= static_cast<uint64_t>(extent);
  }
  return bytes;
}

// Offsets count from the data's beginning.
StatusOr<TensorEntry> ParseEntry(const std::string& name, const Json& json) {
  TensorEntry entry{.name = name};
  if (!json.is_object() || !json.contains("dtype") || !json.contains("shape") ||
      !json.contains("data_offsets")) {
    return Wrong(fmt::format("'{}' lacks dtype, shape or data_offsets", name));
  }
  const Json &type = json["dtype"], &shape = json["shape"], &offsets = json["data_offsets"];
  if (!type.is_string() || BytesOfType(type.get<std::string>()) == 0) {
    return Wrong(fmt::format("'{}' has a dtype that longhaul does not know", name));
  }
  entry.type = type.get<std::string>();
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
  const auto bytes = BytesOf(entry.type, entry.shape);
  if (!begin || !end || !bytes || *begin > *end || *end - *begin != *bytes) {
    return Wrong(fmt::format("'{}' has data_offsets that do not fit its shape", name));
  }
  entry.begin = *begin;
  entry.end = *end;
  return entry;
}

Status ParseMetadata(const Json& json, SafetensorsMetadata* metadata) {
  if (json.is_null()) return absl::OkStatus();
  if (!json.is_object()) return Wrong("its metadata are no object");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) return Wrong(fmt::format("its metadata '{}' is no text", key));
    (*metadata)[key] = value.get<std::string>();
  }
  return absl::OkStatus();
}

}  // namespace

uint32_t BytesOfType(std::string_view type) {
  static const std::map<std::string_view, uint32_t> bytes = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1},
      {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},     {"U32", 4},
      {"F32", 4},  {"I64", 8}, {"U64", 8}, {"F64", 8},     {"C64", 8}};
  const auto it = bytes.find(type);
  return it == bytes.end() ? 0 : it->second;
}

StatusOr<uint64_t> SafetensorsHeaderBytes(std::span<const std::byte> start, uint64_t file_bytes) {
  uint64_t json_bytes = 0;
  if (std::min<uint64_t>(start.size(), file_bytes) < sizeof(json_bytes)) {
    return Wrong(fmt::format("it has {} bytes", file_bytes));
  }
  std::memcpy(&json_bytes, start.data(), sizeof(json_bytes));
  if (json_bytes > kHeaderLimit || json_bytes > file_bytes - sizeof(json_bytes)) {
    const std::string_view other =
        WhatItIs({reinterpret_cast<const char*>(start.data()), start.size()});
    if (!other.empty()) return Wrong(std::string(other));
    return Wrong(
        fmt::format("it promises a header of {} bytes and has {} in all", json_bytes, file_bytes));
  }
  return sizeof(json_bytes) + json_bytes;
}

StatusOr<SafetensorsTable> ParseSafetensorsTable(std::span<const std::byte> start,
                                                 uint64_t file_bytes) {
  LH_ASSIGN_OR_RETURN(const uint64_t header_bytes, SafetensorsHeaderBytes(start, file_bytes));
  if (header_bytes > start.size()) {
    return Wrong(
        fmt::format("{} bytes of its header are there, of {}", start.size(), header_bytes));
  }
  const char* const text = reinterpret_cast<const char*>(start.data());
  const Json json = Json::parse(text + sizeof(uint64_t), text + header_bytes, /*cb=*/nullptr,
                                /*allow_exceptions=*/false);
  if (!json.is_object()) return Wrong("its header is no JSON object");
  SafetensorsTable table;
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadataKey) {
      LH_RETURN_IF_ERROR(ParseMetadata(value, &table.metadata));
      continue;
    }
    LH_ASSIGN_OR_RETURN(TensorEntry entry, ParseEntry(name, value));
    table.tensors.push_back(std::move(entry));
  }
  std::sort(table.tensors.begin(), table.tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) {
              return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
            });
  // They cover the data without gap or overlap.
  uint64_t covered = 0;
  for (TensorEntry& entry : table.tensors) {
    if (entry.begin != covered) {
      return Wrong(
          fmt::format("'{}' begins at byte {} instead of {}", entry.name, entry.begin, covered));
    }
    covered = entry.end;
    entry.begin += header_bytes;
    entry.end += header_bytes;
  }
  if (covered != file_bytes - header_bytes) {
    return Wrong(fmt::format("its tensors have {} bytes, but {} follow the header; it was cut",
                             covered, file_bytes - header_bytes));
  }
  return table;
}

std::string SafetensorsHeader(const std::vector<TensorEntry>& tensors,
                              const SafetensorsMetadata& metadata) {
  Json json;
  json[kMetadataKey] = metadata;
  uint64_t offset = 0;
  for (const TensorEntry& tensor : tensors) {
    const uint64_t end = offset + BytesOf(tensor.type, tensor.shape).value_or(0);
    json[tensor.name] = {
        {"dtype", tensor.type}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = json.dump();
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  const uint64_t size = text.size();
  std::string header(sizeof(size), '\0');
  std::memcpy(header.data(), &size, sizeof(size));
  return header + text;
}

}  // namespace longhaul::published
