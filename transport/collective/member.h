// Who is in a group, what they tell each other before they exchange tensors, and who is lost. Every
// backend uses it; tensors do not travel here.
//
//   // In one process, best that of rank 0. The id goes to the others by any way.
//   LH_ASSIGN_OR_RETURN(auto rendezvous, Rendezvous::Open());
//   std::string id = rendezvous->id();
//   // Each rank:
//   LH_ASSIGN_OR_RETURN(auto member, Member::Join(id, {.rank = 1, .size = 4}, deadline));
//   LH_ASSIGN_OR_RETURN(std::vector<std::string> all, member->Tell("what others need", deadline));
//
// The rendezvous is a thread with a Unix socket, to which every member keeps a connection. A
// connection that closes without a goodbye is a lost rank: the rendezvous tells all others, whose
// `on_end` runs. It is also how a rank ends the group (End). The process of the rendezvous should
// be the one of rank 0: if it dies, the members say that rank 0 is lost.
//
// Threads: all methods are thread-safe. `on_end` runs once, on the member's own thread, with no
// lock held; it may call any method, but must not destroy the member.
//
// Errors: kAborted once the group has ended, kDeadlineExceeded with the ranks that did not come,
// kInvalidArgument for an id that is none, a rank out of range or taken, sizes that differ. A rank
// that is refused so has not joined: the others still wait for it. One whose deadline passes has
// given up, and ends the group.
#ifndef LONGHAUL_TRANSPORT_COLLECTIVE_MEMBER_H_
#define LONGHAUL_TRANSPORT_COLLECTIVE_MEMBER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace longhaul::collective {

// A group larger than this is no group inside a machine.
inline constexpr uint32_t kMaxRanks = 64;
// What a member may tell the others at once.
inline constexpr size_t kMaxTellBytes = size_t{64} << 10;

class Rendezvous {
 public:
  static StatusOr<std::unique_ptr<Rendezvous>> Open();
  // Ends the group, if not all ranks have said goodbye. So it goes last.
  virtual ~Rendezvous() = default;
  // Printable, without spaces, at most 100 bytes; holds a secret, without which nobody joins.
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
  // Says goodbye: the others go on, until one of them needs this rank in a Tell.
  virtual ~Member() = default;

  virtual const Place& place() const = 0;

  // What each rank said in this call, by rank: all ranks make it, in the same order among their
  // calls of it.
  virtual StatusOr<std::vector<std::string>> Tell(std::string_view word, Deadline deadline) = 0;

  // OK, or why the group has ended: "rank 2 was lost: ...", "rank 1 failed: ...".
  virtual Status status() const = 0;
  // Waits until the group has ended; OK if it has not by then.
  virtual Status AwaitEnd(Deadline deadline) const = 0;
  // Ends the group for all: kAborted "rank <this one> failed: <reason>". What the rendezvous heard
  // first is what all say. When it returns, status() is not OK. Takes up to 2 s where the
  // rendezvous's process hangs.
  virtual void End(const Status& reason) = 0;
  // Replaces what was set before. Runs at once where the group has ended already. Returns when no
  // earlier one runs any more (but for one that calls it), so after null none will run. A
  // communicator takes this for itself; its users wait for AwaitEnd or ask status().
  virtual void OnEnd(std::function<void(const Status&)> on_end) = 0;
};

}  // namespace longhaul::collective

#endif  // LONGHAUL_TRANSPORT_COLLECTIVE_MEMBER_H_
