// Membership of a group of ranks: joining the group, exchange of small texts, and detection of lost
// ranks. Every backend of communicators uses it; tensors do not travel here.
//
//   // In one process, best that of rank 0. Pass the id to the other ranks by any means.
//   LH_ASSIGN_OR_RETURN(auto rendezvous, Rendezvous::Open());
//   std::string id = rendezvous->id();
//   // In each rank:
//   LH_ASSIGN_OR_RETURN(auto member, Member::Join(id, {.rank = 1, .size = 4}, deadline));
//   LH_ASSIGN_OR_RETURN(std::vector<std::string> all, member->Tell("what others need", deadline));
//
// The rendezvous is a thread with a Unix socket, and every member keeps a connection to it. If a
// connection closes without a goodbye, its rank is lost: the group ends, the rendezvous tells all
// other ranks, and their callbacks `on_end` run (OnEnd). A rank can also end the group itself
// (End). Run the rendezvous in rank 0's process: if this process dies, members report rank 0 as
// lost.
//
// Threads: all methods are thread-safe. `on_end` runs once, on the member's own thread, with no
// lock held. It may call any method, but must not destroy the member.
//
// Errors: kAborted once the group has ended, and from Join if no rendezvous listens at the id;
// kDeadlineExceeded names the ranks that did not come; kInvalidArgument for an invalid id, a rank
// out of range or taken, or different sizes. A rank whose Join was refused as invalid has not
// joined, and the others still wait for it. If the deadline of a Join or Tell passes, the group
// ends.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace longhaul::collective {

// Maximum size of a group, which is on one machine.
inline constexpr uint32_t kMaxRanks = 64;
// Maximum length of the text of one Tell, in bytes.
inline constexpr size_t kMaxTellBytes = size_t{64} << 10;

class Rendezvous {
 public:
  // Makes a rendezvous with a new id, and starts its thread. Errors come from the operating system.
  static StatusOr<std::unique_ptr<Rendezvous>> Open();
  // Ends the group unless all ranks have said goodbye. So destroy the rendezvous after all members.
  virtual ~Rendezvous() = default;
  // The id for Join: printable, without spaces, at most 100 bytes. Keep it secret: whoever has it
  // can join.
  virtual const std::string& id() const = 0;
};

struct Place {
  uint32_t rank = 0, size = 1;
};

class Member {
 public:
  // Joins as rank `place.rank` and waits until all `place.size` ranks have joined.
  static StatusOr<std::shared_ptr<Member>> Join(std::string_view id, const Place& place,
                                                Deadline deadline);
  // Says goodbye. The other ranks go on. The group ends only when one of them calls a Tell that
  // needs a text of this rank.
  virtual ~Member() = default;

  virtual const Place& place() const = 0;

  // Tells `word` to all ranks, waits for the texts of all, and returns the texts by rank. All ranks
  // call Tell, in the same order. kInvalidArgument: `word` has more than kMaxTellBytes; nothing was
  // told.
  virtual StatusOr<std::vector<std::string>> Tell(std::string_view word, Deadline deadline) = 0;

  // Returns OK, or kAborted if the group has ended: "rank 2 was lost: ...", "rank 1 failed: ...".
  virtual Status status() const = 0;
  // Waits until the group has ended, and returns why. OK: the group has not ended by `deadline`.
  virtual Status AwaitEnd(Deadline deadline) const = 0;
  // Ends the group for all: kAborted "rank <this one> failed: <reason>". If several ranks end it,
  // all report the reason that reached the rendezvous first. When End returns, status() is not OK.
  // Takes up to 2 s if the rendezvous' process hangs.
  virtual void End(const Status& reason) = 0;
  // Sets the callback for the end of the group; null: none. It replaces the previous callback, and
  // runs soon if the group has already ended. OnEnd waits for a running callback, except when
  // called from one. So the previous callback never runs after OnEnd returns. A communicator sets
  // its own callback; users of a communicator call AwaitEnd or status() instead.
  virtual void OnEnd(std::function<void(const Status&)> on_end) = 0;
};

}  // namespace longhaul::collective
