// Decides which of an installation's coordinators commands. Each takeover begins a new term. A
// coordinator that learns of a newer term than its own stops commanding, and workers obey the
// newest term.
//
// <state-dir>/leadership.json keeps what must outlive the process (docs/design/formats.md). A state
// directory without the file belongs to a coordinator in its first term.
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
  kCoordinator,  // commands, or did when it last ran
  kStandby,      // has a copy of another coordinator's state
  kFenced,       // another coordinator has taken over from it
};

struct LeadershipRecord {
  LeaderRole role = LeaderRole::kCoordinator;
  uint64_t term = 1;  // if fenced: the successor's
  // The next fields are host:port; empty: nobody.
  std::string standby;            // coordinator: who followed it last
  bool standby_is_stale = false;  // and was away too long to take over
  // standby: whom it follows; coordinator: whom it took over from, until that one knows
  std::string predecessor;
  std::string successor;  // fenced: who took over
  bool whole = false;     // standby: its copy was complete when it wrote this

  bool operator==(const LeadershipRecord&) const = default;
};

std::string ToJson(const LeadershipRecord& record);
// kDataLoss says what is wrong.
StatusOr<LeadershipRecord> ParseLeadership(std::string_view json);
StatusOr<LeadershipRecord> ReadLeadership(const std::string& state_dir);
Status WriteLeadership(const std::string& state_dir, const LeadershipRecord& record);

// By what right a coordinator begins to serve from a state directory.
enum class Claim : uint8_t {
  kOwn,       // it commanded when it last ran
  kTakeover,  // it is a standby, and its coordinator is gone
  kForce,     // a person says so
};

// The new record of the state directory when a coordinator begins to serve from it at `now`.
// kFailedPrecondition: this claim is not enough, and what to do.
StatusOr<LeadershipRecord> BeginToLead(const LeadershipRecord& record, Claim claim, absl::Time now);
// A term newer than any that workers may have heard of, for when the records at hand do not tell.
// `known`: a term that they do tell.
uint64_t TermOfForce(uint64_t known, absl::Time now);

// The leadership of a serving coordinator. Thread-safe.
class Leadership {
 public:
  Leadership(std::string state_dir, LeadershipRecord record)
      : state_dir_(std::move(state_dir)), term_(record.term), record_(std::move(record)) {}

  uint64_t term() const { return term_; }
  LeadershipRecord record() const;
  // Another coordinator has a newer term: writes that down, and failure() reports it from now on.
  // `successor` may be empty if only the term is known.
  void Yield(uint64_t newer_term, const std::string& successor);
  // Not OK: this coordinator commands no more, and its process should end.
  Status failure() const;
  // NoteStandby: a standby's copy is complete from now on. NoteStandbyGone: it is not any more.
  void NoteStandby(const std::string& address);
  void NoteStandbyGone();
  // The standby was away too long to take over.
  void NoteStandbyStale();
  // Whether a standby has a complete copy; nullopt: none has ever followed this coordinator.
  std::optional<bool> has_standby() const;
  // How long the last standby with a complete copy has been away; zero if it is there, or there was
  // none.
  absl::Duration standby_away() const;
  // The predecessor has been told that it is one.
  void ForgetPredecessor();

 private:
  void Write();

  const std::string state_dir_;
  const uint64_t term_;
  mutable std::mutex mutex_;  // guards what follows
  LeadershipRecord record_;
  bool standby_is_there_ = false;
  std::optional<MonoTime> standby_left_;
  Status failure_;
};

}  // namespace longhaul::coordinator
