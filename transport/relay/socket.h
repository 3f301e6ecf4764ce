// Options for the sockets of a relay and of workers that dial one. Pure functions of a descriptor.
#pragma once

namespace longhaul::relay {

// TCP's keepalive. After `idle_s` seconds without a byte from the peer, the kernel sends a probe,
// and then one every `interval_s` seconds. After `asks` probes without an answer the peer counts as
// gone.
struct KeepAlive {
  int idle_s = 0, interval_s = 0, asks = 0;
  constexpr int total_s() const { return idle_s + interval_s * asks; }
};
// For a joined pair. The probes also keep the address mappings of routers on the way. The time is
// long because a line may fail for a while.
inline constexpr KeepAlive kJoinedKeepAlive = {.idle_s = 15, .interval_s = 5, .asks = 3};
// For a worker's connection that waits at a relay. If its line fails, the connection closes, and
// the worker can dial again before the link gives up its peer (LinkOptions::peer_timeout).
inline constexpr KeepAlive kWaitingKeepAlive = {.idle_s = 3, .interval_s = 1, .asks = 4};

// Makes the TCP socket `fd` send without delay, and keeps the kernel's send buffer small. A slow
// line would otherwise queue seconds of data there. Also calls SetKeepAlive. Both functions ignore
// errors.
void PrepareSocket(int fd, const KeepAlive& keep_alive);
void SetKeepAlive(int fd, const KeepAlive& keep_alive);
// Returns true if errno says that a nonblocking call would have blocked, or was interrupted.
bool WouldBlock();

}  // namespace longhaul::relay
