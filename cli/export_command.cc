#include "cli/export_command.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/pending_file.h"
#include "base/remote/address.h"
#include "base/remote/store.h"
#include "cli/export_upload.h"
#include "cli/model_source.h"
#include "cli/program.h"
#include "cli/progress.h"
#include "run/exporting/export_run.h"
#include "run/file/run_spec.h"

namespace longhaul::cli {
namespace {

using published::ExportType;

// Workers read their shards and send them.
constexpr absl::Duration kGatherLimit = absl::Hours(12);

// Not there yet.
std::string TemporaryFolder() {
  return std::filesystem::temp_directory_path() / ("longhaul-export-" + RandomUuid());
}

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

// What the coordinator has, and what the user's environment may read.
class CoordinatorSource : public exporting::ExportSource {
 public:
  // `more` hears of the bytes that came. Both must outlive this object.
  CoordinatorSource(Client& client, std::function<void(uint64_t)> more)
      : client_(client), more_(std::move(more)) {}

  Status Fetch(const std::string& sha256, const std::string& path) override {
    return cli::Fetch(client_, sha256, path, more_);
  }
  StatusOr<std::unique_ptr<remote::Store>> OpenStore(const remote::Address& address) override {
    return cli::OpenStore(address);
  }

 private:
  Client& client_;
  const std::function<void(uint64_t)> more_;
};

StatusOr<exporting::ExportOrder> OrderOf(Client& client, const ExportOptions& options) {
  LH_ASSIGN_OR_RETURN(const v1::RunStatus status, client.GetRun(options.run));
  const v1::Assignment& assignment = status.plan().assignment();
  if (assignment.run_yaml().empty()) {
    return FailedPrecondition("run {} has not begun yet, so it has nothing to export", options.run);
  }
  exporting::ExportOrder order{
      .type = ParseType(options.type), .merged = options.merged, .base = options.base};
  LH_ASSIGN_OR_RETURN(order.spec, ParseRunSpec(assignment.run_yaml(), "run.yaml", {}));
  order.vocabulary = assignment.data().vocabulary();
  for (const auto format : {exporting::ExportFormat::kOwn, exporting::ExportFormat::kEither}) {
    if (options.format == exporting::ToString(format)) order.format = format;
  }
  LH_RETURN_IF_ERROR(exporting::CheckExportable(order.spec, order.format, options.run));
  return order;
}

// Fetches the checkpoint and writes its export into the folder.
StatusOr<exporting::WrittenExport> Write(Client& client, const v1::CheckpointStatus& checkpoint,
                                         exporting::ExportOrder order, const std::string& folder,
                                         const Terminal& terminal) {
  uint64_t total = 0, done = 0;
  for (const v1::ShardStatus& shard : checkpoint.shards()) {
    if (!shard.name().ends_with(".params.safetensors")) continue;
    total += shard.bytes();
    order.parameters.push_back(shard.sha256());
  }
  Progress progress(terminal, "fetching the checkpoint");
  CoordinatorSource source(client, [&](uint64_t bytes) {
    done = std::min(done + bytes, total);
    progress.Bytes(done, total);
  });
  return exporting::WriteExport(order, source, folder);
}

}  // namespace

StatusOr<int> ExportRun(Invocation& invocation, const ExportOptions& options) {
  const Terminal& terminal = invocation.terminal();
  if (options.to.empty() && (options.out.empty() || options.overwrite)) {
    terminal.err << "longhaul export: "
                 << (options.overwrite ? "--overwrite is for --to; --out makes a new folder"
                                       : "expected --out with a folder to make, --to with an "
                                         "address, or both")
                 << std::endl;
    return kWrongUsage;
  }
  const http::Call call{.given_up = [&] { return invocation.interrupt().fired(); }};
  const bool stays = !options.out.empty();
  LH_ASSIGN_OR_RETURN(const std::unique_ptr<PartialFolder> folder,
                      PartialFolder::Create(stays ? options.out : TemporaryFolder()));
  if (!stays) {
    // Other users of this machine may look into the folder for temporary files.
    std::filesystem::permissions(folder->path(), std::filesystem::perms::owner_all);
  }
  LH_ASSIGN_OR_RETURN(Client* const client, invocation.Connect());
  LH_ASSIGN_OR_RETURN(exporting::ExportOrder order, OrderOf(*client, options));
  // Before the checkpoint is gathered, which may take hours.
  std::unique_ptr<ExportUpload> upload;
  if (!options.to.empty()) {
    LH_ASSIGN_OR_RETURN(upload,
                        ExportUpload::Prepare(options.to, options.overwrite, terminal, call));
  }
  LH_ASSIGN_OR_RETURN(const v1::CheckpointStatus checkpoint, Gather(*client, options));
  LH_ASSIGN_OR_RETURN(const exporting::WrittenExport written,
                      Write(*client, checkpoint, std::move(order), folder->path(), terminal));
  for (const std::string& note : written.notes) terminal.err << "note: " << note << std::endl;
  if (stays) LH_RETURN_IF_ERROR(folder->Publish());
  const std::string what =
      fmt::format("{}step {} of {}", written.adapters ? "the adapters of " : "", checkpoint.step(),
                  options.run);
  if (upload) {
    const Status sent = upload->Send(stays ? options.out : folder->path(), what, terminal, call);
    if (!sent.ok() && stays) {
      return Annotate(sent, fmt::format("{} has the export, but it was not uploaded", options.out));
    }
    LH_RETURN_IF_ERROR(sent);
  }
  const std::string where = !upload  ? options.out
                            : !stays ? upload->to()
                                     : fmt::format("{} and {}", options.out, upload->to());
  terminal.err << fmt::format("{} {} in {}, as {}", what, written.adapters ? "are" : "is", where,
                              published::ToString(written.type))
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
  command->add_option("--out", options->out, "The folder to make")->type_name("DIR");
  command
      ->add_option("--to", options->to,
                   "Where the files go: hf://ORG/NAME[@BRANCH], as one commit; s3://BUCKET/FOLDER/ "
                   "or gs://BUCKET/FOLDER/. With --out they also stay on this machine")
      ->type_name("ADDRESS");
  command->add_flag("--overwrite", options->overwrite,
                    "With --to in S3 or Google Cloud Storage: replace an older export there");
  command
      ->add_option("--dtype", options->type,
                   "Type of the numbers: fp32, bf16, fp16, or auto: of each tensor that of the "
                   "weights that the run began with, fp32 without such and of adapters")
      ->check(CLI::IsMember({"auto", "fp32", "bf16", "fp16"}));
  command
      ->add_option("--format", options->format,
                   "huggingface: as transformers loads it. longhaul: for a run with group.p below "
                   "1, whose model transformers does not have; `longhaul generate` and model.from "
                   "read it. auto: longhaul for such a run, else huggingface")
      ->check(CLI::IsMember({"huggingface", "longhaul", "auto"}))
      ->capture_default_str();
  command
      ->add_option("--base", options->base,
                   "Name of the adapted model in adapter_config.json; default: the name that the "
                   "model's config.json has, or its folder")
      ->type_name("NAME");
  command->add_flag("--merged", options->merged,
                    "Write the whole model with the adapters added, where the run has LoRA");
}

}  // namespace longhaul::cli
