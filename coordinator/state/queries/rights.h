// Finds which runs name a blob (a file that is named by its SHA-256), and so who may fetch the
// blob. A worker may fetch only blobs of active runs in which it has a part. An owner, which is the
// member that submitted a run, may fetch only blobs of its runs.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "run/file/run_spec.h"

namespace longhaul::coordinator {

class Ledger;
struct Run;
struct Worker;

// How the runs of a worker or owner refer to a blob. A worker may report any hash as the hash of
// its shard (checkpoint file), even the hash of another member's data. So a checkpoint gives a
// right only to a copy that arrived for this checkpoint.
struct Naming {
  bool named = false;   // the runs name the blob as data
  bool copied = false;  // the blob is a shard of the runs, and the coordinator has a copy
  std::vector<std::string> lists;  // lists of blobs that the runs name; the blob may be in one
  bool connected = true;           // the worker has a session here; true for owners
};

// The blobs that the runs of an owner name.
struct OwnNames {
  std::set<std::string> blobs;
  std::set<std::string> lists;      // blobs that list other blobs
  std::set<std::string> all_lists;  // the same, also lists of which no worker gets anything
};

// A run whose objects (base/remote/store.h) a worker may have.
struct WorkersRun {
  RunId id;
  RunSpec spec;
};

// Returns whether the run reserves the worker, or the worker has a stage in the run's newest plan.
bool HoldsCell(const Worker& worker, const Run& run);

// Returns how the active runs in which this worker has a part refer to the blob.
Naming NamedForWorker(const Ledger& ledger, const WorkerId& worker, const std::string& sha256);
// Returns the active run `run`, in which this worker has a part. `worker`: nullopt without TLS, and
// then every worker has a part. kPermissionDenied: there is no such run, it has ended, or the
// worker has no part in it. kUnavailable: the worker has no session here yet.
StatusOr<WorkersRun> RunOfWorker(const Ledger& ledger, const std::optional<WorkerId>& worker,
                                 const std::string& run);
// Returns how the runs of this owner refer to the blob. `owner`: RunRecord::owner.
Naming NamedForOwner(const Ledger& ledger, std::string_view owner, const std::string& sha256);
OwnNames NamesOfOwner(const Ledger& ledger, std::string_view owner);

}  // namespace longhaul::coordinator
