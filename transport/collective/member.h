// Membership of a group: its ranks, small messages before tensors are exchanged, and the detection
// of lost ranks. Every backend uses it; tensors do not travel here.
//
//   // In one process, best that of rank 0. The id goes to the others by any way.
//   LH_ASSIGN_OR_RETURN(auto rendezvous, Rendezvous::Open());
//   std::string id = rendezvous->id();
//   // Each rank:
//   LH_ASSIGN_OR_RETURN(auto member, Member::Join(id, {.rank = 1, .size = 4}, deadline));
//   LH_ASSIGN_OR_RETURN(std::vector<std::string> all, member->Tell("what others need", deadline));
//
// The rendezvous is a thread with a Unix socket, and every member keeps a connection to it. A
// connection that closes without a goodbye is a lost rank: the rendezvous tells all others, whose
// `on_end` runs. A rank can also end the group itself (End). Run the rendezvous in rank 0's
// process: if it dies, members say that rank 0 is lost.
//
// Threads: all methods are thread-safe. `on_end` runs once, on the member's own thread, without
// locks; it may call any method, but must not destroy the member.
//
// Errors: kAborted once the group has ended; kDeadlineExceeded names the ranks that did not come;
// kInvalidArgument for an invalid id, a rank out of range or taken, or different sizes. A rank
// refused in this way has not joined, and the others still wait for it. A rank whose deadline
// passes ends the group.
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

// A larger group does not fit one machine.
inline constexpr uint32_t kMaxRanks = 64;
// Maximum size of one Tell.
inline constexpr size_t kMaxTellBytes = size_t{64} << 10;

class Rendezvous {
 public:
  static StatusOr<std::unique_ptr<Rendezvous>> Open();
  // Ends the group unless all ranks have said goodbye: destroy it last.
  virtual ~Rendezvous() = default;
  // Printable, without spaces, at most 100 bytes. Holds the secret that joining requires.
  virtual const std::string& id() const = 0;
};

struct Place {
  uint32_t rank = 0, size = 1;
};

class Member {
 public:
  // Waits until all ranks have joined.
  static StatusOr<std::shared_ptr<Member>> Join(std::string_view id, const Place& place,
                                                Deadline deadline);
  // Says goodbye. The other ranks go on until one of them needs this rank in a Tell.
  virtual ~Member() = default;

  virtual const Place& place() const = 0;

  // Exchanges a text with all ranks; returns all texts by rank. All ranks call it, in the same
  // order.
  virtual StatusOr<std::vector<std::string>> Tell(std::string_view word, Deadline deadline) = 0;

  // Returns OK, or why the group has ended: "rank 2 was lost: ...", "rank 1 failed: ...".
  virtual Status status() const = 0;
  // Waits until the group has ended. OK: it has not ended by `deadline`.
  virtual Status AwaitEnd(Deadline deadline) const = 0;
  // Ends the group for all: kAborted "rank <this one> failed: <reason>". If several ranks end it,
  // all report the reason that reached the rendezvous first. When it returns, status() is not OK.
  // Takes up to 2 s if the rendezvous' process hangs.
  virtual void End(const Status& reason) = 0;
  // Replaces the previous callback, and runs the new one at once if the group has already ended.
  // Waits for a running callback (unless called from it), so that after setting null none runs. A
  // communicator sets it for itself; users of a communicator call AwaitEnd or status().
  virtual void OnEnd(std::function<void(const Status&)> on_end) = 0;
};

}  // namespace longhaul::collective
