#include "run/exporting/export_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "run/data/data_set.h"
#include "run/model/lora.h"
#include "run/published/export.h"
#include "run/published/folder.h"
#include "run/published/remote/remote_folder.h"
#include "run/published/safetensors.h"

namespace longhaul::exporting {
namespace {

using published::ExportType;

constexpr uint64_t kMostListBytes = 256 << 20;
constexpr uint64_t kMostTokenizerBytes = 64 << 20;

// Arrays of several files of a checkpoint, by name.
class ShardFiles {
 public:
  Status Add(const std::string& path) {
    LH_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
    const StatusOr<published::SafetensorsTable> table =
        published::ParseSafetensorsTable(file.bytes(), file.bytes().size());
    if (!table.ok()) return Annotate(table.status(), path);
    for (const published::TensorEntry& entry : table->tensors) {
      arrays_[entry.name] = file.bytes().subspan(entry.begin, entry.end - entry.begin);
    }
    files_.push_back(std::move(file));
    return absl::OkStatus();
  }
  StatusOr<std::span<const float>> Find(const std::string& name) {
    const auto it = arrays_.find(name);
    if (it == arrays_.end()) {
      return DataLoss("the checkpoint has no {}", name);
    }
    values_.resize(it->second.size() / sizeof(float));
    if (!values_.empty()) std::memcpy(values_.data(), it->second.data(), it->second.size());
    return values_;
  }

 private:
  std::vector<MappedFile> files_;
  std::map<std::string, std::span<const std::byte>> arrays_;
  std::vector<float> values_;
};

// Parameters of the model that a run with LoRA began with, with its adapters added.
class MergedValues {
 public:
  // `from`: the folder of the weights where this machine has it. `scratch`: a path for a tensor
  // that only `source` has. All must outlive this.
  MergedValues(ExportSource& source, std::string from, std::string scratch,
               const published::Weights& weights, const ModelSpec& model, ShardFiles& shards)
      : source_(source),
        from_(std::move(from)),
        scratch_(std::move(scratch)),
        weights_(weights),
        model_(model),
        shards_(shards) {}

  StatusOr<std::span<const float>> Find(const model::PlacedParameter& parameter) {
    LH_ASSIGN_OR_RETURN(const published::Tensor* tensor,
                        published::TensorOf(weights_, model_, parameter));
    {
      LH_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, BytesOf(*tensor));
      values_.resize(parameter.parameter.shape.elements());
      published::Decode(*tensor, bytes, parameter.parameter, values_);
    }
    const LoraSpec& lora = *model_.lora;
    if (!model::HasAdapters(lora, parameter)) return values_;
    const model::Adapters adapters = model::AdaptersOf(lora, parameter);
    LH_ASSIGN_OR_RETURN(const std::vector<float> a, AdapterOf(adapters.a));
    LH_ASSIGN_OR_RETURN(const std::vector<float> b, AdapterOf(adapters.b));
    model::Merge(lora, parameter.parameter.shape, a, b, values_);
    return values_;
  }

 private:
  StatusOr<std::vector<float>> AdapterOf(const model::PlacedParameter& adapter) {
    LH_ASSIGN_OR_RETURN(const std::span<const float> values, shards_.Find(adapter.Name()));
    if (values.size() != adapter.parameter.shape.elements()) {
      return DataLoss("expected {} values of {}, got {}", adapter.parameter.shape.elements(),
                      adapter.Name(), values.size());
    }
    return std::vector<float>(values.begin(), values.end());
  }
  StatusOr<std::vector<std::byte>> FromAddress(const published::Tensor& tensor) {
    if (!remote_) {
      LH_ASSIGN_OR_RETURN(const remote::Address address, remote::ParseAddress(weights_.from));
      LH_ASSIGN_OR_RETURN(store_, source_.OpenStore(address));
      LH_ASSIGN_OR_RETURN(remote_, published::RemoteTensors::Open(*store_, weights_));
    }
    return remote_->Read(tensor);
  }
  StatusOr<std::vector<std::byte>> BytesOf(const published::Tensor& tensor) {
    if (weights_.IsRemote(tensor)) return FromAddress(tensor);
    StatusOr<std::vector<std::byte>> here = published::ReadTensor(from_, tensor);
    if (here.ok()) return here;
    const Status fetched = source_.Fetch(tensor.sha256, scratch_);
    if (!fetched.ok()) {
      return Status(fetched.code(),
                    fmt::format("neither this machine's folder nor the coordinator has '{}' of the "
                                "weights that the run began with ({}; {})",
                                tensor.name, Message(here.status()), Message(fetched)));
    }
    LH_ASSIGN_OR_RETURN(const std::string text, ReadFile(scratch_, tensor.bytes));
    std::filesystem::remove(scratch_);
    if (text.size() != tensor.bytes) {
      return DataLoss("expected {} bytes of '{}', the coordinator has {}", tensor.bytes,
                      tensor.name, text.size());
    }
    const auto whole = std::as_bytes(std::span(text));
    return std::vector<std::byte>(whole.begin(), whole.end());
  }

  ExportSource& source_;
  const std::string from_, scratch_;
  const published::Weights& weights_;
  const ModelSpec& model_;
  ShardFiles& shards_;
  std::vector<float> values_;
  // Set when the first tensor at an address is read.
  std::unique_ptr<remote::Store> store_;
  std::optional<published::RemoteTensors> remote_;
};

// What the run began with; nothing where that were random numbers.
StatusOr<published::Weights> WeightsOf(ExportSource& source, const RunSpec& spec,
                                       const std::string& folder) {
  if (spec.weights.sha256.empty()) return published::Weights();
  const std::string path = folder + "/.weights";
  LH_RETURN_IF_ERROR(source.Fetch(spec.weights.sha256, path));
  LH_ASSIGN_OR_RETURN(const std::string json, ReadFile(path, kMostListBytes));
  std::filesystem::remove(path);
  return published::FromJson(json);
}

// The files of the tokenizer of a data set. Those at an address come by way of `folder`. None: they
// are not there, or on a web server, which has no lists.
StatusOr<std::vector<published::SmallFile>> TokenizerIn(const data::Source& set,
                                                        ExportSource& source,
                                                        const std::string& folder) {
  const std::string from =
      fmt::format("{}{}tokenizer", set.folder, set.folder.ends_with('/') ? "" : "/");
  if (!set.at_address()) return published::ReadTokenizer(from);
  LH_ASSIGN_OR_RETURN(const remote::Address address, remote::ParseAddress(from + "/"));
  if (address.kind == remote::Kind::kWeb) return std::vector<published::SmallFile>();
  LH_ASSIGN_OR_RETURN(const auto store, source.OpenStore(address));
  LH_ASSIGN_OR_RETURN(const remote::Listing listing, store->List(address));
  const std::string copies = folder + "/.tokenizer";
  LH_RETURN_IF_ERROR(MakeDirectories(copies));
  for (const remote::Entry& entry : listing.entries) {
    if (entry.path.find('/') != std::string::npos || entry.bytes > kMostTokenizerBytes) continue;
    LH_ASSIGN_OR_RETURN(const remote::Address file, remote::Inside(listing.at, entry.path));
    LH_ASSIGN_OR_RETURN(const std::string contents, store->ReadAll(file, kMostTokenizerBytes));
    LH_RETURN_IF_ERROR(WriteFileAtomic(copies + "/" + entry.path, contents));
  }
  StatusOr<std::vector<published::SmallFile>> files = published::ReadTokenizer(copies);
  std::filesystem::remove_all(copies);
  return files;
}

// The tokenizer of the run's data sets, for a run that began with random numbers. Its files are in
// the first set's folder, which is there where the run was submitted. Nothing, and a sentence in
// `notes`, where it is not, or where it has another tokenizer by now.
StatusOr<std::vector<published::SmallFile>> TokenizerOfSets(ExportSource& source,
                                                            const RunSpec& spec,
                                                            const std::string& folder,
                                                            std::vector<std::string>* notes) {
  const std::string path = folder + "/.sets";
  LH_RETURN_IF_ERROR(source.Fetch(spec.data.list_sha256, path));
  LH_ASSIGN_OR_RETURN(const std::string json, ReadFile(path, kMostListBytes));
  std::filesystem::remove(path);
  LH_ASSIGN_OR_RETURN(const data::Mixture mixture, data::MixtureFromJson(json));
  LH_RETURN_IF_ERROR(data::CheckFolders(data::FoldersOf(mixture), spec.data.Folders()));
  const data::Source& first = mixture.sources.front();
  if (first.set.tokenizer.empty()) return std::vector<published::SmallFile>();
  LH_ASSIGN_OR_RETURN(auto files, TokenizerIn(first, source, folder));
  const auto main = std::ranges::find(files, "tokenizer.json", &published::SmallFile::name);
  const bool is_it =
      main != files.end() && (first.set.tokenizer_sha256.empty() ||
                              Sha256Hex(main->contents) == first.set.tokenizer_sha256);
  if (is_it) return files;
  notes->push_back(
      fmt::format("the export has no tokenizer: {} is not there, or has another one than {} by now",
                  first.folder, first.set.tokenizer));
  return std::vector<published::SmallFile>();
}

ExportType TypeOf(const published::Tensor& tensor) {
  return tensor.type == "BF16"  ? ExportType::kBf16
         : tensor.type == "F16" ? ExportType::kFp16
                                : ExportType::kFp32;
}

// The type that most numbers of the model have with which the run began.
ExportType UsualType(const published::Weights& weights) {
  std::map<ExportType, uint64_t> numbers = {{ExportType::kFp32, 0}};
  for (const published::Tensor& tensor : weights.tensors) {
    if (published::IsOfAdapter(tensor)) continue;
    numbers[TypeOf(tensor)] += tensor.bytes / published::BytesOfType(tensor.type);
  }
  return std::ranges::max_element(numbers, {}, [](const auto& one) { return one.second; })->first;
}

// The name of the adapted model, by which others find it: that of its own config.json, such as
// Qwen/Qwen2.5-0.5B. A path in there is of somebody else's machine.
std::string BaseOf(const RunSpec& spec, const published::Weights& weights) {
  using Json = nlohmann::json;
  const Json config = Json::parse(weights.config_json, /*cb=*/nullptr, /*allow_exceptions=*/false);
  const std::string name =
      config.is_object() && config.contains("_name_or_path") && config["_name_or_path"].is_string()
          ? config["_name_or_path"].get<std::string>()
          : "";
  const bool is_name = std::ranges::count(name, '/') == 1 && name.front() != '/' &&
                       name.front() != '.' && name.front() != '~' && name.back() != '/';
  if (is_name) return name;
  const StatusOr<remote::Address> address = remote::ParseAddress(weights.from);
  if (address.ok() && address->kind == remote::Kind::kHubModel && address->path.empty()) {
    return address->place;
  }
  return spec.weights.from;
}

Status WriteAdapters(const ExportOrder& order, const ModelSpec& model, ExportType type,
                     const published::Weights& weights, ShardFiles& shards,
                     const std::string& folder) {
  return published::WriteAdapters(
      folder,
      {.model = model,
       .type = type,
       .base = order.base.empty() ? BaseOf(order.spec, weights) : order.base,
       .files = weights.files},
      [&](const model::PlacedParameter& parameter) { return shards.Find(parameter.Name()); });
}

// The model whole: a checkpoint of LoRA has its adapters alone, so the rest comes from where the
// run began.
Status WriteModel(const ExportOrder& order, const ModelSpec& model, ExportType type,
                  const published::Weights& weights, ShardFiles& shards, ExportSource& source,
                  const std::string& folder) {
  const GroupSpec& group = order.spec.group;
  published::Export what{
      .model = model, .type = type, .original_config = weights.config_json, .files = weights.files};
  if (group.shared_channels < 1) {
    what.ranks = {.count = group.tensor, .shared_channels = group.shared_channels};
  }
  if (!order.type) {
    what.type_of = [type, &weights, &model](const model::PlacedParameter& parameter) {
      const auto tensor = published::TensorOf(weights, model, parameter);
      return tensor.ok() ? TypeOf(**tensor) : type;
    };
  }
  what.model.lora.reset();
  if (!model.lora) {
    return published::WriteFolder(folder, what, [&](const model::PlacedParameter& parameter) {
      return shards.Find(parameter.Name());
    });
  }
  MergedValues merged(source, order.spec.weights.from, folder + "/.tensor", weights, model, shards);
  return published::WriteFolder(folder, what, [&](const model::PlacedParameter& parameter) {
    return merged.Find(parameter);
  });
}

}  // namespace

Status CheckExportable(const RunSpec& spec, ExportFormat format, const std::string& run) {
  if (spec.replay) {
    return FailedPrecondition("run {} is a replay: it has no parameters", run);
  }
  const GroupSpec& group = spec.group;
  const bool have_own = group.shared_channels < 1;
  if (have_own && format == ExportFormat::kPublished) {
    return FailedPrecondition(
        "{} was trained with group.p {}: its {} ranks have channels of their own, which no model "
        "of transformers has; --format longhaul writes a folder that `longhaul generate` and "
        "model.from read",
        run, group.shared_channels, group.tensor);
  }
  if (!have_own && format == ExportFormat::kOwn) {
    return FailedPrecondition(
        "{} has no channels of ranks' own (group.p 1), so transformers has its model; export it "
        "with --format huggingface, which `longhaul generate` and model.from also read",
        run);
  }
  return absl::OkStatus();
}

StatusOr<WrittenExport> WriteExport(const ExportOrder& order, ExportSource& source,
                                    const std::string& folder) {
  LH_RETURN_IF_ERROR(CheckExportable(order.spec, order.format, order.spec.name));
  WrittenExport written;
  LH_ASSIGN_OR_RETURN(published::Weights weights, WeightsOf(source, order.spec, folder));
  if (order.spec.weights.sha256.empty() && !order.spec.data.sets.empty()) {
    LH_ASSIGN_OR_RETURN(weights.files, TokenizerOfSets(source, order.spec, folder, &written.notes));
  }
  ShardFiles shards;
  for (const std::string& sha256 : order.parameters) {
    LH_RETURN_IF_ERROR(CheckFileName("a shard", sha256));
    const std::string path = fmt::format("{}/.{}", folder, sha256);
    LH_RETURN_IF_ERROR(source.Fetch(sha256, path));
    LH_RETURN_IF_ERROR(shards.Add(path));
    std::filesystem::remove(path);  // it stays mapped
  }
  ModelSpec model = order.spec.model;
  model.vocabulary = model.VocabularyOver(order.vocabulary);
  written.adapters = model.lora && !order.merged;
  written.type = order.type.value_or(written.adapters ? ExportType::kFp32 : UsualType(weights));
  LH_RETURN_IF_ERROR(written.adapters
                         ? WriteAdapters(order, model, written.type, weights, shards, folder)
                         : WriteModel(order, model, written.type, weights, shards, source, folder));
  return written;
}

}  // namespace longhaul::exporting
