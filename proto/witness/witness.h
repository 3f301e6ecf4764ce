// A running witness (rules.h). It dials both coordinators, so its machine needs no port that others
// reach, and keeps its record in <state-dir>/witness.json. It is a member of its own role and has
// no other rights.
//
// Threads: one for each coordinator.
#pragma once

#include <grpcpp/client_context.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "longhaul/v1/standby.pb.h"
#include "proto/member/access.h"
#include "proto/witness/rules.h"

namespace longhaul::witness {

// A leader says that it lives each second. After this silence another seat may be elected.
inline constexpr absl::Duration kLease = absl::Seconds(5);

struct Options {
  std::vector<std::string> coordinators;  // host:port of both
  std::string state_dir;                  // created if missing
  std::string token_file;         // a join token for witnesses; empty: it has joined already
  std::string name;               // the requested name of the member
  std::string version;            // of this program
  absl::Duration lease = kLease;  // for tests: shorter
};

class Witness {
 public:
  // Joins as a member if it has not joined yet, and begins to serve. kUnavailable: no coordinator
  // answers, try again. Other errors: those of Access::Open and of the file.
  static StatusOr<std::unique_ptr<Witness>> Start(const Options& options);
  // Ends the streams.
  ~Witness();

  Record record() const;
  // Not OK: the record could not be stored, so the witness answers no more.
  Status failure() const;

 private:
  struct Line;
  Witness(Options options, Record record);
  void Loop(Line* line);
  Status Follow(Line* line);
  v1::WitnessSays Answer(const v1::WitnessAsked& asked);
  // Stores `record`.
  Status Store(const Record& record);

  const Options options_;
  mutable std::mutex mutex_;  // guards the members below; held while the record is stored
  std::condition_variable changed_;
  Record record_;
  uint64_t stored_seen_ = 0;  // Record::seen in the file
  MonoTime stored_at_{};
  MonoTime heard_;  // the leader of the record; after the start: it may be there
  Status failure_;
  bool closing_ = false;
  std::vector<std::unique_ptr<Line>> lines_;
};

}  // namespace longhaul::witness
