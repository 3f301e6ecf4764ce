#include "cli/export_command.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/pending_file.h"
#include "base/remote/address.h"
#include "base/remote/store.h"
#include "base/units.h"
#include "cli/model_source.h"
#include "cli/program.h"
#include "cli/progress.h"
#include "run/data/data_set.h"
#include "run/file/run_spec.h"
#include "run/model/lora.h"
#include "run/plan/proto/plan_proto.h"
#include "run/published/export.h"
#include "run/published/remote/remote_folder.h"
#include "run/published/safetensors.h"

namespace longhaul::cli {
namespace {

using published::ExportType;

// Workers read their shards and send them.
constexpr absl::Duration kGatherLimit = absl::Hours(12);
constexpr uint64_t kMostListBytes = 256 << 20;

std::optional<ExportType> ParseType(std::string_view text) {
  for (const ExportType type : {ExportType::kFp32, ExportType::kBf16, ExportType::kFp16}) {
    if (published::ToString(type) == text) return type;
  }
  return std::nullopt;
}

// Writes a blob of the coordinator to `path`, and checks that it is that.
Status Fetch(Client& client, const std::string& sha256, const std::string& path,
             const std::function<void(uint64_t)>& more) {
  v1::FetchBlobRequest request;
  request.set_sha256(sha256);
  LH_ASSIGN_OR_RETURN(const std::unique_ptr<PendingFile> file, PendingFile::Create(path));
  Sha256 hash;
  Status writing;
  LH_RETURN_IF_ERROR((client.Each<v1::FetchBlobRequest, v1::BlobChunk>(
      &v1::ControlService::Stub::FetchBlob, request, [&](const v1::BlobChunk& chunk) {
        writing = file->Append(chunk.data());
        hash.Update(chunk.data());
        more(chunk.data().size());
        return writing.ok();
      })));
  LH_RETURN_IF_ERROR(writing);
  if (hash.HexDigest() != sha256) {
    return DataLoss("what came for {} is something else", path);
  }
  return file->Publish();
}

// A folder on its way to its name. Destroyed before Publish it leaves nothing.
class PartialFolder {
 public:
  static StatusOr<std::unique_ptr<PartialFolder>> Create(const std::string& path) {
    if (std::filesystem::exists(path)) {
      return AlreadyExists("--out: {} is there already; delete it or name another folder", path);
    }
    std::unique_ptr<PartialFolder> folder(new PartialFolder(path));
    LH_RETURN_IF_ERROR(MakeDirectories(folder->partial_));
    return folder;
  }
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;
  ~PartialFolder() {
    std::error_code ignored;
    if (!published_) std::filesystem::remove_all(partial_, ignored);
  }
  const std::string& path() const { return partial_; }
  Status Publish() {
    LH_RETURN_IF_ERROR(SyncPath(partial_));
    if (std::rename(partial_.c_str(), path_.c_str()) != 0) {
      return FromErrno("cannot rename " + partial_ + " to " + path_, errno);
    }
    published_ = true;
    return absl::OkStatus();
  }

 private:
  explicit PartialFolder(std::string path)
      : path_(std::move(path)), partial_(path_ + ".partial-" + RandomUuid()) {}
  const std::string path_, partial_;
  bool published_ = false;
};

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
  // that only the coordinator has. All must outlive this.
  MergedValues(Client& client, std::string from, std::string scratch,
               const published::Weights& weights, const ModelSpec& model, ShardFiles& shards)
      : client_(client),
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
      LH_ASSIGN_OR_RETURN(store_, OpenStore(address));
      LH_ASSIGN_OR_RETURN(remote_, published::RemoteTensors::Open(*store_, weights_));
    }
    return remote_->Read(tensor);
  }
  StatusOr<std::vector<std::byte>> BytesOf(const published::Tensor& tensor) {
    if (weights_.IsRemote(tensor)) return FromAddress(tensor);
    StatusOr<std::vector<std::byte>> here = published::ReadTensor(from_, tensor);
    if (here.ok()) return here;
    const Status fetched = Fetch(client_, tensor.sha256, scratch_, [](uint64_t) {});
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

  Client& client_;
  const std::string from_, scratch_;
  const published::Weights& weights_;
  const ModelSpec& model_;
  ShardFiles& shards_;
  std::vector<float> values_;
  // Set when the first tensor at an address is read.
  std::unique_ptr<remote::Store> store_;
  std::optional<published::RemoteTensors> remote_;
};

StatusOr<v1::CheckpointStatus> Gather(Client& client, const ExportOptions& options) {
  v1::CheckpointsRequest request;
  request.set_run(options.run);
  request.set_gather_step(options.step);
  LH_ASSIGN_OR_RETURN(
      const v1::CheckpointsReply reply,
      client.Get(&v1::ControlService::Stub::ListCheckpoints, request, kGatherLimit));
  for (const v1::CheckpointStatus& one : reply.checkpoints()) {
    if (options.step == 0 ? one.state() == "damaged" : one.step() != options.step) continue;
    for (const v1::ShardStatus& shard : one.shards()) {
      if (!shard.name().ends_with(".params.safetensors") || shard.copied()) continue;
      return Unavailable(
          "{} of the checkpoint of step {} did not get to the coordinator; `longhaul checkpoints "
          "{}` says where it is, and `longhaul events {}` why",
          Printable(shard.name()), one.step(), options.run, options.run);
    }
    return one;
  }
  return NotFound("run {} has no checkpoint that can be exported", options.run);
}

struct Source {
  RunSpec spec;
  uint32_t vocabulary = 0;  // of the tokenizer
};

StatusOr<Source> SourceOf(Client& client, const std::string& run) {
  LH_ASSIGN_OR_RETURN(const v1::RunStatus status, client.GetRun(run));
  const v1::Assignment& assignment = status.plan().assignment();
  if (assignment.run_yaml().empty()) {
    return FailedPrecondition("run {} has not begun yet, so it has nothing to export", run);
  }
  Source source;
  LH_ASSIGN_OR_RETURN(source.spec, ParseRunSpec(assignment.run_yaml(), "run.yaml", {}));
  source.vocabulary = assignment.data().vocabulary();
  if (source.spec.replay) {
    return FailedPrecondition("run {} is a replay: it has no parameters", run);
  }
  return source;
}

// What the run began with; nothing where that were random numbers.
StatusOr<published::Weights> WeightsOf(Client& client, const RunSpec& spec,
                                       const std::string& folder) {
  if (spec.weights.sha256.empty()) return published::Weights();
  const std::string path = folder + "/.weights";
  LH_RETURN_IF_ERROR(Fetch(client, spec.weights.sha256, path, [](uint64_t) {}));
  LH_ASSIGN_OR_RETURN(const std::string json, ReadFile(path, kMostListBytes));
  std::filesystem::remove(path);
  return published::FromJson(json);
}

// The tokenizer of the run's data sets, for a run that began with random numbers. Its files are in
// the first set's folder, which is there where the run was submitted. Nothing, and a word on
// `terminal`, where it is not, or where it has another tokenizer by now.
StatusOr<std::vector<published::SmallFile>> TokenizerOfSets(Client& client, const RunSpec& spec,
                                                            const std::string& folder,
                                                            const Terminal& terminal) {
  const std::string path = folder + "/.sets";
  LH_RETURN_IF_ERROR(Fetch(client, spec.data.list_sha256, path, [](uint64_t) {}));
  LH_ASSIGN_OR_RETURN(const std::string json, ReadFile(path, kMostListBytes));
  std::filesystem::remove(path);
  LH_ASSIGN_OR_RETURN(const data::Mixture mixture, data::MixtureFromJson(json));
  const data::Source& first = mixture.sources.front();
  if (first.set.tokenizer.empty()) return std::vector<published::SmallFile>();
  LH_ASSIGN_OR_RETURN(auto files, published::ReadTokenizer(first.folder + "/tokenizer"));
  const auto main = std::ranges::find(files, "tokenizer.json", &published::SmallFile::name);
  const bool is_it =
      main != files.end() && (first.set.tokenizer_sha256.empty() ||
                              Sha256Hex(main->contents) == first.set.tokenizer_sha256);
  if (is_it) return files;
  terminal.err << fmt::format(
                      "note: the export has no tokenizer: {} is not there, or has another one than "
                      "{} by now",
                      first.folder, first.set.tokenizer)
               << std::endl;
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
std::string BaseOf(const Source& source, const published::Weights& weights) {
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
  return source.spec.weights.from;
}

Status WriteAdapters(const PartialFolder& folder, const Source& source, const ModelSpec& model,
                     ExportType type, const std::string& base, const published::Weights& weights,
                     ShardFiles& shards) {
  return published::WriteAdapters(
      folder.path(),
      {.model = model,
       .type = type,
       .base = base.empty() ? BaseOf(source, weights) : base,
       .files = weights.files},
      [&](const model::PlacedParameter& parameter) { return shards.Find(parameter.Name()); });
}

// The model whole: a checkpoint of LoRA has its adapters alone, so the rest comes from where the
// run began.
Status WriteModel(Client& client, const PartialFolder& folder, const Source& source,
                  const ModelSpec& model, ExportType type, bool each_its_own,
                  const published::Weights& weights, ShardFiles& shards) {
  published::Export what{
      .model = model, .type = type, .original_config = weights.config_json, .files = weights.files};
  if (each_its_own) {
    what.type_of = [type, &weights, &model](const model::PlacedParameter& parameter) {
      const auto tensor = published::TensorOf(weights, model, parameter);
      return tensor.ok() ? TypeOf(**tensor) : type;
    };
  }
  what.model.lora.reset();
  if (!model.lora) {
    return published::WriteFolder(
        folder.path(), what,
        [&](const model::PlacedParameter& parameter) { return shards.Find(parameter.Name()); });
  }
  MergedValues merged(client, source.spec.weights.from, folder.path() + "/.tensor", weights, model,
                      shards);
  return published::WriteFolder(folder.path(), what, [&](const model::PlacedParameter& parameter) {
    return merged.Find(parameter);
  });
}

}  // namespace

StatusOr<int> ExportRun(Invocation& invocation, const ExportOptions& options) {
  LH_ASSIGN_OR_RETURN(const std::unique_ptr<PartialFolder> folder,
                      PartialFolder::Create(options.out));
  LH_ASSIGN_OR_RETURN(Client* const client, invocation.Connect());
  LH_ASSIGN_OR_RETURN(const Source source, SourceOf(*client, options.run));
  if (const GroupSpec& group = source.spec.group; group.shared_channels < 1) {
    return FailedPrecondition(
        "{} was trained with group.p {}: its {} ranks have channels of their own, which no "
        "published model has; export a run without group.p",
        options.run, group.shared_channels, group.tensor);
  }
  LH_ASSIGN_OR_RETURN(const v1::CheckpointStatus checkpoint, Gather(*client, options));
  LH_ASSIGN_OR_RETURN(published::Weights weights, WeightsOf(*client, source.spec, folder->path()));
  if (source.spec.weights.sha256.empty() && !source.spec.data.sets.empty()) {
    LH_ASSIGN_OR_RETURN(weights.files, TokenizerOfSets(*client, source.spec, folder->path(),
                                                       invocation.terminal()));
  }

  uint64_t total = 0, done = 0;
  for (const v1::ShardStatus& shard : checkpoint.shards()) {
    if (shard.name().ends_with(".params.safetensors")) total += shard.bytes();
  }
  ShardFiles shards;
  {
    Progress progress(invocation.terminal(), "fetching the checkpoint");
    for (const v1::ShardStatus& shard : checkpoint.shards()) {
      if (!shard.name().ends_with(".params.safetensors")) continue;
      const std::string path = fmt::format("{}/.{}", folder->path(), shard.sha256());
      LH_RETURN_IF_ERROR(CheckFileName("a shard", shard.sha256()));
      LH_RETURN_IF_ERROR(Fetch(*client, shard.sha256(), path, [&](uint64_t bytes) {
        done += bytes;
        progress.Bytes(done, total);
      }));
      LH_RETURN_IF_ERROR(shards.Add(path));
      std::filesystem::remove(path);  // it stays mapped
    }
  }
  ModelSpec model = source.spec.model;
  model.vocabulary = model.VocabularyOver(source.vocabulary);
  const bool adapters = model.lora && !options.merged;
  const std::optional<ExportType> asked = ParseType(options.type);
  const ExportType type = asked.value_or(adapters ? ExportType::kFp32 : UsualType(weights));
  LH_RETURN_IF_ERROR(
      adapters ? WriteAdapters(*folder, source, model, type, options.base, weights, shards)
               : WriteModel(*client, *folder, source, model, type,
                            /*each_its_own=*/!asked, weights, shards));
  LH_RETURN_IF_ERROR(folder->Publish());
  invocation.terminal().err << fmt::format("{}step {} of {} {} in {}, as {}",
                                           adapters ? "the adapters of " : "", checkpoint.step(),
                                           options.run, adapters ? "are" : "is", options.out,
                                           published::ToString(type))
                            << std::endl;
  return kDone;
}

void AddExportCommand(Program& program) {
  const auto [command, options] = program.AddCommand(
      "export",
      "Write a checkpoint as a folder that transformers loads: config.json, safetensors, what "
      "belongs to the tokenizer. Of a run with LoRA: its adapters, as PEFT loads them",
      ExportRun);
  AddRunArgument(command, &options->run);
  command
      ->add_option("--step", options->step,
                   "The step of the checkpoint; the newest that is not damaged if nothing is said")
      ->type_name("STEP");
  command->add_option("--out", options->out, "The folder to make")->type_name("DIR")->required();
  command
      ->add_option("--dtype", options->type,
                   "Type of the numbers: fp32, bf16, fp16, or auto: of each tensor that of the "
                   "weights that the run began with, fp32 without such and of adapters")
      ->check(CLI::IsMember({"auto", "fp32", "bf16", "fp16"}));
  command
      ->add_option("--base", options->base,
                   "Name of the adapted model in adapter_config.json; default: the name that the "
                   "model's config.json has, or its folder")
      ->type_name("NAME");
  command->add_flag("--merged", options->merged,
                    "Write the whole model with the adapters added, where the run has LoRA");
}

}  // namespace longhaul::cli
