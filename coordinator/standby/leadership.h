// Which of several coordinators of an installation commands. Each takeover begins a new term; one
// that knows of a newer term than its own has nothing to say any more. Workers obey the newest.
//
// <state-dir>/leadership.json has what must outlive the process (docs/design/formats.md). A state
// directory without it is that of a coordinator in its first term.
#ifndef LONGHAUL_COORDINATOR_STANDBY_LEADERSHIP_H_
#define LONGHAUL_COORDINATOR_STANDBY_LEADERSHIP_H_

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
  kCoordinator,  // commands, or did when it ran last
  kStandby,      // has a copy of another's state
  kFenced,       // another has taken over from it
};

struct LeadershipRecord {
  LeaderRole role = LeaderRole::kCoordinator;
  uint64_t term = 1;  // fenced: the successor's
  // host:port; empty: nobody.
  std::string standby;            // of a coordinator: who followed it last
  bool standby_is_stale = false;  // and has been away for too long to take over
  std::string predecessor;  // of a standby: whom it follows; of a coordinator: whom it took over
                            // from, until that one knows
  std::string successor;    // of one that is fenced: who took over
  bool whole = false;       // of a standby: it missed nothing when it wrote this

  bool operator==(const LeadershipRecord&) const = default;
};

std::string ToJson(const LeadershipRecord& record);
// kDataLoss with what is wrong.
StatusOr<LeadershipRecord> ParseLeadership(std::string_view json);
StatusOr<LeadershipRecord> ReadLeadership(const std::string& state_dir);
Status WriteLeadership(const std::string& state_dir, const LeadershipRecord& record);

// Why a coordinator may begin to serve from a state directory.
enum class Claim : uint8_t {
  kOwn,       // it commanded when it ran last
  kTakeover,  // it is a standby, and its coordinator is gone
  kForce,     // a person says so
};

// What the state directory is once a coordinator begins to serve from it at `now`.
// kFailedPrecondition: this claim is not enough; what to do.
StatusOr<LeadershipRecord> BeginToLead(const LeadershipRecord& record, Claim claim, absl::Time now);
// A term newer than any that workers may have heard of, whoever began it: where the records that
// are at hand do not tell. `known` is one that they tell.
uint64_t TermOfForce(uint64_t known, absl::Time now);

// A coordinator that serves. Thread-safe.
class Leadership {
 public:
  Leadership(std::string state_dir, LeadershipRecord record)
      : state_dir_(std::move(state_dir)), term_(record.term), record_(std::move(record)) {}

  uint64_t term() const { return term_; }
  LeadershipRecord record() const;
  // Somebody has a newer term: that is written down, and from now on failure() says so. `successor`
  // may be empty, where only the term is known.
  void Yield(uint64_t newer_term, const std::string& successor);
  // Not OK: this one commands no more, and its process should end.
  Status failure() const;
  // A standby has all from now on; it has not any more.
  void NoteStandby(const std::string& address);
  void NoteStandbyGone();
  // It has been away for so long that it takes over no more.
  void NoteStandbyStale();
  // Whether there is one that has all; nullopt: none has ever followed this coordinator.
  std::optional<bool> has_standby() const;
  // How long the one that had all has been away; zero while it is there, or there was none.
  absl::Duration standby_away() const;
  // The predecessor knows that it is one.
  void ForgetPredecessor();

 private:
  void Write();

  const std::string state_dir_;
  const uint64_t term_;
  mutable std::mutex mutex_;  // of all below
  LeadershipRecord record_;
  bool standby_is_there_ = false;
  std::optional<MonoTime> standby_left_;
  Status failure_;
};

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_STANDBY_LEADERSHIP_H_
