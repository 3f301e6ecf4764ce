// What a leader does when a worker says that it has obeyed another leader. Pure; for one thread at
// a time.
//
// A worker that obeyed a newer term refuses this leader's commands, so one of them must give way. A
// worker's word ends nobody and elects nobody: a false worker could say anything. It only makes the
// leader ask those who know, or begin a newer term by its own right. A term that begins like this
// is at least the Unix time in seconds, and none begins where this one is of the last minute. So a
// false worker begins at most one a minute, also if the process restarts for each, and cannot use
// up the terms.
//
//   WorkerWords words;
//   WordAnswer answer = words.On(lead, word, Now(), unix_seconds);
//   if (answer.step == WordStep::kAskLeader) answer = words.OnTermThere(lead, word, term, ...);
//
// In the coordinator: WorkerSession calls On for each hello, and leaves kWelcome alone. kElect: it
// asks the witness or the other seat for a term above `above` (Seat::AskWitness, Seat::AskOther).
// It goes on with it, or steps down. kRaise: likewise with Seat::LeadAlone. kStepDown: as if the
// other leader had said so itself. kRefuse, and kElect and kRaise until the new term counts: the
// session ends with kUnavailable and `why`, so the worker tries the next coordinator and comes
// back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/ids.h"

namespace longhaul::coordinator {

// The leader that the worker obeyed last, by its hello.
struct WorkerWord {
  std::string worker;  // its name, for people
  uint64_t term = 0;   // 0: it has obeyed nobody
  Tenure tenure;
  std::string leader_address;  // host:port where it dialled that leader
  uint64_t change = 0;         // number of the newest change that the leader named
};

// This leader.
struct LeaderNow {
  uint64_t term = 0;
  Tenure tenure;
  uint64_t change = 0;       // number of its newest committed change
  bool has_voters = false;   // a witness or another seat counts, so others may have been elected
  bool had_standby = false;  // another coordinator has followed this store
  bool is_here = false;      // the worker dialled leader_address, or it is this leader's own
};

enum class WordStep : uint8_t {
  kWelcome,    // the worker obeys this leader, or will
  kAskLeader,  // ask leader_address for its term, then call OnTermThere
  kElect,      // be elected by another voter, above `above`
  kRaise,      // begin a term above `above`: this leader needs nobody for that
  kStepDown,   // another leader has a newer term, and said so itself
  kRefuse,
};

struct WordAnswer {
  WordStep step = WordStep::kWelcome;
  uint64_t above = 0;
  std::string why;  // a sentence without its full stop, for the worker, the log and an event
};

class WorkerWords {
 public:
  // How often a worker's word may begin a new term.
  static constexpr absl::Duration kBetweenRaises = absl::Minutes(1);
  // A term this far above this leader's own, and above the Unix time in seconds, is not true.
  static constexpr uint64_t kMostAbove = uint64_t{1} << 32;

  WordAnswer On(const LeaderNow& lead, const WorkerWord& word, MonoTime now, int64_t unix_seconds);
  // After kAskLeader. `there`: the term of the leader at that address; nullopt: nobody answers, or
  // nobody leads there.
  WordAnswer OnTermThere(const LeaderNow& lead, const WorkerWord& word,
                         std::optional<uint64_t> there, MonoTime now);

 private:
  // kElect or kRaise, or kRefuse if the present term began like this a moment ago.
  WordAnswer Begin(const LeaderNow& lead, uint64_t above, std::string why, MonoTime now);

  std::optional<MonoTime> last_;
  uint64_t unix_seconds_ = 0;  // when On was called last
};

// True if these records end before a change that a worker has seen: they are from an old copy, or
// the disk lost its newest writes. `at_start`: number of the newest change when this process began
// to lead.
bool WasPutBack(const LeaderNow& lead, const WorkerWord& word, uint64_t at_start);

}  // namespace longhaul::coordinator
