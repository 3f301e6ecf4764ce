// ReadFolder and its like: the list of weights out of a folder's files.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/file.h"
#include "run/published/folder.h"
#include "run/published/safetensors.h"
#include "run/published/weights.h"

namespace longhaul::published {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMostConfigBytes = 1 << 20, kMostIndexBytes = 64 << 20;
constexpr uint64_t kMostSmallFileBytes = 64 << 20;
// At the start of a file: the length of its header.
constexpr uint64_t kLengthBytes = 8;

// What a tokenizer's folder may have, by name; each is taken where it is there.
constexpr const char* kTokenizerFiles[] = {"added_tokens.json",
                                           "chat_template.jinja",
                                           "chat_template.json",
                                           "generation_config.json",
                                           "merges.txt",
                                           "special_tokens_map.json",
                                           "tokenizer.json",
                                           "tokenizer.model",
                                           "tokenizer_config.json",
                                           "vocab.json",
                                           "vocab.txt"};

// Values that the model does not learn: it makes them itself.
bool IsMade(std::string_view name) {
  return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn.bias") ||
         name.ends_with(".attn.masked_bias");
}

// Lines of what is wrong.
class Problems {
 public:
  void Add(const std::string& problem) { text_ += (text_.empty() ? "" : "\n") + problem; }
  void Add(const Status& status) {
    if (!status.ok()) Add(std::string(Message(status)));
  }
  Status ToStatus() const {
    return text_.empty() ? absl::OkStatus() : absl::InvalidArgumentError(text_);
  }

 private:
  std::string text_;
};

// Names of the files with tensors.
StatusOr<std::set<std::string>> TensorFiles(ModelFolder& folder) {
  const std::string whole = "model.safetensors", index = "model.safetensors.index.json";
  LH_ASSIGN_OR_RETURN(const bool is_whole, folder.Has(whole));
  if (is_whole) return std::set{whole};
  LH_ASSIGN_OR_RETURN(const bool has_index, folder.Has(index));
  if (!has_index) {
    return InvalidArgument(
        "{}: expected {} or {}; weights in other formats (pytorch_model.bin, GGUF) have to be "
        "converted by transformers' save_pretrained first",
        folder.Shown(), whole, index);
  }
  const std::string shown = folder.Shown(index);
  LH_ASSIGN_OR_RETURN(const std::string text, folder.ReadWhole(index, kMostIndexBytes));
  const Json json = Json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  std::set<std::string> files;
  if (json.is_object() && json.contains("weight_map") && json["weight_map"].is_object()) {
    for (const auto& [tensor, file] : json["weight_map"].items()) {
      if (!file.is_string() || !CheckFileName("a file", file.get<std::string>()).ok()) {
        return InvalidArgument("{}: '{}' lies in something that is no file name", shown, tensor);
      }
      files.insert(file.get<std::string>());
    }
  }
  if (files.empty()) {
    return InvalidArgument("{}: expected an object with a weight_map that names files", shown);
  }
  return files;
}

// Checks that every parameter has its tensor, and every tensor its parameter.
void Match(const std::string& folder, const Config& config, Weights* weights, Problems* problems) {
  const ModelSpec& model = config.model;
  std::set<std::string> used;
  for (const model::PlacedParameter& parameter : model::ParametersOf(
           model, *model.vocabulary,
           {.first_layer = 0, .layers = model.layers, .embedding = true, .head = true})) {
    const StatusOr<const Tensor*> tensor = TensorOf(*weights, model, parameter);
    problems->Add(Annotate(tensor.status(), folder));
    if (!tensor.ok()) continue;
    used.insert((*tensor)->name);
    // TensorOf would give the embedding, which serves as the head of a tied model alone.
    if (parameter.parameter.role == model::Role::kHead && parameter.parameter.shape.is_matrix() &&
        (*tensor)->name != parameter.PublishedName()) {
      problems->Add(
          fmt::format("{}: there is no tensor '{}', and config.json has no "
                      "tie_word_embeddings: true",
                      folder, parameter.PublishedName()));
    }
  }
  // A tied model's file may repeat the matrix as the head's; nobody reads that.
  if (model.tied)
    std::erase_if(weights->tensors, [](const Tensor& t) { return t.name == "lm_head.weight"; });
  std::map<std::string_view, std::string_view> files;
  for (const Tensor& tensor : weights->tensors) {
    if (const auto [other, first] = files.emplace(tensor.name, tensor.file); !first) {
      problems->Add(fmt::format("{}: both {} and {} have '{}'", folder, other->second, tensor.file,
                                tensor.name));
    }
    if (used.contains(tensor.name)) continue;
    problems->Add(fmt::format("{}: {} has '{}', for which the model of config.json has no place",
                              folder, tensor.file, tensor.name));
  }
}

// Whether other files of the folder will fail for the same reason.
bool ConcernsAll(const Status& status) {
  return absl::IsUnavailable(status) || absl::IsPermissionDenied(status) ||
         absl::IsCancelled(status) || absl::IsDeadlineExceeded(status);
}

Status ListTensors(ModelFolder& folder, const std::string& file, Weights* weights) {
  LH_ASSIGN_OR_RETURN(FileVersion version, folder.Look(file));
  LH_ASSIGN_OR_RETURN(std::vector<std::byte> start,
                      folder.ReadStart(version, std::min(kLengthBytes, version.bytes)));
  const StatusOr<uint64_t> needed = SafetensorsHeaderBytes(start, version.bytes);
  if (!needed.ok()) return Annotate(needed.status(), folder.Shown(file));
  LH_ASSIGN_OR_RETURN(start, folder.ReadStart(version, *needed));
  const StatusOr<SafetensorsTable> table = ParseSafetensorsTable(start, version.bytes);
  if (!table.ok()) return Annotate(table.status(), folder.Shown(file));
  for (const TensorEntry& entry : table->tensors) {
    if (IsMade(entry.name)) continue;
    weights->tensors.push_back({.name = entry.name,
                                .type = entry.type,
                                .shape = entry.shape,
                                .file = file,
                                .offset = entry.begin,
                                .bytes = entry.end - entry.begin,
                                .sha256 = {}});
  }
  if (!weights->from.empty()) weights->versions.push_back(std::move(version));
  return absl::OkStatus();
}

StatusOr<std::vector<SmallFile>> ReadTokenizer(ModelFolder& folder) {
  std::vector<SmallFile> files;
  for (const char* const name : kTokenizerFiles) {
    LH_ASSIGN_OR_RETURN(const bool is_there, folder.Has(name));
    if (!is_there) continue;
    LH_ASSIGN_OR_RETURN(std::string contents, folder.ReadWhole(name, kMostSmallFileBytes));
    files.push_back({name, std::move(contents)});
  }
  return files;
}

}  // namespace

Status ListTensors(const std::string& folder, const std::string& file, Weights* weights) {
  return ListTensors(*OpenFolder(folder), file, weights);
}

StatusOr<Weights> ReadFolder(ModelFolder& folder) {
  Weights weights{.from = folder.Address()};
  std::string config_file = "config.json";
  StatusOr<std::string> text = folder.ReadWhole(config_file, kMostConfigBytes);
  if (absl::IsNotFound(text.status())) {
    const std::string own_file(kOwnFile);
    LH_ASSIGN_OR_RETURN(const bool is_own, folder.Has(own_file));
    if (is_own) {
      config_file = own_file;
      text = folder.ReadWhole(config_file, kMostConfigBytes);
    }
  }
  LH_RETURN_IF_ERROR(text.status());
  weights.config_json = *std::move(text);
  LH_ASSIGN_OR_RETURN(const Config config,
                      ParseConfig(weights.config_json, folder.Shown(config_file)));
  LH_ASSIGN_OR_RETURN(const std::set<std::string> files, TensorFiles(folder));
  Problems problems;
  for (const std::string& file : files) {
    const Status listed = ListTensors(folder, file, &weights);
    if (ConcernsAll(listed)) return listed;
    problems.Add(listed);
  }
  LH_RETURN_IF_ERROR(problems.ToStatus());
  Match(folder.Shown(), config, &weights, &problems);
  LH_RETURN_IF_ERROR(problems.ToStatus());
  LH_ASSIGN_OR_RETURN(weights.files, ReadTokenizer(folder));
  return weights;
}

StatusOr<Weights> ReadFolder(const std::string& folder) {
  return ReadFolder(*OpenFolder(folder));
}

StatusOr<std::vector<SmallFile>> ReadTokenizer(const std::string& folder) {
  return ReadTokenizer(*OpenFolder(folder));
}

}  // namespace longhaul::published
