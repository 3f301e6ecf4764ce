// The blobs that runs name. A worker may fetch only blobs of runs in which it has a part, and an
// owner only blobs of its own runs.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace longhaul::coordinator {

class Ledger;
struct Run;
struct Worker;

// How some runs refer to a blob. A worker's report may contain its hash, so a checkpoint gives a
// right only to a copy that arrived for that checkpoint, not to data that another member sent.
struct Naming {
  bool named = false;   // the runs name the blob, as data
  bool copied = false;  // the blob is a shard of the runs, and the coordinator has a copy
  std::vector<std::string> lists;  // blobs that the runs name, and which may name the blob
  bool connected = true;           // the worker has a session here; true for owners
};

// The blobs that an owner's runs name.
struct OwnNames {
  std::set<std::string> blobs;
  std::set<std::string> lists;  // blobs that name other blobs
};

// Whether the worker is reserved for the run, or has a stage of its newest plan.
bool HoldsCell(const Worker& worker, const Run& run);

// How active runs with cells of this worker refer to a blob.
Naming NamedForWorker(const Ledger& ledger, const WorkerId& worker, const std::string& sha256);
// How runs of this owner refer to a blob.
Naming NamedForOwner(const Ledger& ledger, std::string_view owner, const std::string& sha256);
OwnNames NamesOfOwner(const Ledger& ledger, std::string_view owner);

}  // namespace longhaul::coordinator
