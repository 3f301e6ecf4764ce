#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/pending_file.h"
#include "base/units.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/shard_store.h"

namespace longhaul::worker {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFormatVersion = "1";
constexpr std::string_view kParameters = "params";
constexpr std::string_view kOptimizer = "optim";
constexpr std::string_view kTables = "tables";
constexpr std::string_view kInputs = "inputs";
constexpr std::string_view kStepPrefix = "step-";

struct WrittenFile {
  std::unique_ptr<PendingFile> file;
  ShardFile shard;
};

// The kinds of files that a snapshot becomes, with their arrays.
std::vector<std::pair<std::string_view, const std::vector<NamedArray>*>> KindsOf(
    const StageSnapshot& snapshot) {
  std::vector<std::pair<std::string_view, const std::vector<NamedArray>*>> kinds = {
      {kParameters, &snapshot.parameters}, {kOptimizer, &snapshot.moments}};
  if (!snapshot.tables.empty()) kinds.emplace_back(kTables, &snapshot.tables);
  return kinds;
}

// The file's name and replica; its length and hash are not known yet.
ShardFile Named(const ShardOwner& owner, std::string_view kind, std::string_view ending) {
  ShardFile shard;
  // Replicas have equal parameters, but each has its own part of the optimizer state and tables.
  if (kind != kParameters) shard.replica = owner.replica;
  const std::string part = shard.replica ? fmt::format(".replica-{}", *shard.replica) : "";
  shard.name = fmt::format("stage-{}{}.{}.{}", owner.stage.value(), part, kind, ending);
  return shard;
}

std::string HeaderOf(const RunId& run, const ShardOwner& owner, uint64_t step,
                     std::string_view kind, const std::vector<NamedArray>& arrays) {
  return SafetensorsHeader(arrays, {{"format_version", std::string(kFormatVersion)},
                                    {"kind", std::string(kind)},
                                    {"run", run.value()},
                                    {"step", std::to_string(step)},
                                    {"stage", std::to_string(owner.stage.value())}});
}

// Writes and syncs one file, still under its temporary name.
StatusOr<WrittenFile> WriteArrays(const std::string& folder, const RunId& run,
                                  const ShardOwner& owner, uint64_t step, std::string_view kind,
                                  const std::vector<NamedArray>& arrays) {
  WrittenFile written{.file = nullptr, .shard = Named(owner, kind, "safetensors")};
  LH_ASSIGN_OR_RETURN(written.file, PendingFile::Create(folder + "/" + written.shard.name));
  Sha256 hash;
  const auto append = [&](std::span<const std::byte> bytes) {
    hash.Update(bytes);
    return written.file->Append(bytes);
  };
  const std::string header = HeaderOf(run, owner, step, kind, arrays);
  LH_RETURN_IF_ERROR(append(std::as_bytes(std::span(header))));
  for (const NamedArray& array : arrays) LH_RETURN_IF_ERROR(append(array.bytes()));
  LH_RETURN_IF_ERROR(written.file->Sync());
  written.shard.bytes = written.file->size();
  written.shard.sha256 = hash.HexDigest();
  return written;
}

Status ExplainFullDisk(const Status& status, const std::string& folder,
                       const StageSnapshot& snapshot) {
  if (status.code() != absl::StatusCode::kResourceExhausted) return status;
  uint64_t bytes = 0;
  for (const auto* arrays : {&snapshot.parameters, &snapshot.moments, &snapshot.tables}) {
    for (const NamedArray& array : *arrays) bytes += array.bytes().size();
  }
  return ResourceExhausted(
      "no room for the checkpoint of step {} in {}, which takes {}: {}; free some, or lower "
      "checkpoint.keep (older checkpoints are untouched)",
      snapshot.step, folder, FormatBytes(static_cast<double>(bytes)), Message(status));
}

class LocalShardWriter final : public ShardWriter {
 public:
  LocalShardWriter(std::unique_ptr<PendingFile> pending, ShardFile file,
                   std::vector<std::string> folders)
      : pending_(std::move(pending)), file_(std::move(file)), folders_(std::move(folders)) {}

  Status Append(std::span<const std::byte> bytes) override {
    if (bytes.size() > file_.bytes - pending_->size()) {
      return InvalidArgument("expected {} bytes of {}, got more", file_.bytes, file_.name);
    }
    hash_.Update(bytes);
    return pending_->Append(bytes);
  }
  Status Commit() override {
    const std::string sha256 = hash_.HexDigest();
    if (pending_->size() != file_.bytes || sha256 != file_.sha256) {
      return DataLoss("expected {} of {} bytes with SHA-256 {}, got {} bytes with {}", file_.name,
                      file_.bytes, file_.sha256, pending_->size(), sha256);
    }
    LH_RETURN_IF_ERROR(pending_->Publish());
    for (const std::string& folder : folders_) LH_RETURN_IF_ERROR(SyncPath(folder));
    return absl::OkStatus();
  }

 private:
  const std::unique_ptr<PendingFile> pending_;
  const ShardFile file_;
  const std::vector<std::string> folders_;  // whose own names may be new
  Sha256 hash_;
};

// Checks size and hash by reading, not through a mapping: a mapped page that the disk cannot give
// back ends the process.
Status CheckFile(const std::string& path, const ShardFile& expected) {
  std::error_code error;
  const uint64_t bytes = fs::file_size(path, error);
  if (error == std::errc::no_such_file_or_directory) {
    return absl::NotFoundError("it is missing");
  }
  if (error) return FromErrno("it cannot be read", error.value());
  if (bytes < expected.bytes) {
    return DataLoss("it was cut short: expected {} bytes, it has {}", expected.bytes, bytes);
  }
  if (bytes > expected.bytes) {
    return DataLoss("it has grown: expected {} bytes, it has {}", expected.bytes, bytes);
  }
  const StatusOr<std::string> actual = Sha256HexOfFile(path);
  if (!actual.ok()) return Annotate(actual.status(), "it cannot be read");
  if (*actual == expected.sha256) return absl::OkStatus();
  return DataLoss("its contents changed: expected SHA-256 {}, it has {}", expected.sha256, *actual);
}

// Reads the file. Fails unless its size, hash and metadata are as expected.
StatusOr<Safetensors> ReadShard(const std::string& path, const RunId& run, Step step,
                                const ShardFile& expected) {
  LH_RETURN_IF_ERROR(Annotate(CheckFile(path, expected), path));
  LH_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  StatusOr<Safetensors> contents = ParseSafetensors(file.bytes());
  if (!contents.ok()) return Annotate(contents.status(), path);
  const std::array<std::pair<std::string, std::string>, 3> fields = {
      {{"format_version", std::string(kFormatVersion)},
       {"run", expected.run.empty() ? run.value() : expected.run},
       {"step", std::to_string(step.value())}}};
  for (const auto& [key, value] : fields) {
    if (const std::string& actual = contents->metadata[key]; actual != value) {
      return FailedPrecondition("{}: expected {} '{}', it has '{}'", path, key, value, actual);
    }
  }
  return contents;
}

// True if shapes and all bits of the values are equal.
bool IsSame(const NamedArray& one, const NamedArray& other) {
  return one.shape == other.shape && one.halves.empty() == other.halves.empty() &&
         std::ranges::equal(one.bytes(), other.bytes());
}

// Deletes unpublished files of a killed process. They cost only room, so errors are ignored.
void DeleteLeftovers(const std::string& root) {
  std::vector<fs::path> leftovers;
  std::error_code error;
  for (fs::recursive_directory_iterator it(root, error), end; !error && it != end;
       it.increment(error)) {
    if (it.depth() == 2 && IsPendingFileName(it->path().filename().string())) {
      leftovers.push_back(it->path());
    }
  }
  for (const fs::path& path : leftovers) fs::remove(path, error);
}

class LocalShardStore final : public ShardStore {
 public:
  explicit LocalShardStore(std::string root) : root_(std::move(root)) {}

  StatusOr<std::vector<ShardFile>> Write(const RunId& run, const ShardOwner& owner,
                                         const StageSnapshot& snapshot) override {
    LH_RETURN_IF_ERROR(CheckFileName("a run's id", run.value()));
    const std::string folder = Folder(run, Step(snapshot.step));
    std::vector<WrittenFile> written;
    const Status status = [&]() -> Status {
      LH_RETURN_IF_ERROR(MakeDirectories(folder));
      for (const auto& [kind, arrays] : KindsOf(snapshot)) {
        LH_ASSIGN_OR_RETURN(WrittenFile one,
                            WriteArrays(folder, run, owner, snapshot.step, kind, *arrays));
        written.push_back(std::move(one));
      }
      // All files are complete on the disk. Until here, a step that is written again keeps its old
      // files.
      for (const WrittenFile& one : written) LH_RETURN_IF_ERROR(one.file->Publish());
      // The entries of both folders in their parents may be new and must survive a power cut, too.
      LH_RETURN_IF_ERROR(SyncPath(fmt::format("{}/{}", root_, run.value())));
      return SyncPath(root_);
    }();
    std::vector<ShardFile> shards;
    shards.reserve(written.size());
    for (const WrittenFile& one : written) shards.push_back(one.shard);
    written.clear();  // deletes the files that were not published
    if (status.ok()) return shards;
    std::error_code ignored;
    fs::remove(folder, ignored);  // fails unless the folder is empty, as intended
    return ExplainFullDisk(status, folder, snapshot);
  }
  StatusOr<ShardFile> WriteInputs(const RunId& run, const ShardOwner& owner, Step step,
                                  std::span<const std::byte> bytes) override {
    ShardFile shard = Named(owner, kInputs, "bin");
    LH_ASSIGN_OR_RETURN(const std::string path, PathOf(run, step, shard.name));
    LH_RETURN_IF_ERROR(MakeDirectories(Folder(run, step)));
    LH_ASSIGN_OR_RETURN(const std::unique_ptr<PendingFile> file, PendingFile::Create(path));
    LH_RETURN_IF_ERROR(file->Append(bytes));
    LH_RETURN_IF_ERROR(file->Publish());
    Sha256 hash;
    hash.Update(bytes);
    shard.bytes = bytes.size();
    shard.sha256 = hash.HexDigest();
    return shard;
  }
  StatusOr<std::unique_ptr<ShardWriter>> Take(const RunId& run, Step step,
                                              const ShardFile& file) override {
    LH_ASSIGN_OR_RETURN(const std::string path, PathOf(run, step, file.name));
    LH_RETURN_IF_ERROR(MakeDirectories(Folder(run, step)));
    LH_ASSIGN_OR_RETURN(std::unique_ptr<PendingFile> pending, PendingFile::Create(path));
    return std::make_unique<LocalShardWriter>(
        std::move(pending), file,
        std::vector<std::string>{fmt::format("{}/{}", root_, run.value()), root_});
  }
  StatusOr<std::string> PathOf(const RunId& run, Step step,
                               const std::string& name) const override {
    LH_RETURN_IF_ERROR(CheckFileName("a run's id", run.value()));
    LH_RETURN_IF_ERROR(CheckFileName("a shard's name", name));
    return Folder(run, step) + "/" + name;
  }
  Status Check(const RunId& run, Step step, const ShardFile& file) const override {
    LH_ASSIGN_OR_RETURN(const std::string path, PathOf(run, step, file.name));
    const Status status = CheckFile(path, file);
    if (!absl::IsNotFound(status)) return status;
    // With the run's folder gone too, a disk that is not mounted is likelier than a deleted file.
    const std::string folder = fmt::format("{}/{}", root_, run.value());
    std::error_code error;
    if (fs::exists(folder, error)) return status;
    return Unavailable("the folder {} is not there; is its disk mounted?", folder);
  }
  StatusOr<StageSnapshot> Read(const RunId& run, Step step,
                               const std::vector<ShardFile>& files) const override {
    LH_RETURN_IF_ERROR(CheckFileName("a run's id", run.value()));
    StageSnapshot snapshot;
    snapshot.step = step.value();
    std::set<std::string> names;
    for (const ShardFile& file : files) {
      LH_ASSIGN_OR_RETURN(std::string path, PathOf(run, step, file.name));
      if (!file.path.empty()) path = file.path;
      LH_ASSIGN_OR_RETURN(Safetensors contents, ReadShard(path, run, step, file));
      const std::string& kind = contents.metadata["kind"];
      if (kind != kParameters && kind != kOptimizer && kind != kTables) {
        return FailedPrecondition("{}: expected kind {}, {} or {}, it has '{}'", path, kParameters,
                                  kOptimizer, kTables, kind);
      }
      auto& arrays = kind == kParameters  ? snapshot.parameters
                     : kind == kOptimizer ? snapshot.moments
                                          : snapshot.tables;
      for (NamedArray& array : contents.arrays) {
        if (kind != kTables && !array.halves.empty()) {
          return FailedPrecondition("{}: expected {} in fp32, it is in bf16", path, array.name);
        }
        if (names.insert(array.name).second) {
          arrays.push_back(std::move(array));
          continue;
        }
        // Two stages may hold the same array: a tied model's matrix.
        const auto other =
            std::ranges::find_if(arrays, [&](const auto& one) { return one.name == array.name; });
        if (other == arrays.end() || !IsSame(*other, array)) {
          return FailedPrecondition(
              "{}: {} stands in another file of this checkpoint, too, with other values", path,
              array.name);
        }
      }
    }
    return snapshot;
  }
  StatusOr<std::optional<Step>> Oldest(const RunId& run) const override {
    LH_ASSIGN_OR_RETURN(const std::set<Step> steps, StepsOf(run));
    return steps.empty() ? std::nullopt : std::optional(*steps.begin());
  }
  Status Drop(const RunId& run, Step step) override {
    LH_RETURN_IF_ERROR(CheckFileName("a run's id", run.value()));
    const std::string folder = Folder(run, step);
    std::error_code error;
    fs::remove_all(folder, error);
    if (!error) return absl::OkStatus();
    return FromErrno(fmt::format("cannot delete the checkpoint {}", folder), error.value());
  }
  Status DropOthers(const RunId& run, const std::set<Step>& kept) override {
    if (kept.empty()) return absl::OkStatus();
    LH_ASSIGN_OR_RETURN(const std::set<Step> steps, StepsOf(run));
    for (const Step step : steps) {
      // Newer steps stay: they may be shards of a checkpoint that is not complete yet.
      if (step < *kept.rbegin() && !kept.contains(step)) LH_RETURN_IF_ERROR(Drop(run, step));
    }
    return absl::OkStatus();
  }
  Status DropRun(const RunId& run) override {
    LH_RETURN_IF_ERROR(CheckFileName("a run's id", run.value()));
    const std::string folder = fmt::format("{}/{}", root_, run.value());
    std::error_code error;
    fs::remove_all(folder, error);
    if (!error) return absl::OkStatus();
    return FromErrno(fmt::format("cannot delete the checkpoints {}", folder), error.value());
  }

 private:
  // All steps with a folder on this disk, whole or not.
  StatusOr<std::set<Step>> StepsOf(const RunId& run) const {
    LH_RETURN_IF_ERROR(CheckFileName("a run's id", run.value()));
    std::set<Step> steps;
    std::error_code error;
    const std::string folder = fmt::format("{}/{}", root_, run.value());
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename().string();
      uint64_t step = 0;
      const char* const last = name.data() + name.size();
      if (!name.starts_with(kStepPrefix)) continue;
      const auto [parsed, problem] = std::from_chars(name.data() + kStepPrefix.size(), last, step);
      if (problem == std::errc() && parsed == last) steps.insert(Step(step));
    }
    if (!error || error == std::errc::no_such_file_or_directory) return steps;
    return FromErrno(fmt::format("cannot list {}", folder), error.value());
  }
  std::string Folder(const RunId& run, Step step) const {
    return fmt::format("{}/{}/{}{:08}", root_, run.value(), kStepPrefix, step.value());
  }
  const std::string root_;
};

}  // namespace

StatusOr<ShardFile> ShardStore::WriteInputs(const RunId& /*run*/, const ShardOwner& /*owner*/,
                                            Step /*step*/, std::span<const std::byte> /*bytes*/) {
  return absl::UnimplementedError("this store takes no recordings");
}

std::vector<ShardFile> DescribeShards(const RunId& run, const ShardOwner& owner,
                                      const StageSnapshot& snapshot) {
  std::vector<ShardFile> shards;
  for (const auto& [kind, arrays] : KindsOf(snapshot)) {
    ShardFile& shard = shards.emplace_back(Named(owner, kind, "safetensors"));
    Sha256 hash;
    const std::string header = HeaderOf(run, owner, snapshot.step, kind, *arrays);
    hash.Update(header);
    shard.bytes = header.size();
    for (const NamedArray& array : *arrays) {
      hash.Update(array.bytes());
      shard.bytes += array.bytes().size();
    }
    shard.sha256 = hash.HexDigest();
  }
  return shards;
}

StatusOr<std::unique_ptr<ShardStore>> ShardStore::OpenLocal(const std::string& root) {
  LH_RETURN_IF_ERROR(MakeDirectories(root));
  DeleteLeftovers(root);
  return std::make_unique<LocalShardStore>(root);
}

}  // namespace longhaul::worker
