// Unix stream sockets in the abstract namespace: names that no file has and that go with their
// socket. Everybody on the machine can see and dial them, so whoever connects is checked: the
// kernel says which user and process it is.
#ifndef LONGHAUL_TRANSPORT_COLLECTIVE_CORE_UNIX_SOCKET_H_
#define LONGHAUL_TRANSPORT_COLLECTIVE_CORE_UNIX_SOCKET_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace longhaul::collective::internal {

// All sockets are non-blocking and closed on exec.
StatusOr<UniqueFd> ListenUnix(std::string_view name);
// kUnavailable: nobody listens there. Waits while the listener's queue is full.
StatusOr<UniqueFd> ConnectUnix(std::string_view name, Deadline deadline);
// Nothing owned: nobody is waiting.
StatusOr<UniqueFd> AcceptUnix(const UniqueFd& listener);

struct PeerProcess {
  int64_t process = 0;  // 0: not of this process's namespace
  bool same_user = false;
};
PeerProcess PeerOf(const UniqueFd& socket);

// "its process 4711", or "its process" where the number is not known.
std::string NameProcess(int64_t process);

// Something to wake a poll with: readable after Wake, until Clear.
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

// Milliseconds for poll, rounded up; at most an hour.
int PollTimeout(Deadline deadline);
// Waits for `events` on `fd`, or for `deadline` (false). Errors of the descriptor are readiness.
bool AwaitReady(int fd, short events, Deadline deadline);

}  // namespace longhaul::collective::internal

#endif  // LONGHAUL_TRANSPORT_COLLECTIVE_CORE_UNIX_SOCKET_H_
