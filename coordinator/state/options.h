// Limits and identities of a coordinator. Plain data.
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "coordinator/state/books/health_book.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// A relay: it carries links between workers that cannot reach each other.
struct RelayOffer {
  Relay relay;
  std::string address;  // transport/relay/ticket.h
  std::string secret;
};

struct StateOptions {
  absl::Duration heartbeat_interval = absl::Seconds(1);
  // Silence after which the session of a worker without a run ends. The run file has the limit for
  // workers with a run. A closed stream ends at once.
  absl::Duration session_timeout = absl::Seconds(10);
  // How long workers may take to time their layers, and to become ready (fetch data, build the
  // model, open links).
  absl::Duration measure_timeout = absl::Seconds(120);
  absl::Duration ready_timeout = absl::Minutes(30);
  // Time limit for two neighbours to measure their link; after that the plan does without.
  absl::Duration probe_limit = absl::Seconds(10);
  // Time in which round trips of candidates, and then goodput, are measured before the first plan.
  // Links that are not measured by then are estimated.
  absl::Duration survey_limit = absl::Seconds(30);
  // How long a worker may try to reach another one.
  absl::Duration reach_limit = absl::Seconds(5);
  // How long a running run may stand still, if no link is in trouble and every worker is connected.
  // At least 20 median steps; ten times that before the first step of an epoch. Workers notice
  // their own hung threads before that.
  absl::Duration progress_timeout = absl::Seconds(120);
  // When runs leave out a worker that was lost again and again.
  HealthOptions health;
  // The coordinator's own relay; nullopt: it has none.
  std::optional<RelayOffer> relay;
  // Random; the links by which workers try to reach each other prove a secret derived from it.
  std::string reach_secret;
  std::string version;
};

}  // namespace longhaul::coordinator
