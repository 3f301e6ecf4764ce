// Time limits and secrets of a coordinator. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/ids.h"
#include "coordinator/state/books/health_book.h"
#include "coordinator/state/member_limits.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// A relay, which carries links between workers that cannot reach each other.
struct RelayOffer {
  Relay relay;
  std::string address;  // relay::Way::address (transport/relay/ticket.h)
  std::string secret;   // tickets for the relay are made from it
};

// The leader whose decisions the state machine makes (coordinator/lead). Each process that leads
// has a tenure of its own, so two leaders never make assignments with the same hash.
struct Lead {
  uint64_t term = 0;
  Tenure tenure;
};

struct StateOptions {
  Lead lead;
  // The number of the newest change in the store when this process began to lead.
  uint64_t newest_change = 0;
  // How often each worker sends a heartbeat.
  absl::Duration heartbeat_interval = absl::Seconds(1);
  // A worker without a run loses its session if it is silent for this long. For workers with a run,
  // the run file has the limit. A closed stream ends the session at once.
  absl::Duration session_timeout = absl::Seconds(10);
  // How long workers may take to time their layers. After that, planning leaves out the late worker
  // or, if the plan needs it, is interrupted.
  absl::Duration measure_timeout = absl::Seconds(120);
  // How long stages may take to become ready: to fetch data, build the model and open links. After
  // that the run is interrupted.
  absl::Duration ready_timeout = absl::Minutes(30);
  // How long two neighbours may measure their link. After that the plan is made without the rate of
  // this link.
  absl::Duration probe_limit = absl::Seconds(10);
  // For plans that choose their workers among candidates. Before the first plan, round trips
  // between candidates are measured for at most this long, and then goodput for at most this long.
  // The planner estimates the links that were not measured in time.
  absl::Duration survey_limit = absl::Seconds(30);
  // How long a worker may try to connect to another one.
  absl::Duration reach_limit = absl::Seconds(5);
  // A running run without progress is interrupted, if no link is in trouble and every worker is
  // connected. The limit is this time or 20 median steps, whichever is longer. Before the first
  // step of an epoch (attempt), predicted steps count and the limit is ten times as long. Workers
  // notice their own hung threads earlier.
  absl::Duration progress_timeout = absl::Seconds(120);
  // When and for how long runs leave out a worker that was lost again and again.
  HealthOptions health;
  // The coordinator's own relay; nullopt: it has none.
  std::optional<RelayOffer> relay;
  // Random bytes, new in each process of the coordinator. Workers test whether they reach each
  // other over links whose secrets are derived from these bytes.
  std::string reach_secret;
  // Files of checkpoints lie in object stores in pieces of at most this size (v1::StoredFolder).
  // Servers take one upload of 5 GB at most, and a piece that fails is sent again whole.
  uint64_t stored_piece_bytes = uint64_t{256} << 20;
  // What members may have at most.
  MemberLimits limits;
  // Runs may have hooks: programs of the run file that the coordinator runs. See threats.md.
  bool allow_hooks = false;
  std::string version;  // of the coordinator, for people
  // The coordinator's machine (base/machine.h). Empty: not known.
  std::string machine;
};

}  // namespace longhaul::coordinator
