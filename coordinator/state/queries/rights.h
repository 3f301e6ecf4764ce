// Which blobs runs name. A worker may fetch only those of runs that it has a part in, and an owner
// only those of his own runs.
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

// How some runs refer to a blob. Its hash may be in a worker's report, so a checkpoint alone gives
// no right to what somebody else has sent: only to a copy that has come for that checkpoint.
struct Naming {
  bool named = false;              // they name it themselves, as data
  bool copied = false;             // it is a shard of theirs of which the coordinator has a copy
  std::vector<std::string> lists;  // blobs that they name, and which may name it
  bool connected = true;           // the worker has a session here; of owners true
};

// What the runs of an owner name.
struct OwnNames {
  std::set<std::string> blobs;
  std::set<std::string> lists;  // of `blobs`, which name others
};

// The worker is reserved for the run, or has a stage of its newest plan.
bool HoldsCell(const Worker& worker, const Run& run);

// Whether a blob is one that active runs with cells of this worker name.
Naming NamedForWorker(const Ledger& ledger, const WorkerId& worker, const std::string& sha256);
// Whether a blob is one that runs of this owner name.
Naming NamedForOwner(const Ledger& ledger, std::string_view owner, const std::string& sha256);
OwnNames NamesOfOwner(const Ledger& ledger, std::string_view owner);

}  // namespace longhaul::coordinator
