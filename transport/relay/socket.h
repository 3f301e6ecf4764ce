// What a relay and those who dial it make of their sockets. Pure functions of a descriptor.
#ifndef LONGHAUL_TRANSPORT_RELAY_SOCKET_H_
#define LONGHAUL_TRANSPORT_RELAY_SOCKET_H_

namespace longhaul::relay {

// A peer that says nothing for `idle_s` is asked, every `interval_s`; after `asks` questions
// without an answer it is gone.
struct KeepAlive {
  int idle_s = 0, interval_s = 0, asks = 0;
  constexpr int total_s() const { return idle_s + interval_s * asks; }
};
// Two that are joined: routers between keep their mappings, and a line may be away for a while.
inline constexpr KeepAlive kJoinedKeepAlive = {.idle_s = 15, .interval_s = 5, .asks = 3};
// One that waits at a relay: sooner than a link ends without its peer.
inline constexpr KeepAlive kWaitingKeepAlive = {.idle_s = 3, .interval_s = 1, .asks = 4};

// Sends at once, and keeps little in the kernel before the line: else a slow end has seconds of it.
void PrepareSocket(int fd, const KeepAlive& keep_alive);
void SetKeepAlive(int fd, const KeepAlive& keep_alive);
// Whether errno, after a nonblocking call, says that the call would have had to wait.
bool WouldBlock();

}  // namespace longhaul::relay

#endif  // LONGHAUL_TRANSPORT_RELAY_SOCKET_H_
