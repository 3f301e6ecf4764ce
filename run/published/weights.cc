#include "run/published/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/printable.h"
#include "codec/convert.h"
#include "run/model/lora.h"
#include "run/published/safetensors.h"

namespace longhaul::published {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFormat = "longhaul weights";
// Lists of tensors at an address have the second version.
constexpr int kVersion = 1, kRemoteVersion = 2;
constexpr size_t kHashBlockBytes = 1 << 20;
constexpr uint64_t kMostBytes = uint64_t{1} << 62;  // of offsets and sizes that a text says

const Tensor* FindTensor(const Weights& weights, std::string_view name, std::string_view prefix) {
  if (const Tensor* tensor = weights.Find(name)) return tensor;
  return name.starts_with(prefix) ? weights.Find(name.substr(prefix.size())) : nullptr;
}

model::Parameter EmbeddingOf(const ModelSpec& model) {
  return model::FamilyOf(model).parameters(model, model.vocabulary.value_or(1)).front();
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return fmt::format("({})", fmt::join(shape, ", "));
}

template <class T, class Convert>
void DecodeAs(std::span<const std::byte> bytes, const model::Parameter& parameter,
              std::span<float> values, Convert convert) {
  const auto read = [&](size_t i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    return convert(value);
  };
  if (!parameter.published_transposed) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = read(i);
    return;
  }
  const size_t rows = parameter.shape.rows, columns = parameter.shape.columns;
  for (size_t column = 0; column < columns; ++column) {
    for (size_t row = 0; row < rows; ++row)
      values[row * columns + column] = read(column * rows + row);
  }
}

template <class T, class Convert>
std::vector<std::byte> EncodeAs(std::span<const float> values, const model::Parameter& parameter,
                                Convert convert) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  const auto write = [&](size_t i, float value) {
    const T converted = convert(value);
    std::memcpy(bytes.data() + i * sizeof(T), &converted, sizeof(T));
  };
  if (!parameter.published_transposed) {
    for (size_t i = 0; i < values.size(); ++i) write(i, values[i]);
    return bytes;
  }
  const size_t rows = parameter.shape.rows, columns = parameter.shape.columns;
  for (size_t row = 0; row < rows; ++row) {
    for (size_t column = 0; column < columns; ++column) {
      write(column * rows + row, values[row * columns + column]);
    }
  }
  return bytes;
}

Status NoWeights(std::string_view problem) {
  return InvalidArgument("not a list of weights: {}", problem);
}

// nlohmann's get would make numbers of -1, 1.5 and 1e300, too.
std::optional<uint64_t> Whole(const Json& value) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > kMostBytes) return std::nullopt;
  return value.get<uint64_t>();
}

// Throws what nlohmann throws.
StatusOr<Tensor> TensorFrom(const Json& json) {
  Tensor tensor{.name = json.at("name").get<std::string>(),
                .type = json.at("type").get<std::string>(),
                .shape = {},
                .file = json.at("file").get<std::string>(),
                .sha256 = json.at("sha256").get<std::string>()};
  LH_RETURN_IF_ERROR(CheckFileName("a file", tensor.file));
  const auto no_weights = [&](std::string_view problem) {
    return NoWeights(fmt::format("'{}' has {}", tensor.name, problem));
  };
  uint64_t product = BytesOfType(tensor.type);
  for (const Json& extent : json.at("shape")) {
    const std::optional<uint64_t> value = Whole(extent);
    if (!value || (*value > 0 && product > kMostBytes / *value)) {
      return no_weights("an impossible shape");
    }
    tensor.shape.push_back(static_cast<int64_t>(*value));
    product *= *value;
  }
  const std::optional<uint64_t> offset = Whole(json.at("offset")), bytes = Whole(json.at("bytes"));
  if (!offset || bytes != product || (!tensor.sha256.empty() && !IsSha256Hex(tensor.sha256))) {
    return no_weights("an offset, bytes or a hash that do not fit it");
  }
  tensor.offset = *offset;
  tensor.bytes = *bytes;
  return tensor;
}

// Throws what nlohmann throws.
StatusOr<FileVersion> VersionFrom(const Json& json) {
  FileVersion version{.name = json.at("name").get<std::string>(),
                      .tag = json.at("tag").get<std::string>()};
  LH_RETURN_IF_ERROR(CheckFileName("a file", version.name));
  const std::optional<uint64_t> bytes = Whole(json.at("bytes"));
  if (!bytes || version.tag.empty()) {
    return NoWeights(fmt::format("the file '{}' has no size or no tag", version.name));
  }
  version.bytes = *bytes;
  return version;
}

// That each tensor's bytes are known before somebody reads them.
Status CheckSources(const Weights& weights) {
  for (const Tensor& tensor : weights.tensors) {
    if (!weights.IsRemote(tensor)) {
      if (!tensor.sha256.empty()) continue;
      return NoWeights(fmt::format("'{}' has no hash", tensor.name));
    }
    const auto file = std::ranges::find(weights.versions, tensor.file, &FileVersion::name);
    if (file == weights.versions.end() || !tensor.sha256.empty() || tensor.offset > file->bytes ||
        tensor.bytes > file->bytes - tensor.offset) {
      return NoWeights(fmt::format("'{}' is not in a file of the address", tensor.name));
    }
  }
  return absl::OkStatus();
}

}  // namespace

const Tensor* Weights::Find(std::string_view name) const {
  const auto it = std::find_if(tensors.begin(), tensors.end(),
                               [&](const Tensor& tensor) { return tensor.name == name; });
  return it == tensors.end() ? nullptr : &*it;
}

bool Weights::IsRemote(const Tensor& tensor) const {
  return !from.empty() && !IsOfAdapter(tensor);
}

std::vector<int64_t> PublishedShape(const model::Parameter& parameter) {
  const uint32_t columns = parameter.shape.columns;
  const uint32_t rows =
      parameter.published_rows > 0 ? parameter.published_rows : parameter.shape.rows;
  if (!parameter.shape.is_matrix()) return {rows};
  return parameter.published_transposed ? std::vector<int64_t>{columns, rows}
                                        : std::vector<int64_t>{rows, columns};
}

namespace {

// The shape of a tensor that holds adapters of several matrices, as WriteAdapters makes it: all
// rows of A; B is block-diagonal.
std::vector<int64_t> StackedShape(const model::Parameter& adapter) {
  const int64_t parts = adapter.published_parts;
  if (adapter.published_rows == 0) return {parts * adapter.shape.rows, adapter.shape.columns};
  return {adapter.published_rows, parts * adapter.shape.columns};
}

// The bytes of one adapter in such a tensor.
std::vector<std::byte> PartOfStacked(const Tensor& tensor, std::span<const std::byte> bytes,
                                     const model::Parameter& adapter) {
  const size_t row = bytes.size() / static_cast<size_t>(tensor.shape[0]);
  const bool is_b = adapter.published_rows > 0;
  const size_t width = is_b ? row / adapter.published_parts : row;
  const size_t first_row =
      is_b ? adapter.published_first_row : adapter.published_part * size_t{adapter.shape.rows};
  std::vector<std::byte> part;
  for (size_t i = 0; i < adapter.shape.rows; ++i) {
    const auto of_row =
        bytes.subspan((first_row + i) * row + (is_b ? adapter.published_part * width : 0), width);
    part.insert(part.end(), of_row.begin(), of_row.end());
  }
  return part;
}

}  // namespace

StatusOr<const Tensor*> TensorOf(const Weights& weights, const ModelSpec& model,
                                 const model::PlacedParameter& placed) {
  const std::string_view prefix = model::FamilyOf(model).published_prefix;
  const model::Parameter& parameter = placed.parameter;
  const std::string name = placed.PublishedName();
  const Tensor* tensor = FindTensor(weights, name, prefix);
  if (tensor == nullptr && parameter.role == model::Role::kHead && parameter.shape.is_matrix()) {
    tensor = FindTensor(weights, EmbeddingOf(model).published, prefix);
  }
  if (tensor == nullptr) {
    return InvalidArgument("there is no tensor '{}'", name);
  }
  std::vector<int64_t> expected = PublishedShape(parameter), shape = tensor->shape;
  if (parameter.first_rows_suffice && !shape.empty() && shape[0] > expected[0]) {
    shape[0] = expected[0];
  }
  const bool is_stacked = parameter.published_parts > 1 && shape == StackedShape(parameter);
  if (shape != expected && !is_stacked) {
    return InvalidArgument("'{}' has the shape {}, and the model of config.json has {}",
                           tensor->name, ShapeText(tensor->shape), ShapeText(expected));
  }
  if (tensor->type != "F32" && tensor->type != "BF16" && tensor->type != "F16") {
    return InvalidArgument("'{}' has the type {}, and longhaul reads F32, BF16 and F16",
                           tensor->name, tensor->type);
  }
  return tensor;
}

bool IsOfAdapter(const Tensor& tensor) {
  return tensor.name.starts_with(model::kAdapterPrefix);
}

Status HashTensors(const std::string& folder, Weights* weights,
                   const std::function<Status(uint64_t)>& progress) {
  uint64_t total = 0;
  std::vector<char> block(kHashBlockBytes);
  for (Tensor& tensor : weights->tensors) {
    const std::string path = folder + "/" + tensor.file;
    std::ifstream in(path, std::ios::binary);
    in.seekg(static_cast<std::streamoff>(tensor.offset));
    Sha256 hash;
    for (uint64_t left = tensor.bytes; left > 0;) {
      const size_t size = std::min<uint64_t>(left, block.size());
      if (!in.read(block.data(), static_cast<std::streamsize>(size))) {
        return DataLoss("cannot read '{}' of {}", tensor.name, path);
      }
      hash.Update(std::string_view(block.data(), size));
      left -= size;
      total += size;
      if (progress) LH_RETURN_IF_ERROR(progress(total));
    }
    tensor.sha256 = hash.HexDigest();
  }
  return absl::OkStatus();
}

StatusOr<std::vector<std::byte>> ReadTensor(const std::string& folder, const Tensor& tensor) {
  const std::string path = folder + "/" + tensor.file;
  std::ifstream in(path, std::ios::binary);
  if (!in) return NotFound("cannot open {}", path);
  // Before there is memory for what a foreign list of weights promises.
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path, error);
  if (error || tensor.offset > size || tensor.bytes > size - tensor.offset) {
    return DataLoss("{} ends before '{}' does", path, tensor.name);
  }
  in.seekg(static_cast<std::streamoff>(tensor.offset));
  std::vector<std::byte> bytes(tensor.bytes);
  if (!in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(tensor.bytes))) {
    return DataLoss("cannot read '{}' of {}", tensor.name, path);
  }
  if (tensor.sha256.empty()) return bytes;
  Sha256 hash;
  hash.Update(bytes);
  if (hash.HexDigest() == tensor.sha256) return bytes;
  return DataLoss("'{}' in {} is not what the run began with", tensor.name, path);
}

Status CheckPlace(const std::string& of_list, const std::string& from) {
  const bool at_address = !from.starts_with('/') && from.find("://") != std::string::npos;
  if (at_address ? of_list == from : of_list.empty()) return absl::OkStatus();
  return InvalidArgument(
      "expected a list of the weights in {}, as model.from has it, got one of {}",
      Printable(from, 200), of_list.empty() ? "a folder" : Printable(of_list, 200));
}

std::string ToJson(const Weights& weights) {
  Json tensors = Json::array();
  for (const Tensor& tensor : weights.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"type", tensor.type},
                       {"shape", tensor.shape},
                       {"file", tensor.file},
                       {"offset", tensor.offset},
                       {"bytes", tensor.bytes},
                       {"sha256", tensor.sha256}});
  }
  Json files = Json::object();
  for (const SmallFile& file : weights.files) files[file.name] = absl::Base64Escape(file.contents);
  Json json = {{"format", kFormat},
               {"version", weights.from.empty() ? kVersion : kRemoteVersion},
               {"config", weights.config_json},
               {"tensors", std::move(tensors)},
               {"files", std::move(files)}};
  if (!weights.from.empty()) {
    Json& versions = json["versions"] = Json::array();
    for (const FileVersion& file : weights.versions) {
      versions.push_back({{"name", file.name}, {"bytes", file.bytes}, {"tag", file.tag}});
    }
    json["from"] = weights.from;
  }
  return json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

StatusOr<Weights> FromJson(std::string_view text) {
  const Json json = Json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("format", Json()) != kFormat) {
    return NoWeights(fmt::format("expected an object of the format '{}'", kFormat));
  }
  const bool is_remote = json.value("version", Json()) == kRemoteVersion;
  if (!is_remote && json.value("version", Json()) != kVersion) {
    return NoWeights(fmt::format("expected version {} or {}; another version of longhaul wrote it",
                                 kVersion, kRemoteVersion));
  }
  Weights weights;
  try {
    weights.config_json = json.at("config").get<std::string>();
    for (const Json& one : json.at("tensors")) {
      LH_ASSIGN_OR_RETURN(Tensor tensor, TensorFrom(one));
      weights.tensors.push_back(std::move(tensor));
    }
    for (const auto& [name, contents] : json.at("files").items()) {
      LH_RETURN_IF_ERROR(CheckFileName("a file", name));
      std::string bytes;
      if (!absl::Base64Unescape(contents.get<std::string>(), &bytes)) {
        return NoWeights(fmt::format("the file '{}' is no base64", name));
      }
      weights.files.push_back({name, std::move(bytes)});
    }
    if (is_remote) {
      weights.from = json.at("from").get<std::string>();
      for (const Json& one : json.at("versions")) {
        LH_ASSIGN_OR_RETURN(FileVersion version, VersionFrom(one));
        weights.versions.push_back(std::move(version));
      }
      if (weights.from.empty()) return NoWeights("it names no address");
    }
  } catch (const Json::exception& error) {
    return NoWeights(error.what());
  }
  LH_RETURN_IF_ERROR(CheckSources(weights));
  return weights;
}

void Decode(const Tensor& tensor, std::span<const std::byte> bytes,
            const model::Parameter& parameter, std::span<float> values) {
  std::vector<std::byte> part;
  if (parameter.published_parts > 1 && tensor.shape == StackedShape(parameter)) {
    part = PartOfStacked(tensor, bytes, parameter);
    bytes = part;
  } else if (parameter.published_rows > 0) {
    const size_t of_row = bytes.size() / parameter.published_rows;
    bytes = bytes.subspan(parameter.published_first_row * of_row, parameter.shape.rows * of_row);
  }
  if (tensor.type == "BF16") {
    DecodeAs<uint16_t>(bytes, parameter, values, codec::Bf16ToF32);
  } else if (tensor.type == "F16") {
    DecodeAs<uint16_t>(bytes, parameter, values, codec::F16ToF32);
  } else {
    DecodeAs<float>(bytes, parameter, values, [](float value) { return value; });
  }
}

std::vector<std::byte> Encode(std::span<const float> values, const model::Parameter& parameter,
                              ExportType type) {
  switch (type) {
    case ExportType::kBf16:
      return EncodeAs<uint16_t>(values, parameter, codec::F32ToBf16);
    case ExportType::kFp16:
      return EncodeAs<uint16_t>(values, parameter, codec::F32ToF16);
    case ExportType::kFp32:
      break;
  }
  return EncodeAs<float>(values, parameter, [](float value) { return value; });
}

}  // namespace longhaul::published
