// The file <state-dir>/term, in which a worker keeps the leader that it obeyed last
// (obedience.h), so that a restarted worker does not obey an older one:
//
//   {"term": 7, "tenure": "<32 hexadecimal digits>", "address": "host:port", "change": 812}
//
// For one thread at a time.
#pragma once

#include <string>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "worker/agent/obedience.h"

namespace longhaul::worker {

class TermFile {
 public:
  // Reads the file; without one the worker has obeyed nobody. kFailedPrecondition: the file is
  // damaged. Other errors: those of the file system.
  static StatusOr<TermFile> Open(const std::string& state_dir);
  // Keeps the record in memory alone, for tests.
  static TermFile InMemory() { return TermFile("", {}); }

  const Obeyed& obeyed() const { return obeyed_; }
  // Takes over `obeyed`. A new leader is on the disk when Keep returns. Another address or change
  // number alone is written at most every 10 s, and a failure of that is no error. Errors: those of
  // the file system; the new leader is then not taken over.
  Status Keep(Obeyed obeyed, MonoTime now);

 private:
  TermFile(std::string path, const Obeyed& obeyed)
      : path_(std::move(path)), obeyed_(obeyed), stored_(obeyed) {}

  std::string path_;  // empty: in memory
  Obeyed obeyed_, stored_;
  MonoTime tried_{};  // the last write
};

}  // namespace longhaul::worker
