// The order of changes, without a disk: how a leader names its changes, which change a follower
// takes, and from where a follower resumes. Pure; the simulation uses it, too.
//
// A leader names one change at a time, and commits it before it names the next one. A follower logs
// a change first, and applies it to its tables when it hears that it is committed. Changes that are
// logged and not applied are the tail. A later term may replace changes of the tail, and no others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/status.h"
#include "coordinator/lead/history.h"
#include "longhaul/v1/standby.pb.h"

namespace longhaul {

// Out here, because names of an inner namespace hide the conversions of other messages.
v1::History ToProto(const coordinator::History& history);
coordinator::History FromProto(const v1::History& history);

}  // namespace longhaul

namespace longhaul::coordinator {

// The history of a store whose newest change is `change`.
History HistoryOf(const v1::StoreChange& change);

// Returns a change as the table `changes` keeps it: the message without its chain (ChainAfter).
std::string StoredBytes(v1::StoreChange change);

// Where a store stands.
struct Standing {
  History applied;            // the newest change that the tables have
  std::vector<History> tail;  // the changes after it that are stored, oldest first

  // The newest change that is stored.
  const History& logged() const { return tail.empty() ? applied : tail.back(); }
  friend bool operator==(const Standing&, const Standing&) = default;
};

// A change with its name. `bytes`: StoredBytes of it.
struct NamedChange {
  v1::StoreChange change;
  std::string bytes;
  History history() const { return HistoryOf(change); }
};

// Names the change that a leader makes next: gives it `term`, the next number and its chain.
// `begins_term`: it is the first change of the term, which also commits the tail. kAborted: the
// store has changes of a newer term. kFailedPrecondition: there is a tail, and the change does not
// begin a term.
StatusOr<NamedChange> NameChange(const Standing& standing, v1::StoreChange change, uint64_t term,
                                 int64_t unix_ms, bool begins_term);

// What a follower does with a change that its leader sent.
enum class Fit : uint8_t {
  kNext,          // log it behind the others
  kReplacesTail,  // log it in place of changes of the tail, which never happened
  kKnown,         // nothing: it is logged already
  kGap,           // nothing: changes before it are missing; follow anew
  kDiffers,       // nothing: the two stores differ before it; a whole copy is needed
};
Fit FitOf(const Standing& standing, const NamedChange& change);

// Returns the number of the newest change that leader and follower have in common; the leader sends
// the changes after it. `follower`: where the follower stands. `at`: returns the history of the
// leader's change of this number; nullopt if the leader does not keep it any more. nullopt: there
// is no such change, so the follower needs a whole copy. Stores without changes have nothing in
// common: stores of older versions begin so, whatever they contain.
std::optional<uint64_t> ResumeAfter(const Standing& follower,
                                    absl::FunctionRef<std::optional<History>(uint64_t number)> at);

}  // namespace longhaul::coordinator
