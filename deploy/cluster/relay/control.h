// Requests to a cluster's relay (relay.h), over a Unix socket in the cluster's private folder. A
// connection carries one JSON document in each direction.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "run/file/link_quality.h"

namespace longhaul::relay {

inline constexpr uint32_t kMostPorts = 256;

// A worker's interface on the relay's side.
struct RelayPort {
  std::string device;     // an interface in the relay's network namespace
  bool connected = true;  // false: the relay drops packets from and to this worker
  friend bool operator==(const RelayPort&, const RelayPort&) = default;
};

struct RelayConfig {
  // In the order of the workers, at most kMostPorts. A frame to MacAddress(n) leaves through the
  // n-th port, counted from 1.
  std::vector<RelayPort> ports;
  std::vector<LinkQuality> paths;  // paths[from * ports.size() + to], both counted from 0
  friend bool operator==(const RelayConfig&, const RelayConfig&) = default;
};

// Counters since the relay's start. A packet has up to 64 KB (GSO).
struct RelayReport {
  uint64_t arrived_packets = 0;     // taken by the relay
  uint64_t lost_packets = 0;        // by `loss`, or because a worker is disconnected
  uint64_t overflowed_packets = 0;  // no room for more bytes in flight
  uint64_t missed_packets = 0;      // arrived faster than the relay read them
  uint64_t refused_packets = 0;     // the receiver's interface had no room
  uint64_t failed_packets = 0;      // could not be sent otherwise: the relay's log says why
  uint64_t held_bytes = 0;          // in flight now
  uint32_t threads = 0;             // that forward packets
  absl::Duration cpu_time;          // of the whole process
};

// Returns the Ethernet address of worker `number`, counted from 1: "02:6c:68:00:00:01".
std::string MacAddress(uint32_t number);
// The inverse of MacAddress: returns the worker's number, or 0 for a broadcast or another address.
// `address` has 6 bytes.
uint32_t NumberOfMac(const uint8_t* address);

std::string ToJson(const RelayConfig& config);
// kInvalidArgument: not a configuration.
StatusOr<RelayConfig> RelayConfigFromJson(std::string_view text);

// Asks the relay at `socket_path` for its report. If `config` is not null, first configures the
// relay. kUnavailable: no relay listens, or none answers until `deadline`. kInvalidArgument: the
// path is too long. kInternal: the answer cannot be read. If the relay refuses: the relay's error.
StatusOr<RelayReport> AskRelay(const std::string& socket_path, const RelayConfig* config,
                               Deadline deadline);

// As AskRelay, for a relay that was just started: asks again until the relay answers or the
// deadline passes. `check` runs between the attempts, on the calling thread, for example to see
// whether the relay is still alive. If `check` returns an error, returns this error.
StatusOr<RelayReport> AskStartedRelay(
    const std::string& socket_path, const RelayConfig* config, Deadline deadline,
    const std::function<Status()>& check = [] { return absl::OkStatus(); });

// The relay's side.
struct Request {
  bool configure = false;  // false: only asks for the report
  RelayConfig config;      // if `configure`
};
// Returns a nonblocking listening socket, for ServeRequest, to which only this user may connect.
// Replaces an old socket at the path. kInvalidArgument: the path is too long. Other errors: by
// errno.
StatusOr<UniqueFd> ListenForRequests(const std::string& socket_path);
// Serves one connection that waits at `listener`: reads a request, calls `serve` on the calling
// thread, sends the result. Does nothing if no connection waits. Reading and sending take at most
// `patience` each, whatever the other side does; a failure ends only this connection.
void ServeRequest(int listener, const std::function<StatusOr<RelayReport>(const Request&)>& serve,
                  absl::Duration patience = absl::Seconds(2));

}  // namespace longhaul::relay
