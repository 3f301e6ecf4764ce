#include "deploy/sweep/results_store.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/pending_file.h"
#include "deploy/sweep/report.h"

namespace longhaul::cli {
namespace {

constexpr uint64_t kLargestResults = uint64_t{1} << 30;

// What processes that were killed while they wrote have left.
void RemovePendingFiles(const std::string& folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (IsPendingFileName(entry.path().filename().string())) {
      std::filesystem::remove(entry.path(), ignored);
    }
  }
}

// Takes over what `before` knows of the points.
Status TakeOver(const std::string& path, SweepResults before, bool retry_failed,
                SweepResults& now) {
  if (const std::string changed = WhatChanged(before, now); !changed.empty()) {
    return absl::FailedPreconditionError(fmt::format(
        "{} has results of another sweep: {}. Give another --out, or make the sweep what it was; "
        "to begin anew here, delete the folder",
        path, changed));
  }
  for (PointResult& point : now.points) {
    const auto old = std::ranges::find(before.points, point.id,
                                       [](const PointResult& other) { return other.id; });
    if (old == before.points.end()) continue;
    // Whether a point is possible is for this machine to say, now.
    const bool ran = old->state == PointState::kMeasured ||
                     (old->state == PointState::kRunFailed && !retry_failed);
    if (ran) point = std::move(*old);
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<ResultsStore>> ResultsStore::Open(const std::string& folder,
                                                           SweepResults fresh, bool retry_failed) {
  LH_RETURN_IF_ERROR(Annotate(MakeDirectories(folder), "--out"));
  const std::string lock_path = folder + "/.lock";
  const int fd = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return FromErrno(fmt::format("cannot write {}", lock_path), errno);
  // From here on the object closes it.
  std::unique_ptr<ResultsStore> store(new ResultsStore(folder, fd, std::move(fresh)));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(fmt::format(
        "another `longhaul sweep` is at work in {}; wait for it, or give another --out", folder));
  }
  RemovePendingFiles(folder);
  const std::string path = folder + "/results.json";
  const StatusOr<std::string> text = ReadFile(path, kLargestResults);
  if (absl::IsNotFound(text.status())) return store;
  LH_RETURN_IF_ERROR(text.status());
  StatusOr<SweepResults> before = ResultsFromJson(*text);
  if (!before.ok()) {
    return absl::FailedPreconditionError(
        fmt::format("{} is no results file that this version can go on with: {}. Give another "
                    "--out, or delete the file to begin anew",
                    path, Message(before.status())));
  }
  LH_RETURN_IF_ERROR(TakeOver(path, *std::move(before), retry_failed, store->results_));
  store->goes_on_ = true;
  return store;
}

ResultsStore::~ResultsStore() {
  close(lock_fd_);
}

Status ResultsStore::Record(PointResult result) {
  const auto point = std::ranges::find(results_.points, result.id,
                                       [](const PointResult& other) { return other.id; });
  if (point == results_.points.end()) {
    return absl::InternalError(fmt::format("the sweep has no point '{}'", result.id));
  }
  *point = std::move(result);
  return Write();
}

Status ResultsStore::Write() const {
  LH_RETURN_IF_ERROR(WriteFileAtomic(folder_ + "/results.json", ToJson(results_)));
  LH_RETURN_IF_ERROR(WriteFileAtomic(folder_ + "/results.csv", ToCsv(results_)));
  return WriteFileAtomic(ReportPath(), Report(results_));
}

}  // namespace longhaul::cli
