#include "coordinator/rpc/stored_folders.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "base/log.h"
#include "run/stored/stored_checkpoint.h"

namespace longhaul::coordinator {
namespace {

constexpr size_t kFolderThreads = 4;
// A run may wait for an answer, and asks again.
constexpr absl::Duration kFolderLimit = absl::Minutes(2);
constexpr int kFolderAttempts = 6;

remote::Options FolderOptionsOf(const remote::Settings& settings) {
  return {.hosts = remote::RulesFor(settings.endpoints), .patience = {.attempts = kFolderAttempts}};
}

// The objects of a checkpoint's folder with their sizes.
std::map<std::string, uint64_t> SizesIn(const remote::Listing& listing) {
  std::map<std::string, uint64_t> sizes;
  for (const remote::Entry& entry : listing.entries) sizes[entry.path] = entry.bytes;
  return sizes;
}

std::string ProblemOf(const v1::CheckpointFile& file, uint64_t piece_bytes,
                      const std::map<std::string, uint64_t>& sizes) {
  for (const stored::Piece& piece : stored::PiecesOf(file, piece_bytes)) {
    const auto found = sizes.find(piece.name);
    if (found == sizes.end()) return fmt::format("{} is missing", piece.name);
    if (found->second != piece.bytes) {
      return fmt::format("expected {} bytes, {} has {}", piece.bytes, piece.name, found->second);
    }
  }
  return "";
}

}  // namespace

StoredFolders::StoredFolders(const remote::Settings& settings, std::function<void(Event)> done)
    : store_(settings, FolderOptionsOf(settings)),
      done_(std::move(done)),
      threads_(kFolderThreads) {}

void StoredFolders::Add(command::CheckCopies request) {
  const std::string key = fmt::format("check {}", request.check);
  threads_.Add(key, [this, request = std::move(request)] { done_(Check(request)); });
}

void StoredFolders::Add(command::StoreCheckpoint request) {
  const std::string key = request.run.value();
  threads_.Add(key, [this, request = std::move(request)] {
    const Status status = Store(request);
    const v1::CheckpointManifest& manifest = request.checkpoint.manifest();
    done_(event::CheckpointStored{request.run, manifest.epoch(), manifest.step(),
                                  std::string(Message(status))});
  });
}

void StoredFolders::Add(command::TrimFolder request) {
  const std::string key = request.run.value();
  threads_.Add(key, [this, request = std::move(request)] {
    const Status status = Trim(request);
    if (status.ok() || absl::IsCancelled(status)) return;
    LogWarning("run {}: old checkpoints stay in {}: {}", request.run.value(), request.address,
               Message(status));
  });
}

bool StoredFolders::Stop(Deadline deadline) {
  stopping_ = true;
  return threads_.Stop(deadline);
}

http::Call StoredFolders::CallNow() const {
  return {.deadline = Deadline::After(kFolderLimit),
          .given_up = [this] { return stopping_.load(); }};
}

StatusOr<std::vector<std::string>> StoredFolders::ProblemsOf(
    const v1::StoredFolder& folder, const std::vector<v1::CheckpointFile>& files) const {
  LH_ASSIGN_OR_RETURN(const remote::Address address, remote::ParseAddress(folder.address()));
  LH_ASSIGN_OR_RETURN(const remote::Listing listing, store_.List(address, CallNow()));
  const std::map<std::string, uint64_t> sizes = SizesIn(listing);
  std::vector<std::string> problems;
  for (const v1::CheckpointFile& file : files) {
    problems.push_back(ProblemOf(file, folder.piece_bytes(), sizes));
  }
  return problems;
}

event::CopiesChecked StoredFolders::Check(const command::CheckCopies& request) const {
  event::CopiesChecked checked;
  checked.check = request.check;
  StatusOr<std::vector<std::string>> problems = ProblemsOf(*request.folder, request.files);
  if (problems.ok()) {
    checked.problems = *std::move(problems);
  } else {
    checked.problems.assign(request.files.size(), std::string(Message(problems.status())));
    checked.unreadable.assign(request.files.size(), true);
  }
  return checked;
}

Status StoredFolders::Store(const command::StoreCheckpoint& request) const {
  const v1::CheckpointManifest& manifest = request.checkpoint.manifest();
  const std::vector<v1::CheckpointFile> files(manifest.files().begin(), manifest.files().end());
  LH_ASSIGN_OR_RETURN(const std::vector<std::string> problems, ProblemsOf(request.folder, files));
  for (const std::string& problem : problems) {
    if (problem.empty()) continue;
    return DataLoss("the checkpoint of step {} did not come whole to {}: {}", manifest.step(),
                    request.folder.address(), problem);
  }
  LH_ASSIGN_OR_RETURN(const remote::Address folder, remote::ParseAddress(request.folder.address()));
  LH_ASSIGN_OR_RETURN(const remote::Address object, remote::Inside(folder, stored::kDescription));
  const std::string json = stored::ToJson(request.checkpoint);
  return store_.Write(object, std::as_bytes(std::span(json)), CallNow()).status();
}

Status StoredFolders::Trim(const command::TrimFolder& request) const {
  LH_ASSIGN_OR_RETURN(const remote::Address folder, remote::ParseAddress(request.address));
  LH_ASSIGN_OR_RETURN(const remote::Listing listing, store_.List(folder, CallNow()));
  std::vector<std::string> paths;
  for (const remote::Entry& entry : listing.entries) {
    const std::string name = entry.path.substr(0, entry.path.find('/'));
    const std::optional<uint64_t> step = stored::StepOf(name);
    if (!step || name.size() == entry.path.size()) continue;  // nothing that this program wrote
    const bool is_outdated =
        !request.kept.empty() && *step < *request.kept.rbegin() && !request.kept.contains(*step);
    if (is_outdated || request.dropped.contains(*step)) paths.push_back(entry.path);
  }
  // Without its description a checkpoint does not exist, so no half of one is ever taken.
  std::stable_partition(paths.begin(), paths.end(), [](const std::string& path) {
    return path.ends_with(stored::kDescription);
  });
  for (const std::string& path : paths) {
    LH_ASSIGN_OR_RETURN(const remote::Address object, remote::Inside(folder, path));
    LH_RETURN_IF_ERROR(store_.Delete(object, CallNow()));
  }
  return absl::OkStatus();
}

}  // namespace longhaul::coordinator
