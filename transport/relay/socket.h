// Options for the sockets of a relay and of workers that dial one. Pure functions of a descriptor.
#pragma once

namespace longhaul::relay {

// A peer that says nothing for `idle_s` is asked, every `interval_s`; after `asks` questions
// without an answer it is gone.
struct KeepAlive {
  int idle_s = 0, interval_s = 0, asks = 0;
  constexpr int total_s() const { return idle_s + interval_s * asks; }
};
// For a joined pair. Probes keep the mappings of routers on the way; a line may fail for a while.
inline constexpr KeepAlive kJoinedKeepAlive = {.idle_s = 15, .interval_s = 5, .asks = 3};
// For a connection that waits at a relay. It closes before the link ends for lack of its peer.
inline constexpr KeepAlive kWaitingKeepAlive = {.idle_s = 3, .interval_s = 1, .asks = 4};

// Sends without delay and keeps the kernel's send buffer small: a slow line would otherwise queue
// seconds of data there.
void PrepareSocket(int fd, const KeepAlive& keep_alive);
void SetKeepAlive(int fd, const KeepAlive& keep_alive);
// Whether errno, after a nonblocking call, means that the call would have blocked.
bool WouldBlock();

}  // namespace longhaul::relay
