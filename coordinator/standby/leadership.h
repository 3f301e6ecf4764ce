// Decides which of an installation's coordinators commands the workers. Each takeover begins a new
// term. A coordinator that learns of a newer term than its own stops commanding. Workers obey the
// coordinator with the newest term that they know.
//
// <state-dir>/leadership.json keeps the record when the process ends (docs/design/formats.md). A
// state directory without the file belongs to a coordinator in its first term.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status.h"

namespace longhaul::coordinator {

enum class LeaderRole : uint8_t {
  kCoordinator,  // commands, or did so when it last ran
  kStandby,      // has a copy of another coordinator's state
  kFenced,       // another coordinator has taken over its runs
};

struct LeadershipRecord {
  LeaderRole role = LeaderRole::kCoordinator;
  uint64_t term = 1;  // if fenced: the successor's term
  // The next fields are host:port; empty: none.
  std::string standby;            // coordinator: the standby that followed it last
  bool standby_is_stale = false;  // that standby was away too long to take over
  // standby: the coordinator that it follows. coordinator: the one that it replaced, until that one
  // has been told.
  std::string predecessor;
  std::string successor;  // fenced: the coordinator that took over
  bool whole = false;     // standby: its copy was complete when this record was written

  bool operator==(const LeadershipRecord&) const = default;
};

std::string ToJson(const LeadershipRecord& record);
// kDataLoss: the text is not a record; the message names the fault.
StatusOr<LeadershipRecord> ParseLeadership(std::string_view json);
// Read and write <state-dir>/leadership.json; writes are atomic. Without the file, ReadLeadership
// returns the default record: a coordinator in its first term. kDataLoss: the file is damaged.
// Other errors: the system's for a file that cannot be read or written.
StatusOr<LeadershipRecord> ReadLeadership(const std::string& state_dir);
Status WriteLeadership(const std::string& state_dir, const LeadershipRecord& record);

// The right by which a coordinator begins to serve from a state directory.
enum class Claim : uint8_t {
  kOwn,       // it commanded when it last ran
  kTakeover,  // it is a standby, and its coordinator is gone
  kForce,     // a person demands it
};

// Returns the record with which a coordinator begins to serve at `now` from a state directory that
// has `record`. kFailedPrecondition: this claim does not suffice; the message says what to do.
StatusOr<LeadershipRecord> BeginToLead(const LeadershipRecord& record, Claim claim, absl::Time now);
// Returns the term for a forced start. The records in the state directory may be old, so the term
// is above `known`, the term in these records, and at least the Unix time in seconds. A takeover
// only adds one to the term, so no worker can know a newer term than this one.
uint64_t TermOfForce(uint64_t known, absl::Time now);

// The leadership of a serving coordinator. Thread-safe. Methods that change the record write it to
// the state directory. A failed write is only logged: the change then holds until the process ends.
class Leadership {
 public:
  // `record`: the result of BeginToLead.
  Leadership(std::string state_dir, LeadershipRecord record)
      : state_dir_(std::move(state_dir)), term_(record.term), record_(std::move(record)) {}

  uint64_t term() const { return term_; }
  LeadershipRecord record() const;
  // Records that another coordinator has a newer term; from now on failure() reports this. Does
  // nothing if `newer_term` is not newer. `successor` may be empty if only the term is known.
  void Yield(uint64_t newer_term, const std::string& successor);
  // Not OK: this coordinator no longer commands, and its process should end.
  Status failure() const;
  // NoteStandby: the standby at `address` has a complete copy from now on. NoteStandbyGone: it has
  // disconnected.
  void NoteStandby(const std::string& address);
  void NoteStandbyGone();
  // Records that the standby was away too long to take over.
  void NoteStandbyStale();
  // True while a standby with a complete copy is connected. nullopt: no standby has ever followed
  // this coordinator.
  std::optional<bool> has_standby() const;
  // Returns how long ago the last standby with a complete copy disconnected from this process. Zero
  // if it is connected or was noted as stale, or if there was none.
  absl::Duration standby_away() const;
  // Records that the predecessor has been told that its term is over.
  void ForgetPredecessor();

 private:
  void Write();

  const std::string state_dir_;
  const uint64_t term_;
  mutable std::mutex mutex_;  // guards the members below
  LeadershipRecord record_;
  bool standby_is_there_ = false;
  std::optional<MonoTime> standby_left_;
  Status failure_;
};

}  // namespace longhaul::coordinator
