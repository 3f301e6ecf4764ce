// Options of the sockets of a relay and of workers that dial one. Pure functions of a descriptor.
#pragma once

namespace longhaul::relay {

// A peer that says nothing for `idle_s` is asked, every `interval_s`; after `asks` questions
// without an answer it is gone.
struct KeepAlive {
  int idle_s = 0, interval_s = 0, asks = 0;
  constexpr int total_s() const { return idle_s + interval_s * asks; }
};
// A joined pair: probes keep the mappings of routers on the way, and a line may fail for a while.
inline constexpr KeepAlive kJoinedKeepAlive = {.idle_s = 15, .interval_s = 5, .asks = 3};
// A connection that waits at a relay: it is given up before the link ends for want of its peer.
inline constexpr KeepAlive kWaitingKeepAlive = {.idle_s = 3, .interval_s = 1, .asks = 4};

// Sends without delay and keeps the kernel's send buffer small: a slow line would otherwise queue
// seconds of data there.
void PrepareSocket(int fd, const KeepAlive& keep_alive);
void SetKeepAlive(int fd, const KeepAlive& keep_alive);
// Whether errno, after a nonblocking call, says that the call would have had to wait.
bool WouldBlock();

}  // namespace longhaul::relay
