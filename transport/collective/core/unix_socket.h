// Unix stream sockets in the abstract namespace: a name is not a file, and vanishes with its
// socket. Every process on the machine can see and dial these sockets. So callers check the user
// and process of each peer, which the kernel reports (PeerOf).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace longhaul::collective::internal {

// All sockets are non-blocking and closed on exec. A name has at most 107 bytes. Errors without a
// comment come from the operating system.
StatusOr<UniqueFd> ListenUnix(std::string_view name);
// Waits while the listener's queue is full, until `deadline` (kDeadlineExceeded). kUnavailable: no
// process listens at this name.
StatusOr<UniqueFd> ConnectUnix(std::string_view name, Deadline deadline);
// Never blocks. Returns an empty descriptor if no connection waits.
StatusOr<UniqueFd> AcceptUnix(const UniqueFd& listener);

struct PeerProcess {
  int64_t process = 0;  // process id; 0: unknown, for example in another process namespace
  bool same_user = false;
};
PeerProcess PeerOf(const UniqueFd& socket);

// For messages. Returns "its process 4711", or "its process" if `process` is 0.
std::string NameProcess(int64_t process);

// Wakes a thread that sleeps in poll(): fd() is readable from Wake until Clear.
class WakeFd {
 public:
  static StatusOr<WakeFd> Create();
  int fd() const { return fd_.get(); }
  void Wake() const;
  void Clear() const;

 private:
  explicit WakeFd(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

// Returns the time until `deadline` for poll(): milliseconds, rounded up, at most one hour.
int PollTimeout(Deadline deadline);
// Waits for `events` of poll() on `fd`. True: one has happened, or the descriptor has an error.
// False: the deadline passed.
bool AwaitReady(int fd, short events, Deadline deadline);

}  // namespace longhaul::collective::internal
