// Limits and identities of a coordinator. Plain data.
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "coordinator/state/books/health_book.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// A relay: it carries links between workers that do not reach each other.
struct RelayOffer {
  Relay relay;
  std::string address;  // transport/relay/ticket.h
  std::string secret;
};

struct StateOptions {
  absl::Duration heartbeat_interval = absl::Seconds(1);
  // Silence after which the session of a worker that serves no run ends. The run file says it for
  // workers that serve a run. A closed stream ends at once.
  absl::Duration session_timeout = absl::Seconds(10);
  // How long workers may take to time their layers, and to become ready (fetch data, build the
  // model, open links).
  absl::Duration measure_timeout = absl::Seconds(120);
  absl::Duration ready_timeout = absl::Minutes(30);
  // How long two neighbours may take to measure their link; then the plan goes without.
  absl::Duration probe_limit = absl::Seconds(10);
  // How long round trips of candidates are measured before the first plan, and then goodput. Links
  // that are not measured by then are estimated.
  absl::Duration survey_limit = absl::Seconds(30);
  // How long a worker may try to reach another one.
  absl::Duration reach_limit = absl::Seconds(5);
  // How long a running run may stand still, if no link is in trouble and every worker is there. At
  // least 20 median steps; ten times that before the first step of an epoch. Workers notice their
  // own hung threads before that.
  absl::Duration progress_timeout = absl::Seconds(120);
  // When runs do without a worker that was lost again and again.
  HealthOptions health;
  // The coordinator's own relay; nullopt: it has none.
  std::optional<RelayOffer> relay;
  // Random; the links by which workers try to reach each other prove a secret made of it.
  std::string reach_secret;
  std::string version;
};

}  // namespace longhaul::coordinator
